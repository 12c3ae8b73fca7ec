"""Peers that send or read slowly, or not at all: each is let go in time, and others never notice."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time

import pytest
from harness import WAIT, eventually, read_response, read_to_end, statuses
from sample_apps import body, ok, read_body, respond, start

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"


@contextlib.contextmanager
def dripping(sock, data, every):
    """Send `data` octet by octet, one in `every` seconds, until the block ends or the peer closes."""
    done = threading.Event()

    def drip():
        with contextlib.suppress(OSError):
            for octet in data:
                if done.wait(every):
                    return
                sock.send(bytes((octet,)))

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.fixture
def others(request):
    """Gives a context in which another client is served again and again, each time at once."""

    @contextlib.contextmanager
    def served(server):
        done = threading.Event()
        longest = []

        def ask():
            with server.connect() as sock:
                while not done.wait(0.01):
                    begun = time.monotonic()
                    sock.sendall(GET)
                    assert read_response(sock)[1] == b"ok"
                    longest.append(time.monotonic() - begun)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        assert longest
        assert max(longest) < WAIT / 2

    return served


def test_a_connection_that_sends_nothing_is_closed_without_a_word(serve, others):
    with serve(ok, timeout_first_byte=0.3) as server, others(server), server.connect() as sock:
        assert read_to_end(sock) == b""
    assert server.errors.lines(20) == []


def test_a_head_that_drips_in_is_refused_in_time(serve, others):
    """No octet renews the time: the whole head must be there."""
    with serve(ok, timeout_head=0.3, timeout_linger=0.1) as server, others(server), server.connect() as sock:
        with dripping(sock, GET * 100, 0.02):
            assert statuses(read_to_end(sock)) == [b"408"]


def test_a_head_that_stops_is_refused_in_time(serve, others):
    with serve(ok, timeout_head=0.3) as server, others(server), server.connect() as sock:
        sock.sendall(GET[:-2])
        assert statuses(read_to_end(sock)) == [b"408"]


def test_a_second_head_that_stops_is_refused_in_time(serve):
    with serve(ok, timeout_head=0.3, timeout_keep_alive=5) as server, server.connect() as sock:
        sock.sendall(GET + GET[:-2])
        assert statuses(read_to_end(sock)) == [b"200", b"408"]


def test_a_body_that_stops_ends_the_request_in_time(serve, others):
    told = []

    async def app(scope, receive, send):
        if scope["method"] == "GET":
            await respond(send)
            return
        while True:
            message = await receive()
            told.append(message["type"])
            if message["type"] == "http.disconnect":
                return

    with serve(app, timeout_body=0.3) as server, others(server), server.connect() as sock:
        sock.sendall(POST + b"abc")
        assert statuses(read_to_end(sock)) == [b"408"]
        eventually(lambda: "http.disconnect" in told)
    assert told == ["http.request", "http.disconnect"]
    assert server.errors.lines(20) == []


def test_a_body_that_drips_in_ends_in_time(serve, others):
    """An octet now and then does not keep the request alive: a body has a least rate."""

    async def app(scope, receive, send):
        await read_body(receive)
        await respond(send)

    settings = {"timeout_body": 0.3, "body_min_rate": 1000, "timeout_linger": 0.1}
    with (
        serve(app, **settings) as server,
        server.connect() as sock,
        dripping(sock, POST + b"x" * 1000, 0.001),
    ):
        assert statuses(read_to_end(sock)) == [b"408"]


def test_a_body_that_keeps_the_rate_may_take_longer_than_the_stall(serve):
    async def app(scope, receive, send):
        await respond(send, b"%d" % len(await read_body(receive)))

    data = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n" + b"x" * 40
    settings = {"timeout_body": 0.2, "body_min_rate": 10}
    with serve(app, **settings) as server, server.connect() as sock, dripping(sock, data, 0.01):
        assert read_response(sock)[1] == b"40"


def test_the_time_of_a_body_stands_still_while_the_application_does_not_read(serve):
    async def app(scope, receive, send):
        await asyncio.sleep(0.5)
        await respond(send, b"%d" % len(await read_body(receive)))

    settings = {"timeout_body": 0.3, "limit_body_buffer": 1000}
    with serve(app, **settings) as server, server.connect() as sock:
        sock.sendall(POST + b"x" * 1_000_000)
        assert read_response(sock)[1] == b"1000000"


@pytest.mark.parametrize("how", ("parts", "one message"))
def test_a_client_that_never_reads_is_reset_in_time(serve, others, how):
    told = []

    async def app(scope, receive, send):
        if scope["path"] == "/":
            await respond(send)
            return
        try:
            await start(send)
            for _ in range(1000):
                await body(send, b"x" * 65536 * (1 if how == "parts" else 1000), True)
        except OSError as error:
            told.append(error)
            raise

    with serve(app, timeout_write=0.3) as server, others(server), small_window(server) as sock:
        sock.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually(lambda: told)
        with pytest.raises(ConnectionResetError):
            read_to_end(sock)
    assert server.errors.lines(20) == []
    assert server.access.records[-1].access.aborted or any(r.access.aborted for r in server.access.records)


def test_a_client_that_never_reads_the_end_is_reset_in_time(serve):
    """The application has long gone, the response still waits in the buffer."""

    async def app(scope, receive, send):
        await respond(send, b"x" * 20_000_000, headers=[(b"connection", b"close")])

    with serve(app, timeout_write=0.3) as server, small_window(server) as sock:
        sock.sendall(GET)
        with pytest.raises(ConnectionResetError):
            received = sock.recv(1)
            threading.Event().wait(0.8)
            while data := sock.recv(1 << 20):
                received += data


def test_a_client_that_reads_slowly_but_reads_gets_everything(serve):
    async def app(scope, receive, send):
        await respond(send, b"x" * 3_000_000)

    with serve(app, timeout_write=0.5) as server, small_window(server) as sock:
        sock.sendall(GET)
        received = 0
        begun = time.monotonic()
        while received < 3_000_000:
            received += len(sock.recv(100_000))
            if time.monotonic() - begun < 0.8:
                threading.Event().wait(0.1)


def test_pings_of_bare_tcp_do_not_pile_up(serve):
    with serve(ok, timeout_first_byte=0.2) as server:
        socks = [server.connect() for _ in range(50)]
        for sock in socks:
            assert read_to_end(sock) == b""
            sock.close()
        with server.connect() as sock:
            sock.sendall(GET)
            assert read_response(sock)[1] == b"ok"


@contextlib.contextmanager
def small_window(server):
    """A client's socket that takes little before somebody reads from it."""
    sock = socket.socket()
    with sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sock.settimeout(WAIT)
        sock.connect(server.address)
        yield sock
