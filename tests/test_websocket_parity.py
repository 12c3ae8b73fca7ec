"""The compiled WebSocket engine against its reference: whatever happens to both, both make the same of it.

Scripts of frames, faults, cuts, time and an application's calls, random and repeatable;
``HYPOTHESIS_PROFILE=search`` plays more of them, and ``fuzz/differential.py --of websocket`` as many as one
likes.
"""

from __future__ import annotations

import ast
import errno
import os
import socket
from collections import Counter
from contextlib import ExitStack
from importlib import import_module
from inspect import signature
from itertools import accumulate
from logging import WARNING
from re import MULTILINE, findall
from typing import Any

import pytest
from fuzz import differential
from fuzz.chance import ENOUGH, Chance
from fuzz.frames import stream
from fuzz.websocket_playing import cut_difference, difference, play
from fuzz.websocket_scripts import AGREEMENTS, Script, Step, cut, random_limits, random_script
from harness import running, send_pieces
from hypothesis import given, settings
from hypothesis import strategies as st
from test_http1_fuzz import PROFILE
from tracing import pieces
from under_test import IOS, Way, ways
from websocket_subjects import ENGINES, chosen, decoder_class, engine_class
from wire_frames import BINARY, CLOSE, PONG, TEXT, Client, Frame, frame

from servery import selection
from servery.limits import Limits

SEARCHING = os.environ.get("HYPOTHESIS_PROFILE") == "search"
SCRIPTS = 5000 if SEARCHING else 100
INPUTS = 200_000 if SEARCHING else 2500
STREAMS = 2000 if SEARCHING else 60
SHORT = 600
LONGEST = 16_000
BATCHES = 100 if SEARCHING else 10
BATCH = 100
"""Connections to one server: their sockets stay open until all are done, so that a port tells which it is."""
LEAST_OF_EACH = 5

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
        assert differential.check_websocket(0, number) == ""


def test_scripts_go_everywhere() -> None:
    """The scripts above reach what they are for: messages of every kind, all faults, all ends."""
    happened: Counter[str] = Counter()
    for number in range(2000):
        for step, result, _ in play("python", random_script(Chance.numbered("everywhere", number))):
            happened[step] += 1
            for event in result if isinstance(result, list) and step != "take_output" else []:
                name = event[0].__name__ if isinstance(event, tuple) else type(event).__name__
                happened[str(event[3]) if name == "WebSocketFailed" else name] += 1
    wanted = [
        *("MessageReceived", "PongReceived", "WebSocketClosed", "close", "stop", "expire", "taken", "unsent"),
        *("frames of a client must be masked", "reserved opcode", "reserved bit set", "message too big"),
        *("fragmented control frame", "new message inside of a fragmented one", "text is not UTF-8"),
        *("continuation of no message", "control frame too long", "invalid close code"),
        *("frame length not in its shortest form", "message is not compressed as agreed"),
        *("no answer to a ping in time", "reason of a close is not UTF-8", "close frame of one octet"),
    ]
    assert {word: happened[word] for word in wanted if happened[word] < LEAST_OF_EACH} == {}


def test_every_cut_of_streams() -> None:
    """In two at each place, and octet by octet: nothing depends on it."""
    for number in range(STREAMS):
        chance = Chance.numbered("cuts", number)
        agreement, limits = AGREEMENTS[number % len(AGREEMENTS)], random_limits(chance)
        assert cut_difference(stream(chance, agreement is not None)[:SHORT], limits, agreement) == ""


# --- the decoders of frames --------------------------------------------------------------------------


def decoded(name: str, data: list[bytes], max_size: int | None, deflates: bool) -> tuple[list[Any], Any]:
    """All pieces of messages, and the fault."""
    with chosen(name):
        decoder = decoder_class()(max_size, deflates)
    found = []
    for piece in data:
        found.append(decoder.feed(piece))
        if decoder.error is not None:
            return found, (type(decoder.error), decoder.error.status, decoder.error.reason)
    return found, None


def test_every_cut_gives_the_same_pieces_at_the_same_time() -> None:
    for number in range(STREAMS // 2):
        chance = Chance.numbered("pieces", number)
        deflates, max_size = number % 2 == 0, chance.pick((None, 200, 1 << 20))
        data = stream(chance, deflates)[:SHORT]
        cuttings = [[cut] for cut in range(len(data))] + [list(range(len(data)))]
        for cuts in cuttings:
            parts = pieces(data, cuts)
            expected, found = (decoded(name, parts, max_size, deflates) for name in ENGINES)
            assert found == expected, (number, cuts)


@pytest.mark.parametrize("second", [0, 127, *range(252, 256)])
def test_every_first_octet(second: int) -> None:
    """Behind nothing, inside of a message, and inside of a compressed one."""
    begun = (b"", frame(TEXT, b"a", final=False), frame(BINARY, b"a", final=False, rsv=4))
    for first in range(256):
        for start in begun:
            for rest in (b"", b"\0", b"\0" * 8, b"\0" * 7 + b"\x7f" * 9, b"\xff" * 20):
                parts = [start, bytes((first, second)) + rest]
                expected, found = (decoded(name, parts, 1000, True) for name in ENGINES)
                assert found == expected, (first, start, rest)


def test_a_str_and_bytes_of_another_class_are_sent() -> None:
    class Text(str):
        """As template engines have them."""

        __slots__ = ()

    class Octets(bytes):
        """The same of octets."""

    steps: list[Step] = [
        ("send_text", (Text("é"),)),
        ("send_text", (Text("a"),)),
        ("send_bytes", (Octets(b"b"),)),
        ("send_bytes", (Octets(b"c" * 20_000),)),
        ("take_output", ()),
    ]
    assert difference(Script(Limits(), None, b"", 0.0, steps)) == ""


# --- their faces -------------------------------------------------------------------------------------


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_engines_have_the_same_names_and_parameters() -> None:
    """Compiled methods do not tell their parameters: their source does."""
    with chosen("python"):
        reference, decoder = engine_class()(Limits(), 0.0), decoder_class()(None, False)
    with chosen("native"):
        assert public(engine_class()(Limits(), 0.0)) == public(reference)
        assert public(decoder_class()(None, False)) == public(decoder)
    source = (selection.SPEEDUPS / "websocket.pyx").read_text("utf-8")
    face = source.partition("cdef class WebSocketEngine:")[2]
    for name in public(reference):
        method = getattr(reference, name)
        if callable(method):
            [given] = findall(rf"^    cpdef \w+ {name}\(self,? ?(.*?)\)(?: except -1)?:$", face, MULTILINE)
            names = [part.split()[-1] for part in given.split(", ") if part]
            assert names == [*signature(method).parameters], name


def test_stub_names_what_the_module_offers() -> None:
    stub = ast.parse((selection.SPEEDUPS / "websocket.pyi").read_text("utf-8"))
    offered = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    module = import_module(ENGINES["native"])
    own = {
        name for name in public(module) if getattr(getattr(module, name), "__module__", "") == module.__name__
    }
    assert offered == own


# --- whole connections -------------------------------------------------------------------------------


class Recorder:
    """An application that says nothing, and notes what it is told, by the client's port."""

    def __init__(self) -> None:
        self.told: dict[int, list[Any]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        told = self.told[scope["client"][1]] = []
        await receive()
        await send({"type": "websocket.accept"})
        while not told or told[-1]["type"] != "websocket.disconnect":
            told.append(await receive())


def converse(sock: socket.socket, number: int, deflates: bool) -> list[Frame]:
    """The frames that a client read that sent stream `number` and half-closed.

    Of those that came in pieces pongs are left out: how many are sent before a close depends on how quick
    they were; and so does what is found first in a compressed message that is wrong in two ways. The close
    is left out, too: if the client goes on behind its own, a reset may reach it before the answer does.
    """
    chance = Chance.numbered("wire frames", number)
    data = stream(chance, deflates)[:LONGEST]
    parts = cut(data, chance) if not deflates and chance.flag(0.3) else [data]
    client = Client(sock)
    client.open(*[b"Sec-WebSocket-Extensions: permessage-deflate"] * deflates)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    send_pieces(sock, data, [*accumulate(map(len, parts[:-1]))])
    frames: list[Frame] = []
    try:
        sock.shutdown(socket.SHUT_WR)
        while (one := client.read()) is not None:
            frames.append(one)
    except OSError as error:  # the client went on behind its own close
        if error.errno not in (errno.ECONNRESET, errno.ENOTCONN):
            raise
    return frames if len(parts) == 1 else [one for one in frames if one.opcode not in (PONG, CLOSE)]


def outcome(way: Way, batch: int) -> tuple[list[Any], list[str]]:
    """What clients, application and log saw of each connection, and the messages of the error log."""
    app = Recorder()
    deflates = batch % 2 == 1
    limits = {} if deflates else {"ws_max_size": 300}
    received = []
    with running(app, **way.settings, **limits) as server, ExitStack() as stack:
        for number in range(batch * BATCH, (batch + 1) * BATCH):
            sock = stack.enter_context(server.connect())
            received.append((sock.getsockname()[1], converse(sock, number, deflates)))
        server.access.wait(BATCH)
    lines = {}
    for record in server.access.records:
        line = record.access
        lines[line.client[1]] = (line.status, line.aborted, line.websocket)
    return [(frames, app.told[port], lines[port]) for port, frames in received], server.errors.lines(WARNING)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_connections_look_the_same_from_outside(batch: int) -> None:
    """Each parser with each owner of the sockets, and each of them on both loops by turns."""
    reference, *others = ways(f"frames {batch}", list(ENGINES), list(IOS))
    expected = outcome(reference, batch)
    for way in others:
        way.must_be_built()
        found = outcome(way, batch)
        for number, (one, other) in enumerate(zip(expected[0], found[0], strict=True), batch * BATCH):
            assert other == one, (str(way), number)
        assert found[1] == expected[1] == [], str(way)
    messages = [len(told) - 1 for _, told, _ in expected[0]]
    assert sum(messages) > BATCH / 2
