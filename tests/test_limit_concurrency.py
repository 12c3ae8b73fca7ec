"""More requests at a time than the limit get 503; those that are in progress go on."""

from __future__ import annotations

import asyncio
import threading

from harness import WAIT, read_response
from sample_apps import read_body, respond

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"


class Gate:
    """An application whose requests to /wait end when `open` is called in the loop."""

    def __init__(self):
        self.entered = threading.Semaphore(0)
        self.waiting = []
        self.calls = 0

    async def __call__(self, scope, receive, send):
        self.calls += 1
        if scope["path"] == "/wait":
            gate = asyncio.Event()
            self.waiting.append(gate)
            self.entered.release()
            await gate.wait()
        await respond(send, b"%d" % len(await read_body(receive)))

    def open(self):
        for gate in self.waiting:
            gate.set()
        self.waiting.clear()


def test_requests_over_the_limit_are_refused_and_the_connection_goes_on(serve):
    app = Gate()
    with serve(app, limit_concurrency=2) as server:
        busy = [server.connect() for _ in range(2)]
        for sock in busy:
            sock.sendall(GET % b"wait")
            assert app.entered.acquire(timeout=WAIT)
        with server.connect() as sock:
            post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
            for data in (GET % b"", post, post, GET % b""):
                sock.sendall(data)
                head, content, rest = read_response(sock)
                assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
                assert b"retry-after: 1" in head
                assert content == b"Service Unavailable\n"
                assert rest == b""
            assert app.calls == 2
            server.call(app.open)
            for waiting in busy:
                assert read_response(waiting)[1] == b"0"
                waiting.close()
            sock.sendall(GET % b"")
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        lines = server.access.wait(7)
    assert sum('" 503 ' in line for line in lines) == 4
    assert server.errors.lines(30) == []


def test_a_refused_request_owes_the_rest_of_its_body(serve):
    """What came with the head counts: the octets behind the body are the next request, and no others."""
    app = Gate()
    with serve(app, limit_concurrency=1) as server, server.connect() as busy, server.connect() as sock:
        busy.sendall(GET % b"wait")
        assert app.entered.acquire(timeout=WAIT)
        sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello")
        assert read_response(sock)[0].startswith(b"HTTP/1.1 503")
        server.call(app.open)
        assert read_response(busy)[1] == b"0"
        sock.sendall(b"world" + GET % b"")
        assert read_response(sock)[0].startswith(b"HTTP/1.1 200")


def test_a_request_that_came_broken_is_not_refused_for_the_limit(serve):
    """It was answered already: there is no second answer, and the first one arrives."""
    app = Gate()
    with serve(app, limit_concurrency=1) as server, server.connect() as busy:
        busy.sendall(GET % b"wait")
        assert app.entered.acquire(timeout=WAIT)
        received = server.raw(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\ng\r\n")
        assert received.startswith(b"HTTP/1.1 400 ")
        assert received.count(b"HTTP/1.1") == 1
        assert app.calls == 1
        server.call(app.open)
        assert read_response(busy)[1] == b"0"
        server.access.wait(2)
        logged = [(record.access.method, record.access.status) for record in server.access.records]
        assert logged == [(b"POST", 400), (b"GET", 200)]


def test_idle_connections_do_not_count(serve):
    app = Gate()
    with serve(app, limit_concurrency=1) as server:
        idle = [server.connect() for _ in range(5)]
        for sock in idle:
            sock.sendall(GET % b"")
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        for sock in idle:
            sock.close()


def test_pipelined_requests_do_not_refuse_each_other(serve):
    app = Gate()
    with serve(app, limit_concurrency=1) as server, server.connect() as sock:
        sock.sendall(GET % b"" * 20)
        rest = b""
        for _ in range(20):
            head, _, rest = read_response(sock, rest)
            assert head.startswith(b"HTTP/1.1 200")


def test_requests_that_were_left_make_room_again(serve):
    async def app(scope, receive, send):
        try:
            await read_body(receive)
        finally:
            ended.release()

    ended = threading.Semaphore(0)
    with serve(app, limit_concurrency=1) as server:
        for _ in range(10):
            with server.connect() as sock:
                sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
            assert ended.acquire(timeout=WAIT)
    assert [line for line in server.access.lines() if '" 503 ' in line] == []
