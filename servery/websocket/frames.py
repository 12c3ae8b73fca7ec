"""Frames of a WebSocket, from the peer and to it: RFC 6455 section 5.

Knows the layout of frames, their order and the size that a message may have before it is inflated; knows
nothing of what messages mean. Content is handed on as it comes, unmasked, so that no frame is ever held
twice.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

from ..errors import LimitExceeded, RemoteProtocolError

PROTOCOL_ERROR, INVALID_DATA, TOO_BIG = 1002, 1007, 1009
"""Close codes for a peer's faults (RFC 6455 section 7.4.1)."""


class Opcode(IntEnum):
    """What a frame carries (RFC 6455 section 5.2)."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = Opcode

CONTROL = 8
"""Opcodes from here on are those of control frames."""

CONTROL_SIZE = 125
"""Octets that a control frame may carry (RFC 6455 section 5.5)."""

_KNOWN = frozenset(Opcode)
_FIN, _RSV1, _RSV23 = 0x80, 0x40, 0x30

_STRIPED = 4096
"""From here on content is unmasked in four strides, which is quicker than as one large number: 64 KiB take
108 us instead of 223 (Python 3.12)."""

Piece = tuple[int, bytes, bool, bool]
"""Content, in order: the opcode of its message or control frame; octets of it, unmasked; whether the message
is compressed; whether it ends here. A control frame is always one piece."""


class FrameDecoder:
    """Octets from a client, in any pieces, to pieces of messages.

    `deflates` says that permessage-deflate was agreed on. `error` is the peer's fault, once there is one:
    nothing after it is read.
    """

    __slots__ = (
        *("_compressed", "_deflates", "_final", "_kept", "_left", "_mask", "_max_size", "_message", "_size"),
        "error",
    )

    def __init__(self, max_size: int | None, deflates: bool) -> None:
        self._max_size = max_size
        self._deflates = deflates
        self._kept = b""  # the start of a frame: less than its head, or than a whole control frame
        self._message = 0  # opcode of the message under way, 0 between messages
        self._compressed = self._final = False  # of that message; of its frame under way
        self._size = 0  # what the frames of that message said they carry
        self._left = 0  # octets of the frame under way that have not come
        self._mask = b""  # for the next of them
        self.error: RemoteProtocolError | None = None

    def feed(self, data: bytes) -> list[Piece]:
        """Take octets; returns what they complete, up to the first fault."""
        if self._kept:
            data = self._kept + data
            self._kept = b""
        pieces: list[Piece] = []
        at, end = 0, len(data)
        try:
            while at < end:
                if not self._left:
                    start, at = at, self._begin(data, at, end, pieces)
                    if at < 0:
                        self._kept = data[start:]
                        break
                if self._left and at < end:
                    at = self._go_on(data, at, pieces)
        except RemoteProtocolError as error:
            self.error = error.with_traceback(None)
        return pieces

    def _begin(self, data: bytes, at: int, end: int, pieces: list[Piece]) -> int:
        """Read the head of a frame, and the whole of a control frame or an empty one.

        Returns where to go on, or -1 if not enough has come: nothing has changed then.
        """
        if end - at < 2:
            return -1
        first, second = data[at], data[at + 1]
        opcode = first & 15
        self._check(first, opcode)
        if second < 128:
            raise RemoteProtocolError(PROTOCOL_ERROR, "frames of a client must be masked")
        size = second & 127
        at += 2
        if size > CONTROL_SIZE or opcode >= CONTROL:
            if opcode >= CONTROL:
                return self._take_control(data, at, opcode, size, pieces)
            width = 2 if size == 126 else 8
            if end - at < width:
                return -1
            size = _long_size(data[at : at + width])
            at += width
        self._check_size(size, opcode, first)
        if end - at < 4:
            return -1
        if opcode:
            self._message, self._compressed = opcode, first & _RSV1 != 0
        self._size += size
        self._final = first >= _FIN
        self._left = size
        self._mask = data[at : at + 4]
        if not size and self._final:
            self._end_message(b"", pieces)
        return at + 4

    def _check(self, first: int, opcode: int) -> None:
        """What the first octet of a frame says, at this point."""
        if opcode not in _KNOWN:
            raise RemoteProtocolError(PROTOCOL_ERROR, "reserved opcode")
        if first & (_RSV1 | _RSV23) and (
            first & _RSV23 or not self._deflates or opcode == CONTINUATION or opcode >= CONTROL
        ):
            raise RemoteProtocolError(PROTOCOL_ERROR, "reserved bit set")
        if opcode >= CONTROL:
            if first < _FIN:
                raise RemoteProtocolError(PROTOCOL_ERROR, "fragmented control frame")
        elif opcode:
            if self._message:
                raise RemoteProtocolError(PROTOCOL_ERROR, "new message inside of a fragmented one")
        elif not self._message:
            raise RemoteProtocolError(PROTOCOL_ERROR, "continuation of no message")

    def _check_size(self, size: int, opcode: int, first: int) -> None:
        """A compressed message is counted as it is inflated: what its frames say of themselves bounds
        nothing."""
        compressed = first & _RSV1 if opcode else self._compressed
        if self._max_size is not None and not compressed and self._size + size > self._max_size:
            raise LimitExceeded(TOO_BIG, "message too big")

    def _take_control(self, data: bytes, at: int, opcode: int, size: int, pieces: list[Piece]) -> int:
        if size > CONTROL_SIZE:
            raise RemoteProtocolError(PROTOCOL_ERROR, "control frame too long")
        start, end = at + 4, at + 4 + size
        if end > len(data):
            return -1
        pieces.append((opcode, unmask(data[start:end], data[at:start]), False, True))
        return end

    def _go_on(self, data: bytes, at: int, pieces: list[Piece]) -> int:
        """Take octets of the frame under way; returns where it ends, or the data."""
        octets = data[at : at + self._left]
        count = len(octets)
        mask = self._mask
        self._left -= count
        content = unmask(octets, mask)
        if self._left:
            turn = count & 3
            self._mask = mask[turn:] + mask[:turn]
        elif self._final:
            self._end_message(content, pieces)
            return at + count
        pieces.append((self._message, content, self._compressed, False))
        return at + count

    def _end_message(self, content: bytes, pieces: list[Piece]) -> None:
        pieces.append((self._message, content, self._compressed, True))
        self._message = self._size = 0


def _long_size(field: bytes) -> int:
    """The length of a frame in two or eight octets, which must need them (RFC 6455 section 5.2)."""
    size = int.from_bytes(field, "big")
    if size <= (CONTROL_SIZE if len(field) == 2 else 0xFFFF):
        raise RemoteProtocolError(PROTOCOL_ERROR, "frame length not in its shortest form")
    if size >> 63:
        raise RemoteProtocolError(PROTOCOL_ERROR, "frame length with its highest bit set")
    return size


def unmask(octets: bytes, mask: bytes) -> bytes:
    """`octets` with `mask` (four octets) laid over them again and again (RFC 6455 section 5.3)."""
    count = len(octets)
    if count < _STRIPED:
        whole = (mask * (count + 3 >> 2))[:count]  # both as one number each: nothing is quicker in Python
        return (int.from_bytes(octets, "little") ^ int.from_bytes(whole, "little")).to_bytes(count, "little")
    content = bytearray(count)
    for place, octet in enumerate(mask):
        content[place::4] = octets[place::4].translate(_xor_table(octet))
    return bytes(content)


@lru_cache(256)
def _xor_table(mask: int) -> bytes:
    return bytes(octet ^ mask for octet in range(256))


def frame_head(opcode: int, size: int, *, final: bool = True, compressed: bool = False) -> bytes:
    """What goes before `size` octets of content in a frame of a server, which is not masked."""
    first = opcode | (_FIN if final else 0) | (_RSV1 if compressed else 0)
    if size <= CONTROL_SIZE:
        return bytes((first, size))
    if size <= 0xFFFF:
        return bytes((first, 126)) + size.to_bytes(2, "big")
    return bytes((first, 127)) + size.to_bytes(8, "big")
