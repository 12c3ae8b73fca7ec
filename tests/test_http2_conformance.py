"""The error conditions of RFC 9113, section by section, with frames by hand against a real server.

Each case sends something on a fresh connection and says what must come: an error of the connection (GOAWAY
with one of these codes, then the end), an error of the stream (RST_STREAM with one of these codes, while the
connection goes on), an answer with a status, or nothing at all. After an error of a stream, an answer and
nothing, a further request on the same connection must be served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from h2_peer import GET, POST, PREFACE, Peer, connect, raw
from harness import running
from sample_apps import Gone, read_body, respond

pytestmark = pytest.mark.shared_server

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
ES, EH, PADDED, PRIO, ACK = 1, 4, 8, 0x20, 1
PROTOCOL, INTERNAL, FLOW, TIMEOUT, CLOSED, SIZE, REFUSED, CANCEL, COMPRESSION, CONNECT, CALM = range(1, 12)


class Case(NamedTuple):
    """`send` gets the connection. `end` is ``("connection", codes)``, ``("stream", number, codes)``,
    ``("answer", number, status)`` or ``("nothing",)``."""

    section: str
    title: str
    send: Callable[[Peer], Any]
    end: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.section}-{self.title.replace(' ', '_')}"


CASES: list[Case] = []


def case(section: str, title: str, send: Callable[[Peer], Any], *end: Any) -> None:
    CASES.append(Case(section, title, send, end))


def u32(value: int) -> bytes:
    return value.to_bytes(4, "big")


def octets(*frames: bytes) -> Callable[[Peer], None]:
    return lambda peer: peer.send_octets(b"".join(frames))


def do(*steps: Callable[[Peer], Any]) -> Callable[[Peer], None]:
    def all_of_them(peer: Peer) -> None:
        for step in steps:
            step(peer)

    return all_of_them


def head(stream: int = 1, fields: Any = GET, end: bool = True, more: Any = ()) -> Callable[[Peer], None]:
    return lambda peer: peer.headers(stream, fields, end=end, more=more)


def block(
    flags: int = EH | ES, stream: int = 1, fields: Any = GET, before: bytes = b"", after: bytes = b""
) -> Callable[[Peer], None]:
    return lambda peer: peer.send_octets(raw(HEADERS, flags, stream, before + peer.block(fields) + after))


def without(*names: str, fields: Any = GET) -> list[tuple[str, str]]:
    return [field for field in fields if field[0] not in names]


def instead(**values: str) -> list[tuple[str, str]]:
    return [(name, values.get(name[1:], value)) for name, value in GET]


def answered(peer: Peer) -> None:
    assert peer.get(1).status == "200"


# --- 3.4: the preface --------------------------------------------------------------------------------

case("3.4", "SETTINGS need not be first thing after ours", head(), "answer", 1, "200")

# --- 4.1, 4.2: frames --------------------------------------------------------------------------------

for kind in (0x0B, 0x20, 0xFF):
    case("4.1", f"unknown type {kind:#x} is ignored", octets(raw(kind, 0xFF, 0, b"x" * 20)), "nothing")
    case(
        "4.1",
        f"unknown type {kind:#x} on a stream is ignored",
        do(head(1, POST, False), octets(raw(kind, 0xFF, 1, b"x")), octets(raw(DATA, ES, 1))),
        "answer",
        1,
        "200",
    )
case("4.1", "undefined flags of PING are ignored", octets(raw(PING, 0xFE, 0, b"12345678")), "nothing")
case(
    "4.1",
    "undefined flags of DATA are ignored",
    do(head(1, POST, False), octets(raw(DATA, 0xF7 & ~8, 1, b"x"))),
    "answer",
    1,
    "200",
)
case("4.1", "the reserved bit is ignored", octets(raw(PING, 0, 1 << 31, b"12345678")), "nothing")
case(
    "4.2",
    "DATA of 2^14 octets",
    do(head(1, POST, False), octets(raw(DATA, ES, 1, bytes(16_384)))),
    "answer",
    1,
    "200",
)
for name, kind, stream in (
    ("DATA", DATA, 1),
    ("HEADERS", HEADERS, 1),
    ("SETTINGS", SETTINGS, 0),
    ("PING", PING, 0),
    ("unknown", 0xEE, 0),
):
    case(
        "4.2",
        f"{name} larger than allowed",
        do(head(1, POST, False), octets(raw(kind, 0, stream, bytes(16_385)))),
        "connection",
        SIZE,
    )
case(
    "4.2",
    "a header that announces 2^24-1 octets",
    octets(raw(DATA, 0, 1, b"", 2**24 - 1)),
    "connection",
    SIZE,
)

# --- 4.3: header compression -------------------------------------------------------------------------

for title, bad in (
    ("an index of zero", b"\x80"),
    ("an index that is not there", b"\xff\xff\x0f"),
    ("an integer without end", b"\xff" * 12),
    ("a string that is cut", b"\x00\x05ab"),
    ("a Huffman code with EOS", b"\x00\x84\xff\xff\xff\xff\x01a"),
    ("Huffman padding of eight bits", b"\x00\x82\x1f\xff\x01a"),
    ("a table larger than allowed", b"\x3f\xe1\xff\x03"),
    ("a change of the table in the middle", None),
):
    if bad is None:
        case(
            "4.3",
            title,
            lambda peer: peer.send_octets(raw(HEADERS, EH | ES, 1, peer.block(GET) + b"\x20")),
            "connection",
            COMPRESSION,
        )
    else:
        case("4.3", title, octets(raw(HEADERS, EH | ES, 1, bad)), "connection", COMPRESSION)
for title, kind, flags, stream, payload in (
    ("PING", PING, 0, 0, bytes(8)),
    ("DATA", DATA, 0, 1, b"x"),
    ("PRIORITY", PRIORITY, 0, 1, bytes(5)),
    ("HEADERS of another stream", HEADERS, EH | ES, 3, b"\x82"),
    ("CONTINUATION of another stream", CONTINUATION, EH, 3, b"\x82"),
    ("an unknown type", 0xEE, 0, 1, b""),
    ("SETTINGS", SETTINGS, 0, 0, b""),
    ("RST_STREAM", RST_STREAM, 0, 1, bytes(4)),
    ("WINDOW_UPDATE", WINDOW_UPDATE, 0, 0, u32(1)),
    ("GOAWAY", GOAWAY, 0, 0, bytes(8)),
):
    case(
        "4.3",
        f"{title} inside of a header section",
        do(block(ES), octets(raw(kind, flags, stream, payload))),
        "connection",
        PROTOCOL,
    )

# --- 5.1: states -------------------------------------------------------------------------------------

for title, kind, payload in (
    ("DATA", DATA, b"x"),
    ("RST_STREAM", RST_STREAM, u32(8)),
    ("WINDOW_UPDATE", WINDOW_UPDATE, u32(1)),
    ("CONTINUATION", CONTINUATION, b"\x82"),
):
    case("5.1", f"idle: {title}", octets(raw(kind, 0, 1, payload)), "connection", PROTOCOL)
    case(
        "5.1",
        f"idle above others: {title}",
        do(answered, octets(raw(kind, 0, 5, payload))),
        "connection",
        PROTOCOL,
    )
case("5.1", "idle: PRIORITY", octets(raw(PRIORITY, 0, 1, bytes(5))), "nothing")
case(
    "5.1",
    "half-closed by the client: DATA",
    do(head(1, instead(path="/wait")), octets(raw(DATA, ES, 1, b"x"))),
    "stream",
    1,
    CLOSED,
)
case(
    "5.1",
    "half-closed by the client: HEADERS",
    do(head(1, instead(path="/wait")), head(1, [("x", "y")])),
    "stream",
    1,
    CLOSED,
)
case(
    "5.1",
    "half-closed by the client: CONTINUATION",
    do(head(1, instead(path="/wait")), octets(raw(CONTINUATION, EH, 1, b"\x82"))),
    "connection",
    PROTOCOL,
    CLOSED,
)
case(
    "5.1",
    "half-closed by the client: WINDOW_UPDATE",
    do(head(1, instead(path="/wait")), octets(raw(WINDOW_UPDATE, 0, 1, u32(9)))),
    "nothing",
)
case(
    "5.1",
    "half-closed by the client: PRIORITY",
    do(head(1, instead(path="/wait")), octets(raw(PRIORITY, 0, 1, bytes(5)))),
    "nothing",
)
case(
    "5.1",
    "half-closed by the client: RST_STREAM",
    do(head(1, instead(path="/wait")), octets(raw(RST_STREAM, 0, 1, u32(8)))),
    "nothing",
)
case("5.1", "closed: DATA", do(answered, octets(raw(DATA, ES, 1, b"x"))), "stream", 1, CLOSED)
case("5.1", "closed: HEADERS", do(answered, head(1)), "connection", CLOSED, PROTOCOL)
case(
    "5.1",
    "closed: CONTINUATION",
    do(answered, octets(raw(CONTINUATION, EH, 1, b"\x82"))),
    "connection",
    CLOSED,
    PROTOCOL,
)
case("5.1", "closed: WINDOW_UPDATE", do(answered, octets(raw(WINDOW_UPDATE, 0, 1, u32(9)))), "nothing")
case("5.1", "closed: PRIORITY", do(answered, octets(raw(PRIORITY, 0, 1, bytes(5)))), "nothing")
case("5.1", "closed: RST_STREAM", do(answered, octets(raw(RST_STREAM, 0, 1, u32(8)))), "nothing")
case(
    "5.1",
    "reset by the client: DATA",
    do(head(1, POST, False), lambda peer: peer.reset(1), octets(raw(DATA, 0, 1, b"x"))),
    "stream",
    1,
    CLOSED,
)
case(
    "5.1",
    "reset by the client: WINDOW_UPDATE",
    do(head(1, POST, False), lambda peer: peer.reset(1), octets(raw(WINDOW_UPDATE, 0, 1, u32(9)))),
    "nothing",
)
case(
    "5.1",
    "reset by the client: HEADERS",
    do(head(1, POST, False), lambda peer: peer.reset(1), head(1, [("x", "y")])),
    "stream",
    1,
    CLOSED,
)

# --- 5.1.1, 5.1.2: numbers and how many --------------------------------------------------------------

case("5.1.1", "an even number", head(2), "connection", PROTOCOL)
case("5.1.1", "the number zero", block(stream=0), "connection", PROTOCOL)
case(
    "5.1.1",
    "a lower number than before",
    do(lambda peer: peer.get(5), head(3)),
    "connection",
    PROTOCOL,
    CLOSED,
)
case("5.1.1", "numbers may be left out", head(99), "answer", 99, "200")
case(
    "5.1.2",
    "one more than allowed",
    do(*(head(number, instead(path="/wait")) for number in range(1, 15, 2))),
    "stream",
    13,
    REFUSED,
)
case(
    "5.1.2",
    "as many as allowed",
    do(*(head(number, instead(path="/wait")) for number in range(1, 9, 2)), head(9)),
    "answer",
    9,
    "200",
)

# --- 5.3, RFC 9218: priorities -----------------------------------------------------------------------

case(
    "5.3",
    "a stream that depends on itself",
    block(EH | ES | PRIO, before=u32(1) + b"\x10"),
    "connection",
    PROTOCOL,
)
case("5.3", "a dependency is ignored", block(EH | ES | PRIO, before=u32(7) + b"\x10"), "answer", 1, "200")
case(
    "5.3",
    "HEADERS too short for a priority",
    octets(raw(HEADERS, EH | ES | PRIO, 1, b"\x00")),
    "connection",
    SIZE,
    PROTOCOL,
)
case(
    "9218-7.1",
    "PRIORITY_UPDATE",
    do(head(1, instead(path="/wait")), octets(raw(0x10, 0, 0, u32(1) + b"u=0, i"))),
    "nothing",
)
case("9218-7.1", "PRIORITY_UPDATE of a stream to come", octets(raw(0x10, 0, 0, u32(77) + b"u=9")), "nothing")
case(
    "9218-7.1",
    "PRIORITY_UPDATE on a stream",
    octets(raw(0x10, 0, 1, u32(1) + b"u=0")),
    "connection",
    PROTOCOL,
)
case("9218-7.1", "PRIORITY_UPDATE too short", octets(raw(0x10, 0, 0, b"\x00\x00\x00")), "connection", SIZE)

# --- 6.1: DATA ---------------------------------------------------------------------------------------

case("6.1", "DATA on stream zero", octets(raw(DATA, 0, 0, b"x")), "connection", PROTOCOL)
case(
    "6.1",
    "padding as long as the payload",
    do(head(1, POST, False), octets(raw(DATA, PADDED, 1, b"\x04abcd"[:4]))),
    "connection",
    PROTOCOL,
)
case(
    "6.1",
    "padding longer than the payload",
    do(head(1, POST, False), octets(raw(DATA, PADDED, 1, b"\xffab"))),
    "connection",
    PROTOCOL,
)
case(
    "6.1",
    "padding that fills the payload",
    do(head(1, POST, False), octets(raw(DATA, PADDED | ES, 1, b"\x04abcd"))),
    "answer",
    1,
    "200",
)
case(
    "6.1",
    "PADDED without a length",
    do(head(1, POST, False), octets(raw(DATA, PADDED, 1, b""))),
    "connection",
    PROTOCOL,
    SIZE,
)

# --- 6.2: HEADERS ------------------------------------------------------------------------------------

case(
    "6.2",
    "padding longer than the payload",
    octets(raw(HEADERS, EH | ES | PADDED, 1, b"\xff\x82")),
    "connection",
    PROTOCOL,
)
case("6.2", "padding", block(EH | ES | PADDED, before=b"\x03", after=bytes(3)), "answer", 1, "200")
case("6.2", "in four frames", lambda peer: split(peer, 4), "answer", 1, "200")
case(
    "6.2",
    "an empty frame first",
    do(octets(raw(HEADERS, ES, 1)), lambda peer: peer.send_octets(raw(CONTINUATION, EH, 1, peer.block(GET)))),
    "answer",
    1,
    "200",
)


def split(peer: Peer, count: int) -> None:
    encoded = peer.block([*GET, ("x-a", "y" * 100)])
    size = len(encoded) // count + 1
    for at in range(0, len(encoded), size):
        kind = CONTINUATION if at else HEADERS
        last = at + size >= len(encoded)
        peer.send_octets(raw(kind, (0 if at else ES) | (EH if last else 0), 1, encoded[at : at + size]))


# --- 6.3 to 6.10 -------------------------------------------------------------------------------------

case("6.3", "PRIORITY on stream zero", octets(raw(PRIORITY, 0, 0, bytes(5))), "connection", PROTOCOL)
for size in (0, 4, 6):
    case(
        "6.3",
        f"PRIORITY of {size} octets",
        do(head(1, POST, False), octets(raw(PRIORITY, 0, 1, bytes(size)))),
        "connection",
        SIZE,
    )
case("6.4", "RST_STREAM on stream zero", octets(raw(RST_STREAM, 0, 0, u32(8))), "connection", PROTOCOL)
for size in (0, 3, 5):
    case(
        "6.4",
        f"RST_STREAM of {size} octets",
        do(head(1, POST, False), octets(raw(RST_STREAM, 0, 1, bytes(size)))),
        "connection",
        SIZE,
    )
case(
    "6.4", "an unknown code", do(head(1, POST, False), octets(raw(RST_STREAM, 0, 1, u32(0xFFFF)))), "nothing"
)

case("6.5", "ACK with a payload", octets(raw(SETTINGS, ACK, 0, bytes(6))), "connection", SIZE)
case(
    "6.5",
    "SETTINGS on a stream",
    do(head(1, POST, False), octets(raw(SETTINGS, 0, 1, b""))),
    "connection",
    PROTOCOL,
)
for size in (1, 5, 7):
    case("6.5", f"SETTINGS of {size} octets", octets(raw(SETTINGS, 0, 0, bytes(size))), "connection", SIZE)


def setting(key: int, value: int) -> Callable[[Peer], None]:
    return octets(raw(SETTINGS, 0, 0, key.to_bytes(2, "big") + u32(value)))


for value in (2, 2**32 - 1):
    case("6.5.2", f"ENABLE_PUSH of {value}", setting(2, value), "connection", PROTOCOL)
for value in (2**31, 2**32 - 1):
    case("6.5.2", f"INITIAL_WINDOW_SIZE of {value}", setting(4, value), "connection", FLOW)
for value in (0, 16_383, 2**24):
    case("6.5.2", f"MAX_FRAME_SIZE of {value}", setting(5, value), "connection", PROTOCOL)
for key, value in (
    (1, 0),
    (1, 2**32 - 1),
    (2, 0),
    (3, 0),
    (4, 0),
    (4, 2**31 - 1),
    (5, 2**24 - 1),
    (6, 0),
    (0x99, 7),
    (0, 0),
):
    case("6.5.2", f"setting {key} may be {value}", do(setting(key, value), setting(4, 65_535)), "nothing")
for value in (2, 2**32 - 1):
    case("8441-3", f"ENABLE_CONNECT_PROTOCOL of {value}", setting(8, value), "connection", PROTOCOL)
case(
    "6.5.3",
    "each SETTINGS is acknowledged",
    do(setting(4, 1), setting(4, 65_535), lambda peer: peer.until(lambda: peer.acks == 3)),
    "nothing",
)
case("6.5.3", "more acknowledgements than SETTINGS", octets(raw(SETTINGS, ACK) * 3), "nothing")

case(
    "6.6",
    "PUSH_PROMISE from a client",
    do(head(1, POST, False), octets(raw(PUSH_PROMISE, EH, 1, u32(2) + b"\x82"))),
    "connection",
    PROTOCOL,
)
case(
    "6.6",
    "PUSH_PROMISE on stream zero",
    octets(raw(PUSH_PROMISE, EH, 0, u32(2) + b"\x82")),
    "connection",
    PROTOCOL,
)

case(
    "6.7",
    "PING on a stream",
    do(head(1, POST, False), octets(raw(PING, 0, 1, bytes(8)))),
    "connection",
    PROTOCOL,
)
for size in (0, 7, 9):
    case("6.7", f"PING of {size} octets", octets(raw(PING, 0, 0, bytes(size))), "connection", SIZE)
case("6.7", "an answer that nobody asked for", octets(raw(PING, ACK, 0, b"surprise")), "nothing")

case(
    "6.8",
    "GOAWAY on a stream",
    do(head(1, POST, False), octets(raw(GOAWAY, 0, 1, bytes(8)))),
    "connection",
    PROTOCOL,
)
for size in (0, 7):
    case("6.8", f"GOAWAY of {size} octets", octets(raw(GOAWAY, 0, 0, bytes(size))), "connection", SIZE)
case("6.8", "GOAWAY is answered by the end", octets(raw(GOAWAY, 0, 0, bytes(8))), "connection", 0)

for size in (0, 3, 5):
    case(
        "6.9",
        f"WINDOW_UPDATE of {size} octets",
        octets(raw(WINDOW_UPDATE, 0, 0, bytes(size))),
        "connection",
        SIZE,
    )
case(
    "6.9",
    "an increment of zero for the connection",
    octets(raw(WINDOW_UPDATE, 0, 0, u32(0))),
    "connection",
    PROTOCOL,
)
case(
    "6.9",
    "an increment of zero for a stream",
    do(head(1, POST, False), octets(raw(WINDOW_UPDATE, 0, 1, u32(0)))),
    "stream",
    1,
    PROTOCOL,
)
case(
    "6.9.1",
    "a window of the connection above 2^31-1",
    octets(raw(WINDOW_UPDATE, 0, 0, u32(2**31 - 1))),
    "connection",
    FLOW,
)
case(
    "6.9.1",
    "a window of a stream above 2^31-1",
    do(head(1, POST, False), octets(raw(WINDOW_UPDATE, 0, 1, u32(2**31 - 1)))),
    "stream",
    1,
    FLOW,
)
case("6.9.1", "a window of 2^31-1", octets(raw(WINDOW_UPDATE, 0, 0, u32(2**31 - 1 - 65_535))), "nothing")
case(
    "6.9.1",
    "more than the window of a stream",
    do(
        lambda peer: peer.until(lambda: peer.settings),
        head(1, instead(method="POST", path="/unread"), False),
        lambda peer: peer.data(1, bytes(66_000)),
    ),
    "connection",
    FLOW,
)
case(
    "6.9.2",
    "SETTINGS that make a window too large",
    do(head(1, POST, False), octets(raw(WINDOW_UPDATE, 0, 1, u32(2**31 - 1 - 65_535))), setting(4, 65_536)),
    "connection",
    FLOW,
)
case("6.9.2", "a negative window, then a positive one", lambda peer: negative(peer), "answer", 1, "200")
case(
    "6.10",
    "CONTINUATION after the end of headers",
    do(head(1, POST, False), octets(raw(CONTINUATION, EH, 1, b"\x82"))),
    "connection",
    PROTOCOL,
)
case("6.10", "CONTINUATION on stream zero", octets(raw(CONTINUATION, EH, 0, b"\x82")), "connection", PROTOCOL)
case(
    "6.10",
    "CONTINUATION after DATA",
    do(head(1, POST, False), octets(raw(DATA, 0, 1, b"x")), octets(raw(CONTINUATION, EH, 1, b"\x82"))),
    "connection",
    PROTOCOL,
)


def negative(peer: Peer) -> None:
    """Section 6.9.2: SETTINGS may take from a window that is in use."""
    peer.windows = False
    peer.headers(1, instead(path="/long"))
    peer.until(lambda: 1 in peer.responses and len(peer.responses[1].content) == 65_535)
    setting(4, 1000)(peer)
    peer.window(70_000)
    peer.window(64_535, 1)
    peer.synced()
    assert len(peer.responses[1].content) == 65_535
    peer.window(1, 1)
    peer.until(lambda: len(peer.responses[1].content) == 65_536)
    peer.window(70_000, 1)
    setting(4, 65_535)(peer)


# --- 8.1 to 8.3: messages ----------------------------------------------------------------------------

case(
    "8.1",
    "trailers without the end",
    do(head(1, POST, False), octets(raw(DATA, 0, 1, b"x")), head(1, [("x", "y")], False)),
    "connection",
    PROTOCOL,
)
case(
    "8.1",
    "trailers with a pseudo-header field",
    do(head(1, POST, False), head(1, [(":path", "/")])),
    "stream",
    1,
    PROTOCOL,
)
case(
    "8.1",
    "trailers with an upper-case name",
    do(head(1, POST, False), head(1, [("X", "y")])),
    "stream",
    1,
    PROTOCOL,
)
case(
    "8.1",
    "trailers with connection",
    do(head(1, POST, False), head(1, [("connection", "close")])),
    "stream",
    1,
    PROTOCOL,
)
case(
    "8.1.1",
    "a body longer than its length",
    do(head(1, POST, False, [("content-length", "1")]), octets(raw(DATA, ES, 1, b"xy"))),
    "stream",
    1,
    PROTOCOL,
)
case(
    "8.1.1",
    "a body shorter than its length",
    do(head(1, POST, False, [("content-length", "3")]), octets(raw(DATA, ES, 1, b"xy"))),
    "stream",
    1,
    PROTOCOL,
)
case(
    "8.1.1",
    "parts longer than their length",
    do(
        head(1, POST, False, [("content-length", "3")]),
        octets(raw(DATA, 0, 1, b"xy"), raw(DATA, 0, 1, b"xy")),
    ),
    "stream",
    1,
    PROTOCOL,
)
case("8.1.1", "no body for a length", head(1, POST, True, [("content-length", "3")]), "stream", 1, PROTOCOL)
case(
    "8.1.1",
    "trailers before the length is reached",
    do(
        head(1, POST, False, [("content-length", "3")]), octets(raw(DATA, 0, 1, b"xy")), head(1, [("x", "y")])
    ),
    "stream",
    1,
    PROTOCOL,
)
case(
    "8.1.1",
    "a length that fits",
    do(head(1, POST, False, [("content-length", "2")]), octets(raw(DATA, ES, 1, b"xy"))),
    "answer",
    1,
    "200",
)
for value in ("-1", "+1", "1x", "", "1, 1", "0x1"):
    case(
        "8.1.1",
        f"a length of {value or 'nothing'}",
        head(1, POST, False, [("content-length", value)]),
        "stream",
        1,
        PROTOCOL,
    )
case(
    "8.1.1",
    "a length beyond all measure",
    head(1, POST, False, [("content-length", "9" * 30)]),
    "answer",
    1,
    "413",
)
case(
    "8.1.1",
    "two lengths",
    head(1, POST, False, [("content-length", "1"), ("content-length", "1")]),
    "stream",
    1,
    PROTOCOL,
)

for name in ("X-Upper", "x y", "x\x7f", "x\xe9", "", "x:y", "x\r\ny", "x\x00"):
    case("8.2.1", f"the name {name!r}", head(1, more=[(name.encode("latin-1"), b"v")]), "stream", 1, PROTOCOL)
for value in ("a\x00b", "a\nb", "a\rb", " a", "a ", "\ta", "a\t", "a\x01b"):
    case("8.2.1", f"the value {value!r}", head(1, more=[("x", value)]), "stream", 1, PROTOCOL)
for value in ("", "a b", "a\tb", "\xff"):
    case(
        "8.2.1",
        f"the value {value!r} is fine",
        head(1, more=[(b"x", value.encode("latin-1"))]),
        "answer",
        1,
        "200",
    )
for name, value in (
    ("connection", "close"),
    ("proxy-connection", "keep-alive"),
    ("keep-alive", "5"),
    ("transfer-encoding", "chunked"),
    ("upgrade", "h2c"),
    ("te", "gzip"),
    ("te", "trailers, deflate"),
):
    case("8.2.2", f"{name} {value}", head(1, more=[(name, value)]), "stream", 1, PROTOCOL)
case("8.2.2", "te trailers is fine", head(1, more=[("te", "trailers")]), "answer", 1, "200")

case(
    "8.3",
    "a pseudo-header field behind others",
    head(1, [*GET[:3], ("x", "y"), GET[3]]),
    "stream",
    1,
    PROTOCOL,
)
case("8.3", "an unknown pseudo-header field", head(1, [*GET, (":x", "y")]), "stream", 1, PROTOCOL)
case("8.3", "one of responses", head(1, [*GET, (":status", "200")]), "stream", 1, PROTOCOL)
for name, value in GET:
    case("8.3", f"{name} twice", head(1, [*GET, (name, value)]), "stream", 1, PROTOCOL)
for name in (":method", ":scheme", ":path", ":authority"):
    case("8.3.1", f"no {name}", head(1, without(name)), "stream", 1, PROTOCOL)
    case("8.3.1", f"an empty {name}", head(1, instead(**{name[1:]: ""})), "stream", 1, PROTOCOL)
for path in ("a", "*", "/a b", "/a#b", "http://a/", "/\xe9"):
    fields = [(name.encode(), (path if name == ":path" else value).encode("latin-1")) for name, value in GET]
    case("8.3.1", f"the path {path!r}", head(1, fields), "stream", 1, PROTOCOL)
case("8.3.1", "the path * of OPTIONS", head(1, instead(path="*", method="OPTIONS")), "answer", 1, "200")
for authority in ("a@b", "a b", "a,b", "a/b", "user@a"):
    case("8.3.1", f"the authority {authority}", head(1, instead(authority=authority)), "stream", 1, PROTOCOL)
case(
    "8.3.1",
    "Host instead of :authority",
    head(1, without(":authority"), True, [("host", "a")]),
    "answer",
    1,
    "200",
)
case("8.3.1", "Host that says the same", head(1, more=[("host", "a")]), "answer", 1, "200")
case("8.3.1", "Host that says something else", head(1, more=[("host", "b")]), "stream", 1, PROTOCOL)
case("8.3.1", "Host twice", head(1, more=[("host", "a"), ("host", "a")]), "stream", 1, PROTOCOL)
case("8.3.1", "a method that is no token", head(1, instead(method="G T")), "stream", 1, PROTOCOL)
case("8.3.1", "a scheme that is none", head(1, instead(scheme="1h")), "stream", 1, PROTOCOL)
case("8.5", "CONNECT", head(1, [(":method", "CONNECT"), (":authority", "a:1")]), "answer", 1, "501")
case(
    "8.5",
    "CONNECT with a path",
    head(1, [(":method", "CONNECT"), (":authority", "a:1"), (":path", "/")]),
    "stream",
    1,
    PROTOCOL,
)
case(
    "8.5",
    "CONNECT without an authority",
    head(1, [(":method", "CONNECT"), ("host", "a:1")]),
    "stream",
    1,
    PROTOCOL,
)
case(
    "8441-4", ":protocol without CONNECT", head(1, [*GET, (":protocol", "websocket")]), "stream", 1, PROTOCOL
)
case(
    "8441-4",
    "another :protocol",
    head(1, [*instead(method="CONNECT"), (":protocol", "connect-udp")], False),
    "answer",
    1,
    "501",
)

# --- 10.5: what costs more than it should ------------------------------------------------------------

case(
    "10.5",
    "a list larger than announced",
    head(1, more=[("x" * 10, "y" * 3000)] * 25),
    "answer",
    1,
    "431",
)


def bomb(peer: Peer) -> None:
    """4 KiB that decode to many times as much."""
    start_ = peer.block([*GET, ("x", "y" * 4000)])
    peer.send_octets(raw(HEADERS, EH | ES, 1, start_ + b"\xbe" * 4000))


case("10.5.1", "a bomb of header compression", bomb, "connection", CALM)
case(
    "10.5.1",
    "CONTINUATION without end",
    lambda peer: peer.send_octets(raw(HEADERS, ES, 1) + raw(CONTINUATION, 0, 1) * 17),
    "connection",
    CALM,
)
case(
    "10.5.1",
    "a header section without end",
    lambda peer: peer.send_octets(
        raw(HEADERS, ES, 1, bytes(16_000)) + raw(CONTINUATION, 0, 1, bytes(16_000)) * 5
    ),
    "connection",
    CALM,
)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers when the body is here; /wait when the client has left; /long with more than a window."""
    if scope["path"] == "/unread":
        await asyncio.sleep(0.5)
    try:
        content = await read_body(receive)
        if scope["path"] == "/wait":
            await receive()
            return
    except Gone:
        return
    await respond(send, bytes(100_000) if scope["path"] == "/long" else content)


@pytest.fixture(scope="module")
def server(way):
    from under_test import chosen

    with chosen(way), running(app, h2c=True, http2_max_streams=6) as server:
        yield server


@pytest.mark.parametrize("case", CASES, ids=str)
def test_condition(server, case):
    with connect(server) as peer:
        case.send(peer)
        kind, *expected = case.end
        if kind == "connection":
            assert peer.error() in expected
            peer.until(lambda: peer.closed)
            return
        if kind == "stream":
            got = peer.response(expected[0])
            peer.until(lambda: got.reset is not None)
            assert got.reset in expected[1:]
        elif kind == "answer":
            assert peer.response(expected[0]).status == expected[1]
        peer.synced()
        for stream in range(1, 15, 2):
            if stream in peer.responses and not peer.responses[stream].over:
                peer.reset(stream)
        assert peer.goaway == []
        last = 201
        peer.headers(last)
        assert peer.response(last).over
        assert peer.goaway == []


PREFACES = (
    (b"GET / HTTP/2.0\r\n\r\n", b"HTTP/1.1 505"),
    (PREFACE.replace(b"SM", b"XX"), b"HTTP/1.1 505"),
)


@pytest.mark.parametrize(("octets", "answer"), PREFACES)
def test_what_is_no_preface_is_http1(server, octets, answer):
    assert server.raw(octets).startswith(answer)


@pytest.mark.parametrize(
    "first", [raw(PING, 0, 0, bytes(8)), raw(SETTINGS, ACK), raw(HEADERS, EH | ES, 1, b"\x82"), raw(0xEE)]
)
def test_the_first_frame_is_settings(server, first):
    with Peer(server.connect(), hello=False) as peer:
        peer.send_octets(PREFACE + first)
        assert peer.error() == PROTOCOL


def test_there_are_enough_of_them():
    assert len(CASES) >= 140
    assert len({str(case) for case in CASES}) == len(CASES)
