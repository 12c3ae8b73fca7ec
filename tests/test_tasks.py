"""The task of a request is asyncio's, whoever made it, whenever its first step runs: no application can tell.

Every test makes the same assertions in every way to run. `everywhere` asks them of the first request of a
connection, of the next, and of two that were pipelined, since these begin in different ways.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import inspect
import sys
import threading
import traceback
import types
import warnings
import weakref

import pytest
from harness import WAIT, eventually, read_response, statuses
from process import ServerProcess
from sample_apps import body, lifespan, read_body, respond, start

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /%b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
VARIABLE = contextvars.ContextVar("variable", default=None)
REQUESTS = 4


def request_id(scope):
    """The id that the scope tells, which is the task's name."""
    return scope["extensions"]["servery"]["request_id"]


def everywhere(serve, check, request=GET % b"", **settings):
    """Let `check(scope, receive, send)` run for `REQUESTS` requests that come in different ways."""
    done = []
    failures = []

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        try:
            await check(scope, receive, send)
        except BaseException as error:
            failures.append(error)
        done.append(request_id(scope))
        await respond(send)

    with serve(app, **settings) as server, server.connect() as sock:
        for _ in range(2):
            sock.sendall(request)
            assert read_response(sock)[1] == b"ok"
        sock.sendall(request * 2)
        rest = read_response(sock)[2]
        assert read_response(sock, rest)[1] == b"ok"
    for failure in failures:
        raise failure
    assert server.errors.lines(30) == []
    assert len(set(done)) == REQUESTS


async def nothing():
    """Suspends once."""
    await asyncio.sleep(0)


# --- what it is -----------------------------------------------------------------------------------


def test_it_is_a_task_with_a_name_before_and_after_it_waits(serve):
    def look(scope, task):
        assert asyncio.current_task() is task
        assert task in asyncio.all_tasks()
        assert task.get_name() == request_id(scope)
        assert not task.done()
        assert task.cancelling() == 0
        assert asyncio.get_running_loop() is task.get_loop()
        assert sys.exc_info() == (None, None, None)
        assert request_id(scope) in repr(task)
        assert "Call.run()" in repr(task)
        assert task.get_stack()
        coroutine = task.get_coro()
        assert inspect.iscoroutine(coroutine)
        assert asyncio.iscoroutine(coroutine)
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_RUNNING
        assert coroutine.__qualname__ == "Call.run"

    async def check(scope, receive, send):
        task = asyncio.current_task()
        seen.append(task)
        look(scope, task)
        await receive()
        look(scope, task)
        await nothing()
        look(scope, task)
        await send({"type": "http.response.debug", "info": {}})
        look(scope, task)

    seen = []
    everywhere(serve, check)
    assert len(set(seen)) == REQUESTS
    for task in seen:
        assert task.result() is None


def test_others_see_it_wait(serve):
    """What debuggers and cancel scopes ask of a task that is not running."""
    found = []
    go = []

    async def app(scope, receive, send):
        if scope["path"] == "/look":
            [task] = [task for task in asyncio.all_tasks() if task.get_name() == names[0]]
            coroutine = task.get_coro()
            found.append(inspect.getcoroutinestate(coroutine))
            found.append(coroutine.cr_await is not None and coroutine.cr_frame is not None)
            found.append("Call.run() running at" in repr(task))
            found.append([frame.f_lineno > 0 for frame in task.get_stack()])
            go[0].set()
        else:
            names.append(request_id(scope))
            go.append(asyncio.Event())
            await go[0].wait()
        await respond(send)

    names = []
    with serve(app) as server, server.connect() as waiting, server.connect() as looking:
        waiting.sendall(GET % b"")
        eventually(lambda: go)
        looking.sendall(GET % b"look")
        assert read_response(looking)[1] == read_response(waiting)[1] == b"ok"
    assert found == [inspect.CORO_SUSPENDED, True, True, [True]]


def test_its_context_is_its_own(serve):
    async def check(scope, receive, send):
        assert VARIABLE.get() is None
        VARIABLE.set(request_id(scope))
        context = contextvars.copy_context()
        assert context[VARIABLE] == request_id(scope)
        if hasattr(asyncio.Task, "get_context"):
            assert asyncio.current_task().get_context()[VARIABLE] == request_id(scope)
        child = asyncio.create_task(read_variable())
        await receive()
        assert await child == request_id(scope)
        assert await asyncio.to_thread(VARIABLE.get) == request_id(scope)
        assert VARIABLE.get() == request_id(scope)

    async def read_variable():
        return VARIABLE.get()

    everywhere(serve, check)


class Value:
    """What a context variable holds, to be watched."""


@pytest.mark.parametrize(
    "request_", (GET % b"", POST % b"" + b"hello", POST % b"" + b"he"), ids=("get", "post", "cut")
)
def test_no_callback_of_the_server_keeps_its_context(serve, no_collector, request_):
    values = []

    async def app(scope, receive, send):
        value = Value()
        values.append(weakref.ref(value))
        VARIABLE.set(value)
        del value
        while (await receive()).get("more_body"):
            pass
        await start(send)
        for _ in range(3):
            await body(send, b"x" * 50_000, True)
        await nothing()
        await body(send, b"x" * 50_000, True)
        await body(send)

    with serve(app) as server, server.connect() as sock:
        sock.sendall(request_)
        if request_.endswith(b"\r\nhe"):
            eventually(lambda: values)
            sock.sendall(b"llo")
        read_response(sock)
        eventually(lambda: values and values[0]() is None)
    assert len(values) == 1


# --- waiting --------------------------------------------------------------------------------------


async def timed_out(scope, receive, send):
    task = asyncio.current_task()
    await receive()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await receive()
    assert task.cancelling() == 0
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(receive(), 0.01)


async def timed_out_at_once(scope, receive, send):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(WAIT)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout_at(asyncio.get_running_loop().time() - 1):
            await receive()
            await receive()


async def in_time(scope, receive, send):
    async with asyncio.timeout(WAIT) as timeout:
        message = await asyncio.wait_for(receive(), WAIT)
    assert message == {"type": "http.request", "body": b"", "more_body": False}
    assert not timeout.expired()


async def groups(scope, receive, send):
    async with asyncio.TaskGroup() as group:
        one = group.create_task(receive())
        two = group.create_task(nothing())
    assert one.result()["type"] == "http.request"
    assert two.result() is None
    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(receive())
            group.create_task(failing())
    assert waiting.cancelled()


async def failing():
    await nothing()
    raise ZeroDivisionError


async def gathers(scope, receive, send):
    message, result = await asyncio.gather(receive(), nothing())
    assert message["type"] == "http.request"
    assert result is None
    waiting = asyncio.gather(receive(), failing())
    with pytest.raises(ZeroDivisionError):
        await waiting
    both = asyncio.gather(receive(), receive())
    await nothing()
    both.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both


async def cancelled_and_again(scope, receive, send):
    first = asyncio.create_task(receive())
    first.cancel()  # before its first step
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await receive())["type"] == "http.request"
    for _ in range(3):
        waiting = asyncio.create_task(receive())
        await nothing()
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    finished, pending = await asyncio.wait([asyncio.create_task(receive())], timeout=0.01)
    assert not finished
    pending.pop().cancel()


async def shielded(scope, receive, send):
    await receive()
    inner = asyncio.create_task(receive())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(inner), 0.01)
    assert not inner.done()
    inner.cancel()
    await asyncio.wait([inner])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.shield(receive())


async def cancels_itself(scope, receive, send):
    task = asyncio.current_task()
    task.cancel("mine")
    assert task.cancelling() == 1
    await receive()  # it is there: nothing waits, so that nothing is cancelled
    with pytest.raises(asyncio.CancelledError, match="mine"):
        await nothing()
    assert task.uncancel() == 0
    await nothing()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receive()
    task.uncancel()


async def as_completed(scope, receive, send):
    for next_ in asyncio.as_completed([receive(), nothing()]):
        await next_


WAITING = (
    *(timed_out, timed_out_at_once, in_time, groups, gathers),
    *(cancelled_and_again, shielded, cancels_itself, as_completed),
)


@pytest.mark.parametrize("check", WAITING, ids=[check.__name__ for check in WAITING])
def test_asyncio_waits_for_it(serve, check):
    everywhere(serve, check)


def test_a_response_is_sent_by_other_tasks(serve):
    async def app(scope, receive, send):
        await asyncio.create_task(start(send))
        one = asyncio.create_task(send({"type": "http.response.body", "body": b"a", "more_body": True}))
        two = asyncio.ensure_future(send({"type": "http.response.body", "body": b"b", "more_body": True}))
        never = asyncio.create_task(send({"type": "http.response.body", "body": b"never"}))
        never.cancel()
        await asyncio.wait([one, two, never])
        assert never.cancelled()
        async with asyncio.TaskGroup() as group:
            group.create_task(send({"type": "http.response.body", "body": b"c"}))

    with serve(app) as server, server.connect() as sock:
        for _ in range(2):
            sock.sendall(GET % b"")
            assert read_response(sock)[1] == b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n"
        assert server.raw(GET % b"" + LAST).count(b"1\r\nc\r\n0\r\n\r\n") == 2
    assert server.errors.lines(30) == []


# --- cancelled by others --------------------------------------------------------------------------


class Rooms:
    """Waits in the place that the path names; /cancel cancels the tasks of all others."""

    def __init__(self):
        self.entered = []
        self.left = []

    async def __call__(self, scope, receive, send):
        if scope["path"] == "/cancel":
            mine = asyncio.current_task()
            for task in asyncio.all_tasks():
                if task is not mine and task.get_name() in self.entered:
                    task.cancel("from outside")
            await respond(send)
            return
        self.entered.append(request_id(scope))
        try:
            await getattr(self, scope["path"][1:])(receive, send)
        except BaseException as error:
            self.left.append(repr(error))
            if scope["query_string"] != b"swallow":
                raise
            asyncio.current_task().uncancel()
            await respond(send, b"swallowed")

    async def sleep(self, receive, send):
        await asyncio.sleep(WAIT * 2)

    async def later(self, receive, send):
        await nothing()
        await start(send)
        await asyncio.sleep(WAIT * 2)

    async def receive(self, receive, send):
        await receive()
        await receive()

    async def part(self, receive, send):
        await start(send, 200, [(b"content-length", b"10")])
        await body(send, b"part", True)
        await receive()
        await receive()

    async def send(self, receive, send):
        await start(send)
        while True:
            await body(send, b"x" * 100_000, True)


@pytest.mark.parametrize("before", (b"", GET % b"cancel"), ids=("first", "pipelined"))
@pytest.mark.parametrize("place", ("sleep", "later", "receive", "part", "send"))
def test_another_request_cancels_it(serve, place, before):
    app = Rooms()
    with serve(app) as server, server.connect() as sock, server.connect() as other:
        sock.sendall(before + GET % place.encode())
        if before:
            head, _, rest = read_response(sock)
            assert head.startswith(b"HTTP/1.1 200")
        eventually(lambda: app.entered)
        if place == "send":
            eventually(lambda: server.call(blocked_in_send))
        other.sendall(GET % b"cancel")
        assert read_response(other)[1] == b"ok"
        received = (rest if before else b"") + read_what_comes(sock)
        eventually(lambda: server.server.started and not server.call(lambda: names(app.entered)))
    assert app.left == ["CancelledError('from outside')"]
    assert statuses(received)[:1] == [b"500" if place in ("sleep", "later", "receive") else b"200"]
    assert server.errors.lines(30) == []


def names(wanted):
    """Those of `wanted` that are names of tasks which still run."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name() in wanted]


def blocked_in_send():
    """Whether there is a task that waits inside of a ``send()``."""
    stacks = [coroutine_names(task.get_coro()) for task in asyncio.all_tasks()]
    return any("HttpCycle.send" in stack for stack in stacks)


def coroutine_names(coroutine):
    found = []
    while coroutine is not None:
        found.append(getattr(coroutine, "__qualname__", ""))
        coroutine = getattr(coroutine, "cr_await", None)
    return found


def read_what_comes(sock):
    """Until the end, whatever kind of end it is, or a whole response."""
    received = b""
    try:
        while not received.endswith(b"Internal Server Error\n"):
            data = sock.recv(1 << 20)
            if not data:
                break
            received += data
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("place", ("sleep", "later", "receive"))
def test_a_cancellation_may_be_swallowed(serve, place):
    app = Rooms()
    with serve(app) as server, server.connect() as sock, server.connect() as other:
        sock.sendall(GET % (place.encode() + b"?swallow"))
        eventually(lambda: app.entered)
        other.sendall(GET % b"cancel")
        read_response(other)
        assert read_response(sock)[1] == b"swallowed" or place == "later"
    assert app.left == ["CancelledError('from outside')"]


def test_it_is_cancelled_before_its_first_step(serve):
    """By the request before it on its connection, in the very step that has made it."""
    called = []
    cancelled = []

    async def app(scope, receive, send):
        called.append(scope["path"])
        before = asyncio.all_tasks()
        await respond(send)
        for task in asyncio.all_tasks() - before:
            cancelled.append(task)
            task.cancel()

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET % b"1" + GET % b"2")
        rest = read_response(sock)[2]
        head, _, _ = read_response(sock, rest)
        assert head.startswith(b"HTTP/1.1 500 ")
        eventually(lambda: all(task.cancelled() for task in cancelled))
        sock.sendall(GET % b"3")
        assert read_response(sock)[1] == b"ok"
    assert called == ["/1", "/3"]
    assert len(cancelled) == 1


@pytest.mark.parametrize("place", ("sleep", "receive", "send"))
def test_the_server_stops_and_cancels_it(serve, place):
    app = Rooms()
    with serve(app, timeout_graceful_shutdown=0.05) as server, server.connect() as sock:
        sock.sendall(GET % place.encode())
        eventually(lambda: app.entered)
        server.stop()
    if place == "receive":  # it was told to end before
        assert app.left == []
    else:
        assert app.left in (["CancelledError()"], ["CancelledError('')"])
    assert server.server.exit_code == 0


# --- how it is made -------------------------------------------------------------------------------


class OwnTask(asyncio.Task):
    """A task of a factory."""


def test_a_factory_that_the_lifespan_sets_makes_every_task(serve):
    made = []

    def factory(loop, coroutine, **options):
        made.append(coroutine)
        return OwnTask(coroutine, loop=loop, **options)

    async def check(scope, receive, send):
        assert type(asyncio.current_task()) is OwnTask
        assert asyncio.current_task().get_name() == request_id(scope)
        await receive()
        await nothing()

    with_factory(serve, factory, check)
    assert sum(coroutine.__qualname__ == "Call.run" for coroutine in made) == REQUESTS


def with_factory(serve, factory, check):
    """`everywhere`, with a task factory that is set in the lifespan."""

    async def with_lifespan(scope, receive, send):
        if scope["type"] == "lifespan":
            asyncio.get_running_loop().set_task_factory(factory)
            await lifespan(receive, send)
        else:
            await checking(scope, receive, send)

    def serve_with_lifespan(app, **settings):
        nonlocal checking
        checking = app
        return serve(with_lifespan, lifespan="on", **settings)

    checking = None
    everywhere(serve_with_lifespan, check)


if sys.version_info >= (3, 12):

    def test_the_eager_factory_of_asyncio(serve):
        async def check(scope, receive, send):
            assert asyncio.current_task() in asyncio.all_tasks()
            await receive()
            await nothing()
            async with asyncio.TaskGroup() as group:
                group.create_task(nothing())

        def factory(loop, coroutine, *, eager_start=True, **options):  # uvloop asks for it, too
            return asyncio.eager_task_factory(loop, coroutine, **options)

        with_factory(serve, factory, check)


def test_a_loop_in_debug_mode(serve):
    async def check(scope, receive, send):
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        await receive()
        await asyncio.create_task(nothing())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receive(), 0.01)

    everywhere(serve, check)


def test_a_method_of_the_loop_that_is_replaced_meanwhile_stays_replaced(serve):
    seen = []

    async def check(scope, receive, send):
        loop = asyncio.get_running_loop()
        if not hasattr(loop.call_soon, "replaced"):

            def call_soon(*arguments, before=loop.call_soon, **named):
                seen.append(arguments[0])
                return before(*arguments, **named)

            call_soon.replaced = True
            loop.call_soon = call_soon
        await nothing()
        loop.call_soon(seen.append, None)
        await nothing()

    everywhere(serve, check)
    assert seen.count(None) == REQUESTS


def test_finalizers_may_ask_the_loop_for_calls_whenever_the_collector_runs(serve):
    """It may run while a task is made."""
    asked = []
    heard = []

    async def hear():
        heard.append("task")

    def collected(phase, info):
        if phase == "start" and threading.current_thread().name == "server" and loops:
            asked.append(loops[0].call_soon(heard.append, "call"))
            asked.append(loops[0].create_task(hear()))

    async def check(scope, receive, send):
        loops.append(asyncio.get_running_loop())
        await receive()
        await nothing()

    async def app(scope, receive, send):
        await check(scope, receive, send)
        await respond(send)

    loops = []
    before = gc.get_threshold()
    with serve(app) as server, server.connect() as sock:
        gc.callbacks.append(collected)
        try:
            gc.set_threshold(25, 1000, 1000)
            for _ in range(20):
                sock.sendall(GET % b"")
                assert read_response(sock)[1] == b"ok"
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(collected)
        assert asked
        eventually(lambda: len(heard) == len(asked))
    assert server.errors.lines(30) == []


# --- what it raises -------------------------------------------------------------------------------


class Unusual(BaseException):
    """No `Exception`."""


def recursing():
    recursing()


async def raising_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(failing())
        group.create_task(failing())


FAULTS = {
    "exception": (ZeroDivisionError, "ZeroDivisionError"),
    "stop iteration": (StopIteration, "RuntimeError"),
    "stop async iteration": (StopAsyncIteration, "StopAsyncIteration"),
    "group": (lambda: ExceptionGroup("several", [ValueError()]), "ExceptionGroup"),
    "disconnect of ours": (lambda: OSError(5, "not ours"), "OSError"),
    "timeout": (TimeoutError, "TimeoutError"),
}


@pytest.mark.parametrize("step", ("first", "later"))
@pytest.mark.parametrize("fault", FAULTS)
def test_an_exception_is_a_500_and_is_told(serve, fault, step):
    make, name = FAULTS[fault]

    async def app(scope, receive, send):
        if scope["path"] == "/last":
            await respond(send)
            return
        if step == "later":
            await nothing()
        raise make()

    with serve(app) as server:
        received = server.raw(GET % b"" + GET % b"" + LAST)
    assert statuses(received) == [b"500", b"500", b"200"]
    records = [record for record in server.errors.records if record.levelno >= 40]
    assert [type(record.exc_info[1]).__name__ for record in records] == [name] * 2
    for record in records:
        assert record.getMessage().startswith("Exception in the application, answering GET / (")
        if name != "RuntimeError":  # which coroutines make of what would end them
            assert traceback.extract_tb(record.exc_info[2])[-1].name == "app"


def test_an_application_that_recurses_without_end(serve):
    async def app(scope, receive, send):
        if scope["path"] == "/last":
            await respond(send)
        else:
            recursing()

    with serve(app) as server:
        assert statuses(server.raw(GET % b"" + GET % b"" + LAST)) == [b"500", b"500", b"200"]
    assert len(server.errors.lines(40)) == 2


@pytest.mark.parametrize("step", ("first", "later"))
@pytest.mark.parametrize("kind", (Unusual, GeneratorExit, asyncio.CancelledError))
def test_what_is_no_exception_ends_the_task_with_it(serve, kind, step):
    """The loop's exception handler is told of it, but of a cancellation; the client gets a 500."""
    told = []

    async def app(scope, receive, send):
        if scope["path"] == "/last":
            await respond(send)
            return
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        if step == "later":
            await nothing()
        raise kind

    with serve(app) as server:
        received = server.raw(GET % b"" + GET % b"" + LAST)
        if kind is not asyncio.CancelledError:
            eventually(lambda: len(told) == 2)
    assert statuses(received) == [b"500", b"500", b"200"]
    assert [type(context["exception"]) for context in told] == [kind] * len(told)
    assert {context["message"] for context in told} <= {"Task exception was never retrieved"}
    assert server.errors.lines(30) == []


DEADLY = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        try:
            await lifespan(receive, send)
        finally:
            print("lifespan ends", flush=True)
        return
    try:
        if scope["path"] == "/answer":
            return await respond(send)
        if scope["path"] == "/later":
            await asyncio.sleep(0)
        {deed}
    finally:
        print("application ends", flush=True)
"""


CODES = {"raise KeyboardInterrupt": 130, "raise SystemExit(3)": 3, "sys.exit('text')": 1}


@pytest.mark.parametrize("path", ("first", "pipelined", "later"))
@pytest.mark.parametrize("deed", CODES)
def test_what_ends_the_process(tmp_path, way, deed, path):
    """The end of the process is that of the exception, and everything is told to end."""
    before = GET % b"answer" if path == "pipelined" else b""
    with ServerProcess(tmp_path, DEADLY.format(deed=deed)) as server:
        with server.connect() as sock:
            sock.sendall(before + GET % path.encode())
            read_what_comes(sock)
        code = server.end()
    assert code == CODES[deed]
    assert server.said.count("application ends") == 1 + bool(before)
    assert server.said.count("lifespan ends") == 1


# --- what is an application -----------------------------------------------------------------------


class Callable:
    """An object that is called."""

    async def __call__(self, scope, receive, send):
        await nothing()
        await respond(send)


class Returning:
    """What it returns can be awaited, and is no coroutine."""

    def __init__(self, scope, receive, send):
        self.send = send

    def __await__(self):
        yield from asyncio.sleep(0).__await__()
        yield from respond(self.send).__await__()


@types.coroutine
def generator(scope, receive, send):
    """A coroutine of the old kind."""
    yield
    message = yield from receive()
    assert message["type"] == "http.request"
    yield from respond(send)


async def with_a_value(scope, receive, send):
    """What it returns is nobody's business."""
    await respond(send)
    return scope


def future(scope, receive, send):
    """Not a coroutine at all."""
    return asyncio.ensure_future(respond(send))


def inner(scope, receive, send):
    """A function that returns a coroutine."""
    return respond(send)


async def with_prefix(prefix, scope, receive, send):
    """For `functools.partial`."""
    assert prefix == "prefix"
    await respond(send)


class Method:
    """Its method is the application."""

    async def app(self, scope, receive, send):
        await respond(send)

    @staticmethod
    async def static(scope, receive, send):
        await respond(send)

    @classmethod
    async def of_class(cls, scope, receive, send):
        await respond(send)


KINDS = {
    "object": Callable(),
    "class": Returning,
    "generator": generator,
    "value": with_a_value,
    "future": future,
    "function": inner,
    "partial": functools.partial(with_prefix, "prefix"),
    "method": Method().app,
    "static": Method.static,
    "of class": Method.of_class,
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_can_be_awaited_is_an_application(serve, kind):
    with serve(KINDS[kind]) as server, server.connect() as sock:
        for _ in range(2):
            sock.sendall(GET % b"" * 2)
            rest = b""
            for _ in range(2):
                _, content, rest = read_response(sock, rest)
                assert content == b"ok"
    assert server.errors.lines(30) == []


def raises(scope, receive, send):
    """Before there is anything to await."""
    raise LookupError("before")


def stops(scope, receive, send):
    """What would end a coroutine, if it were let through."""
    raise StopIteration


def no_awaitable(scope, receive, send):
    """Nothing to wait for."""
    return 5


class Wrong:
    """Its ``__await__`` returns no iterator."""

    def __init__(self, scope, receive, send):
        pass

    def __await__(self):
        return 5


class Stopping(Wrong):
    """Its iterator ends at once."""

    def __await__(self):
        return iter(())


class Futile(Wrong):
    """It yields what no task can wait for."""

    def __await__(self):
        yield 5


def finished(scope, receive, send):
    """A coroutine that nobody can await any more."""
    coroutine = nothing()
    coroutine.close()
    return coroutine


def words(error):
    """What every Python says, in the words of this one."""

    async def awaiting():
        await error

    try:
        awaiting().send(None)
    except TypeError as said:
        return str(said)


FAILING = {
    "raises": (raises, LookupError, "before"),
    "stops": (stops, StopIteration, ""),
    "number": (no_awaitable, TypeError, words(5)),
    "wrong": (Wrong, TypeError, words(Wrong(0, 0, 0))),
    "futile": (Futile, RuntimeError, "Task got bad yield: 5"),
    "finished": (finished, RuntimeError, "cannot reuse already awaited coroutine"),
}


@pytest.mark.parametrize("kind", FAILING)
def test_what_cannot_be_awaited_is_a_500(serve, kind):
    app, error, text = FAILING[kind]

    def first_or_last(scope, receive, send):
        return respond(send) if scope["path"] == "/last" else app(scope, receive, send)

    with serve(first_or_last) as server:
        assert statuses(server.raw(GET % b"" + GET % b"" + LAST)) == [b"500", b"500", b"200"]
    for record in [record for record in server.errors.records if record.levelno >= 40]:
        assert (type(record.exc_info[1]), str(record.exc_info[1])) == (error, text)
    assert len(server.errors.lines(40)) == 2


def test_an_application_that_awaits_nothing_and_answers_nothing(serve):
    with serve(Stopping) as server:
        assert statuses(server.raw(LAST)) == [b"500"]
    assert server.errors.lines(40)[0].startswith("the application returned before its response was complete")


def test_a_builtin_that_is_no_application(serve):
    with serve(int) as server:
        assert statuses(server.raw(LAST)) == [b"500"]
    [line] = server.errors.lines(40)
    assert line.startswith("Exception in the application, answering GET /last")


# --- around it ------------------------------------------------------------------------------------


def test_threads(serve):
    async def check(scope, receive, send):
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, threading.get_ident) != threading.get_ident()
        assert await asyncio.to_thread(sum, (1, 2)) == 3
        called = loop.create_future()
        await asyncio.to_thread(loop.call_soon_threadsafe, called.set_result, 5)
        assert await called == 5
        sent = asyncio.to_thread(outside, loop, send)
        await sent

    def outside(loop, send):
        done = asyncio.run_coroutine_threadsafe(send({"type": "http.response.debug", "info": {}}), loop)
        assert done.result(WAIT) is None

    everywhere(serve, check)


def test_calls_from_threads_while_requests_start(serve):
    count = 300
    came = []
    ended = threading.Event()

    def calling(loop):
        for number in range(count):
            loop.call_soon_threadsafe(came.append, number)
        ended.set()

    async def app(scope, receive, send):
        if scope["path"] == "/start":
            threading.Thread(target=calling, args=(asyncio.get_running_loop(),)).start()
        await respond(send)

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET % b"start")
        read_response(sock)
        asked = 0
        while not ended.is_set() or asked < 50:
            sock.sendall(GET % b"")
            assert read_response(sock)[1] == b"ok"
            asked += 1
        eventually(lambda: len(came) == count)
    assert came == list(range(count))


def test_tracing_and_profiling(serve):
    """What was set in a request is called for everything that runs until it is unset."""

    async def check(scope, receive, send):
        events = []

        def note(frame, event, argument):
            events.append((event, frame.f_code.co_name))

        before = sys.gettrace()
        sys.setprofile(note)
        sys.settrace(lambda frame, event, argument: events.append(("trace", frame.f_code.co_name)))
        try:
            await receive()
            await traced()
        finally:
            sys.setprofile(None)
            sys.settrace(before)
        assert ("call", "traced") in events
        assert ("return", "traced") in events
        assert ("trace", "traced") in events

    async def traced():
        await nothing()

    everywhere(serve, check)


def test_asynchronous_generators_are_finished_by_the_loop(serve):
    ended = []

    async def numbers():
        try:
            for number in range(10):
                yield number
                await nothing()
        finally:
            await nothing()
            ended.append(True)

    async def check(scope, receive, send):
        generator = numbers()
        assert await anext(generator) == 0
        del generator
        while not ended:
            await nothing()
        ended.clear()

    everywhere(serve, check)


def run_inside(loop, future):
    """What nest_asyncio does, for code that is not asynchronous and calls some that is."""
    task = asyncio.current_task()
    asyncio.tasks._leave_task(loop, task)
    try:
        while not future.done():
            loop._run_once()
    finally:
        asyncio.tasks._enter_task(loop, task)


@pytest.mark.parametrize("step", ("first", "later"))
def test_an_application_that_runs_the_loop_is_answered_by_others_meanwhile(serve, step):
    """Another connection, and its own, go on from inside of a call that does not suspend."""
    futures = []

    async def app(scope, receive, send):
        loop = asyncio.get_running_loop()
        if scope["path"] == "/other":
            assert VARIABLE.get() is None
            await nothing()
            futures[0].set_result("other")
        else:
            VARIABLE.set("mine")
            if step == "later":
                await nothing()
            task = asyncio.current_task()
            content = asyncio.ensure_future(read_body(receive))
            futures.append(loop.create_future())
            run_inside(loop, futures[0])
            run_inside(loop, content)
            assert futures.pop().result() == "other"
            assert content.result() == b"hello"
            assert asyncio.current_task() is task
            assert VARIABLE.get() == "mine"
            await nothing()
        await respond(send)

    with serve(app, loop="asyncio") as server, server.connect() as one, server.connect() as two:
        for _ in range(3):
            one.sendall(POST % b"" + b"he")
            eventually(lambda: futures)
            one.sendall(b"ll")
            two.sendall(GET % b"other")
            assert read_response(two)[1] == b"ok"
            one.sendall(b"o")
            assert read_response(one)[1] == b"ok"
    assert server.errors.lines(30) == []


def test_an_application_sends_for_another_request(serve):
    """Octets of one connection leave in the step of another one's task."""
    waiting = []

    async def app(scope, receive, send):
        if scope["path"] == "/wait":
            await start(send)
            gone = asyncio.Event()
            waiting.append((send, gone))
            await gone.wait()
            return
        other, gone = waiting[0]
        if scope["path"] == "/part":
            await body(other, b"part", True)
        else:
            await body(other, b"last")
            gone.set()
        await respond(send)

    with serve(app) as server, server.connect() as one, server.connect() as two:
        one.sendall(GET % b"wait" * 1)
        eventually(lambda: waiting)
        two.sendall(GET % b"part")
        assert read_response(two)[1] == b"ok"
        received = b""
        while b"part" not in received:
            received += one.recv(65536)
        two.sendall(GET % b"last")
        assert read_response(two)[1] == b"ok"
        while not received.endswith(b"0\r\n\r\n"):
            received += one.recv(65536)
    assert server.errors.lines(30) == []


# --- libraries ------------------------------------------------------------------------------------


def test_anyio(serve):
    import anyio

    async def check(scope, receive, send):
        assert anyio.get_current_task().name == request_id(scope)
        with anyio.move_on_after(0.01) as scope_:
            await anyio.sleep(WAIT)
        assert scope_.cancelled_caught
        await receive()
        with pytest.raises(TimeoutError):
            with anyio.fail_after(0.01):
                await receive()
        async with anyio.create_task_group() as group:
            group.start_soon(receive)
            group.start_soon(anyio.sleep, 0)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        assert (
            await anyio.to_thread.run_sync(anyio.from_thread.run_sync, threading.get_ident)
            == threading.get_ident()
        )
        assert await anyio.to_thread.run_sync(anyio.from_thread.run, answering) == "answer"
        with anyio.CancelScope() as outer:
            outer.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            await anyio.sleep(WAIT)
        assert asyncio.current_task().cancelling() == 0

    async def answering():
        await nothing()
        return "answer"

    everywhere(serve, check)


def test_asgiref(serve):
    from asgiref.sync import async_to_sync, sync_to_async

    async def check(scope, receive, send):
        VARIABLE.set("before")

        def in_thread():
            assert VARIABLE.get() == "before"
            VARIABLE.set("thread")
            message = async_to_sync(receive)()
            async_to_sync(send)({"type": "http.response.debug", "info": {}})
            return message

        assert (await sync_to_async(in_thread)())["type"] == "http.request"
        assert VARIABLE.get() == "thread"

    everywhere(serve, check)


def test_a_middleware_of_starlette_with_streams_and_background_tasks(serve):
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    ran = []

    class Naming(BaseHTTPMiddleware):
        async def dispatch(self, request, call_next):
            response = await call_next(request)
            response.headers["x-task"] = asyncio.current_task().get_name()
            return response

    async def parts():
        for _ in range(3):
            yield b"part"
            await nothing()

    async def endpoint(request):
        assert await request.body() == b"hello"
        return StreamingResponse(parts(), background=BackgroundTask(ran.append, True))

    app = Starlette(
        routes=[Route("/", endpoint, methods=["POST"])], middleware=[Middleware(Naming), Middleware(Naming)]
    )
    with serve(app) as server, server.connect() as sock:
        for _ in range(3):
            sock.sendall(POST % b"" + b"hello")
            assert read_response(sock)[1] == b"4\r\npart\r\n" * 3
        eventually(lambda: len(ran) == 3)
    assert server.errors.lines(30) == []


# --- what is left of it ---------------------------------------------------------------------------


class Local:
    """Something in a frame of an application, to be watched."""


async def leaves_nothing(scope, receive, send, references):
    """Ends in the way that the path names."""
    local = Local()
    references.append(weakref.ref(local))
    how = scope["path"][1:]
    if how == "raise":
        raise ZeroDivisionError
    if how == "unusual":
        raise Unusual
    if how == "chained":
        try:
            raise ZeroDivisionError
        except ZeroDivisionError as error:
            raise ValueError from error
    if how == "recursion":
        recursing()
    if how == "later":
        await nothing()
        raise ZeroDivisionError
    if how == "timeout":
        await timed_out(scope, receive, send)
    if how == "cancel":
        asyncio.current_task().cancel()
        await receive()
        await receive()
    if how == "group":
        await raising_group()
    if how == "wrong":
        await send({"type": "nonsense"})
    if how == "never":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            receive()
    if how == "thread":
        await asyncio.to_thread(id, local)
    await respond(send)


ENDS = (
    *("answer", "raise", "unusual", "chained", "recursion", "later"),
    *("timeout", "cancel", "wrong", "never", "thread"),
)


@pytest.mark.parametrize("how", ENDS)
def test_nothing_in_its_frames_outlives_it(serve, no_collector, how):
    references = []

    async def app(scope, receive, send):
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await leaves_nothing(scope, receive, send, references)

    def forgotten():
        server.errors.records.clear()
        return not [reference for reference in references if reference() is not None]

    with serve(app, access_log=False) as server, server.connect() as sock:
        for _ in range(2):
            sock.sendall(GET % how.encode() * 2)
            rest = read_response(sock)[2]
            read_response(sock, rest)
        eventually(forgotten)
    assert len(references) == 4


def test_a_thousand_requests_leave_no_object(serve, no_collector):
    ways = (b"answer", b"raise", b"later", b"unusual", b"cancel", b"wrong")
    references = []

    async def app(scope, receive, send):
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await leaves_nothing(scope, receive, send, references)

    def ask(times):
        for _ in range(times):
            for how in ways:
                sock.sendall(GET % how)
                read_response(sock)
        server.errors.records.clear()
        references.clear()
        return len(gc.get_objects())

    with serve(app, access_log=False) as server, server.connect() as sock:
        ask(20)
        before = ask(1)
        assert ask(1000 // len(ways)) - before < 50
