"""Workers that are threads: the same master, and no process to kill.

Threads that share a GIL are slower, but no other threads; so these tests tell the server that there is none.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys

import pytest
from harness import eventually, read_response, statuses
from process import ServerProcess
from steady import Client

from servery import conflicts
from servery.config import Config
from servery.errors import ConfigError

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="asks for workers by signals"),
    pytest.mark.any_way,
]

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"

APP = """
answered = {}

async def app(scope, receive, send):
    me = threading.current_thread().name.removeprefix("servery worker ")
    if scope["type"] == "lifespan":
        assert threading.current_thread() is not threading.main_thread()
        await lifespan(receive, send)
        print(f"bye from {me}\\n", end="", flush=True)  # in one piece: others print, too
        return
    kind, _, value = scope["path"][1:].partition("/")
    if kind in ("wait", "block", "deaf"):
        print("entered", kind, "by", me, flush=True)
    if kind == "wait":
        await asyncio.sleep(float(value))
    elif kind == "block":
        time.sleep(float(value))
    while kind == "deaf":
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
    await respond(send, me.encode())
"""


@pytest.fixture
def without_gil(tmp_path, monkeypatch):
    """Processes that are started by the test believe that they have no GIL."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys\nsys._is_gil_enabled = lambda: False\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.fixture
def start(way, tmp_path, without_gil):
    """``with start(source, *flags) as server``: two threads, if `flags` do not say something else."""

    def start(source=APP, *flags, **options):
        workers = () if "--workers" in flags else ("--workers", "2")
        usual = (*workers, "--worker-kind", "thread", "--timeout-linger", "0.5")
        return ServerProcess(tmp_path, source, *usual, *flags, **options)

    return start


def ask(server, path=b""):
    """The number of the thread that answers."""
    with server.connect() as sock:
        sock.sendall(GET % path)
        return int(read_response(sock)[1])


@pytest.mark.parametrize("flags", ((), ("--reuse-port",)), ids=("shared", "own sockets"))
def test_threads_share_the_load_and_stop_in_phases(start, flags):
    with start(APP, "--no-access-log", *flags) as server:
        assert "workers=2 kind=thread" in server.wait_for("servery .* http://.*")[0]
        found = {ask(server) for _ in range(64)}
        assert found == {1, 2}
        with server.connect() as sock:
            sock.sendall(GET % b"wait/0.5")
            server.wait_for("entered wait")
            server.signal()
            server.wait_for("stopping 2 workers")
            assert int(read_response(sock)[1]) in found
        assert server.end() == 0
    assert sorted(re.findall(r"bye from (\d+)", server.said)) == ["1", "2"]
    assert "Traceback" not in server.said


def test_a_socket_file_goes_with_the_master(start, tmp_path):
    path = str(tmp_path / "s")
    with start(APP, where=("--uds", path)) as server:
        server.wait_for("kind=thread")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            sock.sendall(GET % b"")
            assert int(read_response(sock)[1]) in (1, 2)
        assert server.stop() == 0
    assert not os.path.exists(path)


def test_a_factory_makes_an_application_for_each_thread(start):
    source = """
made = []
def make():
    made.append(threading.current_thread().name)
    me = len(made)
    async def app(scope, receive, send):
        assert threading.current_thread().name == made[me - 1]
        if scope["type"] == "lifespan":
            return await lifespan(receive, send)
        await respond(send, b"%d" % me)
    return app
"""
    with start(source, "--factory", target="app:make") as server:
        assert {ask(server) for _ in range(64)} == {1, 2}
        assert server.stop() == 0


def test_a_reload_and_recycling_by_overlap_lose_no_request(start):
    flags = ("--limit-max-requests", "100", "--limit-max-requests-jitter", "0", "--no-access-log")
    with start(APP, *flags) as server, Client(server.port) as one, Client(server.port) as two:
        eventually(lambda: len(one.answers) > 1 and len(two.answers) > 1)
        said = len(server.said)
        server.signal(signal.SIGHUP)
        eventually(lambda: "reloaded: 2 workers serve" in server.said[said:])
        assert "reload: threads share the code that is imported already" in server.said
        one.__exit__()
        two.__exit__()
        assert server.stop() == 0
    assert one.faults == two.faults == []
    assert "Traceback" not in server.said


def test_an_upgrade_is_refused(start):
    with start() as server:
        ask(server)
        server.signal(signal.SIGUSR2)
        server.wait_for("upgrade: workers that are threads end with the program that runs them")
        assert ask(server)
        assert server.stop() == 0


def test_more_and_fewer_threads(start):
    with start(APP, "--workers", "1", "--worker-max-age", "3600") as server:
        assert ask(server) == 1
        server.signal(signal.SIGTTIN)
        server.wait_for("worker 2 serves")
        server.signal(signal.SIGTTOU)
        server.wait_for("worker 2 exited with code 0")
        assert ask(server) == 1
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("source", "said"),
    (
        ("raise ZeroDivisionError('at import')", "ZeroDivisionError: at import"),
        (
            """
async def app(scope, receive, send):
    await receive()
    raise RuntimeError("db down")
""",
            "RuntimeError: db down",
        ),
    ),
)
def test_a_failure_at_the_start_ends_the_server(start, source, said):
    with start(source, "--lifespan", "on") as server:
        assert server.end() == 3
    assert server.said.count(said) == 1


def test_a_blocked_loop_is_told_with_its_stack_and_another_thread_takes_over(start):
    with start(APP, "--worker-timeout", "0.7") as server, server.connect() as sock:
        sock.sendall(GET % b"block/3")
        stuck = int(server.wait_for(r"entered block by (\d)")[1])
        server.wait_for(r"GET /block/3 \(\S+, \d+\.\d s\)")
        server.wait_for(r"time\.sleep\(float\(value\)\)")
        server.wait_for(f"worker {stuck} did not end in time, and is a thread, which cannot be killed")
        server.wait_for("worker 3 serves")
        assert ask(server) != stuck
        assert int(read_response(sock)[1]) == stuck  # left behind, not lost
        server.wait_for(f"worker {stuck}, which was left behind, has ended")
        assert server.stop() == 0


def test_a_thread_that_never_ends_is_left_behind_with_its_stack_at_the_exit(start):
    flags = ("--worker-timeout", "0.5", "--timeout-cancel", "0.2")
    with start(APP, *flags) as server, server.connect() as sock:
        sock.sendall(GET % b"block/60")
        server.wait_for("entered block")
        server.wait_for("cannot be killed")
        assert server.stop() == 1
    assert server.said.count("left behind at the exit, still running: thread 'servery worker") == 1


def test_a_thread_of_the_application_does_not_hold_up_the_exit(start):
    source = "threading.Thread(target=threading.Event().wait, name='mine').start()\n" + APP
    with start(source, "--timeout-cancel", "0.2") as server:
        assert ask(server)
        assert server.stop() == 1
    assert server.said.count("still running: thread 'mine'") == 1


def test_a_second_signal_leaves_a_stuck_thread_behind_at_once(start):
    with start(APP, "--timeout-cancel", "0.2") as server, server.connect() as sock:
        sock.sendall(GET % b"block/60")
        server.wait_for("entered block")
        server.signal()
        server.wait_for("stopping 2 workers")
        server.signal()
        assert server.end() == 128 + signal.SIGTERM


def test_a_request_that_ignores_its_cancellation_makes_the_exit_code_1(start):
    flags = ("--timeout-graceful-shutdown", "0.2", "--timeout-cancel", "0.2")
    with start(APP, *flags) as server, server.connect() as sock:
        sock.sendall(GET % b"deaf")
        server.wait_for("entered deaf")
        assert server.stop() == 1
    assert "left behind" in server.said


def test_a_fast_stop_cancels_requests(start):
    with start() as server, server.connect() as sock:
        sock.sendall(GET % b"wait/60")
        server.wait_for("entered wait")
        server.signal(signal.SIGINT)
        assert statuses(sock.recv(65536)) in ([], [b"500"])
        assert server.end() == 0
    assert server.said.count("bye from") == 2


def test_a_stop_during_the_import_waits_for_it(start):
    source = "print('importing', flush=True)\ntime.sleep(1)\n" + APP
    with start(source) as server:
        server.wait_for("importing")
        assert server.stop() == 0


# --- where there is a GIL ---------------------------------------------------------------------------------


def test_threads_are_refused_where_there_is_a_gil(way, tmp_path, monkeypatch):
    monkeypatch.setattr(conflicts, "gil_trouble", lambda: "there is one: do without")
    with pytest.raises(ConfigError, match="worker_kind thread: there is one: do without"):
        Config(app="app:app", worker_kind="thread")
    if not conflicts.sysconfig.get_config_var("Py_GIL_DISABLED"):
        with ServerProcess(tmp_path, APP, "--workers", "2", "--worker-kind", "thread") as server:
            assert server.end() == 2
        assert "this build of Python has a GIL" in server.said
        assert "worker_kind process" in server.said


@pytest.mark.parametrize(
    ("free", "said"), ((0, "this build of Python has a GIL"), (1, "the GIL is on, though"))
)
def test_what_is_said_of_the_gil(monkeypatch, free, said):
    monkeypatch.setattr(conflicts.sysconfig, "get_config_var", {"Py_GIL_DISABLED": free}.get)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    assert conflicts.gil_trouble().startswith(said)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False)
    assert conflicts.gil_trouble() is None


def test_an_import_that_switches_the_gil_on_is_told(start):
    source = "sys._is_gil_enabled = lambda: True\n" + APP
    with start(source) as server:
        server.wait_for("the application has switched the GIL on")
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("name", "value"), (("worker_start", "spawn"), ("preload", True), ("worker_max_memory", 2**30))
)
def test_what_is_for_processes_only(monkeypatch, name, value):
    monkeypatch.setattr(conflicts, "gil_trouble", lambda: None)
    with pytest.raises(ConfigError, match=f"{name} is for workers that are processes"):
        Config(app="app:app", worker_kind="thread", **{name: value})
