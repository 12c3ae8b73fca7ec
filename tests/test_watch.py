"""Which files are watched, and that both watchers notice what happens to them."""

from __future__ import annotations

import os
import shutil
import sys
import threading

import pytest

from servery.errors import ConfigError
from servery.supervisor import watch

DELAY = 0.02


@pytest.fixture(params=[watch.WatchfilesWatcher, watch.StatWatcher])
def opened(request, tmp_path):
    """A function that makes a watcher of `tmp_path` and gives one to wait for the next changes."""
    rules = []

    def open_it(include=(), exclude=()):
        rules.append(watch.Rules([str(tmp_path)], include, exclude))
        watcher = request.param(rules[0], DELAY, threading.Event())

        def changes(*expected):
            """Wait until all of `expected` were reported; nothing else may be."""
            missing = {str(tmp_path / name) for name in expected}
            allowed = frozenset(missing)
            while missing:
                found = set(watcher.wait())
                assert found <= allowed
                missing -= found

        return changes

    return open_it


@pytest.mark.parametrize(
    ("path", "include", "exclude", "wanted"),
    [
        ("app.py", (), (), True),
        ("pkg/deep/app.py", (), (), True),
        ("page.html", (), (), False),
        ("page.html", ("*.html",), (), True),
        ("pkg/page.html", ("pkg/*.html",), (), True),
        ("other/page.html", ("pkg/*.html",), (), False),
        ("app.py", ("*.html",), (), True),
        ("app.py", (), ("app.py",), False),
        ("app.py", ("app.py",), ("*.py",), False),
        ("pkg/tests/t.py", (), ("tests",), False),
        ("pkg/tests/t.py", (), ("tests/",), False),
        ("pkg/tests/t.py", (), ("pkg/tests",), False),
        ("pkg/tests.py", (), ("tests",), True),
        (".hidden.py", (), (), False),
        (".hidden.py", (".hidden.py",), (), True),
        (".env", (".env",), (), True),
        (".config/a.py", (), (), False),
        (".config/a.py", (".*",), (), True),
        ("~draft.py", (), (), False),
        ("__pycache__/a.py", (), (), False),
        (".git/a.py", (".*",), (), False),
        (".venv/lib/a.py", (".*",), (), False),
        ("web/node_modules/x/a.py", (), (), False),
    ],
)
def test_rules(tmp_path, path, include, exclude, wanted):
    rules = watch.Rules([str(tmp_path)], include, exclude)
    assert rules.covers(str(tmp_path / path)) is wanted


def test_an_excluded_directory_is_meant_by_its_path(tmp_path, monkeypatch):
    for name in ("build", "src/build"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    rules = watch.Rules([""], exclude=[str(tmp_path / "build")])
    assert not rules.covers(str(tmp_path / "build" / "lib" / "a.py"))
    assert rules.covers(str(tmp_path / "src" / "build" / "a.py"))


def test_files_elsewhere_and_hidden_roots(tmp_path):
    hidden = tmp_path / ".work"
    hidden.mkdir()
    rules = watch.Rules([str(hidden)])
    assert rules.covers(str(hidden / "a.py"))
    assert not rules.covers(str(tmp_path / "a.py"))
    assert not rules.covers(str(tmp_path / ".worker" / "a.py"))


def test_a_root_must_be_a_directory(tmp_path):
    with pytest.raises(ConfigError, match="reload_dir"):
        watch.Rules([str(tmp_path / "none")])


def test_new_changed_replaced_moved_and_deleted_files(opened, tmp_path):
    (tmp_path / "a.py").write_text("1")
    changes = opened()
    (tmp_path / "b.py").write_text("new")
    changes("b.py")
    (tmp_path / "a.py").write_text("changed")
    changes("a.py")
    (tmp_path / "new.txt").write_text("as editors save")
    os.replace(tmp_path / "new.txt", tmp_path / "a.py")
    changes("a.py")
    (tmp_path / "a.py").rename(tmp_path / "c.py")
    changes("a.py", "c.py")
    (tmp_path / "b.py").unlink()
    changes("b.py")


def test_new_directories_are_watched_too(opened, tmp_path):
    changes = opened()
    (tmp_path / "pkg").mkdir()
    (tmp_path / "mark.py").touch()
    changes("mark.py")
    (tmp_path / "pkg" / "a.py").write_text("1")
    changes("pkg/a.py")
    shutil.rmtree(tmp_path / "pkg")
    changes("pkg/a.py")


def test_what_does_not_matter_is_not_reported(opened, tmp_path):
    for name in ("__pycache__", ".git", "node_modules", "skipped"):
        (tmp_path / name).mkdir()
    changes = opened(include=["*.html"], exclude=["skipped"])
    for name in ("__pycache__/a.py", ".git/a.py", "node_modules/a.py", "skipped/a.py", "a.txt", ".a.py"):
        (tmp_path / name).write_text("1")
    (tmp_path / "page.html").write_text("1")
    changes("page.html")


def test_a_circle_of_links_has_an_end(opened, tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "up").symlink_to(tmp_path)
    (tmp_path / "pkg" / "gone.py").symlink_to(tmp_path / "nowhere")
    changes = opened()
    (tmp_path / "pkg" / "a.py").write_text("1")
    changes("pkg/a.py")


@pytest.mark.parametrize("kind", [watch.WatchfilesWatcher, watch.StatWatcher])
def test_an_interrupt_ends_the_waiting(tmp_path, kind):
    stop = threading.Event()
    watcher = kind(watch.Rules([str(tmp_path)]), 0.2, stop)
    stop.set()
    (tmp_path / "a.py").write_text("1")
    assert watcher.wait() == []


def test_watchfiles_is_used_when_it_is_there(tmp_path, monkeypatch):
    rules = watch.Rules([str(tmp_path)])
    assert watch.open_watcher(rules, DELAY, threading.Event()).name == "watchfiles"
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert watch.open_watcher(rules, DELAY, threading.Event()).name == "stat"
