"""The compiled WebSocket engine against its reference: whatever happens to both, both make the same of it.

Scripts of frames, faults, cuts, time and an application's calls, random and repeatable;
``HYPOTHESIS_PROFILE=search`` plays more of them.
"""

from __future__ import annotations

import ast
import os
import zlib
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from random import Random
from re import MULTILINE, findall
from typing import Any

import pytest
from tracing import pieces, random_cuts
from websocket_subjects import ENGINES, chosen, decoder_class, engine_class
from wire_frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, close, frame

from servery import selection
from servery.errors import ServeryError
from servery.events import WebSocketFailed
from servery.limits import Limits
from servery.websocket.deflate import Agreement, Deflater, DeflateSettings, Inflater

SEARCHING = os.environ.get("HYPOTHESIS_PROFILE") == "search"
SCRIPTS = 200_000 if SEARCHING else 3000
STREAMS = 2000 if SEARCHING else 40
LEAST_OF_EACH = 5

TEXTS = ("", "a", "hello", "é", "κόσμε 𝄞", "\U0010ffff", "x" * 125, "x" * 126, "é" * 300, "y" * 17_000)
OCTETS = (
    b"",
    b"a",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xf4\x90",
    b"\xce",
    b"\xf0\x9d",
    b"\0" * 130,
    bytes(range(256)),
)
AGREEMENTS = (Agreement(15, 15, True, True, b""), Agreement(12, 12, False, False, b""))

Step = tuple[str, tuple[Any, ...]]

pytestmark = pytest.mark.usefixtures("both_engines")


def deflated(content: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-12)
    return (compressor.compress(content) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


def content_of(chance: Random) -> bytes:
    return chance.choice(TEXTS).encode() if chance.random() < 0.7 else chance.choice(OCTETS)


def message_of(chance: Random, deflates: bool) -> bytes:
    """One message in one to four frames, with pings between them."""
    opcode, octets, rsv = chance.choice((TEXT, TEXT, BINARY)), content_of(chance), 0
    if deflates and chance.random() < 0.5:
        octets, rsv = deflated(octets), 4
    cuts = random_cuts(len(octets), chance)[:3] if len(octets) > 1 and chance.random() < 0.4 else []
    parts = pieces(octets, cuts) or [b""]
    data = b""
    for number, part in enumerate(parts):
        data += frame(
            CONTINUATION if number else opcode,
            part,
            final=number == len(parts) - 1,
            rsv=0 if number else rsv,
            mask=chance.randbytes(4),
        )
        if chance.random() < 0.1:
            data += frame(PING, chance.choice(OCTETS)[:125])
    return data


def odd_of(chance: Random) -> bytes:
    """A frame that is rare, or a fault: a wrong place, bit, length or mask, a close."""
    which = chance.choice((0, 1, 2, 2, 2, 2, 3, 3, 4, 5, 5, 5, 5))
    if which == 0:
        return close(chance.choice((None, 1000, 1001, 1005, 3000, 65535)), chance.choice(OCTETS)[:123])
    if which == 1:
        return frame(CLOSE, chance.randbytes(chance.randrange(3)))
    if which == 2:  # an answer to one of our first pings, more often than not
        return frame(PONG, chance.randrange(3).to_bytes(8, "big"))
    if which == 3:
        width, size = (
            chance.choice((0, 2, 8)),
            chance.choice((0, 125, 126, 65535, 65536, 1 << 31, 1 << 62, 1 << 63)),
        )
        size = size if width == 8 else size & (0xFFFF if width == 2 else 127)
        return frame(chance.choice((TEXT, BINARY, PING)), content_of(chance), size=size, width=width)
    if which == 4:
        return frame(chance.randrange(16), content_of(chance)[:200], mask=chance.choice((None, b"abcd")))
    final, rsv = chance.random() < 0.5, chance.choice((0, 0, 0, 0, 0, chance.randrange(8)))
    begun = frame(BINARY, b"a", final=False) if chance.random() < 0.3 else b""
    return begun + frame(chance.choice((TEXT, CONTINUATION, PING)), content_of(chance), final=final, rsv=rsv)


def stream_of(chance: Random, deflates: bool) -> bytes:
    """What a peer sends: good for the most part."""
    data = b""
    for _ in range(chance.randint(1, 6)):
        kind = chance.random()
        if kind < 0.7:
            data += message_of(chance, deflates)
        elif kind < 0.8:
            data += frame(PING, chance.choice(OCTETS)[:125])
        else:
            data += odd_of(chance)
    if data and chance.random() < 0.15:
        at = chance.randrange(len(data))
        change = chance.choice((b"", chance.randbytes(1), chance.randbytes(3)))
        data = data[:at] + change + data[at + chance.randrange(3) :]
    return data


def call_of(chance: Random, now: float) -> Step:
    """Something that the driver or the application does."""
    calls: tuple[Callable[[], Step], ...] = (
        lambda: ("send_text", (chance.choice((*TEXTS, "\ud800")),)),
        lambda: ("send_text", (chance.choice(TEXTS),)),
        lambda: ("send_bytes", (chance.choice((*OCTETS, b"z" * 70_000)),)),
        lambda: ("taken", (chance.randrange(8), now)),
        lambda: ("unsent", (now,)),
        lambda: ("expire", (now,)),
        lambda: ("expire", (now,)),
        lambda: ("ping", (now,)),
        lambda: ("ping", (now,)),
        lambda: ("take_output", ()),
        lambda: ("take_output", ()),
    )
    rare: tuple[Callable[[], Step], ...] = (
        lambda: ("close", (chance.choice((1000, 4001, 1005)), chance.choice(("", "é", "x" * 124)), now)),
        lambda: ("stop", (now,)),
        lambda: ("receive", (b"", now)),
    )
    return chance.choice(calls if chance.random() < 0.93 else rare)()


def script_of(chance: Random) -> tuple[dict[str, Any], bool, list[Step]]:
    """(limits, whether compression was agreed on, what happens)."""
    limits: dict[str, Any] = {
        "ws_max_size": chance.choice((None, 0, 5, 300, 1 << 20, 1 << 80)),
        "ws_max_queue": chance.choice((1, 3, 32, 1 << 80)),
        "body_buffer": chance.choice((1, 400, 1 << 16, 1 << 80)),
        "ws_ping_interval": chance.choice((None, 5, 20.0)),
        "ws_ping_timeout": chance.choice((None, 3, 20.0)),
    }
    deflates = chance.random() < 0.4
    steps: list[Step] = []
    now = 0.0
    for _ in range(chance.randint(1, 4)):
        data = stream_of(chance, deflates)
        cuts = random_cuts(len(data), chance) if len(data) > 1 and chance.random() < 0.7 else []
        for piece in pieces(data, cuts):
            now += chance.choice((0.0, 0.5, 7.0))
            steps.append(("receive", (piece, now)))
            steps += [call_of(chance, now) for _ in range(chance.choice((0, 0, 1, 2, 5)))]
    return limits, deflates, [*steps, ("take_output", ())]


def told(event: Any) -> Any:
    if isinstance(event, WebSocketFailed):
        return type(event), type(event.error), event.error.status, event.error.reason
    return event


STATE = ("wants_read", "half_closed", "closing", "reset", "deadline")
COUNTS = ("messages_received", "messages_sent", "octets_received", "octets_sent")


def played(name: str, limits: dict[str, Any], deflates: bool, steps: list[Step], way: int = 0) -> list[Any]:
    """What each step gave or raised, and what the engine was like after it."""
    pair: tuple[Any, ...] = (None, None)
    if deflates:
        agreement = AGREEMENTS[way % 2]
        pair = (Deflater(agreement, DeflateSettings(min_size=10)), Inflater(agreement))
    with chosen(name):
        engine = engine_class()(Limits(**limits), 0.0, b"HEAD" * (way % 2), *pair, way % 3 / 2)
    found = []
    for step, arguments in steps:
        try:
            result = getattr(engine, step)(*arguments)
        except ServeryError as error:
            result = type(error), str(error)
        if isinstance(result, list):
            result = [told(event) for event in result]
        found.append((step, result, *(getattr(engine, fact) for fact in STATE + COUNTS)))
    return found


def test_random_scripts() -> None:
    for number in range(SCRIPTS):
        script = script_of(Random(f"websocket {number}"))
        expected, found = (played(name, *script, way=number) for name in ENGINES)
        for step, (one, other) in enumerate(zip(expected, found, strict=True)):
            assert other == one, (number, step)


def test_scripts_go_everywhere() -> None:
    """The scripts above reach what they are for: messages of every kind, all faults, all ends."""
    happened: Counter[str] = Counter()
    for number in range(2000):
        script = script_of(Random(f"websocket {number}"))
        for step, result, *_ in played("python", *script, way=number):
            happened[step] += 1
            for event in result if isinstance(result, list) and step != "take_output" else []:
                happened[str(event[3]) if isinstance(event, tuple) else type(event).__name__] += 1
    wanted = [
        *("MessageReceived", "PongReceived", "WebSocketClosed", "close", "stop", "expire", "taken", "unsent"),
        *("frames of a client must be masked", "reserved opcode", "reserved bit set", "message too big"),
        *("fragmented control frame", "new message inside of a fragmented one", "text is not UTF-8"),
        *("continuation of no message", "control frame too long", "invalid close code"),
        *("frame length not in its shortest form", "message is not compressed as agreed"),
        *("no answer to a ping in time", "reason of a close is not UTF-8", "close frame of one octet"),
    ]
    assert {word: happened[word] for word in wanted if happened[word] < LEAST_OF_EACH} == {}


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


def test_every_cut_of_streams() -> None:
    """In two at each place, and octet by octet: the same pieces of messages at the same time."""
    for number in range(STREAMS):
        chance = Random(f"cuts {number}")
        deflates, max_size = number % 2 == 0, chance.choice((None, 200, 1 << 20))
        data = stream_of(chance, deflates)[:600]
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
    expected, found = (played(name, {}, False, steps) for name in ENGINES)
    assert found == expected


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
