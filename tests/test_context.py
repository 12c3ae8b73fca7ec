"""What one request may see of another: nothing. Context variables, state, scopes, tasks."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest
from harness import WAIT, new_loop, read_response
from sample_apps import body, ok, read_body, respond, start

from servery import Server
from servery.config import Config

GET = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"
VARIABLE = contextvars.ContextVar("variable", default="unset")


@pytest.mark.parametrize("pipelined", (True, False))
@pytest.mark.parametrize("size", (0, 1000, 1_000_000))
def test_no_variable_reaches_the_next_request(serve, pipelined, size):
    """A large body resumes reading from inside of the application: callbacks must not keep its context."""
    seen = []

    async def app(scope, receive, send):
        seen.append(VARIABLE.get())
        VARIABLE.set(scope["path"])
        await read_body(receive)
        await asyncio.sleep(0)
        seen.append(VARIABLE.get() == scope["path"])
        await start(send)
        await body(send, b"x" * 100_000, True)
        await body(send)

    posts = [
        b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (number, size) + b"x" * size
        for number in range(8)
    ]
    with serve(app, limit_body_buffer=1000) as server, server.connect() as sock:
        sender = threading.Thread(target=sock.sendall, args=(b"".join(posts),))
        if pipelined:
            sender.start()
        rest = b""
        for post in posts:
            if not pipelined:
                sock.sendall(post)
            _, _, rest = read_response(sock, rest)
        if pipelined:
            sender.join()
    assert seen == ["unset", True] * 8


def test_what_surrounds_the_server_is_seen_by_every_request(way):
    seen = []

    async def app(scope, receive, send):
        seen.append(VARIABLE.get())
        await respond(send)

    async def main():
        VARIABLE.set("outside")
        server = Server(Config(app=app, port=0, lifespan="off", **way.settings))
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.001)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(GET % 1 + GET % 2)
        await reader.readuntil(b"ok")
        await reader.readuntil(b"ok")
        writer.close()
        server.should_exit = True
        await task

    with asyncio.Runner(loop_factory=lambda: new_loop(way.loop)) as runner:
        runner.run(main())
    assert seen == ["outside"] * 2


def test_no_scope_shares_anything_with_another(serve):
    faults = []

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            scope["state"]["shared"] = marker
            await ok(scope, receive, send)
            return
        extensions = scope["extensions"]
        if "x" in scope["state"] or "x" in scope["asgi"] or (b"x", b"y") in scope["headers"]:
            faults.append("shared")
        if "x" in extensions or any("x" in value for value in extensions.values()):
            faults.append("extensions")
        if scope["state"]["shared"] is not marker:
            faults.append("state is a shallow copy")
        scope["state"]["x"] = scope["asgi"]["x"] = scope["x"] = extensions["x"] = {}
        for value in extensions.values():
            value["x"] = 1
        scope["headers"].append((b"x", b"y"))
        await respond(send)

    marker = []
    with serve(app, lifespan="on") as server:
        for _ in range(2):
            with server.connect() as sock:
                for number in range(3):
                    sock.sendall(GET % number)
                    assert read_response(sock)[1] == b"ok"
    assert faults == []


def test_a_mutated_scope_changes_neither_log_nor_response(serve):
    async def app(scope, receive, send):
        scope["method"] = "HEAD"
        scope["path"] = scope["raw_path"] = None
        scope.clear()
        await respond(send, b"content")

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET % 1)
        assert read_response(sock)[1] == b"content"
        (line,) = server.access.wait(1)
    assert '"GET /1 HTTP/1.1" 200 7 ' in line


def test_the_request_is_a_task_of_its_own(serve):
    tasks = []

    async def app(scope, receive, send):
        task = asyncio.current_task()
        tasks.append(task)
        await receive()
        await asyncio.sleep(0)
        assert asyncio.current_task() is task
        async with asyncio.timeout(WAIT), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        await respond(send)

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET % 1 + GET % 2)
        rest = read_response(sock)[2]
        read_response(sock, rest)
    assert len(set(tasks)) == 2
    assert None not in tasks


def serve_with_factory(way, factory):
    """Two requests on a server whose loop has a task factory; the names of the tasks that answered them."""
    names = []

    async def app(scope, receive, send):
        names.append(type(asyncio.current_task()).__name__)
        await read_body(receive)
        await respond(send)

    async def main():
        loop = asyncio.get_running_loop()
        server = Server(Config(app=app, port=0, lifespan="off", **way.settings))
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.001)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        loop.set_task_factory(factory)
        writer.write(GET % 1 + b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n")
        await reader.readuntil(b"ok")
        writer.write(b"ab")
        await reader.readuntil(b"ok")
        loop.set_task_factory(None)
        writer.close()
        server.should_exit = True
        await task

    with asyncio.Runner(loop_factory=lambda: new_loop(way.loop)) as runner:
        runner.run(main())
    return names


class OwnTask(asyncio.Task):
    """A task of a factory."""


def test_a_task_factory_is_honoured(way):
    def factory(loop, coroutine, **options):
        return OwnTask(coroutine, loop=loop, **options)

    assert serve_with_factory(way, factory) == ["OwnTask"] * 2


def test_tasks_that_start_at_once_serve_as_well(way):
    """As `asyncio.eager_task_factory` does where it exists: the first step runs inside of create_task()."""

    def stepping(loop, coroutine, **options):
        task = OwnTask(coroutine, loop=loop, **options)
        task.started_at_once = True
        return task

    def eager(
        loop, coroutine, *, eager_start=None, **options
    ):  # uvloop says it, which early 3.13 does not take
        return asyncio.eager_task_factory(loop, coroutine, **options)

    factory = eager if hasattr(asyncio, "eager_task_factory") else stepping
    assert len(serve_with_factory(way, factory)) == 2
