"""Chunked transfer coding, decoding side: RFC 9112 section 7.1.

Knows chunks, extensions and trailers; knows nothing of requests, connections or time.
"""

from __future__ import annotations

from enum import Enum

from ..errors import LimitExceeded, RemoteProtocolError
from ..events import Headers
from ..grammar import CHUNK_LINE, has_control
from ..limits import Limits
from .fields import FieldSection
from .parser import MAX_LENGTH

_MALFORMED = "malformed chunk"

FORBIDDEN_TRAILERS = frozenset(
    {
        *(b"authorization", b"cache-control", b"connection", b"content-encoding", b"content-length"),
        *(b"content-range", b"content-type", b"cookie", b"expect", b"host", b"keep-alive", b"max-forwards"),
        *(
            b"proxy-authorization",
            b"range",
            b"set-cookie",
            b"te",
            b"trailer",
            b"transfer-encoding",
            b"upgrade",
        ),
    }
)
"""Framing, routing, authentication and content fields have no business there (RFC 9110 section 6.5.1)."""


class _State(Enum):
    SIZE = "a chunk-size line"
    DATA = "chunk data"
    DATA_END = "the CRLF after chunk data"
    TRAILERS = "the trailer section"


class ChunkedDecoder:
    """Decodes one chunked body taken in any pieces.

    When `done` is set, `trailers` holds the trailer fields and `rest` what followed the body. A body that
    breaks the coding sets `error`: the content before the fault was still returned, however the octets were
    cut.
    """

    __slots__ = (
        "_extensions",
        "_left",
        "_limits",
        "_section",
        "_state",
        "_unread",
        "done",
        "error",
        "rest",
        "size",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._state = _State.SIZE
        self._section = FieldSection(limits, limits.trailer_size)
        self._left = 0
        self._extensions = limits.chunk_extensions
        self._unread = b""
        self.size = 0
        self.done = False
        self.error: RemoteProtocolError | None = None
        self.rest = b""

    @property
    def trailers(self) -> Headers:
        """The trailer fields; empty until `done`."""
        return self._section.fields

    def feed(self, data: bytes) -> bytes:
        """Decode `data`; returns the content in it, possibly empty. Sets `done`, or `error` for a fault."""
        if self._unread:
            data = self._unread + data
        parts: list[bytes] = []
        at = 0
        try:
            while at < len(data) and not self.done:
                before = at
                at = self._step(data, at, parts)
                if at == before:
                    break
        except RemoteProtocolError as error:
            self.error = error.with_traceback(None)  # which has this frame, and so this decoder
        if self.done:
            self.rest = data[at:]
        self._unread = b"" if self.done else data[at:]
        return b"".join(parts)

    def _step(self, data: bytes, at: int, parts: list[bytes]) -> int:
        """Read one element at `at`; returns where the next begins, or `at` if more octets are needed."""
        if self._state is _State.DATA:
            part = data[at : at + self._left]
            parts.append(part)
            self._left -= len(part)
            if not self._left:
                self._state = _State.DATA_END
            return at + len(part)
        if self._state is _State.SIZE:
            return self._read_size(data, at)
        if self._state is _State.DATA_END:
            return self._read_data_end(data, at)
        at = self._section.feed(data, at)
        if self._section.done:
            self._check_trailers()
            self.done = True
        return at

    def _read_size(self, data: bytes, at: int) -> int:
        end = data.find(b"\r\n", at)
        line = data[at:end] if end >= 0 else data[at:].removesuffix(b"\r")
        limit = self._limits.chunk_line
        if has_control(line[: limit + 1]):
            raise RemoteProtocolError(400, _MALFORMED)
        if len(line) > limit:
            raise LimitExceeded(400, "chunk-size line too long")
        if end < 0:
            return at
        match = CHUNK_LINE.fullmatch(line)
        if match is None:
            raise RemoteProtocolError(400, _MALFORMED)
        self._extensions -= len(match[2])
        if self._extensions < 0:
            raise LimitExceeded(400, "chunk extensions too large")
        self._begin_chunk(int(match[1], 16))
        return end + 2

    def _begin_chunk(self, size: int) -> None:
        self._left = size
        self._state = _State.DATA if size else _State.TRAILERS
        self.size += size
        limit = MAX_LENGTH if self._limits.body_size is None else self._limits.body_size
        if self.size > limit:
            raise LimitExceeded(413, "request body too large")

    def _read_data_end(self, data: bytes, at: int) -> int:
        if data.startswith(b"\r\n", at):
            self._state = _State.SIZE
            return at + 2
        if data[at:] != b"\r":
            raise RemoteProtocolError(400, _MALFORMED)
        return at

    def _check_trailers(self) -> None:
        for name, _ in self._section.fields:
            if name in FORBIDDEN_TRAILERS:
                raise RemoteProtocolError(400, "field not allowed in trailers")
