"""A master and its workers, as real processes: they share the load, are replaced, and end in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import psutil
import pytest
from churn import churn
from harness import WAIT, eventually, read_response, read_to_end, statuses
from process import ServerProcess
from sample_apps import respond
from steady import Client

from servery.supervisor.channel import open_channel
from servery.supervisor.worker import Link

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"

APP = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        print("bye from", os.getpid(), flush=True)
        return
    kind, _, value = scope["path"][1:].partition("/")
    if kind == "wait":
        print("entered", flush=True)
        try:
            await asyncio.sleep(float(value))
        except asyncio.CancelledError:
            print("cancelled", flush=True)
            raise
    elif kind == "block":
        print("entered", flush=True)
        time.sleep(float(value))
    elif kind == "hold":
        import ctypes
        print("entered", flush=True)
        ctypes.PyDLL(None).usleep(int(value) * 1_000_000)  # keeps the interpreter to itself
    elif kind == "die":
        os._exit(9)
    await respond(send, b"%d" % os.getpid())
"""


EVERY_BEGIN = pytest.mark.parametrize("begun_by", ("fork", "spawn"))
"""For what may depend on how the processes of workers begin."""


@pytest.fixture
def begun_by():
    """How they begin in all other tests."""
    return "fork"


@pytest.fixture
def start(way, tmp_path, begun_by):
    """``with start(source, *flags) as server``: two workers, if `flags` do not say something else."""

    def start(source=APP, *flags, **options):
        workers = () if any(flag.startswith("--workers") for flag in flags) else ("--workers", "2")
        usual = (*workers, "--worker-start", begun_by, "--timeout-linger", "0.5")
        return ServerProcess(tmp_path, source, *usual, *flags, **options)

    return start


def ask(server, path=b""):
    """The process id of the worker that answers."""
    with server.connect() as sock:
        sock.sendall(GET % path)
        return int(read_response(sock)[1])


def workers(server):
    """The process ids of the children."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return {child.pid for child in psutil.Process(server.process.pid).children()}
    return set()


def others(server, before):
    """The workers, once they are as many as `before` and none of those."""
    found = eventually(lambda: (now := workers(server)) and len(now) == len(before) and now, "all replaced")
    return eventually(
        lambda: not (now := workers(server)) & before and len(now) == len(before) and now, found
    )


# --- start and share ----------------------------------------------------------------------------------


@pytest.mark.any_way
def test_two_workers_share_one_socket_and_end_with_their_master(start):
    with start(APP, "--no-access-log") as server:
        assert "workers=2" in server.wait_for("servery .* http://.*")[0]
        pids = workers(server)
        assert len(pids) == 2
        socks = [server.connect() for _ in range(64)]
        answered = []
        for sock in socks:
            sock.sendall(GET % b"")
        for sock in socks:
            answered.append(int(read_response(sock)[1]))
            sock.close()
        assert set(answered) == pids
        assert min(answered.count(pid) for pid in pids) >= 8
        assert server.stop() == 0
    assert server.said.count("bye from") == 2
    assert server.said.count("http://") == 1
    assert not any(psutil.pid_exists(pid) for pid in pids)


@EVERY_BEGIN
@pytest.mark.any_way
def test_one_worker_with_a_master(start):
    with start(APP, "--workers", "1", "--worker-max-age", "3600") as server:
        assert "workers=1" in server.wait_for("servery .* http://.*")[0]
        assert {ask(server)} == workers(server) != {server.process.pid}
        assert server.stop() == 0


@pytest.mark.any_way
def test_as_many_workers_as_processors(start):
    with start(APP, "--workers", "auto") as server:
        stated = int(server.wait_for(r"workers=(\d+)")[1])
        assert 1 <= stated <= (os.cpu_count() or 1)
        assert len(workers(server)) == stated
        assert server.stop() == 0


@pytest.mark.parametrize("kind", ("unix", "fd"))
def test_workers_serve_on_every_kind_of_address(start, tmp_path, kind):
    path = str(tmp_path / "s")
    listening = socket.socket(socket.AF_UNIX)
    if kind == "fd":
        listening.bind(path)
        listening.listen()
        where, options = ("--fd", str(listening.fileno())), {"pass_fds": (listening.fileno(),)}
    else:
        where, options = ("--uds", path, "--uds-mode", "600"), {}
    with listening, start(APP, where=where, **options) as server:
        server.wait_for("workers=2")
        if kind == "unix":
            assert os.stat(path).st_mode & 0o777 == 0o600
        for _ in range(5):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(path)
                sock.sendall(GET % b"")
                assert int(read_response(sock)[1]) in workers(server)
        assert server.stop() == 0
        assert os.path.exists(path) == (kind == "fd")


@EVERY_BEGIN
@pytest.mark.any_way
def test_sockets_of_their_own(start):
    with start(APP, "--reuse-port") as server:
        assert len(listening_inodes(server.port)) == 2
        victim = ask(server)
        os.kill(victim, signal.SIGKILL)
        for _ in range(32):  # connections of the dead worker's socket wait for its successor
            assert ask(server)
        assert server.stop() == 0


@pytest.mark.parametrize("begun_by", ("spawn",))
@pytest.mark.any_way
def test_spawned_workers_share_sockets_of_every_kind_and_what_the_master_was_told(start, tmp_path):
    """Fresh interpreters, with the flags of the master's, its arguments and its import path."""
    source = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    import warnings
    is_main = threading.current_thread() is threading.main_thread()
    facts = [os.getpid(), is_main, sys.argv[1:2], sys.warnoptions]
    try:
        warnings.warn("old", DeprecationWarning)
    except DeprecationWarning:
        facts.append("refused")
    sys.stdin.fileno()
    facts.append([fd for fd in range(3, 64) if os.path.exists(f"/dev/fd/{fd}") and os.get_inheritable(fd)])
    await respond(send, repr(facts).encode())
"""
    path = str(tmp_path / "s")
    where = ("--bind", f"unix:{path}", "--bind", "127.0.0.1:0")
    prefix = ("env", "PYTHONWARNINGS=")
    with start(source, where=where, dev=True, prefix=prefix) as server:
        found = set()
        for _ in range(64):
            with server.connect() as sock:
                sock.sendall(GET % b"")
                pid, is_main, argv, warned, *rest = eval(read_response(sock)[1])
                found.add(pid)
            assert (is_main, argv, warned, rest) == (True, ["app:app"], ["default"], [[]])
        assert found == workers(server)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            sock.sendall(GET % b"")
            assert eval(read_response(sock)[1])[0] in found
        assert server.stop() == 0
    assert not os.path.exists(path)


@pytest.mark.parametrize("begun_by", ("spawn",))
@pytest.mark.any_way
def test_a_spawned_worker_that_fails_at_the_start_ends_the_server(start):
    with start("raise ZeroDivisionError('at import')", "--workers", "4") as server:
        assert server.end() == 3
    assert server.said.count("ZeroDivisionError: at import") == 1


# --- start-up failures --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    (
        ("raise ZeroDivisionError('at import')", "ZeroDivisionError: at import"),
        ("app = 3", "no application"),
        (
            """
async def app(scope, receive, send):
    await receive()
    raise RuntimeError("db down")
""",
            "RuntimeError: db down",
        ),
        (
            """
async def app(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.failed"})
""",
            "servery: error:",
        ),
        ("os._exit(9)", "exited with code 9 before it served"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL before it served"),
    ),
)
@pytest.mark.any_way
def test_a_failure_at_the_start_ends_the_server_with_its_reason_said_once(start, source, said):
    with start(source, "--workers", "4") as server:
        assert server.end() == 3
    assert server.said.count(said) == 1
    assert server.said.count("servery: error:") == 1
    assert "http://" not in server.said


@pytest.mark.any_way
def test_an_address_in_use_ends_the_server(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with start(APP, where=("--port", str(taken.getsockname()[1]))) as server:
            assert server.end() == 3
    assert "already in use" in server.said


# --- workers that die ---------------------------------------------------------------------------------


@EVERY_BEGIN
@pytest.mark.any_way
def test_a_killed_worker_is_replaced_at_once_and_the_others_go_on(start):
    with start() as server:
        server.wait_for("workers=2")
        before = workers(server)
        victim = ask(server)
        os.kill(victim, signal.SIGKILL)
        server.wait_for(f"worker {victim} was killed by SIGKILL; starting another\n")
        new = eventually(lambda: (now := workers(server)) - before and len(now) == 2 and now - before)
        server.wait_for(f"worker {new.pop()} serves")
        assert ask(server)
        assert server.stop() == 0


@pytest.mark.any_way
def test_workers_that_die_again_and_again_are_started_with_growing_delays(start):
    with start(APP, "--workers", "1", "--worker-max-age", "3600") as server:
        server.wait_for("workers=1")
        for delay in ("", " in 0.5 s", " in 1 s"):
            with server.connect() as sock:
                sock.sendall(GET % b"die")
                with contextlib.suppress(ConnectionResetError):
                    assert sock.recv(1) == b""
            server.wait_for(f"exited with code 9; starting another{delay}\n")
        assert ask(server)  # it has waited in the backlog
        assert server.stop() == 0


@EVERY_BEGIN
@pytest.mark.any_way
def test_workers_end_when_their_master_is_killed(start):
    with start() as server:
        server.wait_for("workers=2")
        pids = workers(server)
        server.process.kill()
        eventually(lambda: not any(map(psutil.pid_exists, pids)), "workers end")


# --- the stop -----------------------------------------------------------------------------------------


def test_a_request_in_progress_is_answered_by_a_stop(start):
    with start() as server, server.connect() as sock:
        sock.sendall(GET % b"wait/0.7")
        server.wait_for("entered")
        server.signal(signal.SIGTERM)
        server.wait_for("stopping 2 workers")
        assert int(read_response(sock)[1])
        assert server.end() == 0
    assert server.said.count("bye from") == 2
    assert "cancelled" not in server.said


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGQUIT))
def test_a_fast_stop_cancels_requests_but_ends_the_lifespan(start, number):
    with start() as server, server.connect() as sock:
        sock.sendall(GET % b"wait/60")
        server.wait_for("entered")
        server.signal(number)
        assert statuses(read_to_end(sock)) in ([], [b"500"])
        assert server.end() == 0
    assert server.said.count("bye from") == 2
    assert "cancelled" in server.said
    assert "GET /wait/60" in server.said  # what was still open is named


@EVERY_BEGIN
@pytest.mark.any_way
def test_ctrl_c_in_a_terminal_reaches_everybody_and_counts_once(start):
    with start(APP, start_new_session=True) as server:
        server.wait_for("workers=2")
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.end() == 0
    assert server.said.count("bye from") == 2


@pytest.mark.any_way
def test_a_second_signal_ends_the_stop_at_once(start):
    with start() as server, server.connect() as sock:
        sock.sendall(GET % b"wait/60")
        server.wait_for("entered")
        server.signal(signal.SIGTERM)
        server.wait_for("stopping: 1 requests")
        server.signal(signal.SIGTERM)
        assert server.end() == 128 + signal.SIGTERM


@EVERY_BEGIN
@pytest.mark.any_way
def test_a_request_that_ignores_its_cancellation_makes_the_exit_code_1(start):
    source = """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    print("entered", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
"""
    flags = ("--timeout-graceful-shutdown", "0.2", "--timeout-cancel", "0.2")
    with start(source, *flags) as server, server.connect() as sock:
        sock.sendall(GET % b"")
        server.wait_for("entered")
        assert server.stop() == 1
    assert "left behind" in server.said
    assert "stop: cancelling after the graceful time-out: 1 requests in progress" in server.said


@pytest.mark.any_way
def test_new_connections_are_refused_during_the_stop(start):
    with start() as server, server.connect() as sock:
        sock.sendall(GET % b"wait/0.7")
        server.wait_for("entered")
        server.signal()
        server.wait_for("stopping: 1 requests")

        def refused():
            try:
                server.connect().close()
            except ConnectionRefusedError:
                return True

        eventually(refused)
        read_response(sock)
        assert server.end() == 0


@EVERY_BEGIN
@pytest.mark.any_way
def test_a_stop_while_the_workers_import(start):
    source = "print('importing', flush=True)\ntime.sleep(60)"
    with start(source) as server:
        server.wait_for("importing")
        assert server.stop() == 0


@pytest.mark.parametrize("flags", (("--workers", "1"), ("--workers", "2")))
@pytest.mark.any_way
def test_the_server_serves_on_during_the_drain_delay(start, flags):
    with start(APP, *flags, "--drain-delay", "1") as server:
        ask(server)
        server.signal()
        server.wait_for("stop")
        for _ in range(5):
            assert ask(server)
        assert server.end() == 0


# --- reload -------------------------------------------------------------------------------------------


def edit(tmp_path, old, new):
    """Change the application's source in one step."""
    path = tmp_path / "app.py"
    draft = tmp_path / "draft"
    text = path.read_text()
    assert old in text
    draft.write_text(text.replace(old, new))
    os.utime(draft, (time.time() + 10,) * 2)  # compiled files are told apart by whole seconds
    draft.replace(path)


def test_a_reload_brings_the_new_application_and_loses_no_request(start, tmp_path):
    with start(APP, "--no-access-log") as server, Client(server.port) as one, Client(server.port) as two:
        before = workers(server)
        edit(tmp_path, '"bye from"', '"new bye from"')
        server.signal(signal.SIGHUP)
        server.wait_for("reloaded: 2 workers serve")
        eventually(lambda: not before & workers(server))
        eventually(lambda: set(one.answers) - before and set(two.answers) - before)
        one.__exit__()
        two.__exit__()
        assert server.stop() == 0
    assert one.faults == two.faults == []
    assert server.said.count("new bye from") == 2


@EVERY_BEGIN
@pytest.mark.any_way
def test_a_broken_application_leaves_the_old_workers_alone_until_it_is_repaired(start, tmp_path):
    with start() as server:
        server.wait_for("workers=2")
        before = workers(server)
        edit(tmp_path, "async def app", "def def app")
        server.signal(signal.SIGHUP)
        server.wait_for("SyntaxError")
        server.wait_for("new workers do not start; going on as before")
        eventually(lambda: workers(server) == before)
        assert ask(server) in before
        edit(tmp_path, "def def app", "async def app")
        server.signal(signal.SIGHUP)
        server.wait_for("reloaded: 2 workers serve")
        assert not eventually(lambda: len(now := workers(server)) == 2 and now) & before
        assert server.stop() == 0


@pytest.mark.any_way
def test_a_reload_reads_the_configuration_first(start, tmp_path):
    config = tmp_path / "servery.toml"
    config.write_text('bind = ["127.0.0.1:0"]\n')
    with start(APP, "--config", "servery.toml", "--workers=2", where=()) as server:
        server.wait_for("workers=2")
        before = workers(server)
        config.write_text("wrkers = 3\n")
        server.signal(signal.SIGHUP)
        server.wait_for("reload: servery.toml: there is no setting 'wrkers'.*going on as before")
        assert workers(server) == before
        other = tmp_path / "other"
        config.write_text(f'bind = ["unix:{other}", "127.0.0.1:0"]\n')
        server.signal(signal.SIGHUP)
        server.wait_for("reloaded: 2 workers serve")
        assert ask(server)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(other))
            sock.sendall(GET % b"")
            assert int(read_response(sock)[1]) not in before
        assert server.stop() == 0
    assert not other.exists()


@EVERY_BEGIN
@pytest.mark.any_way
def test_more_and_fewer_workers(start):
    with start() as server:
        server.wait_for("workers=2")
        server.signal(signal.SIGTTIN)
        server.wait_for("3 workers are wanted")
        eventually(lambda: len(workers(server)) == 3)
        for wanted in (2, 1, 1):
            server.signal(signal.SIGTTOU)
            eventually(lambda wanted=wanted: len(workers(server)) == wanted)
        assert ask(server)
        assert server.stop() == 0


@EVERY_BEGIN
@pytest.mark.any_way
def test_log_files_are_opened_anew(start, tmp_path):
    (tmp_path / "logs.toml").write_text(
        """
[handlers.file]
class = "logging.FileHandler"
filename = "access.log"
[loggers."servery.access"]
handlers = ["file"]
[handlers.stderr]
class = "servery.logs.LogHandler"
[loggers."servery.error"]
handlers = ["stderr"]
"""
    )
    log = tmp_path / "access.log"
    with start(APP, "--log-config", "logs.toml") as server:
        ask(server)
        eventually(log.read_text)
        log.rename(tmp_path / "old.log")
        server.signal(signal.SIGUSR1)
        eventually(lambda: ask(server) and log.exists() and len(log.read_text().splitlines()) > 5)
        assert server.stop() == 0


@pytest.mark.any_way
def test_a_reload_sets_up_the_logs_anew_in_master_and_workers(start, tmp_path):
    config = tmp_path / "servery.toml"
    config.write_text('log_level = "error"\naccess_log = false\n')
    source = APP.replace(
        "kind, _, value =",
        'logging.getLogger("servery.error").debug("heard in %d", os.getpid())\n    kind, _, value =',
    )
    with start("import logging\n" + source, "--config", "servery.toml") as server:
        server.wait_for("workers=2")
        ask(server)
        assert " INFO " not in server.said
        config.write_text('log_level = "debug"\naccess_log_format = "json"\n')
        server.signal(signal.SIGHUP)
        server.wait_for("INFO     reloaded: 2 workers serve")
        pid = ask(server)
        server.wait_for(f"DEBUG    heard in {pid}\n")
        server.wait_for(r'(?m)^\{.*"request_id".*\}$')
        assert server.said.count('"request_id"') == 1  # one handler, not one more with each reload
        config.write_text('log_config = "missing.toml"\n')
        server.signal(signal.SIGHUP)
        server.wait_for("log_config missing.toml: .*; going on as before")
        pid = ask(server)
        server.wait_for(f"DEBUG    heard in {pid}\n")
        assert server.stop() == 0
    assert server.said.count(f"heard in {pid}\n") <= 2


# --- upgrade ------------------------------------------------------------------------------------------


def listening_inodes(port):
    """The kernel's numbers of the sockets that listen on a port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}


@pytest.mark.any_way
def test_the_program_is_replaced_with_its_sockets_and_loses_no_request(start):
    with start(APP, "--no-access-log") as server, Client(server.port) as client:
        before, inodes = workers(server), listening_inodes(server.port)
        descriptors = psutil.Process(server.process.pid).num_fds()
        server.signal(signal.SIGUSR2)
        server.wait_for("replacing the program")
        server.wait_for("reloaded: 2 workers serve")
        eventually(lambda: not before & workers(server))
        assert listening_inodes(server.port) == inodes
        eventually(lambda: set(client.answers) - before)
        client.__exit__()
        assert psutil.Process(server.process.pid).num_fds() <= descriptors
        assert server.stop() == 0
    assert client.faults == []
    assert server.said.count("bye from") == 4


@pytest.mark.parametrize("begun_by", ("spawn",))
@pytest.mark.any_way
def test_a_reload_and_an_upgrade_of_spawned_workers_lose_no_request(start):
    with start(APP, "--no-access-log") as server, Client(server.port) as client:
        for number in (signal.SIGUSR2, signal.SIGHUP):
            before, said = workers(server), len(server.said)
            server.signal(number)
            eventually(lambda said=said: "reloaded: 2 workers serve" in server.said[said:])
            eventually(lambda before=before: not before & workers(server))
            eventually(lambda before=before: set(client.answers) - before)
        client.__exit__()
        assert server.stop() == 0
    assert client.faults == []
    assert server.said.count("bye from") == 6
    assert "Warning" not in server.said


@pytest.mark.any_way
def test_a_program_that_cannot_serve_replaces_nothing(start, tmp_path):
    with start() as server:
        server.wait_for("workers=2")
        before = workers(server)
        edit(tmp_path, "async def app", "def def app")
        server.signal(signal.SIGUSR2)
        server.wait_for("the new program cannot serve")
        assert ask(server) in before
        assert server.stop() == 0
    assert "SyntaxError" in server.said


@pytest.mark.any_way
def test_what_is_preloaded_is_shared_and_a_reload_replaces_the_program(start, tmp_path):
    with start("print('imported by', os.getpid(), flush=True)\n" + APP, "--preload") as server:
        server.wait_for("workers=2")
        assert re.findall(r"imported by (\d+)", server.said) == [str(server.process.pid)]
        before = workers(server)
        edit(tmp_path, '"bye from"', '"new bye from"')
        server.signal(signal.SIGHUP)
        server.wait_for("reloaded: 2 workers serve")
        eventually(lambda: not before & workers(server))
        assert server.stop() == 0
    assert server.said.count("new bye from") == 2


# --- replaced when due --------------------------------------------------------------------------------


@pytest.mark.any_way
def test_workers_are_replaced_after_their_requests_and_no_client_notices(start):
    flags = ("--limit-max-requests", "200", "--limit-max-requests-jitter", "50", "--no-access-log")
    with start(APP, *flags) as server:
        clients = [Client(server.port, 0.001) for _ in range(4)]
        with contextlib.ExitStack() as stack:
            for client in clients:
                stack.enter_context(client)
            eventually(lambda: len(set().union(*(client.answers for client in clients))) >= 5)
        assert server.stop() == 0
    assert [fault for client in clients for fault in client.faults] == []
    assert "requests (--limit-max-requests)" in server.said
    assert "killing" not in server.said


@pytest.mark.any_way
def test_workers_are_replaced_at_their_age(start):
    with start(APP, "--worker-max-age", "0.8") as server:
        server.wait_for("workers=2")
        before = workers(server)
        server.wait_for("s old .--worker-max-age.")
        eventually(lambda: not workers(server) & before)
        assert server.stop() == 0


@pytest.mark.any_way
def test_workers_that_grow_are_replaced_and_no_client_notices(start):
    source = (
        APP
        + """
kept, answer = [], app

async def app(*args):
    kept.append(b"x" * 200_000)
    await answer(*args)
"""
    )
    flags = ("--worker-max-memory", str(90 * 2**20), "--no-access-log")
    with start(source, *flags) as server, Client(server.port, 0.002) as client:
        server.wait_for(r"it uses \d+ MiB")
        eventually(lambda: len(client.answers) > 2)
        client.__exit__()
        assert server.stop() == 0
    assert client.faults == []


# --- stuck --------------------------------------------------------------------------------------------


@pytest.mark.any_way
def test_a_blocked_event_loop_is_told_with_its_stack_and_replaced(start):
    with start(APP, "--worker-timeout", "1.5") as server, server.connect() as sock, server.connect() as other:
        sock.sendall(GET % b"block/30")
        server.wait_for("entered")
        server.wait_for(r"the event loop has not turned for \d+ s")
        server.wait_for(r"GET /block/30 \(\S+, \d+\.\d s\)")
        server.wait_for(r"time\.sleep\(float\(value\)\)")
        server.wait_for("tasks: ")
        stuck = int(server.wait_for(r"worker (\d+) has not reported")[1])
        assert ask(server) != stuck
        server.wait_for(f"worker {stuck} did not end in time; killing it")
        eventually(lambda: len(workers(server)) == 2 and stuck not in workers(server))
        del other
        server.stop()


@pytest.mark.any_way
def test_a_loop_that_comes_back_ends_in_order(start):
    with start(APP, "--worker-timeout", "2") as server, server.connect() as sock:
        sock.sendall(GET % b"block/3")
        server.wait_for("turns again; it ends in order")
        assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        server.stop()
    assert "killing" not in server.said


@EVERY_BEGIN
@pytest.mark.any_way
def test_an_interpreter_that_is_held_is_told_by_its_own_dump(start):
    with start(APP, "--worker-timeout", "1") as server, server.connect() as sock:
        sock.sendall(GET % b"hold/30")
        server.wait_for("something holds the interpreter; aborting it")
        server.wait_for("Fatal Python error: Aborted")
        server.wait_for('app.py", line')
        server.wait_for("was killed by SIGABRT")
        assert ask(server)
        server.stop()


@pytest.mark.any_way
def test_a_busy_worker_is_left_alone(start):
    source = """
time.sleep(1.5)  # a long import is no fault
async def app(scope, receive, send):
    assert scope["type"] == "http"
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        sum(range(100_000))
        await asyncio.sleep(0)
    await respond(send)
"""
    with start(source, "--worker-timeout", "1") as server:
        server.wait_for("workers=2")
        before = workers(server)
        socks = [server.connect() for _ in range(4)]
        for sock in socks:
            sock.sendall(GET % b"")
        for sock in socks:
            assert read_response(sock)[1] == b"ok"
            sock.close()
        assert workers(server) == before
        assert server.stop() == 0
    assert "reported" not in server.said


@pytest.mark.any_way
def test_the_system_clock_may_jump(start, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import time, itertools\n"
        "real, jumps = time.time, itertools.cycle((0, 3600, -3600))\n"
        "time.time = lambda: real() + next(jumps)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        server = start(APP, "--worker-timeout", "1", "--timeout-keep-alive", "30")
    with server, server.connect() as sock:
        before = workers(server)
        for _ in range(3):
            sock.sendall(GET % b"wait/0.8")
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        assert workers(server) == before
        assert server.stop() == 0


# --- the worker's side of its channel -------------------------------------------------------------------


@pytest.mark.any_way
def test_a_worker_reports_its_counters_when_it_is_asked_and_obeys(serve):
    entered, go_on = threading.Event(), threading.Event()

    async def app(scope, receive, send):
        entered.set()
        while not go_on.is_set():
            await asyncio.sleep(0.001)
        await respond(send)

    ours, theirs = open_channel()
    ours.sock.setblocking(True)
    with serve(app) as server, server.connect() as sock:
        link = Link(theirs, 3600.0, exits=True)
        link.start(server.server)
        eventually(lambda: server.server.snapshot()["connections"] == 1)
        server.call(lambda: link.serving(server.server))
        said = ours.messages()
        assert next(said) == {"ready": True}
        first = next(said)["counts"]
        assert first["memory"] > 2**20
        assert {name: first[name] for name in ("requests", "in_progress", "connections")} == {
            "requests": 0,
            "in_progress": 0,
            "connections": 1,
        }
        sock.sendall(GET % b"slow")
        entered.wait()
        ours.send({"do": "count", "number": 7})
        answer = next(said)
        assert (answer["answers"], answer["number"]) == ("count", 7)
        counts = answer["counts"]
        assert (counts["requests"], counts["in_progress"], counts["connections"]) == (1, 1, 1)
        ours.send({"do": "stacks", "silent": 3.0})
        assert next(said) == {"stacks": True}
        go_on.set()
        assert read_response(sock)[1] == b"ok"
        listener = server.server.sockets[0]
        ours.send({"do": "retire"})
        eventually(lambda: listener.fileno() == -1)  # the stop has begun
        sock.sendall(GET % b"one-more")  # which a patient stop answers
        head, content, _ = read_response(sock)
        assert content == b"ok"
        assert b"connection: close" in head.lower()
        server.thread.join(WAIT)
        assert not server.thread.is_alive()
        told = "\n".join(server.errors.lines())
    assert "the event loop has not turned for 3 s" in told
    assert "GET /slow" in told
    assert "in app" in told
    ours.close()
    eventually(lambda: not any(thread.name == "servery link" for thread in threading.enumerate()))
    theirs.close()


# --- everything at once -------------------------------------------------------------------------------


def test_under_load_nothing_is_lost_but_what_was_inside_of_killed_workers(way, tmp_path):
    every = {"reload": 2.2, "kill": 1.7, "upgrade": 3.1}
    flags = ("--limit-max-requests", "150", "--timeout-linger", "1")
    outcome = churn(tmp_path, 5, *flags, rate=400, sockets=2, every=every)
    assert outcome.faults == []
    assert set(outcome.closed) == {1012}
    assert outcome.workers > 4
    assert outcome.answered > 300
    assert outcome.miscounted == []
    assert outcome.scrapes >= 3
    assert outcome.counted > 300
    assert outcome.exit_code == 0
