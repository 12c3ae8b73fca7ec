"""The admin listener of a process without an event loop."""

from __future__ import annotations

import http.client
import json
import selectors
import socket
import sys
import threading
from contextlib import contextmanager

import pytest
from harness import WAIT, read_response, read_to_end, statuses

from servery import Config
from servery.admin.client import ask
from servery.admin.listener import CONNECTIONS
from servery.admin.polled import PolledAdmin, next_poll
from servery.metrics.counting import Metrics, counter, merge
from servery.selection import select

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="selectors have no descriptor there")

GET = b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Crew:
    """A source that answers for two workers, from what they reported last."""

    def __init__(self):
        self.stopped = threading.Event()
        self.reports = [Metrics(), Metrics()]
        for report in self.reports:
            report.request(b"GET", 200, 0.1, 10)

    def ready(self):
        return not self.stopped.is_set()

    async def snapshot(self):
        restarts = {"servery_worker_restarts_total": counter({"": 3})}
        return merge([*(json.loads(json.dumps(report.snapshot())) for report in self.reports), restarts])

    async def state(self):
        return {"workers": [{"pid": 1}, {"pid": 2}], "text": "x" * 300_000}

    def stop(self):
        self.stopped.set()

    def reload(self):
        return None

    def scale(self, workers):
        self.workers = workers


@contextmanager
def polling(engine_name: str, source=None, address: str = "127.0.0.1:0"):
    """A `PolledAdmin` that a thread with a selector of its own looks after; and where it is."""
    config = Config(app="x:y", admin=address, parser=engine_name, io="transport")
    admin = PolledAdmin(config, select(config), source or Crew())
    done = threading.Event()

    def run() -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(admin, selectors.EVENT_READ)
            while not done.is_set():
                selector.select(0.05)
                admin.poll()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield admin, admin.listeners[0].url.removeprefix("http://")
    finally:
        done.set()
        thread.join(WAIT)
        admin.close()


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), WAIT)


def test_it_answers_for_all_workers(engine_name, tmp_path):
    source = Crew()
    with polling(engine_name, source, f"unix:{tmp_path}/admin") as (_, address):
        assert ask(address, "GET", "/ready") == (200, "ready\n")
        status, text = ask(address, "GET", "/metrics")
        assert status == 200
        assert 'servery_requests_total{method="GET",status="200"} 2\n' in text
        assert "servery_worker_restarts_total 3\n" in text
        assert ask(address, "POST", "/reload")[0] == 202
        assert ask(address, "POST", "/scale?workers=9999")[0] == 202
        assert source.workers == 9999
        assert ask(address, "POST", "/stop")[0] == 202
        assert source.stopped.is_set()
        assert ask(address, "GET", "/ready")[0] == 503
    assert not (tmp_path / "admin").exists()


def test_answers_that_the_kernel_does_not_take_at_once(engine_name):
    """Of a client that asks for more than fits, before it reads anything."""
    with polling(engine_name) as (_, address), connect(address) as sock:
        sock.sendall(b"GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40)
        rest = b""
        for _ in range(40):
            head, content, rest = read_response(sock, rest)
            assert head.startswith(b"HTTP/1.1 200")
            assert len(json.loads(content)["text"]) == 300_000


def test_connections_are_kept_pipelined_and_closed(engine_name):
    with polling(engine_name) as (_, address):
        with connect(address) as sock:
            sock.sendall(GET * 3 + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert statuses(read_to_end(sock)) == [b"200"] * 4
        with connect(address) as sock:
            sock.sendall(b"POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
            assert read_response(sock)[0].startswith(b"HTTP/1.1 202")
            sock.sendall(b"hello" + GET)
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
            sock.shutdown(socket.SHUT_WR)
            assert read_to_end(sock) == b""
        with connect(address) as sock:
            sock.sendall(b"BROKEN\r\n\r\n")
            assert statuses(read_to_end(sock)) == [b"400"]
        with connect(address) as sock:
            sock.sendall(GET)
            sock.shutdown(socket.SHUT_WR)
            assert statuses(read_to_end(sock)) == [b"200"]


def test_web_pages_are_kept_out(engine_name):
    with polling(engine_name) as (_, address):
        host, _, port = address.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=WAIT)
        connection.request("POST", "/stop", headers={"Origin": "https://evil.example"})
        assert connection.getresponse().status == 403
        connection.close()


def test_more_connections_than_it_keeps_are_closed(engine_name):
    with polling(engine_name) as (_, address):
        socks = [connect(address) for _ in range(CONNECTIONS)]
        for sock in socks:
            sock.sendall(GET)
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        with connect(address) as sock:
            assert sock.recv(1) == b""
        for sock in socks:
            sock.close()
        while True:  # there is room again as soon as these are gone
            with connect(address) as sock:
                try:
                    sock.sendall(GET)
                    if sock.recv(100):
                        break
                except ConnectionError:
                    pass


def opened(engine_name: str, source) -> tuple[PolledAdmin, socket.socket]:
    """A `PolledAdmin` that the test itself looks after, and a client's socket."""
    config = Config(app="x:y", admin="127.0.0.1:0", parser=engine_name, io="transport")
    admin = PolledAdmin(config, select(config), source)
    return admin, connect(admin.listeners[0].url.removeprefix("http://"))


class Later(Crew):
    """Answers when it is told to."""

    done = False

    async def state(self):
        while not self.done:
            await next_poll()
        return {"text": "done"}


def test_an_answer_may_wait_and_others_go_on(engine_name):
    source = Later()
    admin, sock = opened(engine_name, source)
    with sock, connect(admin.listeners[0].url.removeprefix("http://")) as other:
        sock.sendall(b"GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET)
        other.sendall(GET)
        while not select_readable(other):
            admin.poll()
        assert not admin.quiet
        assert not select_readable(sock)
        source.done = True
        admin.poll()
        _, content, rest = read_response(sock)
        assert json.loads(content) == {"text": "done"}
        assert read_response(sock, rest)[1] == b"live\n"
        assert read_response(other)[1] == b"live\n"
        assert admin.quiet
    admin.close()


def select_readable(sock: socket.socket) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def test_a_client_that_leaves_while_its_answer_waits(engine_name):
    source = Later()
    admin, sock = opened(engine_name, source)
    sock.sendall(b"GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for _ in range(3):  # to accept, to read, to wait
        admin.poll()
    sock.close()
    source.done = True
    while not admin.quiet:
        admin.poll()
    sock = connect(admin.listeners[0].url.removeprefix("http://"))
    source.done = False
    sock.sendall(b"GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for _ in range(3):
        admin.poll()
    admin.close()  # with an answer that waits
    assert read_to_end(sock) == b""
    sock.close()


def test_a_pause_keeps_clients_waiting(engine_name):
    admin, first = opened(engine_name, Crew())
    with first, connect(admin.listeners[0].url.removeprefix("http://")) as second:
        admin.pause()
        first.sendall(GET)
        second.sendall(GET)
        admin.poll()
        assert admin.quiet
        admin.resume()
        while not select_readable(second):
            admin.poll()
        assert read_response(first)[1] == read_response(second)[1] == b"live\n"
    admin.close()


def test_a_source_that_fails_costs_its_connection_alone(engine_name, caplog):
    class Broken(Crew):
        async def state(self):
            raise ZeroDivisionError

    admin, sock = opened(engine_name, Broken())
    with sock:
        sock.sendall(b"GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not select_readable(sock):
            admin.poll()
        assert sock.recv(1) == b""
    assert "cannot answer" in caplog.text
    with connect(admin.listeners[0].url.removeprefix("http://")) as sock:
        sock.sendall(GET)
        while not select_readable(sock):
            admin.poll()
        assert read_response(sock)[1] == b"live\n"
    admin.close()
