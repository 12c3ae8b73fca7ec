"""Connections that serve several requests: pipelining, idle time, the rest of a body that nobody read."""

from __future__ import annotations

import asyncio
import os
import select

import psutil
import pytest
from harness import read_response, read_to_end, statuses
from sample_apps import Echo, ok, read_body, respond, seen

CLOSE = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def get(path: bytes) -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path


def test_the_idle_time_does_not_run_while_requests_wait_or_are_answered(serve):
    async def app(scope, receive, send):
        await asyncio.sleep(0.2)
        await respond(send, scope["path"].encode())

    with serve(app, timeout_keep_alive=0.1) as server, server.connect() as sock:
        sock.sendall(get(b"/1") + get(b"/2") + get(b"/3"))
        rest = b""
        for path in (b"/1", b"/2", b"/3"):
            head, content, rest = read_response(sock, rest)
            assert head.startswith(b"HTTP/1.1 200")
            assert content == path
        assert read_to_end(sock) == b""  # now it was idle
    assert server.errors.lines(20) == []


def test_an_idle_connection_is_closed_without_a_word(serve):
    with serve(ok, timeout_keep_alive=0.1) as server, server.connect() as sock:
        sock.sendall(get(b"/"))
        assert read_response(sock)[1:] == (b"ok", b"")
        assert sock.recv(1) == b""
    assert server.errors.lines(20) == []


def test_a_keep_alive_time_of_zero_means_one_request(serve):
    with serve(ok, timeout_keep_alive=0) as server, server.connect() as sock:
        sock.sendall(get(b"/"))
        assert read_response(sock)[1] == b"ok"
        assert sock.recv(1) == b""


def test_what_follows_connection_close_is_dropped(serve):
    echo = Echo()
    with serve(echo) as server:
        received = server.raw(CLOSE + get(b"/2") + b"BAD\r\n\r\n")
    assert statuses(received) == [b"200"]
    assert b"\r\nconnection: close\r\n" in received.lower()
    assert echo.started == ["/last"]
    assert server.errors.lines(20) == []
    assert len(server.access.lines()) == 1


def test_what_follows_the_close_of_the_application_is_dropped(serve):
    async def app(scope, receive, send):
        paths.append(scope["path"])
        await respond(send, headers=[(b"connection", b"close")])

    paths = []
    with serve(app) as server:
        received = server.raw(get(b"/1") + get(b"/2"))
    assert received.lower().count(b"connection: close") == 1
    assert paths == ["/1"]


def test_http_1_0_keeps_the_connection_only_when_asked(serve):
    ask = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    with serve(ok) as server:
        received = server.raw(ask + ask + b"GET / HTTP/1.0\r\n\r\n" + ask)
    assert statuses(received) == [b"200"] * 3
    assert received.lower().count(b"connection: keep-alive") == 2


def test_an_invalid_request_waits_for_the_answer_to_the_one_before(serve):
    async def app(scope, receive, send):
        await asyncio.sleep(0.1)
        await respond(send)

    with serve(app) as server:
        received = server.raw(get(b"/slow") + b"BAD\r\n\r\n")
    assert statuses(received) == [b"200", b"400"]
    assert received.index(b"ok") < received.index(b"HTTP/1.1 400")


@pytest.mark.parametrize("size", (1000, 60_000))
def test_a_small_body_that_nobody_read_is_dropped_and_the_connection_goes_on(serve, size):
    async def app(scope, receive, send):
        await respond(send, status=413 if scope["method"] == "POST" else 200)

    with serve(app) as server, server.connect() as sock:
        post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + b"GET /".ljust(size, b"x")
        sock.sendall(post + post + get(b"/"))
        rest = b""
        for status in (b"413", b"413", b"200"):
            head, _, rest = read_response(sock, rest)
            assert head.split(b" ")[1] == status


@pytest.mark.parametrize("sends", (0, 5_000_000, 50_000_000), ids=("nothing", "some", "all"))
def test_the_answer_can_be_read_though_a_large_body_is_not(serve, sends):
    """The server closes, but not so that a reset destroys its answer on the way."""

    async def app(scope, receive, send):
        await respond(send, b"too large" * 10_000, status=413)

    with serve(app, timeout_linger=1) as server, server.connect() as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n")
        head, content, _ = read_response(sock)
        block = b"x" * 100_000
        try:
            for _ in range(sends // len(block)):
                sock.sendall(block)
        except OSError:
            pass  # enough, says the server
    assert b"connection: close" in head.lower()
    assert content == b"too large" * 10_000


def test_a_large_body_is_sent_first_and_the_answer_is_still_there(serve):
    async def app(scope, receive, send):
        await respond(send, status=413)

    with serve(app) as server, server.connect() as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n")
        sock.sendall(b"x" * 500_000)
        assert read_response(sock)[0].startswith(b"HTTP/1.1 413")


def test_a_chunked_body_that_nobody_read_is_dropped_too(serve):
    async def app(scope, receive, send):
        await respond(send, scope["path"].encode())

    post = b"POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serve(app) as server, server.connect() as sock:
        sock.sendall(post + b"5\r\nhello\r\n")
        assert read_response(sock)[1] == b"/1"
        sock.sendall(b"3\r\nGET\r\n0\r\n\r\n" + get(b"/2"))
        assert read_response(sock)[1] == b"/2"


def test_requests_behind_a_slow_one_are_not_read_without_bound(serve):
    process = psutil.Process(os.getpid())
    release = []

    async def app(scope, receive, send):
        gate = asyncio.Event()
        release.append(gate.set)
        if len(release) == 1:
            await gate.wait()
        await respond(send)

    flood = b"GET / HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n" % (b"x" * 500) * 100
    with serve(app) as server, server.connect() as sock:
        before = process.memory_info().rss
        sock.setblocking(False)
        sent = 0
        while select.select((), (sock,), (), 0.3)[1]:
            sent += sock.send(flood)
            assert sent < 50_000_000, "the server reads without end"
        assert process.memory_info().rss - before < 4_000_000
        sock.settimeout(10)
        server.call(release[0])
        rest = b""
        for _ in range(200):  # what was held back goes on
            head, _, rest = read_response(sock, rest)
            assert head.startswith(b"HTTP/1.1 200")


def test_many_requests_in_one_read_are_answered_in_order(serve):
    async def app(scope, receive, send):
        if scope["path"].endswith("7"):
            await asyncio.sleep(0)
        content = await read_body(receive)
        await respond(send, scope["path"].encode() + content)

    data = b""
    for number in range(50):
        data += get(b"/%d" % number)
        data += b"POST /p%d HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nxy" % number
    with serve(app) as server, server.connect() as sock:
        sock.sendall(data)
        rest = b""
        for number in range(50):
            _, content, rest = read_response(sock, rest)
            assert content == b"/%d" % number
            _, content, rest = read_response(sock, rest)
            assert content == b"/p%dxy" % number


def test_empty_lines_between_requests_are_skipped(serve):
    with serve(Echo()) as server:
        received = server.raw(get(b"/1") + b"\r\n\r\n" + CLOSE)
    assert statuses(received) == [b"200", b"200"]
    assert seen(received.rpartition(b"\r\n\r\n")[2])["path"] == "/last"
