"""Pieces of messages into whole ones: assembled, inflated, and text decoded. RFC 6455 sections 5.4, 5.6 and
8.1.

Knows content and how much of it a message may have. Text that is no UTF-8 is refused as soon as that can be
seen, not at the end of its message.
"""

from __future__ import annotations

from codecs import IncrementalDecoder, getincrementaldecoder

from ..errors import RemoteProtocolError
from .deflate import Inflater
from .frames import INVALID_DATA, TEXT

_Utf8 = getincrementaldecoder("utf-8")


class Assembler:
    """The message under way. `size` is the content of the last whole one, in octets."""

    __slots__ = ("_buffer", "_inflater", "_max_size", "_utf8", "size")

    def __init__(self, inflater: Inflater | None, max_size: int | None) -> None:
        self._inflater = inflater
        self._max_size = max_size
        self._buffer = bytearray()
        self._utf8: IncrementalDecoder | None = None
        self.size = 0

    def take(self, opcode: int, octets: bytes, compressed: bool, last: bool) -> str | bytes | None:
        """The whole message, or ``None`` while more of it has to come. Raises `RemoteProtocolError`."""
        buffer = self._buffer
        if compressed:
            assert self._inflater is not None
            room = None if self._max_size is None else self._max_size - len(buffer)
            octets = self._inflater.inflate(octets, last, room)
        if not last:
            if opcode == TEXT:
                self._check(octets)
            buffer += octets  # one buffer: a message that drips must not cost an object per octet
            return None
        content: bytes | bytearray = octets
        if buffer:
            buffer += octets
            content = buffer
            self._buffer = bytearray()
        self._utf8 = None
        self.size = len(content)
        if opcode != TEXT:
            return bytes(content)
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise not_utf8() from None

    def _check(self, octets: bytes) -> None:
        """Whether text can still become UTF-8; what is decoded here is thrown away, since it would be in
        pieces."""
        if self._utf8 is None:
            if octets.isascii():  # as most is: nothing can be left over
                return
            self._utf8 = _Utf8()
        try:
            self._utf8.decode(octets)
        except UnicodeDecodeError:
            raise not_utf8() from None


def not_utf8() -> RemoteProtocolError:
    """The fault of a peer whose text cannot be decoded."""
    return RemoteProtocolError(INVALID_DATA, "text is not UTF-8")
