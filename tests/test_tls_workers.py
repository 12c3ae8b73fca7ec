"""TLS with a master and workers: tickets, renewal, reload, and all that comes with TLS, on the wire."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import WAIT, eventually, read_response, read_to_end, statuses
from process import ServerProcess
from test_workers import APP, others, workers
from tls_material import Material, shown, wrapped

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
MANY = 40
"""Connections among which each of two workers gets some, whichever way the kernel has."""


@pytest.fixture
def material(tmp_path):
    return Material(tmp_path)


@pytest.fixture
def start(way, tmp_path):
    """``with start(*flags) as server``: two workers, and the port once they serve."""

    @contextlib.contextmanager
    def start(*flags):
        command = ("--workers", "2", "--timeout-linger", "0.5", "--no-access-log", *flags)
        with ServerProcess(tmp_path, APP, *command) as server:
            server.tls_port = int(server.wait_for(r"tls=ssl .* https://127.0.0.1:(\d+)")[1])
            yield server
            assert server.stop() == 0
            assert "Traceback" not in server.said

    return start


def visit(server, client, session=None):
    """(process id of who answered, names in its certificate, the session, whether it was resumed)."""
    sock = socket.create_connection(("127.0.0.1", server.tls_port), WAIT)
    try:
        secure = client.wrap_socket(sock, server_hostname="localhost", session=session)
    except BaseException:
        sock.close()
        raise
    with secure:
        secure.sendall(GET)
        answered = int(read_response(secure)[1])
        names = shown(secure) if client.verify_mode else set()
        return answered, names, secure.session, secure.session_reused


def visits(server, client, session=None):
    """`MANY` of them: {process id: whether all were resumed}."""
    met = {}
    for _ in range(MANY):
        pid, _, _, resumed = visit(server, client, session)
        met[pid] = met.get(pid, True) and resumed
    return met


# --- tickets -----------------------------------------------------------------------------------------


@pytest.mark.any_way
@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("clients", ["none", "required"])
def test_a_session_is_resumed_by_every_worker(start, material, version, clients):
    pem, own = material.issue("localhost"), material.issue("alice", to="alice")
    client = material.client(own, maximum_version=ssl.TLSVersion[version])
    flags = ("--tls-ca", material.ca, "--tls-client-cert", clients) if clients != "none" else ()
    with start("--tls-cert", pem, *flags) as server:
        before = workers(server)
        first, _, session, resumed = visit(server, client)
        assert not resumed
        assert visits(server, client, session) == dict.fromkeys(before, True)
        os.kill(first, signal.SIGKILL)  # whoever comes in its place has the keys, too
        eventually(lambda: len(now := workers(server)) == 2 and first not in now)
        eventually(lambda: visits(server, client, session) == dict.fromkeys(workers(server), True))


@pytest.mark.any_way
def test_tickets_outlive_a_renewed_certificate_but_no_reload(start, material):
    pem, client = material.issue("localhost", "one.example"), material.client()
    with start("--tls-cert", pem, "--tls-watch", "0.05") as server:
        _, _, session, _ = visit(server, client)
        material.issue("localhost", "two.example")
        every_worker_shows(server, material, "two.example")
        assert visits(server, client, session) == dict.fromkeys(workers(server), True)
        before = workers(server)
        server.signal(signal.SIGHUP)
        after = others(server, before)
        server.wait_for("reloaded")
        assert visits(server, client, session) == dict.fromkeys(after, False)
        _, _, session, _ = visit(server, client)
        assert visits(server, client, session) == dict.fromkeys(after, True)


@pytest.mark.any_way
def test_nobody_is_resumed_whose_authority_was_replaced(start, material, tmp_path):
    (tmp_path / "other").mkdir()
    pem, own = material.issue("localhost"), material.issue("alice", to="alice")
    authority = tmp_path / "clients.pem"
    material.authority.cert_pem.write_to_path(authority)
    client = material.client(own)
    flags = ("--tls-ca", str(authority), "--tls-client-cert", "required", "--tls-watch", "0.05")
    with start("--tls-cert", pem, *flags) as server:
        first, _, session, _ = visit(server, client)
        Material(tmp_path / "other").authority.cert_pem.write_to_path(authority)
        eventually(lambda: server.said.count("TLS: read again") == 2)
        for _ in range(MANY):
            with pytest.raises(OSError, match="UNKNOWN_CA|unknown ca|reset"):
                visit(server, client, session)
        os.kill(first, signal.SIGKILL)  # nor by who has the keys of the master
        eventually(lambda: len(now := workers(server)) == 2 and first not in now)
        for _ in range(MANY):
            with pytest.raises(OSError, match="UNKNOWN_CA|unknown ca|reset"):
                visit(server, client, session)


# --- certificates ------------------------------------------------------------------------------------


def every_worker_shows(server, material, name):
    """Wait until each of the workers has shown a certificate with `name`, and none another one since."""
    client = material.client()

    def all_show():
        met = {}
        for _ in range(MANY):
            pid, names, _, _ = visit(server, client)
            met[pid] = met.get(pid, True) and name in names
        return met == dict.fromkeys(workers(server), True)

    eventually(all_show, f"all workers show {name}")


def test_all_workers_show_a_certificate_that_was_replaced_on_disk(start, material):
    pem, client = material.issue("localhost", "one.example"), material.client()
    with start("--tls-cert", pem) as server:
        before = workers(server)
        kept = wrapped(socket.create_connection(("127.0.0.1", server.tls_port), WAIT), client)
        with kept:
            every_worker_shows(server, material, "one.example")
            material.issue("localhost", "two.example")
            every_worker_shows(server, material, "two.example")
            kept.sendall(GET)
            assert int(read_response(kept)[1]) in before
        assert workers(server) == before


@pytest.mark.any_way
def test_a_reload_reads_certificates(start, material):
    pem, client = material.issue("localhost", "one.example"), material.client()
    with start("--tls-cert", pem, "--tls-watch", "none") as server:
        before = workers(server)
        material.issue("localhost", "two.example")
        assert "one.example" in visit(server, client)[1]
        server.signal(signal.SIGHUP)
        others(server, before)
        server.wait_for("reloaded: 2 workers serve")
        every_worker_shows(server, material, "two.example")


@pytest.mark.any_way
def test_a_reload_loses_no_request_of_new_connections(start, material):
    """Each begins with a handshake, which a worker that is being replaced has to see to its end."""
    pem, client = material.issue("localhost"), material.client()
    with start("--tls-cert", pem) as server:
        before = workers(server)
        over = threading.Event()

        def come_and_go():
            count = 0
            while not over.is_set():
                visit(server, client)
                count += 1
            return count

        with ThreadPoolExecutor(4) as pool:
            visitors = [pool.submit(come_and_go) for _ in range(4)]
            try:
                for time in (1, 2):
                    server.signal(signal.SIGHUP)
                    others(server, before)
                    server.wait_for(rf"(?s)(?:reloaded: 2 workers serve.*){{{time}}}")
                    before = workers(server)
            finally:
                over.set()
            assert min(visitor.result(WAIT) for visitor in visitors) > 0


@pytest.mark.any_way
def test_a_certificate_that_cannot_be_used_leaves_the_old_workers_alone(start, material, tmp_path):
    pem, client = material.issue("localhost"), material.client()
    with start("--tls-cert", pem, "--tls-watch", "none") as server:
        before = workers(server)
        good = (tmp_path / "server.pem").read_bytes()
        (tmp_path / "server.pem").write_bytes(b"nothing")
        server.signal(signal.SIGHUP)
        server.wait_for("there is no key in it|both must be PEM")
        for _ in range(5):
            visit(server, client)
        (tmp_path / "server.pem").write_bytes(good)
        server.signal(signal.SIGHUP)
        server.wait_for("reloaded: 2 workers serve")
        others(server, before)


@pytest.mark.any_way
def test_files_that_cannot_be_used_end_the_start(way, tmp_path):
    with ServerProcess(tmp_path, APP, "--workers", "2", "--tls-cert", str(tmp_path / "missing")) as server:
        assert server.end() == 3
    assert server.said.count("cannot be read: No such file") == 1
    assert "Traceback" not in server.said


# --- what comes with TLS -----------------------------------------------------------------------------


@pytest.mark.any_way
def test_the_redirect_with_workers(start, material):
    pem = material.issue("localhost")
    with start("--tls-cert", pem, "--tls-redirect", "127.0.0.1:0") as server:
        port = int(server.wait_for(r"to https from http://127.0.0.1:(\d+)")[1])
        for _ in range(MANY):
            with socket.create_connection(("127.0.0.1", port), WAIT) as sock:
                sock.sendall(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                answer = read_to_end(sock)
            assert statuses(answer) == [b"308"]
            assert b"\r\nlocation: https://a:%d/x\r\n" % server.tls_port in answer


@pytest.mark.any_way
def test_http2_with_workers(start, material):
    pem = material.issue("localhost")
    with start("--tls-cert", pem, "--http2") as server:
        url = f"https://localhost:{server.tls_port}/"
        command = ["curl", "--silent", "--show-error", "--http2", "--cacert", material.ca]
        command += ["--write-out", ' {"version": %{http_version}}\n']
        said = ""
        for _ in range(MANY // 4):
            said += subprocess.run([*command, url], capture_output=True, check=True, text=True).stdout
        answers = [line.partition(" ") for line in said.splitlines()]
        assert {int(pid) for pid, _, _ in answers} <= workers(server)
        assert {json.loads(facts)["version"] for _, _, facts in answers} == {2}
