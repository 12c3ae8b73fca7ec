"""The compiled engine of HTTP/2 against its reference: whatever happens to both, both make the same of it.

Random frames, sound and not, with time and applications' calls between them, for the engines alone; whole
connections for servers. ``HYPOTHESIS_PROFILE=search`` looks further, and ``fuzz/differential.py --of http2``
for as long as one likes.
"""

from __future__ import annotations

import ast
import os
from collections import Counter
from contextlib import ExitStack
from typing import Any

import hpack
import pytest
from fuzz import differential
from fuzz.chance import ENOUGH, Chance
from fuzz.http2_playing import ENGINES, cut_difference, difference, play, stamp
from fuzz.http2_scripts import Script, random_script
from h2_peer import GET, POST, PREFACE, Peer, connect, make_engine, raw
from harness import running
from hyperframe.frame import SettingsFrame
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_apps import read_body, respond, start
from test_http1_fuzz import PROFILE
from under_test import IOS, Way

from servery.errors import Http2Error
from servery.events import ConnectionFailed, RequestReceived
from servery.http2.library import LARGEST_LITERAL, has_long_literal
from servery.limits import Limits

SEARCHING = os.environ.get("HYPOTHESIS_PROFILE") == "search"
SCRIPTS = 5000 if SEARCHING else 100
INPUTS = 200_000 if SEARCHING else 2500
CUTS = 2000 if SEARCHING else 12

pytestmark = pytest.mark.usefixtures("both_engines")

# --- the engines alone -------------------------------------------------------------------------------


@settings(PROFILE, max_examples=SCRIPTS)
@given(octets=st.binary(min_size=ENOUGH, max_size=ENOUGH))
def test_random_scripts(octets: bytes) -> None:
    """A failure is shown with the shortest script that Hypothesis finds."""
    assert difference(random_script(Chance(octets))) == ""


def test_many_random_scripts() -> None:
    for number in range(INPUTS):
        if number % differential.EVERY_CUT:
            assert differential.check_http2(0, number) == ""


def test_every_cut() -> None:
    for number in range(CUTS):
        assert differential.check_http2(0, number * differential.EVERY_CUT) == ""


def test_scripts_go_everywhere() -> None:
    """The scripts above reach what they are for: requests, bodies, answers of every kind, and refusals."""
    happened: Counter[str] = Counter()
    for number in range(800):
        for step, result, *rest in play("python", random_script(Chance.numbered("everywhere", number))):
            refused = isinstance(result, tuple) and result and isinstance(result[0], type)
            happened[f"{step} {'refused' if refused else 'done'}"] += 1
            for event in result if isinstance(result, list) else []:
                happened[event[0].__name__ if isinstance(event, tuple) else type(event).__name__] += 1
                if isinstance(event, tuple) and event[1] is not None:
                    happened[event[1][2]] += 1
            for frame in rest[0] if rest and isinstance(rest[0], list) else []:
                happened[f"frame {frame[0]}"] += 1
    wanted = (
        *("RequestReceived", "BodyReceived", "StreamFailed", "ConnectionFailed", "PeerClosed"),
        *("start_response done", "send_body done", "send_trailers done", "answer done", "fail_response done"),
        *("send_informational done", "open_tunnel done", "send_reserved done", "stop done", "forget done"),
        *("frame 0", "frame section", "frame 3", "frame 4", "frame 6", "frame 7", "frame 8"),
        *("a field section that cannot be decoded", "a field section much larger than announced"),
        *("more than a flow-control window", "a frame of a wrong size", "a frame that is not allowed"),
        *("a setting with a value that is not allowed", "a frame that the stream does not allow"),
        *("a frame for a stream that is closed", "too many streams reset", "request body too large"),
        *("too many frames without content", "a header section too large, or in too many frames"),
    )
    assert [word for word in wanted if happened[word] < 2] == []


# --- what frames say of each other -------------------------------------------------------------------

HELLO = PREFACE + SettingsFrame().serialize()


def section(stream: int, fields: Any = GET, flags: int = 5) -> bytes:
    """A request that leaves the table as it is."""
    return raw(1, flags, stream, b"".join(b"\x00" + text(name) + text(value) for name, value in fields))


def text(value: str) -> bytes:
    """A string as it is (RFC 7541 section 5.2)."""
    octets = value.encode()
    assert len(octets) < 127
    return bytes((len(octets),)) + octets


CASES = {
    "a window of the connection beyond its most": [raw(8, 0, 0, b"\x7f\xff\xff\xff")],
    "a window of a stream beyond its most": [section(1), raw(8, 0, 1, b"\x7f\xff\xff\xff")],
    "a reserved bit in WINDOW_UPDATE": [section(1), raw(8, 0, 1, b"\x80\0\0\1"), raw(8, 0, 0, b"\x80\0\0\2")],
    "a reserved bit and nothing else": [section(1), raw(8, 0, 1, b"\x80\0\0\0")],
    "WINDOW_UPDATE for a stream of the server's": [section(3), raw(8, 0, 2, b"\0\0\0\1")],
    "DATA for a stream of the server's": [section(3), raw(0, 0, 2, b"x")],
    "DATA for a stream that was passed over": [section(3), raw(0, 0, 1, b"x")],
    "fields for a stream that was passed over": [section(5), section(3)],
    "fields for a stream that the client has reset": [section(1), raw(3, 0, 1, bytes(4)), section(1)],
    "fields behind the end": [section(1), section(1), section(1)],
    "DATA behind the end": [section(1), raw(0, 1, 1, b"x"), raw(0, 1, 1, b"x"), section(1)],
    "trailers that do not end": [section(1, POST, 4), section(1, [("a", "b")], 4)],
    "a stream that depends on itself": [raw(1, 0x25, 1, b"\0\0\0\1\x10" + section(1)[9:])],
    "trailers of a stream that depends on itself": [section(1, POST, 4), raw(1, 0x25, 1, b"\0\0\0\1\x10")],
    "padding that fills the frame": [raw(1, 0xD, 1, b"\x01\x00")],
    "padding and priority in six octets": [raw(1, 0x2D, 1, b"\x05" + bytes(6))],
    "PADDED without a length": [raw(1, 0xD, 1)],
    "PRIORITY that is cut": [raw(1, 0x25, 1, bytes(4))],
    "more than the window of the connection, late": [section(1), *[raw(0, 0, 1, bytes(16_384))] * 70],
    "windows that overflow by SETTINGS": [
        *(section(1, POST, 4), raw(8, 0, 1, b"\x7f\xff\x00\x00"), raw(4, 0, 0, b"\0\4\x7f\xff\xff\xff"))
    ],
    "a window that shrinks below nothing": [raw(4, 0, 0, b"\0\4\0\0\0\0"), section(1)],
    "a table of no size": [
        raw(4, 0, 0, b"\0\1\0\0\0\0"),
        section(1),
        raw(4, 0, 0, b"\0\1\0\0\x10\0"),
        section(3),
    ],
    "the same setting twice": [raw(4, 0, 0, b"\0\4\x7f\xff\xff\xff\0\4\0\0\0\1"), section(1)],
}


@pytest.mark.parametrize("name", CASES)
def test_verdicts_are_the_same(name: str) -> None:
    steps: list[Any] = [("receive", (octets, 1.0)) for octets in [HELLO, *CASES[name]]]
    steps += [
        ("start_response", (1, 200, [(b"x", b"y" * 100)], False)),
        *(("send_body", (1, b"x" * 100, False)), ("pump", (1.0,)), ("released", (1, 1.0)), ("pump", (1.0,))),
    ]
    assert difference(Script(Limits(), steps)) == ""
    small = Limits(body_buffer=1000, h2_connection_window=65_535)
    assert difference(Script(small, steps)) == ""


@pytest.mark.parametrize("trailers", [[("a", "b" * 100)] * 100, [(":path", "/")], [("A", "b")]])
def test_faulty_trailers_end_their_stream(trailers: Any) -> None:
    """It gets its answer, or its reset; nothing of it is left for a later moment to stumble over."""
    late: list[Any] = [("expire", (100.0,)), ("pump", (100.0,)), ("receive", (section(3), 100.0))]
    for answered in ([], [("start_response", (1, 304, [], True)), ("send_body", (1, b"", False))]):
        steps: list[Any] = [("receive", (HELLO + section(1, POST, 4), 0.0)), *answered, ("pump", (0.0,))]
        steps += [("receive", (section(1, trailers), 0.0)), ("pump", (0.0,)), ("released", (1, 0.0))]
        assert difference(Script(Limits(), [*steps, *late])) == ""
        assert difference(Script(Limits(), [*steps, ("receive", (section(1), 0.0))])) == ""
        for name in ENGINES:
            seen = play(name, Script(Limits(keep_alive_timeout=200.0), [*steps, *late]))
            assert type(seen[-1][1][0]) is RequestReceived


def test_a_bad_frame_takes_nothing_of_what_was_made_before() -> None:
    """The answer to a PING leaves, whatever comes behind it in the same octets."""
    ping, fault = raw(6, 0, 0, b"12345678"), raw(8, 0, 0, bytes(4))
    for name in ENGINES:
        engine = make_engine(name, Limits(), stamp, 0.0)
        assert type(engine.receive(HELLO + ping + fault, 0.0)[-1]) is ConnectionFailed
        assert raw(6, 1, 0, b"12345678") in b"".join(engine.take_output())


@pytest.mark.parametrize(("size", "taken"), [(LARGEST_LITERAL, True), (LARGEST_LITERAL + 1, False)])
def test_the_largest_value(size: int, taken: bool) -> None:
    """What is compressed by nghttp2 has a bound of its own; the reference has it, too."""
    number = size - 127
    length = b"\x7f"
    while number >= 128:
        length += bytes((number & 0x7F | 0x80,))
        number >>= 7
    value = b"\x00\x01x" + length + bytes((number,)) + b"v" * size
    block = section(1)[9:] + value
    assert has_long_literal(block) is not taken
    frames = [raw(1, 1, 1, block[:16_384])]
    parts = [block[at : at + 16_384] for at in range(16_384, len(block), 16_384)]
    frames += [raw(9, 4 if part is parts[-1] else 0, 1, part) for part in parts]
    limits = Limits(head_size=200_000, field_size=200_000)
    for name in ENGINES:
        engine = make_engine(name, limits, stamp, 0.0)
        events = [event for octets in [HELLO, *frames] for event in engine.receive(octets, 0.0)]
        assert [type(event) for event in events] == [RequestReceived if taken else ConnectionFailed]
        if not taken:
            assert isinstance(events[0].error, Http2Error)
            assert events[0].error.code == 11


def test_long_literals_are_seen_wherever_they_are() -> None:
    assert not has_long_literal(b"\x82\x3f\xe1\x1f\x41\x01a\x00\x01a\x01b\x7f\x80")
    assert has_long_literal(b"\x82\x00\x01a\x7f\x82\xff\x03")
    assert has_long_literal(b"\x00\x7f\x82\xff\x03")


def test_what_is_compressed_is_read_by_others() -> None:
    """Sections larger than a frame, many fields, tables of any size: hpack reads what nghttp2 has made."""
    engine, decoder = make_engine("native", Limits(), stamp, 0.0), hpack.Decoder()
    engine.receive(HELLO, 0.0)
    for number, size in enumerate((4096, 0, 64, 4096)):
        stream = 2 * number + 1
        engine.receive(raw(4, 0, 0, b"\0\1" + size.to_bytes(4, "big")) + section(stream), 0.0)
        engine.take_output()
        fields = [(b"x-%d" % field, b"v" * 300) for field in range(100)]
        engine.start_response(stream, 200, [*fields, (b"set-cookie", b"a")], False)
        engine.send_body(stream, b"", False)
        engine.pump(0.0)
        octets, block, kinds = b"".join(engine.take_output()), b"", []
        while octets:
            end = 9 + int.from_bytes(octets[:3], "big")
            assert end <= 9 + 16_384
            kinds.append(octets[3])
            block, octets = block + octets[9:end], octets[end:]
        assert kinds == [1, 9]
        decoder.max_allowed_table_size = 4096
        assert decoder.decode(block, raw=True)[1:102] == [*fields, (b"set-cookie", b"a")]


# --- whole connections -------------------------------------------------------------------------------


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/fail":
        raise ValueError("on purpose")
    if scope["path"] == "/cut":
        await start(send, headers=[(b"content-length", b"9")])
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("on purpose")
    if scope["path"] == "/parts":
        await start(send)
        for part in (b"a", b"b" * 20_000, b"c" * 70_000):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    if scope["path"] == "/file":
        await start(send)
        await send({"type": "http.response.pathsend", "path": __file__})
        return
    known = {
        name: scope[name] for name in ("http_version", "method", "path", "raw_path", "scheme", "headers")
    }
    known |= {"body": await read_body(receive), "extensions": sorted(scope["extensions"])}
    await respond(send, repr(known).encode())


def conversation(peer: Peer) -> list[Any]:
    """What a client sees of many requests at a time, on one connection."""
    stream, paths = 1, ("/", "/fail", "/parts", "/cut", "/file", "/%41?b", "/no%zz")
    for path in paths:
        peer.headers(stream, [(name, path if name == ":path" else value) for name, value in GET])
        stream += 2
    peer.headers(stream, POST, end=False, more=[("te", "trailers"), ("cookie", "a=b"), ("cookie", "c=d")])
    peer.data(stream, b"content" * 1000)
    peer.headers(stream, [("x-trailer", "y")])
    peer.headers(stream + 2, [*GET, ("X", "y")])
    peer.headers(stream + 4, [*GET, *[("x", "y")] * 101])
    seen: list[Any] = []
    for number in range(1, stream + 6, 2):
        response = peer.response(number)
        heads = [[field for field in head if field[0] != "date"] for head in response.heads]
        content: Any = response.content
        if number in (1, 11, 13, stream) and response.heads and dict(heads[0])[":status"] == "200":
            content = ast.literal_eval(content.decode())
        seen.append((number, heads, content, response.ended, response.reset))
    peer.send_octets(raw(8, 0, 0, bytes(4)))
    return [*seen, peer.error()]


def test_clients_see_the_same() -> None:
    ways = [Way(parser, io, "asyncio") for parser in ENGINES for io in IOS]
    outcomes: dict[str, Any] = {}
    with ExitStack() as stack:
        for way in ways:
            server = stack.enter_context(running(app, h2c=True, **way.settings))
            with connect(server) as peer:
                outcomes[str(way)] = conversation(peer)
            server.errors.records.clear()
    first, *others = outcomes.values()
    assert first[0][1][0][0] == (":status", "200")
    for way, outcome in zip(list(outcomes)[1:], others, strict=True):
        assert outcome == first, way


def test_cut_difference_tells_what_it_is_for() -> None:
    """It is able to fail: two engines with other limits differ."""
    assert cut_difference(HELLO + section(1), Limits()) == ""
    assert difference(Script(Limits(), [("receive", (HELLO, 0.0))])) == ""
