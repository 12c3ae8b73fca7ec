"""How workers start: with what the system has, and in interpreters that are like the master's own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import psutil
import pytest
from harness import eventually, read_response
from process import ServerProcess

from servery.config import Config
from servery.errors import ConfigError

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
WINDOWS = sys.platform == "win32"


@pytest.mark.any_way
def test_workers_serve_and_end_with_their_master(way, tmp_path):
    source = "async def app(scope, receive, send):\n    await respond(send, b'%d' % os.getpid())\n"
    flags = ("--workers", "2", "--lifespan", "off", "--timeout-linger", "0.2")
    group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP} if WINDOWS else {}
    with ServerProcess(tmp_path, source, *flags, **group) as server, contextlib.ExitStack() as stack:
        pids = set()

        def both():
            sock = stack.enter_context(server.connect())
            sock.sendall(GET)
            pids.add(int(read_response(sock)[1]))
            return len(pids) == 2

        eventually(both)
        assert server.process.pid not in pids
        server.signal(signal.CTRL_BREAK_EVENT if WINDOWS else signal.SIGTERM)
        assert server.end() == 0
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.parametrize(
    "flags",
    (
        (),
        ("-I",),
        ("-E", "-s", "-P"),
        ("-OO",),
        ("-B", "-X", "utf8=1", "-X", "dev", "-W", "error::UserWarning"),
    ),
    ids=str,
)
def test_an_interpreter_has_the_flags_of_this_one(flags):
    """Those of the first one are told by one that the first one has started."""
    script = (
        "import subprocess, sys; from servery.supervisor.interpreter import command;"
        "one = lambda: repr((sys.flags, sys._xoptions, sys.warnoptions));"
        "other = 'import sys; print(repr((sys.flags, sys._xoptions, sys.warnoptions)), end=str())';"
        "run = [*command('x')[:-2], '-c', other];"
        "print(one() == subprocess.run(run, capture_output=True, text=True, check=True).stdout)"
    )
    run = subprocess.run([sys.executable, *flags, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "True"


@pytest.mark.parametrize(
    ("settings", "said"),
    (
        ({"workers": 2, "worker_start": "spawn", "preload": True}, "preload shares by a fork"),
        ({"workers": 2, "worker_start": "spawn", "app": print}, "so app must be an import string"),
        ({"worker_max_age": 5.0, "worker_start": "spawn", "app": print}, "so app must be an import string"),
        ({"workers": 2, "worker_start": "thread"}, "worker_start"),
        ({"workers": 2, "worker_kind": "fork"}, "worker_kind"),
    ),
)
def test_settings_that_cannot_work_together(settings, said):
    with pytest.raises(ConfigError, match=said):
        Config(**{"app": "app:app", **settings})


def test_one_process_needs_no_import_string():
    assert Config(app=print, worker_start="spawn").workers == 1


def test_the_default_is_what_the_system_has(monkeypatch):
    assert Config(app="app:app").start_method == ("fork" if hasattr(os, "fork") else "spawn")
    monkeypatch.delattr(os, "fork", raising=False)
    assert Config(app="app:app").start_method == "spawn"
    with pytest.raises(ConfigError, match="this system has no fork"):
        Config(app="app:app", worker_start="fork")


@pytest.mark.any_way
def test_a_configuration_that_cannot_be_handed_over(way, tmp_path):
    launcher = tmp_path / "launch.py"
    launcher.write_text(
        "import sys, servery\n"
        "if __name__ == '__main__':\n"
        "    handler = {'class': 'logging.StreamHandler', 'stream': sys.stdout}\n"
        "    servery.run('app:app', workers=2, port=0, worker_start='spawn', log_config={\n"
        "        'handlers': {'out': handler}, 'loggers': {'servery.error': {'handlers': ['out']}}})\n"
    )
    with ServerProcess(tmp_path, "app = ok", launcher=launcher) as server:
        assert server.end() != 0
    assert "worker_start spawn: the configuration cannot be handed to another process" in server.said
