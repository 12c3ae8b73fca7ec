"""Compression of messages: permessage-deflate, RFC 7692.

Knows offers, what is agreed on, and DEFLATE; knows nothing of frames. What is inflated is bounded while it is
inflated, so that a small message cannot become a large one unseen.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import LimitExceeded, RemoteProtocolError
from .frames import INVALID_DATA, TOO_BIG

NAME = b"permessage-deflate"

Offer = tuple[bytes, list[tuple[bytes, bytes | None]]]
"""The name of an extension, and its parameters in order, ``None`` where one has no value."""

LEAST_BITS, MOST_BITS = 9, 15
"""Window sizes that zlib compresses with, as powers of two. RFC 7692 has 8 too, but zlib would use 9 for it,
or refuse: to compress with 8 is beyond us, and to inflate what was is not."""

_TAIL = b"\x00\x00\xff\xff"
_BITS = {str(bits).encode(): bits for bits in range(8, MOST_BITS + 1)}


@dataclass(frozen=True, slots=True)
class DeflateSettings:
    """How the server compresses.

    `window_bits` (9 to 15) and `memory_level` (1 to 9) are zlib's: a connection that compresses both ways
    keeps ``2 ** (window_bits + 2) + 2 ** (memory_level + 9)`` octets for it, and about ``2 ** window_bits``
    more to inflate. Without `context_takeover` it keeps nothing between two messages, and compresses less.
    Messages of fewer than `min_size` octets are sent as they are.
    """

    window_bits: int = 12
    context_takeover: bool = True
    memory_level: int = 5
    min_size: int = 128


@dataclass(frozen=True, slots=True)
class Agreement:
    """What both sides will do. `answer` is the member of Sec-WebSocket-Extensions that says so."""

    server_bits: int
    client_bits: int
    server_takeover: bool
    client_takeover: bool
    answer: bytes


def negotiate(offers: Iterable[Offer], settings: DeflateSettings) -> Agreement | None:
    """Accept the first offer that can be accepted (RFC 7692 section 5); the others are declined."""
    for name, parameters in offers:
        if name == NAME:
            agreement = _consider(parameters, settings)
            if agreement is not None:
                return agreement
    return None


def _consider(parameters: list[tuple[bytes, bytes | None]], settings: DeflateSettings) -> Agreement | None:
    """Section 7.1: an offer with a parameter that is unknown, repeated or has a wrong value is declined."""
    offered = dict(parameters)
    if len(offered) != len(parameters) or not all(_is_valid(*parameter) for parameter in parameters):
        return None
    takes_over = settings.context_takeover
    server_takeover = takes_over and b"server_no_context_takeover" not in offered
    client_takeover = takes_over and b"client_no_context_takeover" not in offered
    server_bits, client_bits = settings.window_bits, MOST_BITS
    answer = [NAME]
    if not server_takeover:
        answer.append(b"server_no_context_takeover")
    if not client_takeover:
        answer.append(b"client_no_context_takeover")
    if b"server_max_window_bits" in offered:
        server_bits = min(server_bits, _BITS[offered[b"server_max_window_bits"] or b""])
        if server_bits < LEAST_BITS:
            return None
        answer.append(b"server_max_window_bits=%d" % server_bits)
    if b"client_max_window_bits" in offered:  # only then may the answer have it: section 7.1.2.2
        wanted = offered[b"client_max_window_bits"]
        client_bits = min(settings.window_bits, MOST_BITS if wanted is None else _BITS[wanted])
        answer.append(b"client_max_window_bits=%d" % client_bits)
    return Agreement(server_bits, client_bits, server_takeover, client_takeover, b"; ".join(answer))


def _is_valid(name: bytes, value: bytes | None) -> bool:
    if name in (b"server_no_context_takeover", b"client_no_context_takeover"):
        return value is None
    if name == b"client_max_window_bits":
        return value is None or value in _BITS
    return name == b"server_max_window_bits" and value in _BITS


class Deflater:
    """Compresses the messages of a server."""

    __slots__ = ("_bits", "_compressor", "_level", "_takeover", "min_size")

    def __init__(self, agreement: Agreement, settings: DeflateSettings) -> None:
        self._bits = agreement.server_bits
        self._takeover = agreement.server_takeover
        self._level = settings.memory_level
        self._compressor: zlib._Compress | None = None
        self.min_size = settings.min_size

    def deflate(self, content: bytes) -> bytes:
        """`content` of a whole message, compressed (RFC 7692 section 7.2.1)."""
        compressor = self._compressor
        if compressor is None:
            compressor = zlib.compressobj(wbits=-self._bits, memLevel=self._level)
            if self._takeover:
                self._compressor = compressor
        # ends with the tail that the peer adds again; of nothing only that is left, and it is not nothing
        return (compressor.compress(content) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4] or b"\x00"


class Inflater:
    """Inflates the messages of a client, piece by piece."""

    __slots__ = ("_bits", "_ended", "_inflating", "_takeover")

    def __init__(self, agreement: Agreement) -> None:
        self._bits = max(agreement.client_bits, LEAST_BITS)  # zlib as a client has 9 for 8: see `LEAST_BITS`
        self._takeover = agreement.client_takeover
        self._inflating: zlib._Decompress | None = None
        self._ended: bytes | None = None  # what came behind a final block

    def inflate(self, octets: bytes, last: bool, room: int | None) -> bytes:
        """The content of a piece of a message; `last` says that it ends there.

        Raises `LimitExceeded` if it is more than `room` octets, `RemoteProtocolError` if it is no DEFLATE.
        """
        if last:
            octets += _TAIL
        inflating = self._inflating
        if inflating is None:
            inflating = self._inflating = zlib.decompressobj(wbits=-self._bits)
        content = b""
        if self._ended is not None:
            self._ended += octets
        else:
            try:
                content = inflating.decompress(octets, 0 if room is None else min(room + 1, sys.maxsize))
            except zlib.error:
                raise RemoteProtocolError(INVALID_DATA, "message is not compressed as agreed") from None
            if room is not None and len(content) > room:
                raise LimitExceeded(TOO_BIG, "message too big")
            if inflating.eof:
                self._ended = inflating.unused_data
        if self._ended is not None:
            self._check_end(self._ended, last)
        if last and (not self._takeover or self._ended is not None):
            self._inflating = self._ended = None
        return content

    @staticmethod
    def _check_end(ended: bytes, last: bool) -> None:
        """A final block may end a message, with an octet of padding (section 7.2.3.5), but nothing follows
        it."""
        ends = (_TAIL, b"\x00" + _TAIL)
        if not (ended in ends if last else ended in (b"", b"\x00")):
            raise RemoteProtocolError(INVALID_DATA, "message is not compressed as agreed")
