"""The compiled engine against its reference: whatever happens to both, both make the same of it.

Scripts of octets, time and an application's calls for the engines alone; whole connections for servers. Both
are random and repeatable; ``HYPOTHESIS_PROFILE=search`` looks further, and ``fuzz/differential.py`` for as
long as one likes.
"""

from __future__ import annotations

import ast
import errno
import importlib
import inspect
import logging
import os
import random
import re
import socket
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest
from fuzz import differential
from fuzz.chance import ENOUGH, Chance
from fuzz.mutation import broken, composed
from fuzz.playing import difference, play
from fuzz.scripts import EXTREMES, SIZES, random_script
from harness import read_to_end, running, send_pieces
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_apps import Gone, body, read_body, respond, start
from test_http1_fuzz import PROFILE
from tracing import make_engine, random_cuts, trace
from under_test import ENGINES, IOS, Way, ways

from servery import selection
from servery.http1.writer import CONTINUE
from servery.limits import DEFAULTS

SEARCHING = os.environ.get("HYPOTHESIS_PROFILE") == "search"
SCRIPTS = 5000 if SEARCHING else 150
INPUTS = 200_000 if SEARCHING else 12_000
BATCHES = 100 if SEARCHING else 12
BATCH = 100
"""Connections to one server: their sockets stay open until all are done, so that a port tells which it is."""


GET = b"GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"

pytestmark = pytest.mark.usefixtures("both_engines")

# --- the engines alone -------------------------------------------------------------------------------


@settings(PROFILE, max_examples=SCRIPTS)
@given(octets=st.binary(min_size=ENOUGH, max_size=ENOUGH))
def test_random_scripts(octets: bytes) -> None:
    """A failure is shown with the shortest script that Hypothesis finds."""
    assert difference(random_script(Chance(octets))) == ""


def test_many_random_scripts() -> None:
    """Plain chance makes many times more of them in the same time."""
    for number in range(INPUTS):
        assert differential.check(0, number) == ""


def test_scripts_go_everywhere() -> None:
    """The scripts above reach what they are for: bodies, pipelines, answers of every kind, and refusals."""
    happened: dict[str, int] = {}
    for number in range(1500):
        for step, _, result, _, state in play("python", random_script(Chance.numbered("everywhere", number))):
            refused = isinstance(result, tuple) and result and isinstance(result[0], type)
            words = [f"{step} {'refused' if refused else 'done'}", f"request {state[5]}"]
            for event in result if isinstance(result, list) else []:
                words.append(str(event[1]) if isinstance(event, tuple) else type(event).__name__)
            for word in words:
                happened[word] = happened.get(word, 0) + 1
    calls = ("start_response", "send_body", "file", "send_trailers", "send_informational", "answer")
    wanted = [f"{call} {end}" for call in (*calls, "fail_response", "abandon") for end in ("done", "refused")]
    wanted += [
        "RequestReceived",
        "BodyReceived",
        "PeerClosed",
        "request 3",
        "400",
        "408",
        "413",
        "414",
        "431",
    ]
    assert [word for word in wanted if happened.get(word, 0) < 3] == []


@pytest.mark.parametrize("name", SIZES)
def test_extreme_limits(name: str) -> None:
    """Limits have no upper bound: what a machine word cannot hold is no limit, and the least is one, too."""
    for size in EXTREMES:
        limits = replace(DEFAULTS, **{name: size})
        for data in (GET, POST, GET + POST + GET):
            for late in (False, True):
                expected = trace("python", data, late=late, limits=limits)
                assert trace("native", data, late=late, limits=limits) == expected, size


# --- their faces -------------------------------------------------------------------------------------


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_engines_have_the_same_public_names() -> None:
    assert public(make_engine("native")) == public(make_engine("python"))


def test_methods_have_the_same_parameters() -> None:
    """Compiled methods do not tell: their source does."""
    reference = make_engine("python")
    source = (selection.SPEEDUPS / "engine.pyx").read_text("utf-8")
    face = source.partition("cdef class Http1Engine(Answering):")[2]
    for name in public(reference):
        method = getattr(reference, name)
        if inspect.ismethod(method):
            [given] = re.findall(
                rf"^    (?:def|cpdef \w+) {name}\(self,? ?(.*?)\)(?: except -1)?:$", face, re.MULTILINE
            )
            names = [re.split(r"=| not None", part)[0].split()[-1] for part in given.split(", ") if part]
            assert names == [*inspect.signature(method).parameters], name


def test_stub_names_what_the_module_offers() -> None:
    stub = ast.parse((selection.SPEEDUPS / "engine.pyi").read_text("utf-8"))
    told = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    told.discard(None)  # imported for the stub itself
    told |= {node.name for node in stub.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    module = importlib.import_module(ENGINES["native"])
    own = {
        name for name in public(module) if getattr(getattr(module, name), "__module__", "") == module.__name__
    }
    assert told == own
    facts = module.build_info()
    assert all(type(name) is type(fact) is str for name, fact in facts.items())


# --- whole connections -------------------------------------------------------------------------------


class Recorder:
    """An application that does what its request bids it; `calls` are by the client's port.

    It takes the whole body and then answers, or the other way round; not so if the client is one of the
    `slow`, whose octets may or may not have come by then.
    """

    def __init__(self) -> None:
        self.calls: dict[int, list[tuple[dict[str, Any], list[Any]]]] = {}
        self.slow: set[int] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        port = scope["client"][1]
        messages: list[Any] = []
        self.calls.setdefault(port, []).append((self.facts(scope), messages))

        async def receiving() -> Any:
            message = await receive()
            if messages and message["type"] == messages[-1]["type"] == "http.request":
                message = {**message, "body": messages.pop()["body"] + message["body"]}
                messages.append(message)
                return {**message, "body": b""}
            messages.append(message)
            return message

        choice = crc32(repr([scope["method"], scope["raw_path"], scope["headers"]]).encode())
        hasty = choice % 5 == 0 and port not in self.slow
        if not hasty and not await self.reads(receiving):
            return
        choice = crc32(repr(messages).encode(), choice)
        await ANSWERS[choice % len(ANSWERS)](send)
        if hasty:
            await self.reads(receiving)

    async def reads(self, receiving: Any) -> bool:
        """Take the whole body; whether it came."""
        try:
            await read_body(receiving)
        except Gone:
            return False
        return True

    def facts(self, scope: Any) -> dict[str, Any]:
        """The scope without what must differ between two servers."""
        kept = {key: value for key, value in scope.items() if key not in ("client", "server", "extensions")}
        return {**kept, "extensions": sorted(scope["extensions"])}


async def chunked(send: Any) -> None:
    await start(send, 200, [(b"content-type", b"text/plain")])
    for part in (b"one", b"", b"x" * 20_000):
        await body(send, part, True)
    await body(send)


async def trailed(send: Any) -> None:
    await send({"type": "http.response.early_hint", "links": [b"</a.css>; rel=preload"]})
    await start(send, 201, [(b"trailer", b"x-sum")], trailers=True)
    await body(send, b"content")
    await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"1")]})


async def raising(send: Any) -> None:
    raise ZeroDivisionError


async def cut(send: Any) -> None:
    await start(send, 200, [(b"content-length", b"10")])
    await body(send, b"part", True)
    raise ZeroDivisionError


async def wrong(send: Any) -> None:
    await start(send, 200, [(b"x", b"a\r\nb")])


async def too_much(send: Any) -> None:
    await respond(send, b"ok", 204, [(b"connection", b"close")])
    await body(send, b"more")


async def filed(send: Any) -> None:
    await start(send)
    await send({"type": "http.response.pathsend", "path": __file__})


async def silent(send: Any) -> None:
    """Returns without an answer."""


ANSWERS = (
    *(respond, respond, respond, respond, chunked, chunked, chunked, trailed, trailed, trailed),
    *(filed, filed, raising, cut, wrong, too_much, silent),
)


def converse(sock: socket.socket, number: int, slow: set[int]) -> bytes | None:
    """What a client read that sent input `number` and half-closed; ``None`` if the server cut it off.

    It joins the `slow` if it sends in pieces: whether a 100 is due depends on how quick it was.
    """
    chance = Chance.numbered("wire", number)
    data = composed(chance) if chance.flag(0.3) else broken(chance)
    cuts = random_cuts(len(data), random.Random(number)) if len(data) > 1 and chance.flag(0.3) else []
    if cuts:
        slow.add(sock.getsockname()[1])
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    send_pieces(sock, data, cuts)
    try:
        sock.shutdown(socket.SHUT_WR)
        received = read_to_end(sock)
        return received.replace(CONTINUE, b"") if cuts else received
    except OSError as error:
        if error.errno not in (errno.ECONNRESET, errno.ENOTCONN):
            raise
        return None


def outcome(way: Way, numbers: range) -> tuple[list[tuple[Any, ...]], list[str]]:
    """All that clients, application and logs saw of each connection, and the messages of the error log."""
    app = Recorder()
    received = []
    with running(app, **way.settings, date_header=False) as server, ExitStack() as stack:
        for number in numbers:
            sock = stack.enter_context(server.connect())
            received.append((sock.getsockname()[1], converse(sock, number, app.slow)))
    lines: dict[int, list[Any]] = {}
    for record in server.access.records:
        line = record.access
        facts = (line.method, line.target, line.version, line.headers)
        lines.setdefault(line.client[1], []).append((*facts, line.status, line.body_bytes_sent, line.aborted))
    found = []
    for port, octets in received:
        logged = lines.get(port, [])
        if any(aborted for *_, aborted in logged):  # how much arrived before the reset is nobody's choice
            octets = None
        found.append((octets, app.calls.get(port, []), logged))
    return found, [re.sub(r"\b[0-9a-f]{4,}\b", "#", text) for text in server.errors.lines(logging.WARNING)]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_connections_look_the_same_from_outside(batch: int) -> None:
    """Each parser with each owner of the sockets, and each of them on both loops by turns."""
    numbers = range(batch * BATCH, (batch + 1) * BATCH)
    reference, *others = ways(str(batch), list(ENGINES), list(IOS))
    expected, errors = outcome(reference, numbers)
    for way in others:
        way.must_be_built()
        found, found_errors = outcome(way, numbers)
        for number, one, other in zip(numbers, expected, found, strict=True):
            assert other == one, (str(way), number)
        assert found_errors == errors, str(way)
    assert sum(octets is not None for octets, *_ in expected) > BATCH / 2
    assert sum(len(calls) for _, calls, _ in expected) > BATCH / 2
    assert sum(len(logged) for *_, logged in expected) > BATCH / 2
