"""Clients that leave: the application hears of it at once, and nobody calls it an error."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
from harness import WAIT, eventually, read_response, reset
from sample_apps import Echo, Gone, body, ok, read_body, respond, start

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Told(threading.Event):
    """An event with a list of what happened before it was set."""

    def __init__(self):
        super().__init__()
        self.said = []

    def finish(self, *said):
        self.said += said
        self.set()

    def result(self):
        assert self.wait(WAIT), self.said
        return self.said


@pytest.fixture(params=("close", "reset"))
def leave(request):
    """How a client leaves."""
    return {"close": socket.socket.close, "reset": reset}[request.param]


def test_the_application_hears_of_it_while_it_runs(serve, leave):
    told, ready = Told(), threading.Event()

    async def app(scope, receive, send):
        first = await receive()
        ready.set()
        told.finish(first, await receive(), await receive())

    with serve(app) as server:
        sock = server.connect()
        sock.sendall(GET)
        assert ready.wait(WAIT)
        leave(sock)
        gone = {"type": "http.disconnect"}
        assert told.result() == [{"type": "http.request", "body": b"", "more_body": False}, gone, gone]
    assert server.errors.lines(20) == []


def test_receive_waits_while_the_client_is_there(serve):
    states = []

    async def app(scope, receive, send):
        await receive()
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0.1)
        states.append(waiting.done())
        await respond(send)
        states.append(await waiting)

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET)
        read_response(sock)
        eventually(lambda: len(states) == 2)
    assert states == [False, {"type": "http.disconnect"}]


def test_all_who_wait_in_receive_are_told(serve):
    told, ready = Told(), threading.Event()

    async def app(scope, receive, send):
        await receive()
        waiting = [asyncio.ensure_future(receive()) for _ in range(5)]
        await asyncio.sleep(0)
        ready.set()
        told.finish(*await asyncio.gather(*waiting))

    with serve(app) as server:
        sock = server.connect()
        sock.sendall(GET)
        assert ready.wait(WAIT)
        sock.close()
        assert told.result() == [{"type": "http.disconnect"}] * 5


def test_send_raises_an_os_error_and_nothing_is_logged_if_it_escapes(serve, leave):
    told = Told()

    async def app(scope, receive, send):
        try:
            await start(send)
            while True:
                await body(send, b"x" * 65536, True)
        except BaseException as error:
            told.finish(error)
            raise

    with serve(app) as server:
        sock = server.connect()
        sock.sendall(GET)
        sock.recv(1024)
        leave(sock)
        (error,) = told.result()
        (line,) = server.access.wait(1)
    assert isinstance(error, OSError)
    assert type(error).__name__ == "ClientDisconnected"
    assert line.endswith("aborted")
    assert server.errors.lines(20) == []
    assert len(server.access.records) == 1


def test_the_error_is_no_error_in_a_group_either(serve):
    told = Told()

    async def pump(send):
        while True:
            await body(send, b"x" * 65536, True)

    async def app(scope, receive, send):
        await start(send)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(pump(send))
        finally:
            told.finish()

    with serve(app) as server:
        sock = server.connect()
        sock.sendall(GET)
        sock.recv(1024)
        reset(sock)
        told.result()
        server.access.wait(1)
    assert server.errors.lines(20) == []


def test_sending_on_after_a_reset_raises_nothing_but_os_errors(serve):
    """Some loops raise RuntimeError when a transport that is gone is written to."""
    told, go = Told(), threading.Event()

    async def app(scope, receive, send):
        await start(send)
        await body(send, b"first", True)
        while (await receive())["type"] != "http.disconnect":
            pass
        kinds = set()
        for _ in range(1000):
            try:
                await body(send, b"x" * 100, True)
            except BaseException as error:
                kinds.add(isinstance(error, OSError))
        told.finish(kinds)

    with serve(app) as server:
        sock = server.connect()
        sock.sendall(GET)
        sock.recv(1024)
        go.set()
        reset(sock)
        assert told.result() == [{True}]
        server.access.wait(1)
    assert server.errors.lines(20) == []


def test_writes_into_a_connection_that_was_just_reset_are_harmless(serve):
    told, sent, gone = Told(), threading.Event(), threading.Event()

    async def app(scope, receive, send):
        await start(send)
        await body(send, b"first", True)
        sent.set()
        assert gone.wait(WAIT)  # blocks the loop: the reset arrives, and the loop has not seen it yet
        try:
            for _ in range(1000):
                await body(send, b"x" * 1000, True)
                await asyncio.sleep(0)
        except OSError:
            told.finish("OSError")

    with serve(app) as server:
        sock = server.connect()
        sock.sendall(GET)
        assert sent.wait(WAIT)
        reset(sock)
        gone.set()
        assert told.result() == ["OSError"]
    assert server.errors.lines(20) == []


def test_a_cancellation_of_the_application_is_its_own(serve):
    told = Told()

    async def app(scope, receive, send):
        await receive()
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        waiting.cancel()
        try:
            told.finish(await waiting)
        except asyncio.CancelledError:
            told.finish("cancelled")
        try:
            async with asyncio.timeout(0.01):
                await receive()
        except TimeoutError:
            await respond(send)

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET)
        assert read_response(sock)[1] == b"ok"
        assert told.result() == ["cancelled"]


def test_a_cancellation_that_meets_a_wake_up_is_still_one(serve):
    told = Told()

    async def app(scope, receive, send):
        await receive()
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await respond(send)  # wakes all who wait, before the cancelled task has run
        told.finish(*await asyncio.gather(waiting, return_exceptions=True))

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET)
        assert read_response(sock)[1] == b"ok"
        assert [type(said) for said in told.result()] == [asyncio.CancelledError]


@pytest.mark.parametrize(
    "framing", (b"Content-Length: 100\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
)
def test_a_body_that_breaks_off_is_never_complete(serve, leave, framing):
    told, ready = Told(), threading.Event()

    async def app(scope, receive, send):
        messages = [await receive()]
        ready.set()
        while messages[-1]["type"] != "http.disconnect":
            messages.append(await receive())
        told.finish(*messages)

    with serve(app) as server:
        sock = server.connect()
        sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\n" + framing)
        assert ready.wait(WAIT)
        leave(sock)
        first, *between, last = told.result()
    assert first == {"type": "http.request", "body": b"abc", "more_body": True}
    assert between == []
    assert last == {"type": "http.disconnect"}
    assert server.errors.lines(20) == []


def test_a_frameworks_own_exception_for_it_is_one_line_without_traceback(serve):
    ready = threading.Event()

    async def app(scope, receive, send):
        ready.set()
        await read_body(receive)

    with serve(app) as server:
        sock = server.connect()
        sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
        assert ready.wait(WAIT)
        sock.close()
        (line,) = server.errors.wait(1)
    assert repr(Gone()) in line
    assert [(record.levelname, record.exc_info) for record in server.errors.records] == [("INFO", None)]


def test_a_half_closed_client_gets_its_whole_answer(serve):
    async def app(scope, receive, send):
        await asyncio.sleep(0.1)
        await start(send)
        for _ in range(20):
            await body(send, b"x" * 50_000, True)
        await body(send)

    with serve(app) as server:
        received = server.raw(GET, shut=True)
    assert received.startswith(b"HTTP/1.1 200")
    assert received.endswith(b"0\r\n\r\n")
    assert received.count(b"x") == 1_000_000


def test_a_half_closed_client_gets_the_answers_to_all_it_has_sent(serve):
    echo = Echo()
    with serve(echo) as server:
        received = server.raw(GET * 3, shut=True)
    assert received.count(b"HTTP/1.1 200") == 3
    assert server.errors.lines(20) == []


def test_ordinary_departures_leave_no_line_in_the_error_log(serve, leave):
    async def app(scope, receive, send):
        await asyncio.sleep(0.02)
        await respond(send)

    with serve(app, log_level="info") as server:
        for data in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\n", GET, GET + GET + b"GET"):
            for _ in range(20):
                sock = server.connect()
                sock.sendall(data)
                leave(sock)
        with server.connect() as sock:
            sock.sendall(GET)
            assert read_response(sock)[1] == b"ok"
    assert [line for line in server.errors.lines(20) if not line.startswith("stop")] == []


def test_a_client_that_connects_and_resets_at_once_is_no_trouble(serve):
    with serve(ok) as server:
        for _ in range(200):
            reset(server.connect())
        with server.connect() as sock:
            sock.sendall(GET)
            assert read_response(sock)[1] == b"ok"
    assert server.errors.lines(20) == []


def test_a_reset_that_the_loop_has_not_seen_yet_is_no_error_of_the_application(serve):
    """Nothing is left to write but FIN, and there is nobody to take it."""
    gone = threading.Event()
    ended = threading.Event()

    async def app(scope, receive, send):
        await start(send, 200, [(b"content-length", b"2"), (b"connection", b"close")])
        await body(send, b"ok", True)
        await asyncio.sleep(0)
        assert gone.wait(WAIT)  # the loop stands still
        try:
            await body(send)
        finally:
            ended.set()

    with serve(app) as server:
        sock = server.connect()
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_response(sock)[1] == b"ok"
        reset(sock)
        gone.set()
        assert ended.wait(WAIT)
    assert server.errors.lines(30) == []
