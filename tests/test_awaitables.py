"""What `receive` and `send` are, and what they return: to all who look, coroutine functions and coroutines.

And what may be sent: every message is what its dict says when it is sent, whatever becomes of it later.
"""

from __future__ import annotations

import ast
import asyncio
import collections
import collections.abc
import contextlib
import copy
import functools
import inspect
import linecache
import pickle
import sys
import types
import warnings
import weakref

import pytest
from harness import WAIT, eventually, read_response, statuses
from sample_apps import body, respond, start

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
BODY = {"type": "http.response.body", "body": b"ok"}


def checked(serve, check):
    """Let `check(receive, send)` run for two requests; it leaves a response that is not begun."""
    failures = []

    async def app(scope, receive, send):
        try:
            await check(receive, send)
        except BaseException as error:
            failures.append(error)
        await respond(send)

    with serve(app) as server, server.connect() as sock:
        for _ in range(2):
            sock.sendall(GET % b"")
            assert read_response(sock)[1] == b"ok"
    for failure in failures:
        raise failure
    assert server.errors.lines(30) == []


@contextlib.contextmanager
def never_awaited(*texts):
    """Coroutines with these names are let go of in the block, and that is told for the line that does it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert [str(warning.message) for warning in caught] == [
        f"coroutine 'HttpCycle.{text}' was never awaited" for text in texts
    ]
    for warning in caught:
        assert warning.category is RuntimeWarning
        assert linecache.getline(warning.filename, warning.lineno).endswith("  # let go of\n")


# --- the functions --------------------------------------------------------------------------------


def test_they_are_bound_coroutine_functions(serve):
    async def check(receive, send):
        for function, name in ((receive, "receive"), (send, "send")):
            assert inspect.iscoroutinefunction(function)
            assert inspect.iscoroutinefunction(functools.partial(function))
            assert inspect.ismethod(function)
            assert inspect.isroutine(function)
            assert callable(function)
            assert isinstance(function, types.MethodType)
            assert function.__name__ == name
            assert function.__qualname__ == f"HttpCycle.{name}"
            assert repr(function).startswith(f"<bound method HttpCycle.{name} of <servery.")
            assert function.__self__ is receive.__self__
            assert function == function
            assert hash(function) == hash(function)
            assert function.__doc__.startswith(f"ASGI ``{name}``")
            assert weakref.ref(function)() is function
            assert not hasattr(function, "nothing")
            with pytest.raises(AttributeError):
                function.attribute = 1
        assert receive != send
        assert [*inspect.signature(receive).parameters] == []
        assert [*inspect.signature(send).parameters] == ["message"]
        if sys.version_info < (3, 14):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                assert asyncio.iscoroutinefunction(receive)
                assert asyncio.iscoroutinefunction(send)

    checked(serve, check)


def test_they_are_called_with_what_they_take(serve):
    async def check(receive, send):
        for call in (
            lambda: receive(1),
            lambda: send(),
            lambda: send(1, 2),
            lambda: send(other=1),
            lambda: receive(a=1),
        ):
            with pytest.raises(TypeError, match="argument"):
                call()
        assert (await receive())["type"] == "http.request"
        await send(message={"type": "http.response.debug", "info": None})

    checked(serve, check)


# --- the coroutines -------------------------------------------------------------------------------


def test_they_return_coroutines(serve):
    async def check(receive, send):
        for coroutine, name in ((receive(), "receive"), (send(START), "send")):
            assert asyncio.iscoroutine(coroutine)
            assert inspect.iscoroutine(coroutine)
            assert inspect.isawaitable(coroutine)
            assert isinstance(coroutine, collections.abc.Coroutine)
            assert isinstance(coroutine, types.CoroutineType)
            assert not inspect.isgenerator(coroutine)
            assert not inspect.isasyncgen(coroutine)
            assert coroutine.__name__ == name
            assert coroutine.__qualname__ == f"HttpCycle.{name}"
            assert repr(coroutine).startswith(f"<coroutine object HttpCycle.{name} at 0x")
            assert coroutine.cr_await is None
            assert coroutine.cr_origin is None
            assert not coroutine.cr_running
            assert not coroutine.cr_suspended
            assert coroutine.cr_code.co_name == name
            assert weakref.ref(coroutine)() is coroutine
            for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError):
                    duplicate(coroutine)
            assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
            coroutine.close()
            assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED

    checked(serve, check)


def test_one_that_waits_says_so(serve):
    async def check(receive, send):
        await receive()
        coroutine = receive()
        task = asyncio.create_task(coroutine)
        await asyncio.sleep(0)
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_SUSPENDED
        assert coroutine.cr_await is not None
        assert "HttpCycle.receive()" in repr(task)
        assert task.get_coro() is coroutine
        assert task.get_stack()
        with pytest.raises(RuntimeError, match="already"):
            await coroutine
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await coroutine

    checked(serve, check)


def test_never_awaited(serve):
    """Nothing is sent, nothing received, and the warning names this file."""

    async def check(receive, send):
        with never_awaited("send", "receive"):
            send({"type": "http.response.body", "body": b"nothing"})  # let go of
            receive()  # let go of
        with never_awaited("send"):
            coroutine = send(START)
            del coroutine  # let go of
        assert (await receive())["type"] == "http.request"

    checked(serve, check)


def test_nothing_happens_before_it_is_awaited(serve):
    async def check(receive, send):
        message = {"type": "nonsense"}
        later = send(message)
        message["type"] = "http.response.debug"
        assert await later is None
        one, two = receive(), receive()
        assert (await two)["type"] == "http.request"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(one, 0.01)

    checked(serve, check)


def test_awaited_once_only(serve):
    async def check(receive, send):
        for coroutine in (receive(), send({"type": "http.response.debug"}), failing(send)):
            with contextlib.suppress(Exception):
                await coroutine
            with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
                await coroutine
            with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
                coroutine.send(None)
            with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
                coroutine.throw(ValueError())
            coroutine.close()

    def failing(send):
        return send({"type": "nonsense"})

    checked(serve, check)


def test_closed_and_thrown_into_before_it_is_awaited(serve):
    async def check(receive, send):
        with never_awaited():
            for make in (receive, lambda: send(START)):
                closed = make()
                closed.close()
                closed.close()
                with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
                    await closed
                thrown = make()
                with pytest.raises(ZeroDivisionError, match="mine") as caught:
                    thrown.throw(ZeroDivisionError("mine"))
                assert caught.value.__context__ is None
                with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
                    await thrown
                with pytest.raises(KeyError):
                    make().throw(KeyError)
        assert (await receive())["type"] == "http.request"

    checked(serve, check)


def test_driven_by_hand(serve):
    async def check(receive, send):
        with pytest.raises(StopIteration) as stopped:
            receive().send(None)
        assert stopped.value.value["type"] == "http.request"
        with pytest.raises(StopIteration) as stopped:
            send({"type": "http.response.debug"}).send(None)
        assert stopped.value.value is None
        waiting = receive()
        future = waiting.send(None)
        assert asyncio.isfuture(future)
        with pytest.raises(LookupError):
            waiting.throw(LookupError())
        waiting = receive()
        waiting.send(None)
        waiting.close()
        with pytest.raises(RuntimeError, match="cannot reuse"):
            waiting.send(None)
        iterator = send({"type": "http.response.debug"}).__await__()
        with pytest.raises(StopIteration):
            next(iterator)

    checked(serve, check)


def test_what_is_raised_has_its_context(serve):
    """As if a function of Python had raised it."""

    async def check(receive, send):
        before = KeyError("before")
        try:
            raise before
        except KeyError:
            with pytest.raises(Exception, match="nonsense") as caught:
                await send({"type": "nonsense"})
            message = await receive()
            current = sys.exc_info()[1]
        assert caught.value.__context__ is current is before
        assert message["type"] == "http.request"
        assert sys.exc_info() == (None, None, None)

    checked(serve, check)


@types.coroutine
def by_generator(receive):
    """Waits in the old way."""
    return (yield from receive())


def test_other_ways_to_wait(serve):
    async def check(receive, send):
        assert (await by_generator(receive))["type"] == "http.request"
        for wrapped in (types.coroutine(lambda: receive()), lambda: asyncio.wait_for(receive(), WAIT)):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await wrapped()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(send, {"type": "http.response.debug"})

    checked(serve, check)


# --- messages -------------------------------------------------------------------------------------


class Own(dict):
    """A dict of one's own."""


class Octets(bytes):
    """Bytes of one's own."""


class Answering(collections.abc.Mapping):
    """No dict at all."""

    def __init__(self, **items):
        self.items_ = items

    def __getitem__(self, key):
        return self.items_[key]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)


class Text(str):
    """Text of one's own."""


HEADERS = {
    "list": lambda: [(b"x-a", b"1"), (b"content-length", b"2")],
    "tuple of lists": lambda: ([b"x-a", b"1"], [b"content-length", b"2"]),
    "generator": lambda: (field for field in ((b"x-a", b"1"), (b"content-length", b"2"))),
    "items": lambda: {b"x-a": b"1", b"content-length": b"2"}.items(),
    "own bytes": lambda: [(Octets(b"x-a"), Octets(b"1")), (b"content-length", b"2")],
}
MAPPINGS = {
    "dict": dict,
    "own": Own,
    "mapping": Answering,
    "ordered": collections.OrderedDict,
    "chain": collections.ChainMap,
}
BODIES = {
    "bytes": b"ok",
    "own": Octets(b"ok"),
    "bytearray": bytearray(b"ok"),
    "memoryview": memoryview(b"ok"),
    "strided": memoryview(b"o-k-")[::2],
    "numbers": memoryview(b"ok").cast("B"),
}


def answer_of(serve, *messages):
    """What the client gets (without Date), and the messages of the error log."""

    async def app(scope, receive, send):
        for message in messages:
            await send(message() if callable(message) else message)

    with serve(app, date_header=False) as server:
        received = server.raw(LAST)
    return received, server.errors.records


@pytest.mark.parametrize("headers", HEADERS)
def test_headers(serve, headers):
    received, _ = answer_of(serve, {**START, "headers": HEADERS[headers]()}, BODY)
    assert b"x-a: 1\r\ncontent-length: 2\r\n" in received
    assert received.endswith(b"\r\n\r\nok")


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_mappings(serve, mapping):
    make = MAPPINGS[mapping] if mapping != "chain" else lambda **items: collections.ChainMap(items)
    received, _ = answer_of(
        serve,
        make(**START),
        make(type=Text("http.response.body"), body=b"o", more_body=1),
        make(**{**BODY, "body": b"k"}),
    )
    assert received.endswith(b"\r\n\r\nok")


@pytest.mark.parametrize("content", BODIES)
def test_bodies(serve, content):
    received, _ = answer_of(serve, START, {"type": "http.response.body", "body": BODIES[content]})
    assert received.endswith(b"\r\n\r\nok")


WRONG = {
    "none": None,
    "text": "http.response.start",
    "list": [("type", "http.response.start")],
    "empty": {},
    "no mapping": object(),
    "number": 5,
    "unhashable": {"type": []},
    "none as type": {"type": None},
    "bytes as type": {"type": b"http.response.body"},
    "no status": {"type": "http.response.start"},
    "text as body": {"type": "http.response.body", "body": "text"},
    "none as body": {"type": "http.response.body", "body": None},
    "list as body": {"type": "http.response.body", "body": [1]},
    "text as status": {**START, "status": "200"},
    "none as headers": {**START, "headers": None},
    "text as headers": {**START, "headers": [("a", "b")]},
    "too many parts": {**START, "headers": [(b"a", b"b", b"c")]},
    "no path": {"type": "http.response.pathsend"},
    "no file": {"type": "http.response.zerocopysend"},
    "no links": {"type": "http.response.early_hint"},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_no_message_is_refused_in_the_same_words(serve, message):
    """The reference's words: both are asked here, in one process."""
    said = []

    async def app(scope, receive, send):
        try:
            if message.endswith(("body",)):
                await start(send)
            await send(WRONG[message])
        except Exception as error:
            said.append((type(error).__name__, str(error)))
            raise

    found = []
    for settings in ({}, {"parser": "python", "io": "transport"}):
        said.clear()
        with serve(app, **settings) as server:
            assert statuses(server.raw(LAST)) == [b"500"]
        found.append(said[0])
    address = " at 0x"
    assert found[0][0] == found[1][0]
    assert found[0][1].partition(address)[0] == found[1][1].partition(address)[0]


def test_what_is_changed_after_it_was_sent_is_sent_as_it_was(serve):
    async def app(scope, receive, send):
        value = bytearray(b"before")
        field = [b"x-a", value]
        message = {**START, "headers": [field, (b"content-length", b"6")]}
        await send(message)
        value[:] = b"AFTER!"
        field[0] = b"x-b"
        message["headers"].clear()
        message["status"] = 500
        content = bytearray(b"abc")
        message = {"type": "http.response.body", "body": content, "more_body": True}
        await send(message)
        content[:] = b"XYZ"
        message["more_body"] = False
        await asyncio.sleep(0)
        await body(send, memoryview(content))
        content[:] = b"???"

    with serve(app) as server:
        received = server.raw(LAST)
    assert statuses(received) == [b"200"]
    assert b"x-a: before\r\n" in received
    assert received.endswith(b"\r\n\r\nabcXYZ")


def test_nothing_that_a_scope_reaches_is_shared_with_the_next(serve):
    """Everything that can be changed is; then the next scope is looked at, and so is the log."""
    scopes = []

    async def app(scope, receive, send):
        facts = {**scope, "client": None}
        facts["extensions"] = {
            **scope["extensions"],
            "servery": {**scope["extensions"]["servery"], "request_id": None},
        }
        scopes.append(ast.literal_eval(repr(facts)))
        await receive()
        wreck(scope)
        await respond(send)

    with serve(app) as server, server.connect() as sock:
        for _ in range(2):
            sock.sendall(GET % b"path?query" + GET % b"path?query")
            rest = read_response(sock)[2]
            read_response(sock, rest)
        with server.connect() as other:
            other.sendall(GET % b"path?query")
            read_response(other)
        lines = server.access.wait(5)
    assert scopes == [scopes[0]] * 5
    assert scopes[0]["headers"] == [(b"host", b"a")]
    assert all('"GET /path?query HTTP/1.1" 200 2 ' in line for line in lines)


def wreck(thing):
    """Change whatever can be."""
    if isinstance(thing, dict):
        for value in list(thing.values()):
            wreck(value)
        for key in list(thing):
            thing[key] = "wrecked"
        thing["more"] = "wrecked"
    elif isinstance(thing, list):
        for value in thing:
            wreck(value)
        thing[:] = ["wrecked"] * 3
    elif isinstance(thing, bytearray):
        thing[:] = b"wrecked"


def test_a_received_message_is_the_applications_own(serve):
    async def check(receive, send):
        message = await receive()
        assert type(message) is dict
        assert type(message["body"]) is bytes
        message.clear()
        message["type"] = "changed"

    checked(serve, check)


def test_sent_after_the_end(serve):
    """`receive` and `send` of an answered request say so, and touch nothing."""
    kept = []

    async def app(scope, receive, send):
        await respond(send)
        assert await receive() == {"type": "http.disconnect"}
        with pytest.raises(Exception, match="was sent after the response was complete"):
            await send(BODY)
        kept.append((receive, send))

    async def late():
        said = []
        for receive, send in kept:
            said.append((await receive())["type"])
            try:
                await send(BODY)
            except Exception as error:
                said.append(type(error).__name__)
        return said

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET % b"" * 2)
        rest = read_response(sock)[2]
        read_response(sock, rest)
        eventually(lambda: len(kept) == 2)
        done = asyncio.run_coroutine_threadsafe(late(), server.loop).result(WAIT)
        sock.sendall(GET % b"")
        assert read_response(sock)[1] == b"ok"
    assert done == ["http.disconnect", "LocalProtocolError"] * 2
    assert server.errors.lines(30) == []
