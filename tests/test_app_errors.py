"""Applications that raise, return too early, or do not let themselves be cancelled."""

from __future__ import annotations

import asyncio
import threading

import pytest
from harness import eventually, read_response, statuses
from sample_apps import body, ok, respond, start

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def test_an_exception_before_the_response_is_a_500_and_the_connection_goes_on(serve):
    async def app(scope, receive, send):
        if scope["path"] == "/started":
            await start(send, 200, [(b"x-secret", b"1")])  # nothing is on the wire yet
        raise RuntimeError("secret \x1b[31m")

    with serve(app) as server, server.connect() as sock:
        post = b"POST /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
        sock.sendall(GET % b"1" + GET % b"started" + post)
        rest = b""
        for _ in range(3):
            head, content, rest = read_response(sock, rest)
            assert head.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
            assert b"content-type: text/plain" in head
            assert b"secret" not in head + content
        server.access.wait(3)
    failures = [record for record in server.errors.records if record.levelno >= 40]
    assert [str(record.exc_info[1]) for record in failures] == ["secret \x1b[31m"] * 3
    assert [record.access.status for record in server.access.records] == [500] * 3


@pytest.mark.parametrize("error", (StopIteration, StopAsyncIteration, ZeroDivisionError, None))
@pytest.mark.parametrize("length", (None, 100), ids=("chunks", "length"))
def test_a_response_that_breaks_off_looks_broken(serve, error, length):
    async def app(scope, receive, send):
        if scope["path"] == "/last":
            await respond(send)
            return
        await start(send, 200, [(b"content-length", b"%d" % length)] if length else [])
        await body(send, b"part", True)
        if error is not None:
            raise error

    with serve(app) as server:
        received = server.raw(GET % b"1" + GET % b"2")
        assert statuses(received) == [b"200"]
        assert received.endswith(b"part" if length else b"4\r\npart\r\n")
        assert server.raw(LAST).endswith(b"ok")
    assert len(server.errors.lines(40)) == 1
    assert server.access.records[0].access.aborted


def test_a_response_that_only_the_close_would_end_is_reset(serve):
    async def app(scope, receive, send):
        await start(send)
        await body(send, b"part", True)
        await asyncio.sleep(0.05)
        raise ZeroDivisionError

    with serve(app) as server, server.connect() as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        received = b""
        with pytest.raises(ConnectionResetError):
            while data := sock.recv(4096):
                received += data
    assert received.endswith(b"part")


def test_an_application_that_returns_without_a_response_is_a_500(serve):
    async def app(scope, receive, send):
        pass

    with serve(app) as server:
        assert statuses(server.raw(LAST)) == [b"500"]
    (line,) = server.errors.lines(40)
    assert "returned before its response was complete" in line
    assert "/last" in line


def test_an_exception_after_the_response_is_logged_and_the_connection_goes_on(serve):
    async def app(scope, receive, send):
        await respond(send)
        await receive()
        raise ZeroDivisionError

    with serve(app) as server:
        assert statuses(server.raw(GET % b"" + LAST)) == [b"200", b"200"]
        eventually(lambda: len(server.errors.lines(40)) == 2)


def test_an_application_that_cancels_itself_is_a_500(serve):
    async def app(scope, receive, send):
        raise asyncio.CancelledError

    with serve(app) as server:
        assert statuses(server.raw(LAST)) == [b"500"]
        assert statuses(server.raw(LAST)) == [b"500"]


def test_a_request_that_ignores_its_cancellation_holds_up_nobody(serve):
    entered = threading.Event()
    release = []

    async def app(scope, receive, send):
        if scope["path"] != "/stubborn":
            await respond(send)
            return
        gate = asyncio.Event()
        release.append(gate.set)
        task = asyncio.current_task()
        asyncio.get_running_loop().call_soon(task.cancel)
        while not gate.is_set():
            try:
                entered.set()
                await gate.wait()
            except asyncio.CancelledError:
                pass

    with serve(app) as server:
        sock = server.connect()
        sock.sendall(GET % b"stubborn")
        assert entered.wait(10)
        sock.close()
        with server.connect() as other:
            for _ in range(100):
                other.sendall(GET % b"")
                assert read_response(other)[1] == b"ok"
        server.call(release[0])


@pytest.mark.parametrize("kind", ("sync", "not callable twice"))
def test_an_application_of_the_wrong_kind_answers_500(serve, kind):
    def sync(scope, receive, send):
        return None

    async def wrong(scope, receive, send):
        return await 5

    with serve(sync if kind == "sync" else wrong, interface="asgi3") as server:
        assert statuses(server.raw(LAST)) == [b"500"]
    assert len(server.errors.lines(40)) == 1


def test_failures_of_one_connection_do_not_reach_another(serve):
    async def app(scope, receive, send):
        if scope["path"] == "/bad":
            raise ZeroDivisionError
        await ok(scope, receive, send)

    with serve(app) as server, server.connect() as good:
        for _ in range(10):
            server.raw(b"GET /bad HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            server.raw(b"nonsense\r\n\r\n")
            good.sendall(GET % b"")
            assert read_response(good)[1] == b"ok"
