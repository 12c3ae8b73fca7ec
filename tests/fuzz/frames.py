"""What a WebSocket's client sends, made by chance: messages in frames, faults, and frames broken at random.

See `fuzz.chance` for where chance comes from.
"""

from __future__ import annotations

import zlib

from wire_frames import BINARY, CLOSE, CONTINUATION, MASK, PING, PONG, TEXT, close, frame

from fuzz.chance import Chance

TEXTS = ("", "a", "hello", "é", "κόσμε 𝄞", "\U0010ffff", "x" * 125, "x" * 126, "é" * 300, "y" * 17_000)
OCTETS = (
    *(b"", b"a", b"\xff", b"\xed\xa0\x80", b"\xf4\x90", b"\xce", b"\xf0\x9d", b"\0" * 130),
    bytes(range(256)),
)
"""Texts that are UTF-8 in every length that matters, and octets that are none, or only a part of it."""

_MASKS = (MASK, MASK, bytes(4), b"\x80\x00\xff\x7f", b"abcd")
_CODES = (None, 1000, 1001, 1005, 3000, 65535)
_WIDTHS = (0, 2, 8)
_SIZES = (0, 125, 126, 65535, 65536, 1 << 31, 1 << 62, 1 << 63)

LATE = 14
"""Octets of a frame's head: where a change matters most."""


def deflated(content: bytes) -> bytes:
    """The content of a compressed message (RFC 7692 section 7.2.1)."""
    compressor = zlib.compressobj(wbits=-12)
    return (compressor.compress(content) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


def content(chance: Chance) -> bytes:
    """Of a message: mostly text."""
    return chance.pick(TEXTS).encode() if chance.flag(0.7) else chance.pick(OCTETS)


def message(chance: Chance, deflates: bool) -> list[bytes]:
    """The frames of one message, and pings between them."""
    opcode, octets, rsv = chance.pick((TEXT, TEXT, BINARY)), content(chance), 0
    if deflates and chance.flag():
        octets, rsv = deflated(octets), 4
    cuts = [chance.below(len(octets) + 1) for _ in range(chance.pick((0, 0, 0, 1, 2, 3)))]
    bounds = [0, *sorted(cuts), len(octets)]
    frames = []
    for number, start in enumerate(bounds[:-1]):
        part, last = octets[start : bounds[number + 1]], number == len(bounds) - 2
        kind, bits = (CONTINUATION, 0) if number else (opcode, rsv)
        frames.append(frame(kind, part, final=last, rsv=bits, mask=chance.pick(_MASKS)))
        if chance.flag(0.1):
            frames.append(_ping(chance))
    return frames


def _ping(chance: Chance) -> bytes:
    return frame(PING, chance.pick(OCTETS)[:125])


def _odd(chance: Chance) -> list[bytes]:
    """What is rare, or a fault: a wrong place, bit, length or mask, a close."""
    way = chance.pick((0, 1, 2, 2, 2, 2, 3, 3, 4, 5, 5, 5, 5))
    if way == 0:
        return [close(chance.pick(_CODES), chance.pick(OCTETS)[:123])]
    if way == 1:
        return [frame(CLOSE, bytes(chance.octet() for _ in range(chance.below(3))))]
    if way == 2:  # an answer to one of our first pings, more often than not
        return [frame(PONG, chance.below(3).to_bytes(8, "big"))]
    if way == 3:
        width, size = chance.pick(_WIDTHS), chance.pick(_SIZES)
        size = size if width == 8 else size & (0xFFFF if width == 2 else 127)
        return [frame(chance.pick((TEXT, BINARY, PING)), content(chance), size=size, width=width)]
    if way == 4:
        return [frame(chance.below(16), content(chance)[:200], mask=chance.pick((None, b"abcd")))]
    begun = [frame(BINARY, b"a", final=False)] if chance.flag(0.3) else []
    rsv = chance.below(8) if chance.flag(0.15) else 0
    kind = chance.pick((TEXT, CONTINUATION, PING))
    return [*begun, frame(kind, content(chance), final=chance.flag(), rsv=rsv)]


def stream(chance: Chance, deflates: bool) -> bytes:
    """What a client sends: good for the most part; now and then its frames are broken."""
    frames: list[bytes] = []
    for _ in range(1 + chance.below(6)):
        kind = chance.octet()
        if kind < 180:
            frames += message(chance, deflates)
        else:
            frames += [_ping(chance)] if kind < 205 else _odd(chance)
    if chance.flag(0.25):
        for _ in range(1 + chance.below(3)):
            _break(frames, chance)
    return b"".join(frames)


def _break(frames: list[bytes], chance: Chance) -> None:
    """Change one of `frames`, most often its head, or put it where it does not belong."""
    at = chance.below(len(frames))
    way = chance.below(8)
    if way == 0:
        frames.insert(at, frames.pop())
    elif way == 1:
        frames.insert(at, frames[chance.below(len(frames))])
    elif way == 2 and len(frames) > 1:
        del frames[at]
    else:
        frames[at] = _broken(frames[at], chance, way)


def _broken(octets: bytes, chance: Chance, way: int) -> bytes:
    data = bytearray(octets)
    place = chance.below(min(len(data) + 1, LATE if chance.flag(0.7) else 65_536))
    if way < 5:
        data[place : place + 1] = bytes((chance.octet(),))
    elif way == 5 and place < len(data):
        data[place] ^= 1 << chance.below(8)
    elif way == 6:
        del data[place : place + 1 + chance.below(20)]
    else:
        data[place:place] = data[place : place + 1 + chance.below(40)]
    return bytes(data)
