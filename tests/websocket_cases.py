"""What a WebSocket server must make of frames: a case for each rule of RFC 6455 that a client can see.

A case is a list of steps. Octets are sent; a `Frame` is what must come then; a number, which is the last
step, is the code with which the server must end the connection. Where there is none, the client closes with
1000 and the server must answer that. The server sends every message back.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from wire_frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Frame, close, frame, text

Step = bytes | Frame | int
Case = tuple[Step, ...]

HELLO = (text("hello"), Frame(TEXT, b"hello"))
"""A message that is echoed: what a fault behind it must not undo."""

LENGTHS = (0, 1, 125, 126, 127, 128, 65535, 65536)


def fragments(opcode: int, octets: bytes, cuts: list[int], between: bytes = b"") -> bytes:
    """A message cut into frames, with the octets `between` behind each but the last."""
    bounds = [0, *cuts, len(octets)]
    data = b""
    for number, (start, end) in enumerate(pairwise(bounds)):
        last = number == len(cuts)
        data += frame(CONTINUATION if number else opcode, octets[start:end], final=last)
        data += b"" if last else between
    return data


# --- section 5.2: the frame ------------------------------------------------------------------------------


def framing() -> Iterator[Case]:
    """Every form of a length, both kinds of messages; a length that has a shorter form; no mask."""
    for size in LENGTHS:
        for opcode, octets in ((TEXT, b"*"), (BINARY, b"\xfe")):
            yield frame(opcode, octets * size), Frame(opcode, octets * size)
    for size, width in ((0, 2), (125, 2), (0, 8), (126, 8), (65535, 8)):
        yield *HELLO, frame(BINARY, bytes(size), width=width), 1002
    yield *HELLO, frame(BINARY, size=1 << 63), 1002
    for opcode in (TEXT, BINARY, PING, CLOSE):
        yield *HELLO, frame(opcode, b"", mask=None), 1002


def reserved_bits() -> Iterator[Case]:
    """None of them has a meaning here."""
    for rsv in range(1, 8):
        yield frame(TEXT, b"x", rsv=rsv), 1002
        yield *HELLO, frame(PING, b"x", rsv=rsv), 1002
        yield *HELLO, frame(CLOSE, b"\x03\xe8", rsv=rsv), 1002
        yield frame(BINARY, b"x", final=False), frame(CONTINUATION, b"x", rsv=rsv), 1002


def opcodes() -> Iterator[Case]:
    """Those that nobody has defined."""
    for opcode in (*range(3, 8), *range(11, 16)):
        for octets in (b"", b"reserved"):
            yield frame(opcode, octets), 1002
            yield *HELLO, frame(opcode, octets), 1002


# --- section 5.4: fragments ------------------------------------------------------------------------------


def fragmentation() -> Iterator[Case]:
    """A message in any number of frames, and control frames between them; frames in no order."""
    whole = b"one message, many frames"
    ping, pong = frame(PING, b"between"), Frame(PONG, b"between")
    for cuts in ([8], [8, 16], [0], [24], [0, 0, 24], list(range(1, 24))):
        for opcode in (TEXT, BINARY):
            yield fragments(opcode, whole, cuts), Frame(opcode, whole)
            yield (
                fragments(opcode, whole[:20], cuts[:1], ping),
                pong,
                Frame(opcode, whole[:20]),
                fragments(opcode, whole, cuts),
                Frame(opcode, whole),
            )
    begun = frame(TEXT, b"begun", final=False)
    for opcode in (TEXT, BINARY):
        for final in (True, False):
            yield begun, frame(opcode, b"another", final=final), 1002
    for final in (True, False):
        for octets in (b"", b"of nothing"):
            yield frame(CONTINUATION, octets, final=final), 1002
            yield *HELLO, frame(CONTINUATION, octets, final=final), 1002
    yield begun, frame(CONTINUATION), Frame(TEXT, b"begun"), frame(CONTINUATION), 1002
    for opcode in (PING, PONG, CLOSE):
        yield *HELLO, frame(opcode, b"\x03\xe8", final=False), 1002


# --- section 5.5: control frames -------------------------------------------------------------------------


def pings() -> Iterator[Case]:
    """Answered with what they carry, whenever they come; answers that nobody asked for are nothing."""
    for octets in (b"", b"hello", b"\x00\xff\xfe\xfd\x00", b"\xfe" * 125):
        yield frame(PING, octets), Frame(PONG, octets)
        yield frame(PONG, octets), frame(PING, b"after"), Frame(PONG, b"after")
    many = [b"%d" % number for number in range(10)]
    yield b"".join(frame(PING, one) for one in many), *(Frame(PONG, one) for one in many)
    for opcode in (PING, PONG):
        yield *HELLO, frame(opcode, bytes(126)), 1002


def closing() -> Iterator[Case]:
    """Section 7.4: codes that may be on the wire come back, others are faults. Behind a close nothing
    counts."""
    for code in (1000, 1001, 1002, 1003, *range(1007, 1015), 3000, 3999, 4000, 4999):
        yield *HELLO, close(code), code
        yield close(code, b"reason"), code
    for code in (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535):
        yield *HELLO, close(code), 1002
        yield close(code, b"reason"), 1002
    yield close(1000, b"x" * 123), 1000
    yield close(1000, "é".encode() * 61), 1000
    yield close(1000, b"x" * 124), 1002
    yield frame(CLOSE, b"\x03"), 1002
    yield close(1000, b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited"), 1007
    for behind in (text("late"), frame(PING, b"late"), close(1001), frame(3), b"\xff" * 20):
        yield close(1000) + behind, 1000
    yield frame(TEXT, b"begun", final=False), close(1001), 1001


# --- section 8.1: text -----------------------------------------------------------------------------------

BOUNDARIES = (0x00, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFD, 0xFFFE, 0xFFFF, 0x10000, 0x10FFFF)
NONCHARACTERS = tuple(plane << 16 | last for plane in range(1, 17) for last in (0xFFFE, 0xFFFF))

NO_TEXT = (
    *(b"\x80", b"\xbf", b"\x80\xbf\x80", bytes(range(0x80, 0xC0))),
    *(bytes((first, 0x20)) for first in (0xC2, 0xDF, 0xE0, 0xEF, 0xF0, 0xF4)),
    *(b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xf8\x80\x80\x80\xaf"),
    *(b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf8\x87\xbf\xbf\xbf"),
    *(b"\xfc\x80\x80\x80\x80\xaf", b"\xfc\x83\xbf\xbf\xbf\xbf"),
    *(b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf7\xbf\xbf\xbf"),
    *(bytes((0xED, second, 0x80)) for second in (0xA0, 0xAD, 0xAE, 0xAF, 0xB0, 0xBE, 0xBF)),
    *(b"\xed\xa0\x80\xed\xb0\x80", b"\xed\xaf\xbf\xed\xbf\xbf", b"\xfe", b"\xff", b"\xfe\xfe\xff\xff"),
)
"""Octets after which no others make UTF-8 of them: RFC 3629 section 3."""

CUT_SHORT = (b"\xc2", b"\xe0\xa0", b"\xef\xbf", b"\xf0\x90\x80", b"\xf4\x8f\xbf")
"""Octets that lack the last one."""


def utf8() -> Iterator[Case]:
    """Text in one frame, in two with a cut at every octet, and what is none, which is refused as it comes."""
    for content in ("κόσμε", "Hello-µ@ßöäüàá-UTF-8!!", *map(chr, (*BOUNDARIES, *NONCHARACTERS))):
        octets = content.encode()
        yield frame(TEXT, octets), Frame(TEXT, octets)
        for cut in range(1, len(octets)):
            yield fragments(TEXT, octets, [cut]), Frame(TEXT, octets)
    yield fragments(TEXT, "κόσμε 𝄞".encode(), list(range(1, 16))), Frame(TEXT, "κόσμε 𝄞".encode())
    for octets in NO_TEXT:
        yield frame(TEXT, octets), 1007
        yield *HELLO, frame(TEXT, b"ok " + octets, final=False), 1007
        yield frame(TEXT, "κόσμε".encode() + octets, size=1000), 1007
        yield frame(BINARY, octets), Frame(BINARY, octets)
    for octets in CUT_SHORT:
        yield frame(TEXT, octets), 1007
        yield frame(TEXT, octets, final=False), frame(CONTINUATION, b"x"), 1007
        yield fragments(TEXT, octets, [1]), 1007
        yield frame(TEXT, octets, final=False), frame(CONTINUATION, b"\xbf"), Frame(TEXT, octets + b"\xbf")


# --- size ------------------------------------------------------------------------------------------------


def sizes() -> Iterator[Case]:
    """Long messages, whole and in frames of several sizes; many short ones."""
    content = bytes(range(32, 127)) * 11_038
    for size in (1 << 16, 1 << 18, 1 << 20):
        for opcode in (TEXT, BINARY):
            yield frame(opcode, content[:size]), Frame(opcode, content[:size])
    for step in (64, 1024, 1300, 65_536):
        size = min(1 << 20, step << 10)
        yield fragments(BINARY, content[:size], list(range(step, size, step))), Frame(BINARY, content[:size])
    for size in (0, 16, 64, 1024):
        yield frame(TEXT, content[:size]) * 100, *[Frame(TEXT, content[:size])] * 100


GROUPS = {
    group.__name__: list(group())
    for group in (framing, reserved_bits, opcodes, fragmentation, pings, closing, utf8, sizes)
}
"""The cases, by what they are about."""
