"""One admin listener for a master and its workers: what it says of all of them, and how long it is there."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
from pathlib import Path

import psutil
import pytest
from harness import WAIT, eventually, read_response, read_to_end
from process import ServerProcess
from scraping import RISING, metrics_of
from test_admin import control

from servery.admin.client import ask
from servery.supervisor.channel import Channel, open_channel
from servery.supervisor.handle import Question

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
PROBE = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"

APP = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    kind, _, value = scope["path"][1:].partition("/")
    if kind == "wait":
        await asyncio.sleep(float(value))
    elif kind == "block":
        time.sleep(float(value))
    await respond(send, b"%d" % os.getpid())
"""


class Server(ServerProcess):
    """Two workers and their admin listener, on a Unix socket unless `flags` say something else."""

    def __init__(self, folder: Path, source: str, *flags: str, **options: object) -> None:
        self.admin = f"unix:{folder}/admin"
        if "--admin" in flags:
            self.admin = flags[flags.index("--admin") + 1]
        else:
            flags = ("--admin", self.admin, *flags)
        workers = () if any(flag.startswith("--workers") for flag in flags) else ("--workers", "2")
        super().__init__(folder, source, *workers, "--timeout-linger", "0.5", *flags, **options)

    @property
    def port(self) -> int:
        """The port of the application, once it is served."""
        return int(self.wait_for(r"workers=\d+ · https?://\S+:(\d+)")[1])

    def ask(self, path: str, method: str = "GET") -> tuple[int, str]:
        """(status, content) of the admin listener's answer."""
        return ask(self.admin, method, path)

    def state(self) -> dict[str, object]:
        """What ``/state`` says."""
        status, content = self.ask("/state")
        assert status == 200
        return json.loads(content)

    def metrics(self) -> dict[str, float]:
        """What ``/metrics`` says."""
        return metrics_of(self.admin)

    def serve(self, count: int = 1) -> None:
        """Answer so many requests, each on a connection of its own."""
        for _ in range(count):
            with self.connect() as sock:
                sock.sendall(GET % b"")
                assert read_response(sock)[0].startswith(b"HTTP/1.1 200")

    def restarts(self, reason: str) -> float:
        """How many workers were replaced for it."""
        return self.metrics()[f"servery_worker_restarts_total {reason}"]

    def kill(self) -> int:
        """Kill a worker; its process id."""
        victim = psutil.Process(self.process.pid).children()[0].pid
        os.kill(victim, signal.SIGKILL)
        return victim


@pytest.fixture
def start(way, tmp_path):
    """``with start(source, *flags) as server``."""
    return lambda source=APP, *flags, **options: Server(tmp_path, source, *flags, **options)


def served(found: dict[str, float]) -> float:
    """Requests that were answered."""
    return found.get("servery_requests_total GET 200", 0)


# --- what it says --------------------------------------------------------------------------------------


def test_it_speaks_for_all_workers_and_forgets_nothing_that_they_counted(start, tmp_path):
    """Through deaths, a reload and a change of the number of workers."""
    with start(APP, "--umask", "0") as server:
        server.wait_for("workers=2")
        assert stat.S_IMODE(os.stat(tmp_path / "admin").st_mode) == 0o600
        assert server.ask("/live") == (200, "live\n")
        assert server.ask("/ready") == (200, "ready\n")
        server.serve(20)
        found = server.metrics()
        assert served(found) == found["servery_request_duration_seconds_count"] == 20
        assert (found["servery_workers"], found["servery_workers_wanted"]) == (2, 2)
        assert min(found[f"servery_worker_memory_bytes {slot}"] for slot in (0, 1)) > 2**20
        server.kill()
        eventually(lambda: server.metrics()["servery_workers"] == 2, "there is a successor")
        assert served(server.metrics()) == 20
        assert server.restarts("died") == 1
        server.serve(10)
        assert server.ask("/reload", "POST") == (202, "reloading\n")
        server.wait_for("reloaded: 2 workers serve")
        eventually(lambda: len(server.state()["workers"]) == 2, "the old ones are gone")
        after = server.metrics()
        assert served(after) == 30
        assert after["servery_worker_restarts_total reload"] == 2
        assert after["servery_connections_accepted_total"] == 30
        assert {name for name in found if RISING.match(name)} <= after.keys()
        with control("scale", "1", "--admin", server.admin) as run:
            assert (run.returncode, run.stdout) == (0, "scaling\n")
        eventually(lambda: len(server.state()["workers"]) == 1, "one is left")
        found = server.metrics()
        assert (served(found), found["servery_workers"], found["servery_workers_wanted"]) == (30, 1, 1)
        assert sum(found[name] for name in found if "_restarts_" in name) == 3
        with control("stop", "--admin", server.admin) as run:
            assert (run.returncode, run.stdout) == (0, "stopping\n")
        assert server.end() == 0
    assert not (tmp_path / "admin").exists()
    assert server.said.count("/metrics") == 0  # nothing of it is in the access log


def test_requests_in_flight_are_named_with_their_worker(start):
    with start() as server, server.connect() as sock, server.connect() as idle:
        idle.sendall(b"x")
        sock.sendall(GET % b"wait/1.5?secret")
        running = eventually(
            lambda: [worker for worker in server.state()["workers"] if worker["requests"]], "it runs"
        )
        state, found = server.state(), server.metrics()
        assert read_response(sock)[1] == str(running[0]["pid"]).encode()
    assert state["status"] == "ready"
    assert state["master"]["pid"] == server.process.pid
    assert state["listening"] == [f"http://127.0.0.1:{server.port}"]
    assert [worker["slot"] for worker in state["workers"]] == [0, 1]
    assert all(worker["state"] == "ready" and worker["age"] > 0 for worker in state["workers"])
    (request,) = running[0]["requests"]
    assert (request["method"], request["path"], request["type"]) == ("GET", "/wait/1.5", "http")
    assert request["age"] >= 0
    assert sum(worker["connections"] for worker in state["workers"]) == 2
    assert (found["servery_connections active"], found["servery_connections idle"]) == (1, 1)
    slot = running[0]["slot"]
    assert found[f"servery_worker_requests_in_flight {slot}"] == found["servery_requests_in_flight"] == 1


@pytest.mark.any_way
def test_a_stuck_worker_holds_up_nobody_and_tells_what_it_is_stuck_in(start):
    with start() as server, server.connect() as sock:
        server.serve(8)
        assert served(server.metrics()) == 8
        sock.sendall(GET % b"block/3")
        stuck = eventually(
            lambda: [worker for worker in server.state()["workers"] if worker["requests"]], "it is stuck"
        )[0]
        found = server.metrics()
        assert served(found) == 8
        assert found[f"servery_worker_report_age_seconds {stuck['slot']}"] >= 0.4  # nobody answered in time
        assert found[f"servery_worker_report_age_seconds {1 - stuck['slot']}"] < 0.5 + 0.4
        assert stuck["requests"][0]["path"] == "/block/3"
        assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        assert served(server.metrics()) == 9


# --- how long it is there ------------------------------------------------------------------------------


@pytest.mark.any_way
def test_nothing_is_ready_before_a_worker_is_and_all_through_a_stop(start, tmp_path):
    source = """
    while not os.path.exists("start"):
        time.sleep(0.01)
    """
    source += APP.replace("\n", "\n    ")
    with start(source, "--drain-delay", "1") as server:
        eventually(lambda: (tmp_path / "admin").exists())
        assert server.ask("/live")[0] == 200
        assert server.ask("/ready") == (503, "not ready\n")
        assert server.state()["status"] == "starting"
        assert server.metrics()["servery_workers"] == 0
        (tmp_path / "start").touch()
        server.wait_for("workers=2")
        assert server.ask("/ready")[0] == 200
        with server.connect() as sock:
            sock.sendall(GET % b"wait/1.5")
            eventually(lambda: server.metrics()["servery_requests_in_flight"] == 1)
            assert server.ask("/stop", "POST") == (202, "stopping\n")
            assert server.ask("/stop", "POST")[0] == 202  # is not more of a hurry
            assert server.ask("/ready")[0] == 503
            server.serve()  # it is drained
            assert server.ask("/reload", "POST") == (409, "the server is stopping\n")
            assert server.ask("/scale?workers=3", "POST") == (409, "the server is stopping\n")
            server.wait_for("stopping: 1 requests")
            assert server.ask("/live")[0] == 200
            state = server.state()
            assert (state["status"], state["listening"]) == ("stopping", [])
            assert "stopping" in {worker["state"] for worker in state["workers"]}
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        assert server.end() == 0
    assert not (tmp_path / "admin").exists()


@pytest.mark.any_way
def test_an_upgrade_takes_it_over_with_all_that_was_counted(start, tmp_path):
    with start(APP, "--preload") as server, socket.socket(socket.AF_UNIX) as kept:
        server.serve(12)
        before, inode = server.state(), os.stat(tmp_path / "admin").st_ino
        kept.connect(str(tmp_path / "admin"))
        kept.sendall(PROBE)
        assert read_response(kept)[1] == b"live\n"
        server.signal(signal.SIGHUP)  # which replaces the program, since the application is preloaded
        server.wait_for("reloaded: 2 workers serve")
        assert read_to_end(kept) == b""
        assert os.stat(tmp_path / "admin").st_ino == inode
        after = server.state()
        assert after["since"] == before["since"]
        assert after["master"]["pid"] == before["master"]["pid"]
        assert after["master"]["generation"] > before["master"]["generation"]
        assert served(server.metrics()) == 12
        assert server.restarts("upgrade") == 2
        server.serve(3)
        assert served(server.metrics()) == 15
        assert server.stop() == 0
    assert not (tmp_path / "admin").exists()


@pytest.mark.any_way
def test_an_upgrade_waits_a_moment_for_who_is_about_to_ask(start, tmp_path):
    with start(APP) as server, socket.socket(socket.AF_UNIX) as asking:
        server.wait_for("workers=2")
        asking.settimeout(WAIT)
        asking.connect(str(tmp_path / "admin"))
        asking.sendall(PROBE[:9])
        server.signal(signal.SIGUSR2)
        server.wait_for("trying out")
        asking.sendall(PROBE[9:])
        assert read_response(asking)[1] == b"live\n"
        server.wait_for("reloaded: 2 workers serve")
        assert server.ask("/live")[0] == 200
        assert server.stop() == 0


@pytest.mark.any_way
def test_a_reload_moves_it_and_says_why_it_cannot(start, tmp_path):
    config = tmp_path / "servery.toml"
    config.write_text(f'bind = ["127.0.0.1:0"]\nadmin = "unix:{tmp_path}/admin"\n')
    flags = ("--config", "servery.toml", "--workers", "2")
    with ServerProcess(tmp_path, APP, *flags, where=()) as server:
        server.wait_for("workers=2")
        old, new = f"unix:{tmp_path}/admin", f"unix:{tmp_path}/moved"
        config.write_text("wrkers = 3\n")
        status, text = ask(old, "POST", "/reload")
        assert (status, "wrkers" in text) == (409, True)
        (tmp_path / "file").touch()
        config.write_text(f'bind = ["127.0.0.1:0"]\nadmin = "unix:{tmp_path}/file"\n')
        status, text = ask(old, "POST", "/reload")
        assert (status, "not a socket" in text) == (409, True)
        config.write_text(f'bind = ["127.0.0.1:0"]\nadmin = "{new}"\n')
        assert ask(old, "POST", "/reload")[0] == 202
        server.wait_for("reloaded: 2 workers serve")
        eventually(lambda: not (tmp_path / "admin").exists())
        assert metrics_of(new)["servery_workers"] == 2
        assert server.stop() == 0
    assert not (tmp_path / "moved").exists()


@pytest.mark.any_way
def test_workers_keep_nothing_of_it_open(start, tmp_path):
    with start() as server, server.connect() as sock:
        sock.sendall(GET % b"wait/0.5")
        eventually(lambda: server.metrics()["servery_requests_in_flight"] == 1)
        server.process.kill()
        server.process.wait(WAIT)
        with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
            late.connect(str(tmp_path / "admin"))
        read_to_end(sock)


@pytest.mark.any_way
def test_an_address_in_use_ends_the_server_before_a_worker_starts(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with start(APP, "--admin", f"127.0.0.1:{taken.getsockname()[1]}") as server:
            assert server.end() == 3
    assert "already in use" in server.said


# --- with everything else ------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@pytest.mark.any_way
def test_on_a_port_with_sockets_of_their_own(start):
    with start(APP, "--admin", f"127.0.0.1:{free_port()}", "--reuse-port", "--workers", "3") as server:
        server.serve(30)
        assert served(server.metrics()) == 30
        assert server.ask("/scale?workers=4", "POST")[0] == 202
        eventually(lambda: server.metrics()["servery_workers"] == 4)
        server.serve(10)
        assert served(server.metrics()) == 40
        assert server.stop() == 0


@pytest.mark.any_way
def test_with_tls(start):
    with start(APP, "--tls-self-signed") as server:
        port = server.port
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port), WAIT) as plain:
                with context.wrap_socket(plain) as sock:
                    sock.sendall(GET % b"")
                    assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        assert served(server.metrics()) == 5
        assert server.state()["listening"] == [f"https://127.0.0.1:{port}"]
        assert server.stop() == 0


@pytest.mark.any_way
def test_with_http2(start):
    with start(APP, "--h2c") as server:
        command = ("curl", "-sS", "--http2-prior-knowledge", f"http://127.0.0.1:{server.port}/")
        for _ in range(2):
            assert subprocess.run(command, capture_output=True, timeout=WAIT, check=False).returncode == 0
        assert served(server.metrics()) == 2
        assert server.stop() == 0


# --- parts ---------------------------------------------------------------------------------------------


def test_who_does_not_read_is_not_waited_for_and_loses_no_word():
    """But what a later message replaces is left out."""
    ours, theirs = open_channel()
    theirs.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    for number in range(1000):
        theirs.offer({"report": number, "text": "x" * 500})
    theirs.send({"ready": True})
    theirs.offer({"report": 1000})
    theirs.send({"stopping": True})
    read, received = reading(ours), []
    received += read()
    theirs.finish(WAIT)
    received += read()
    reports = [message["report"] for message in received if "report" in message]
    assert reports == list(range(len(reports)))
    assert 0 < len(reports) < 1000
    assert [message for message in received if "report" not in message] == [
        {"ready": True},
        {"stopping": True},
    ]
    theirs.offer({"report": 1001})
    theirs.close()
    assert list(ours.rest()) == [{"report": 1001}]
    ours.send({"do": "stop"})  # to nobody
    ours.close()


def reading(channel: Channel):
    """A function that gives what has come."""

    def read():
        received = []
        while messages := channel.receive():
            received += messages
        return received

    return read


def test_who_owes_an_answer_for_too_long_is_not_asked_again():
    question = Question()
    assert question.ask(1, 10.0, 0.5)
    assert question.ask(2, 10.4, 0.5)
    assert not question.ask(3, 10.5, 0.5)
    question.answer(1, 10.6)
    assert question.ask(4, 11.0, 0.5)
    assert not question.ask(5, 11.1, 0.5)
    question.answer(4, 20.0)
    assert question.ask(6, 30.0, 0.5)
    assert question.ask(7, 30.4, 0.5)
