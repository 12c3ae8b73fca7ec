"""More requests or connections than the server shall carry: who waits, for how long, and who is refused."""

from __future__ import annotations

import asyncio
import threading

import pytest
from harness import WAIT, eventually, read_response, read_to_end
from sample_apps import respond
from test_limit_concurrency import GET, Gate

from servery import Config
from servery.errors import ConfigError

WEBSOCKET = (
    b"GET /wait HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class OneByOne(Gate):
    """A gate that lets the requests through in the order of their coming, one at a time."""

    def open_first(self):
        self.waiting.pop(0).set()


def begin(server, app, path: bytes = b"wait"):
    """A connection whose request has reached the application."""
    sock = server.connect()
    sock.sendall(GET % path)
    assert app.entered.acquire(timeout=WAIT)
    return sock


def in_flight(server) -> int:
    """Requests that the server has begun with, those that wait among them."""
    return len(server.call(lambda: server.service.cycles))


def queue(server, count: int, path: bytes = b"wait"):
    """Connections whose requests wait, in order."""
    socks = []
    for _ in range(count):
        before = in_flight(server)
        sock = server.connect()
        sock.sendall(GET % path)
        eventually(lambda: in_flight(server) > before)  # noqa: B023
        socks.append(sock)
    return socks


# --- the queue ---------------------------------------------------------------------------------------------


def test_requests_over_the_limit_wait_in_order_and_those_over_the_queue_are_refused(serve):
    app = OneByOne()
    with serve(app, limit_concurrency=1, limit_queue=2, timeout_queue=60.0) as server:
        socks = [begin(server, app), *queue(server, 2)]
        with server.connect() as sock:  # one past the queue
            sock.sendall(GET % b"")
            head, _, _ = read_response(sock)
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1" in head
        assert app.calls == 1
        for number, sock in enumerate(socks, 2):
            server.call(app.open_first)
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
            if number <= len(socks):
                assert app.entered.acquire(timeout=WAIT)
            assert app.calls == min(number, len(socks))
            sock.close()
        with server.connect() as sock:
            sock.sendall(GET % b"")
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")


def test_who_has_waited_too_long_is_refused_and_the_connection_goes_on(serve):
    app = Gate()
    with serve(app, limit_concurrency=1, limit_queue=1, timeout_queue=0.2) as server:
        busy = begin(server, app)
        with server.connect() as sock:
            sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
            head, content, rest = read_response(sock)
            assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"retry-after: 1\r\n" in head + b"\r\n"
            assert (content, rest) == (b"Service Unavailable\n", b"")
            assert app.calls == 1
            server.call(app.open)
            assert read_response(busy)[0].startswith(b"HTTP/1.1 200")
            sock.sendall(GET % b"")
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        busy.close()
    assert server.errors.lines(30) == []


@pytest.mark.parametrize("lost", [True, False])
def test_who_leaves_while_waiting_makes_room_and_is_not_served(serve, lost):
    app = Gate()
    with serve(app, limit_concurrency=1, limit_queue=1, timeout_queue=60.0) as server:
        busy = begin(server, app)
        (sock,) = queue(server, 1)
        if lost:
            sock.close()
        else:  # it has finished sending, and reads
            sock.shutdown(1)
            assert read_to_end(sock).startswith(b"HTTP/1.1 503 ")
            sock.close()
        eventually(lambda: in_flight(server) == 1)
        (sock,) = queue(server, 1)
        server.call(app.open)
        assert read_response(busy)[0].startswith(b"HTTP/1.1 200")
        assert app.entered.acquire(timeout=WAIT)
        server.call(app.open)
        assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        assert app.calls == 2
        busy.close()
        sock.close()
    assert server.errors.lines(30) == []


def test_a_body_that_arrives_while_its_request_waits_is_not_lost(serve):
    app = Gate()
    with serve(app, limit_concurrency=1, limit_queue=1, timeout_queue=60.0) as server:
        busy = begin(server, app)
        with server.connect() as sock:
            sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello")
            eventually(lambda: in_flight(server) == 2)
            sock.sendall(b"world")
            server.call(app.open)
            assert read_response(sock)[1] == b"10"
        busy.close()


def test_an_application_that_fails_gives_its_place_back(serve):
    async def app(scope, receive, send):
        raise RuntimeError("no")

    with serve(app, limit_concurrency=1, limit_queue=1) as server, server.connect() as sock:
        for _ in range(5):
            sock.sendall(GET % b"")
            assert read_response(sock)[0].startswith(b"HTTP/1.1 500")


def test_pipelined_requests_do_not_refuse_each_other(serve):
    app = Gate()
    with serve(app, limit_concurrency=1, limit_queue=1) as server, server.connect() as sock:
        sock.sendall(GET % b"" * 20)
        rest = b""
        for _ in range(20):
            head, _, rest = read_response(sock, rest)
            assert head.startswith(b"HTTP/1.1 200")


def test_a_websocket_waits_and_is_denied(serve):
    app = Gate()
    with serve(app, limit_concurrency=1, limit_queue=1, timeout_queue=0.2) as server:
        busy = begin(server, app)
        with server.connect() as sock:
            sock.sendall(WEBSOCKET)
            head, _, _ = read_response(sock)
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1" in head
        server.call(app.open)
        busy.close()


def test_the_stop_answers_those_who_wait(serve):
    app = Gate()
    with serve(app, limit_concurrency=1, limit_queue=1, timeout_graceful_shutdown=60.0) as server:
        busy = begin(server, app)
        (sock,) = queue(server, 1)
        server.server.should_exit = True
        eventually(lambda: server.call(lambda: server.service.stopping))
        server.call(app.open)
        assert read_response(busy)[0].startswith(b"HTTP/1.1 200")
        assert app.entered.acquire(timeout=WAIT)
        server.call(app.open)
        assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        busy.close()
        sock.close()


def test_a_stop_at_once_cancels_those_who_wait(serve):
    app = Gate()
    with serve(app, limit_concurrency=1, limit_queue=1, timeout_graceful_shutdown=60.0) as server:
        busy = begin(server, app)
        (sock,) = queue(server, 1)
        server.server.should_exit = True
        server.server.force_exit = True
        server.stop()
        assert app.calls == 1
        busy.close()
        sock.close()
    assert server.server.left_behind == set()


# --- clients -----------------------------------------------------------------------------------------------


def test_one_address_cannot_take_all(serve):
    app = Gate()
    settings = {"trusted_proxy": ("127.0.0.1",), "forwarded_field": ("x-forwarded-for",)}
    with serve(app, limit_client_concurrency=2, **settings) as server:
        busy = [begin(server, app) for _ in range(2)]
        with server.connect() as sock:
            sock.sendall(GET % b"")
            head, _, _ = read_response(sock)
            assert head.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
            assert b"retry-after: 1" in head
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n")  # somebody else
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
            server.call(app.open)
            for waiting in busy:
                assert read_response(waiting)[0].startswith(b"HTTP/1.1 200")
                waiting.close()
            sock.sendall(GET % b"")
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        assert server.call(lambda: dict(server.service.app._clients)) == {}


# --- connections -------------------------------------------------------------------------------------------


def test_connections_over_the_limit_wait_until_one_is_gone(serve):
    app = Gate()
    with serve(app, limit_connections=2, timeout_keep_alive=60.0, timeout_first_byte=60.0) as server:
        for _ in range(3):  # a place that was given back is a place
            two = [server.connect() for _ in range(2)]
            for sock in two:
                sock.sendall(GET % b"")
                assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
            third = server.connect()
            third.sendall(GET % b"")
            third.settimeout(0.3)
            with pytest.raises(TimeoutError):
                third.recv(1)
            assert server.call(lambda: len(server.service.connections)) == 2
            two[0].close()
            third.settimeout(WAIT)
            assert read_response(third)[0].startswith(b"HTTP/1.1 200")
            for sock in (*two, third):
                sock.close()
            eventually(lambda: server.call(lambda: not server.service.connections))


def test_a_crowd_takes_turns(serve):
    with serve(Gate(), limit_connections=3) as server:
        answers = []

        def ask() -> None:
            answers.append(server.raw(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))

        threads = [threading.Thread(target=ask) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
    assert len(answers) == 40
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)


def test_all_listeners_share_the_limit(serve, tmp_path):
    app = Gate()
    path = str(tmp_path / "s")
    with serve(
        app, bind=("127.0.0.1:0", f"unix:{path}"), limit_connections=1, timeout_keep_alive=60.0
    ) as server:
        with server.connect() as sock:
            sock.sendall(GET % b"")
            assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
            import socket

            other = socket.socket(socket.AF_UNIX)
            other.connect(path)
            other.sendall(GET % b"")
            other.settimeout(0.3)
            with pytest.raises(TimeoutError):
                other.recv(1)
        other.settimeout(WAIT)
        assert read_response(other)[0].startswith(b"HTTP/1.1 200")
        other.close()


def test_the_stop_does_not_wait_for_those_who_wait(serve):
    with serve(
        Gate(), limit_connections=1, timeout_keep_alive=60.0, timeout_graceful_shutdown=60.0
    ) as server:
        one, two = server.connect(), server.connect()
        one.sendall(GET % b"")
        assert read_response(one)[0].startswith(b"HTTP/1.1 200")
        server.stop()
        one.close()
        two.close()


def test_websockets_and_preambles_take_one_place_each(serve):
    async def app(scope, receive, send):
        if scope["type"] == "http":
            await respond(send)
            return
        await receive()
        await send({"type": "websocket.accept"})
        await asyncio.sleep(0)
        await send({"type": "websocket.close"})

    settings = {"trusted_proxy": ("127.0.0.1",), "proxy_protocol": "v1"}
    with serve(app, limit_connections=1, **settings) as server:
        for _ in range(3):
            with server.connect() as sock:
                sock.sendall(b"PROXY UNKNOWN\r\n" + WEBSOCKET)
                assert sock.recv(65536).startswith(b"HTTP/1.1 101")
                sock.sendall(b"\x88\x80\0\0\0\0")
                read_to_end(sock)
        eventually(lambda: server.call(lambda: server.service.room.left) == 1)


def test_a_queue_needs_a_limit():
    with pytest.raises(ConfigError, match="limit_concurrency"):
        Config(limit_queue=1)
