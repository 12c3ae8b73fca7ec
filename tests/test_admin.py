"""The admin listener, and ``servery ctl``: probes, metrics, state, stop."""

from __future__ import annotations

import http.client
import json
import os
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager

import pytest
from harness import WAIT, eventually, read_response, read_to_end
from process import ServerProcess
from prometheus_client.parser import text_string_to_metric_families
from sample_apps import read_body, respond
from test_limit_concurrency import GET, Gate
from under_test import clean_environment

from servery import Config
from servery.errors import BindError, ConfigError

LOCAL = "127.0.0.1:0"


def ask(server, path: str, method: str = "GET", **fields: str) -> tuple[int, dict[str, str], str]:
    """(status, fields, content) of the admin listener's answer."""
    host, _, port = server.server.admin_urls[0].removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=WAIT)
    connection.request(
        method, path, headers={name.replace("_", "-"): value for name, value in fields.items()}
    )
    response = connection.getresponse()
    content = response.read().decode()
    connection.close()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, content


def metrics(server) -> dict[str, float]:
    """name{labels} -> value, read by Prometheus's own parser."""
    status, fields, text = ask(server, "/metrics")
    assert status == 200
    assert fields["content-type"].startswith("text/plain; version=0.0.4")
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@contextmanager
def control(*arguments: str, **environ: str):
    """A run of ``servery ctl``."""
    run = subprocess.run(
        [sys.executable, "-m", "servery", "ctl", *arguments],
        env={**clean_environment(), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    yield run


# --- who may come ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0:9000", "[::]:9000", "10.0.0.1:9000", "admin.example:9000"])
def test_a_public_address_needs_a_word(address):
    with pytest.raises(ConfigError, match="admin_public"):
        Config(admin=address)
    assert Config(admin=address, admin_public=True).admin == address


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "unix:/x", "unix:@x"]
)
def test_a_local_address_needs_none(address):
    assert Config(admin=address).admin == address


@pytest.mark.parametrize("address", ["9000", "fd://3", "127.0.0.1", "unix:", ":9000"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ConfigError, match="admin"):
        Config(admin=address)


def test_off_by_default(serve):
    with serve(Gate()) as server:
        assert server.server.admin_urls == []
        assert server.service.metrics is None


def test_an_address_in_use_is_told_before_the_application_starts(serve):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(BindError, match="in use"):
        with serve(Gate(), admin=f"127.0.0.1:{taken.getsockname()[1]}"):
            pass


def test_web_pages_are_kept_out(serve):
    with serve(Gate(), admin=LOCAL) as server:
        assert ask(server, "/state", host="localhost")[0] == 200
        assert ask(server, "/state", host="[::1]:80")[0] == 200
        assert ask(server, "/state", host="rebound.example")[0] == 403
        assert ask(server, "/stop", "POST", host="rebound.example")[0] == 403
        assert ask(server, "/stop", "POST", origin="https://evil.example")[0] == 403
        assert not server.server.should_exit


def test_names_are_good_where_others_may_come(serve):
    with serve(Gate(), admin=LOCAL, admin_public=True) as server:
        assert ask(server, "/live", host="app.internal:9000")[0] == 200


# --- what it says ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/live", "GET", 200),
        ("/live", "HEAD", 200),
        ("/ready", "GET", 200),
        ("/ready?x", "GET", 200),
        ("/", "GET", 404),
        ("/metrics/", "GET", 404),
        ("/live", "POST", 405),
        ("/stop", "GET", 405),
        ("/reload", "POST", 409),
        ("/scale?workers=2", "POST", 409),
        ("/scale?workers=0", "POST", 400),
        ("/scale?workers=10000", "POST", 400),
        ("/scale", "POST", 400),
    ],
)
def test_probes(serve, path, method, status):
    with serve(Gate(), admin=LOCAL) as server:
        found, fields, _ = ask(server, path, method)
        assert found == status
        assert fields["cache-control"] == "no-store"
        assert ("allow" in fields) is (status == 405)
        assert server.access.lines() == []


@pytest.mark.any_way
def test_it_is_there_before_the_application_and_after(serve, tmp_path):
    """A start that takes long is alive and not ready; so is a stop, from its first moment."""
    source = """
    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            while not os.path.exists("start"):
                await asyncio.sleep(0.01)
            await send({"type": "lifespan.startup.complete"})
            await receive()
            while not os.path.exists("stop"):
                await asyncio.sleep(0.01)
            await send({"type": "lifespan.shutdown.complete"})
    """
    address = f"unix:{tmp_path}/admin"
    with ServerProcess(tmp_path, source, "--admin", address) as process:
        eventually(lambda: (tmp_path / "admin").exists())
        for flag, status in (("start", "starting"), ("stop", "stopping")):
            with control("live", "--admin", address) as run:
                assert (run.returncode, run.stdout) == (0, "live\n")
            with control("ready", "--admin", address) as run:
                assert (run.returncode, run.stdout, run.stderr) == (1, "", "not ready\n")
            with control("state", SERVERY_ADMIN=address) as run:
                assert json.loads(run.stdout)["status"] == status
            (tmp_path / flag).touch()
            if flag == "start":
                assert process.port
                with control("ready", "--admin", address) as run:
                    assert (run.returncode, run.stdout) == (0, "ready\n")
                with control("stop", "--admin", address) as run:
                    assert (run.returncode, run.stdout) == (0, "stopping\n")
        assert process.end() == 0
    assert not (tmp_path / "admin").exists()


def test_only_the_owner_may_connect_to_the_socket(serve, tmp_path):
    path = tmp_path / "admin"
    with serve(Gate(), admin=f"unix:{path}"):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_state(serve):
    app = Gate()
    with serve(app, admin=LOCAL, limit_concurrency=2, limit_queue=1, timeout_queue=60.0) as server:
        with (
            server.connect() as one,
            server.connect() as two,
            server.connect() as three,
            server.connect() as idle,
        ):
            for sock in (one, two):
                sock.sendall(b"GET /wait?secret=1 HTTP/1.1\r\nHost: a\r\n\r\n")
                assert app.entered.acquire(timeout=WAIT)
            three.sendall(GET % b"wait")
            idle.sendall(b"x")
            eventually(lambda: server.call(lambda: len(server.service.cycles)) == 3)
            eventually(lambda: server.call(lambda: len(server.service.connections)) == 4)
            status, fields, content = ask(server, "/state")
            assert (status, fields["content-type"]) == (200, "application/json")
            state = json.loads(content)
            server.call(app.open)
            for sock in (one, two):
                read_response(sock)
            assert app.entered.acquire(timeout=WAIT)
            server.call(app.open)
            read_response(three)
    assert state["status"] == "ready"
    assert len(state["listening"]) == 1
    (worker,) = state["workers"]
    assert worker["pid"] == os.getpid()
    assert (worker["connections"], worker["requests_in_flight"], worker["requests_waiting"]) == (4, 3, 1)
    first = worker["requests"][0]
    assert (first["method"], first["path"], first["type"], first["status"]) == ("GET", "/wait", "http", None)
    assert first["age"] >= worker["requests"][1]["age"] >= 0
    assert "secret" not in content


def test_stop(serve):
    with serve(Gate(), admin=LOCAL) as server:
        assert ask(server, "/stop", "POST")[0] == 202
        server.thread.join(WAIT)
        assert not server.thread.is_alive()


def test_probes_are_answered_when_the_application_is_full(serve):
    app = Gate()
    with serve(app, admin=LOCAL, limit_concurrency=1, limit_connections=1) as server:
        with server.connect() as sock:
            sock.sendall(GET % b"wait")
            assert app.entered.acquire(timeout=WAIT)
            assert ask(server, "/live")[0] == 200
            server.call(app.open)
            read_response(sock)


# --- the numbers -------------------------------------------------------------------------------------------


async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] == "websocket.receive":
            pass
        return
    await read_body(receive)
    if scope["path"] == "/missing":
        await respond(send, b"no", 404)
    elif scope["path"] == "/fails":
        raise RuntimeError("no")
    else:
        await respond(send, b"x" * 1000)


def test_requests_are_counted_by_method_status_duration_and_size(serve):
    with serve(application, admin=LOCAL) as server:
        with server.connect() as sock:
            for path in (b"", b"", b"missing", b"fails"):
                sock.sendall(GET % path)
                read_response(sock)
            sock.sendall(b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n")
            read_response(sock)
        server.raw(b"BROKEN\r\n\r\n")
        server.raw(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n")
        server.access.wait(7)
        found = metrics(server)
        assert found["servery_requests_total GET 200"] == 2
        assert found["servery_requests_total GET 404"] == 1
        assert found["servery_requests_total GET 500"] == 1
        assert found["servery_requests_total other 200"] == 1
        assert found["servery_rejected_total malformed"] == 1
        assert found["servery_rejected_total head_too_large"] == 1
        assert found["servery_request_duration_seconds_count"] == 5
        assert 0 < found["servery_request_duration_seconds_sum"] < WAIT
        assert found["servery_response_size_bytes_bucket 1024"] == 5
        assert found["servery_response_size_bytes_bucket 256"] == 2
        eventually(lambda: metrics(server)["servery_connections idle"] == 0)
        found = metrics(server)
        assert found["servery_connections_accepted_total"] == 3
        assert found["servery_requests_in_flight"] == 0
        assert found["servery_workers"] == 1
        eventually(lambda: metrics(server)["servery_loop_lag_seconds_count"])


def test_nothing_is_counted_for_the_access_log_to_be_on(serve):
    with serve(application, admin=LOCAL, access_log=False) as server:
        server.raw(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        eventually(lambda: metrics(server).get("servery_requests_total GET 200") == 1)


def test_connections_by_state(serve):
    app = Gate()
    with serve(app, admin=LOCAL, limit_concurrency=1, limit_queue=1, timeout_queue=0.2) as server:
        with server.connect() as busy, server.connect() as late:
            busy.sendall(GET % b"wait")
            assert app.entered.acquire(timeout=WAIT)
            late.sendall(GET % b"")
            eventually(lambda: metrics(server)["servery_requests_waiting"] == 1)
            assert read_response(late)[0].startswith(b"HTTP/1.1 503")
            found = metrics(server)
            assert (found["servery_connections active"], found["servery_connections idle"]) == (1, 1)
            assert found["servery_requests_in_flight"] == 1
            assert found["servery_queue_wait_seconds_count"] == 1
            assert found["servery_queue_wait_seconds_sum"] >= 0.19  # the loop's clock may be ahead
            server.call(app.open)
            read_response(busy)


def test_websockets(serve):
    handshake = (
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with serve(application, admin=LOCAL) as server, server.connect() as sock:
        sock.sendall(handshake)
        assert sock.recv(65536).startswith(b"HTTP/1.1 101")
        found = metrics(server)
        assert (found["servery_connections websocket"], found["servery_connections active"]) == (1, 0)
        assert json.loads(ask(server, "/state")[2])["workers"][0]["requests"][0]["type"] == "websocket"
        sock.sendall(b"\x88\x82\0\0\0\0\x03\xe9")
        read_to_end(sock)
        eventually(lambda: metrics(server).get("servery_websockets_total 1001") == 1)
        found = metrics(server)
        assert found["servery_requests_total GET 101"] == 1
        assert found["servery_connections_accepted_total"] == 1
        assert found["servery_request_duration_seconds_count"] == 0


def test_a_preamble_that_is_refused_is_counted(serve):
    settings = {"trusted_proxy": ("127.0.0.1",), "proxy_protocol": "v1"}
    with serve(application, admin=LOCAL, **settings) as server:
        with server.connect() as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n")
            eventually(lambda: metrics(server).get("servery_rejected_total proxy_protocol") == 1)


def test_state_names_no_more_than_so_many_requests(serve):
    from servery.drivers.inspection import MOST_REQUESTS

    app = Gate()
    with serve(app, admin=LOCAL) as server:
        socks = [server.connect() for _ in range(MOST_REQUESTS + 1)]
        for sock in socks:
            sock.sendall(GET % b"wait")
            assert app.entered.acquire(timeout=WAIT)
        (worker,) = json.loads(ask(server, "/state")[2])["workers"]
        assert (len(worker["requests"]), worker["requests_in_flight"]) == (MOST_REQUESTS, MOST_REQUESTS + 1)
        server.call(app.open)
        for sock in socks:
            read_response(sock)
            sock.close()


# --- the command -------------------------------------------------------------------------------------------


def test_the_command_finds_the_address_where_the_server_has_it(serve, tmp_path):
    path = tmp_path / "admin"
    (tmp_path / "conf.toml").write_text(f'admin = "unix:{path}"\n')
    with serve(Gate(), admin=f"unix:{path}"):
        with control("live", "--config", str(tmp_path / "conf.toml")) as run:
            assert (run.returncode, run.stdout) == (0, "live\n")
        with control("metrics", SERVERY_ADMIN=f"unix:{path}") as run:
            assert "servery_workers 1\n" in run.stdout
        with control("reload", "--admin", f"unix:{path}") as run:
            assert run.returncode == 1
            assert "one process" in run.stderr


def test_the_command_says_what_is_missing(tmp_path):
    with control("live") as run:
        assert run.returncode == 2
        assert "--admin" in run.stderr
    with control("live", "--admin", f"unix:{tmp_path}/none") as run:
        assert run.returncode == 3
        assert f"unix:{tmp_path}/none" in run.stderr
    for wrong in (["dance"], ["scale"], ["scale", "0"], ["scale", "x"], ["stop", "3"]):
        with control(*wrong, "--admin", "unix:/x") as run:
            assert run.returncode == 2
    with control("--help") as run:
        assert run.returncode == 0
        assert "stop gracefully" in run.stdout


def test_an_application_may_be_called_ctl(serve, tmp_path):
    (tmp_path / "ctl.py").write_text("async def app(scope, receive, send): ...\n")
    run = subprocess.run(
        [sys.executable, "-m", "servery", "ctl:app", "--check-config"],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
