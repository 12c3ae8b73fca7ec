"""cli.py and show.py: what a user types, what he reads, and the exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest

from servery._version import __version__
from servery.cli import main
from servery.config import GROUPS, SETTINGS
from servery.show import toml
from servery.sources import load

APP = "async def app(scope, receive, send):\n    pass\n"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("SERVERY_")]:
        monkeypatch.delenv(variable)
    return tmp_path


def servery(*arguments, **environ):
    """Run the command in the project's directory."""
    return subprocess.run(
        [sys.executable, "-m", "servery", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environ},
        timeout=30,
    )


def refusal(capsys, *arguments) -> str:
    """The one line on stderr for arguments that cannot work."""
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("servery: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("servery: error: ").rstrip()


# --- help and version --------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_shows_every_setting_and_fits(capsys, monkeypatch, flag):
    monkeypatch.setenv("COLUMNS", "40")
    assert main([flag]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    positions = [text.index(f"\n{group}:\n") for group in GROUPS]
    assert positions == sorted(positions)
    for name in SETTINGS.keys() - {"app"}:
        assert f"--{name.replace('_', '-')}" in text
    words = " ".join(text.split())
    assert "idle time between two requests [5 seconds]" in words
    assert "whole head [65536 bytes]" in words
    assert "--access-log, --no-access-log one line for each request [on]" in words
    assert "a template with %-fields [text]" in words


def test_version():
    done = servery("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"servery {__version__}\n", "")


def test_help_and_version_need_few_imports():
    code = "import sys\nfrom servery.cli import main\nmain(['--version'])\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    late = {
        "asyncio",
        "socket",
        "ssl",
        "logging",
        "json",
        "tomllib",
        "difflib",
        "servery.apps",
        "servery.server",
    }
    assert late.isdisjoint(done.stdout.split())


def test_verbose_belongs_to_version(capsys):
    assert refusal(capsys, "--verbose", "m:a") == (
        "--verbose belongs to --version; for more in the log use --log-level debug"
    )


# --- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "no application is named: give MODULE:ATTR, as in: servery main:app"),
        (["--check-config"], "no application is named: give MODULE:ATTR, as in: servery main:app"),
        (["--prot", "80", "m:a"], "unknown flag '--prot'; did you mean '--port'?"),
        (["--accesslog=1", "m:a"], "unknown flag '--accesslog'; did you mean '--access-log'?"),
        (["--xyzzy"], "unknown flag '--xyzzy'; servery --help lists all flags"),
        (["--daemon", "m:a"], "unknown flag '--daemon'"),
        (["--timeout-h", "4", "m:a"], "unknown flag '--timeout-h'"),
        (["m:a", "n:b"], "unexpected argument 'n:b': only one application can be served"),
        (["m:a", "--port"], "argument --port: expected one argument; servery --help lists all flags"),
        (["m:a", "--port", "http"], "--port: 'http' is not a whole number, 0 to 65535"),
        (["m:a", "--port", "-1"], "--port: -1 is not a whole number, 0 to 65535"),
        (["m:a", "--uds", "/x", "--fd", "0"], "uds and fd both say where to listen"),
        (["m:a", "--config", "none.toml"], "--config: cannot read 'none.toml': No such file or directory"),
    ],
)
def test_refusals(capsys, arguments, text):
    assert text in refusal(capsys, *arguments)


def test_a_variable_is_read(capsys, monkeypatch):
    monkeypatch.setenv("SERVERY_LOG_LEVEL", "loud")
    assert refusal(capsys, "m:a").startswith("SERVERY_LOG_LEVEL: 'loud' is not one of critical, error")


def test_a_refusal_of_the_process(project):
    done = servery("m:a", "--backlog", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "servery: error: --backlog: 0 is not a whole number, 1 or more\n"


# --- --check-config ----------------------------------------------------------------------------------


def test_check_config_imports_the_application(project):
    (project / "site_ok.py").write_text(APP)
    done = servery("--check-config", "site_ok:app")
    assert (done.returncode, done.stdout, done.stderr) == (0, "configuration is valid\n", "")
    done = servery("--check-config", SERVERY_APP="site_ok:app")
    assert done.returncode == 0


def test_a_missing_application(project):
    done = servery("--check-config", "nowhere:app")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("servery: error: module 'nowhere' was not found in ")
    assert done.stderr.count("\n") == 1


def test_the_users_own_error_comes_with_his_traceback(project):
    (project / "settings_bad.py").write_text("VALUE = {}['key']\n")
    (project / "site_bad.py").write_text("import settings_bad\n")
    done = servery("--check-config", "site_bad:app")
    assert (done.returncode, done.stdout) == (3, "")
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2] == "KeyError: 'key'"
    assert lines[-1] == "servery: error: module 'site_bad' cannot be imported: it raised KeyError"
    files = [line for line in lines if line.startswith("  File ")]
    assert [os.path.basename(line.split('"')[1]) for line in files] == ["site_bad.py", "settings_bad.py"]


def test_a_syntax_error_shows_its_line(project):
    (project / "site_bad.py").write_text("x = 1\ny = (\n")
    done = servery("--check-config", "site_bad:app")
    assert done.returncode == 3
    assert f'File "{project / "site_bad.py"}", line 2' in done.stderr
    assert "importlib" not in done.stderr
    assert "apps.py" not in done.stderr


def test_an_interrupt_while_importing(project):
    lines = (
        "import signal, time",
        "signal.signal(signal.SIGINT, signal.default_int_handler)",  # a shell's background jobs ignore it
        "signal.raise_signal(signal.SIGINT)",
        "time.sleep(9)",
    )
    (project / "site_slow.py").write_text("\n".join(lines))
    done = servery("--check-config", "site_slow:app")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "servery: interrupted\n")


# --- --print-config ----------------------------------------------------------------------------------


def test_print_config_shows_values_and_sources(project, capsys, monkeypatch):
    (project / "pyproject.toml").write_text("[tool.servery]\nlog-level = 'debug'\n")
    monkeypatch.setenv("SERVERY_BIND", "unix:/x,[::]:80")
    assert main(["--print-config", "m:a", "--no-date-header", "--uds-mode", "0660"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(SETTINGS)
    found = dict(map(str.rstrip, line.rsplit("  # ", 1)) for line in lines)
    assert found['app = "m:a"'] == "command line"
    assert found['log_level = "debug"'] == "pyproject.toml [tool.servery]"
    assert found['bind = ["unix:/x", "[::]:80"]'] == "SERVERY_BIND"
    assert found["date_header = false"] == "--no-date-header"
    assert found['uds_mode = "660"'] == "--uds-mode"
    assert found["port = 8000"] == "default"
    assert found["# limit_body_size is not set"] == "default"
    assert len({line.rindex("  # ") for line in lines}) == 1


def test_print_config_can_be_read_back(project, capsys):
    flags = [
        "--timeout-lifespan-startup",
        "none",
        "--bind",
        "a:1",
        "--header",
        'X-A: "\\\xe9\tb"',
        "--uds-mode",
    ]
    assert (
        main(["--print-config", "m:a", *flags, "600", "--bind", "unix:/\U0001f600", "--app-dir", "x\x7f"])
        == 0
    )
    printed = capsys.readouterr().out
    assert printed.isascii()
    (project / "copy.toml").write_text(printed)
    given = {
        "app": "m:a",
        "timeout_lifespan_startup": "none",
        "bind": ["a:1", "unix:/\U0001f600"],
        "header": ['X-A: "\\\xe9\tb"'],
        "uds_mode": "600",
        "app_dir": "x\x7f",
    }
    assert load({}, {}, "copy.toml").config == load(given, {}).config


def test_print_config_shows_a_log_table(project, capsys):
    (project / "s.toml").write_text(
        "[log_config]\nversion = 1\nhandlers = {'a b' = {stream = [true, 1.5]}}\n"
    )
    assert main(["--print-config", "--config", "s.toml"]) == 0
    table = tomllib.loads(capsys.readouterr().out)["log_config"]
    assert table == {"version": 1, "handlers": {"a b": {"stream": [True, 1.5]}}}


def test_toml_escapes():
    text = 'a"b\\c\n\u20ac\U0001f600'
    assert tomllib.loads(f"x = {toml(text)}") == {"x": text}
