"""The task of a WebSocket is asyncio's, whoever made it and whenever its first step runs: nobody can tell."""

from __future__ import annotations

import asyncio
import contextvars
import sys

import pytest
from harness import read_response, read_to_end
from sample_apps import lifespan, respond
from wire_frames import CLOSE, TEXT, Client, Frame, close, handshake, text

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
VARIABLE = contextvars.ContextVar("variable", default=None)


class OwnTask(asyncio.Task):
    """A task of a factory."""


def own(loop, coroutine, **options):
    return OwnTask(coroutine, loop=loop, **options)


def eager(loop, coroutine, *, eager_start=True, **options):  # uvloop asks for it, too
    return asyncio.eager_task_factory(loop, coroutine, **options)


FACTORIES = {"none": None, "own": own}
if sys.version_info >= (3, 12):
    FACTORIES["eager"] = eager

each_factory = pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)


def with_factory(factory, call):
    """`call` as an application whose lifespan sets a task factory; a request gets ``ok``."""

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            asyncio.get_running_loop().set_task_factory(factory)
            await lifespan(receive, send)
        elif scope["type"] == "http":
            await respond(send)
        else:
            task = asyncio.current_task()
            assert task in asyncio.all_tasks()
            assert (type(task) is OwnTask) is (factory is own)
            assert VARIABLE.get() is None
            VARIABLE.set(task)
            await call(scope["path"], receive, send)
            if factory is not eager:  # loops name what a factory has made, after its first step
                assert task.get_name() == scope["extensions"]["servery"]["request_id"]
            assert asyncio.current_task() is VARIABLE.get() is task

    return app


async def lives(path, receive, send):
    """What the path names. None of these waits before it has to."""
    if path == "/deny":
        await send({"type": "websocket.close"})
        return
    if path == "/denial":
        await send({"type": "websocket.http.response.start", "status": 401})
        await send({"type": "websocket.http.response.body", "body": b"no"})
        return
    if path == "/raise":
        raise ZeroDivisionError
    await send({"type": "websocket.accept"})
    if path == "/echo":
        await receive()
        while (message := await receive())["type"] == "websocket.receive":
            await send({**message, "type": "websocket.send"})
        return
    await send({"type": "websocket.send", "text": "at once"})
    if path == "/broken":
        raise ZeroDivisionError
    if path == "/close":
        await send({"type": "websocket.close", "code": 4000})
    if path == "/children":
        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(send({"type": "websocket.send", "text": str(number)}))


def closed(code, *texts):
    return [Frame(TEXT, one.encode()) for one in texts] + [Frame(CLOSE, code.to_bytes(2, "big"))]


OPEN = {
    b"/echo": closed(1001, "a", "b"),
    b"/return": closed(1000, "at once"),
    b"/close": closed(4000, "at once"),
    b"/broken": closed(1011, "at once"),
    b"/children": closed(1000, "at once", "0", "1"),
}


@each_factory
def test_every_life_of_a_websocket(serve, factory):
    """As the first request of a connection, as a later one, and behind others in one packet."""
    with serve(with_factory(factory, lives), lifespan="on") as server:
        for path, frames in OPEN.items():
            for before in (b"", GET, GET + GET):
                with server.connect() as sock:
                    sock.sendall(before + handshake(target=path) + text("a"))
                    rest = b""
                    for _ in range(before.count(GET)):
                        _, body, rest = read_response(sock, rest)
                        assert body == b"ok"
                    client = Client(sock, _rest=rest)
                    assert client.read_head().startswith(b"HTTP/1.1 101 ")
                    client.send(text("b"))
                    own = len(frames) - (path == b"/echo")  # frames that come without a close of the client's
                    found = [client.read() for _ in range(own)]
                    client.send(close(1001))
                    assert found + client.read_to_close() == frames
        server.access.wait(6 * len(OPEN))
        assert len(server.errors.lines(30)) == 3  # of /broken


@each_factory
def test_every_end_of_a_handshake(serve, factory):
    ends = [(b"/deny", b"403", b""), (b"/denial", b"401", b"no"), (b"/raise", b"500", None)]
    with serve(with_factory(factory, lives), lifespan="on") as server:
        for path, status, content in ends:
            with server.connect() as sock:
                sock.sendall(GET + handshake(target=path) + LAST)
                rest = read_response(sock)[2]
                head, body, rest = read_response(sock, rest)
                assert head.split(b" ")[1] == status
                assert content in (None, body)
                assert (rest + read_to_end(sock)).endswith(b"\r\n\r\nok")


@each_factory
def test_the_stop_reaches_an_application_that_only_waits(serve, factory):
    async def waiting(path, receive, send):
        await send({"type": "websocket.accept"})
        await receive()
        assert await receive() == {"type": "websocket.disconnect", "code": 1012, "reason": ""}

    with serve(with_factory(factory, waiting), lifespan="on") as server, server.connect() as sock:
        client = Client(sock)
        client.open()
        server.server.should_exit = True
        assert client.read() == Frame(CLOSE, b"\x03\xf4")
        client.send(close(1012))
        assert client.read_to_close() == []
        server.stop()
    assert server.errors.lines(30) == []


@each_factory
def test_an_application_that_does_not_end_is_cancelled(serve, factory):
    async def waiting(path, receive, send):
        await send({"type": "websocket.accept"})
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(asyncio.current_task() is VARIABLE.get())
            raise

    cancelled = []
    settings = {"timeout_graceful_shutdown": 0.1, "ws_close_timeout": 0.1}
    with serve(with_factory(factory, waiting), lifespan="on", **settings) as server, server.connect() as sock:
        Client(sock).open()
        server.stop()
    assert cancelled == [True]
