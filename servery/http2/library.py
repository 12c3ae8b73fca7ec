"""The library h2, loaded when a server is asked to speak HTTP/2, and how a connection of it is set up.

The only module of servery that knows its names. Fields are judged by `servery.http2.fields`: it is stricter,
and a malformed request costs its stream and not the connection.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from ..errors import Http2Error
from ..events import Headers
from .frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM

_BLAND = [(b":method", b"GET")]
"""What h2 is told of every field section: nothing that it would judge."""

TABLE_SIZE = 4096
"""Octets of the table with which response fields are compressed, at most, whatever the peer offers."""

REMEMBERED, REMEMBERED_SIZE = 32, 1024
"""How many sections are remembered, and how large they are at most, encoded."""

CLOSED_STREAMS = 1000
"""Streams of which h2 remembers how they were closed: those to which frames may still be on their way."""


LARGEST_LITERAL = 65_536
"""Octets of one name or value, encoded, beyond which a section is not decoded: what nghttp2 takes at most."""

TOO_LARGE = "a field section much larger than announced"
UNREADABLE = "a field section that cannot be decoded"


class Library(NamedTuple):
    """What is used of h2 and hpack."""

    connection: Any
    decoder: Any
    encoder: Any
    protocol_error: type[Exception]
    hpack_error: type[Exception]
    oversized: type[Exception]
    secret: Any
    stream_ended: Any
    stream_reset: Any


@cache
def load() -> Library:
    """Import it. Raises `ImportError`."""
    import h2.config
    import h2.connection
    import h2.events
    import h2.exceptions
    import h2.settings
    import hpack

    class Connection(h2.connection.H2Connection):
        """One that remembers less, counts no streams and judges no fields."""

        MAX_CLOSED_STREAMS = CLOSED_STREAMS

        def __init__(self) -> None:
            super().__init__(
                h2.config.H2Configuration(
                    client_side=False,
                    header_encoding=None,
                    validate_inbound_headers=False,
                    normalize_inbound_headers=False,
                    validate_outbound_headers=False,
                    normalize_outbound_headers=False,
                )
            )
            unlimited = {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 2**31 - 1}
            self.local_settings = h2.settings.Settings(client=False, initial_values=unlimited)

    return Library(
        Connection,
        hpack.Decoder,
        hpack.Encoder,
        h2.exceptions.ProtocolError,
        hpack.HPACKError,
        hpack.OversizedHeaderListError,
        hpack.NeverIndexedHeaderTuple,
        h2.events.StreamEnded,
        h2.events.StreamReset,
    )


def has_long_literal(block: bytes) -> bool:
    """Whether a block has a name or value of more than `LARGEST_LITERAL` octets (RFC 7541 section 6)."""
    at = 0
    try:
        while at < len(block):
            first = block[at]
            if first & 0x80 or first & 0xE0 == 0x20:  # an entry of a table, or the size of one
                _, at = _read_integer(block, at, 7 if first & 0x80 else 5)
                continue
            index, at = _read_integer(block, at, 6 if first & 0x40 else 4)
            for _ in range(1 if index else 2):
                size, at = _read_integer(block, at, 7)
                if size > LARGEST_LITERAL:
                    return True
                at += size
    except IndexError:  # it ends inside of a number: whoever decodes it says so
        pass
    return False


def _read_integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """(a number, where it ends): RFC 7541 section 5.1. Raises `IndexError`."""
    most = (1 << bits) - 1
    number = block[at] & most
    at += 1
    if number < most:
        return number, at
    shift = 0
    while True:
        octet = block[at]
        at += 1
        number += (octet & 0x7F) << shift
        shift += 7
        if not octet & 0x80:
            return number, at


class Remembered:
    """What the same octets, or fields, become as long as a table of hpack does not change.

    A client asks for the same again and again, with all fields in the table already; what changes the table
    forgets everything. It is of one connection, and goes with it.
    """

    __slots__ = ("_known", "_table")

    def __init__(self, table: Any) -> None:
        self._table = table
        self._known: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        """What `key` became, or ``None``."""
        return self._known.get(key)

    def state(self) -> tuple[Any, ...]:
        """Says whether the table has changed."""
        entries = self._table.dynamic_entries
        return self._table.maxsize, len(entries), entries[0] if entries else None

    def keep(self, key: Any, value: Any, size: int, before: tuple[Any, ...]) -> None:
        """Remember it, if the table is as `before` and it is not large."""
        after = self.state()
        if after[:2] != before[:2] or after[2] is not before[2]:
            self._known.clear()
        elif size <= REMEMBERED_SIZE:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = value


class FieldDecoder:
    """Stands before a decoder of hpack, for h2: keeps what is decoded in `section`, tells h2 nothing of it.

    `largest` is the size of a list beyond which decoding is given up. A section that comes again may be the
    same object.
    """

    __slots__ = ("_decoder", "_library", "_remembered", "section")

    def __init__(self, library: Library, largest: int) -> None:
        self._decoder = library.decoder()
        self._decoder.max_header_list_size = largest
        self._library = library
        self._remembered = Remembered(self._decoder.header_table)
        self.section: Headers = []

    def decode(self, data: bytes, raw: bool) -> Headers:
        """Decode a whole block. Raises `Http2Error`: the state that both sides share is lost."""
        known = self._remembered.get(data)
        if known is None:
            before = self._remembered.state()
            known = self._decode(data, raw)
            self._remembered.keep(data, known, len(data), before)
        self.section = known
        return _BLAND

    def _decode(self, data: bytes, raw: bool) -> Headers:
        if len(data) > LARGEST_LITERAL and has_long_literal(data):
            raise Http2Error(ENHANCE_YOUR_CALM, TOO_LARGE)
        try:
            section: Headers = self._decoder.decode(data, raw=raw)
        except self._library.oversized:
            raise Http2Error(ENHANCE_YOUR_CALM, TOO_LARGE) from None
        except (self._library.hpack_error, UnicodeDecodeError, IndexError):
            raise Http2Error(COMPRESSION_ERROR, UNREADABLE) from None
        return section

    @property
    def max_allowed_table_size(self) -> int:
        """Octets of the table of fields; h2 sets it."""
        return int(self._decoder.max_allowed_table_size)

    @max_allowed_table_size.setter
    def max_allowed_table_size(self, value: int) -> None:
        self._decoder.max_allowed_table_size = value


class FieldEncoder:
    """Stands before an encoder of hpack, for h2."""

    __slots__ = ("_encoder", "_remembered")

    def __init__(self, library: Library) -> None:
        self._encoder = library.encoder()
        self._remembered = Remembered(self._encoder.header_table)

    def encode(self, fields: Headers) -> bytes:
        """Encode a whole section."""
        encoder, key = self._encoder, tuple(fields)
        known: bytes | None = None if encoder.table_size_changes else self._remembered.get(key)
        if known is None:
            before = () if encoder.table_size_changes else self._remembered.state()
            known = encoder.encode(fields)
            if before:
                self._remembered.keep(key, known, len(known), before)
        assert known is not None
        return known

    @property
    def header_table(self) -> Any:
        """The table of fields."""
        return self._encoder.header_table

    @property
    def header_table_size(self) -> int:
        """Octets of it; h2 sets what the peer offers, of which we take `TABLE_SIZE` at most.

        The peer hears of no size that is not in use.
        """
        return int(self._encoder.header_table_size)

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        self._encoder.header_table_size = min(value, TABLE_SIZE)
