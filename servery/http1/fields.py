"""Octets of a field section into fields: RFC 9110 section 5, RFC 9112 sections 2 and 5.

Knows lines and limits, whatever the section belongs to: a request head, or the trailers of a body. Octets are
taken as they come and judged line by line, in order, so the verdict never depends on how they were cut: per
line, first the number of lines, then its length (only octets within the limit are looked at for control
octets), then its grammar.
"""

from __future__ import annotations

from ..errors import LimitExceeded, RemoteProtocolError
from ..events import Headers
from ..grammar import FIELD_LINE, has_control
from ..limits import Limits

CONTROL = "control character or bare line end in the head"

FRAMING = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"connection", b"expect", b"upgrade", b"te"}
)
"""Fields that the engine itself acts on."""

_SHARED = frozenset(
    {
        *(
            b"accept",
            b"accept-charset",
            b"accept-encoding",
            b"accept-language",
            b"cache-control",
            b"content-type",
        ),
        *(b"dnt", b"pragma", b"priority", b"sec-ch-ua", b"sec-ch-ua-mobile", b"sec-ch-ua-platform"),
        *(
            b"sec-fetch-dest",
            b"sec-fetch-mode",
            b"sec-fetch-site",
            b"sec-fetch-user",
            b"upgrade-insecure-requests",
        ),
        *(b"user-agent", b"x-requested-with", b"sec-gpc"),
    }
)
"""Fields whose lines are the same from request to request and carry nothing private."""

LINES_KEPT = 1024
_LINE_KEPT_SIZE = 256

_lines: dict[bytes, tuple[bytes, bytes]] = {}
"""Lines of `_SHARED` fields already parsed: most of a browser's head is found here, not parsed."""
_framing_lines: dict[bytes, tuple[bytes, bytes]] = {}
"""The same for Host, Connection and their like, apart because each of them is acted on every time."""


def parse_field(line: bytes) -> tuple[bytes, bytes]:
    """One field line, without CRLF, as (lower-cased name, value). Raises `RemoteProtocolError` (400)."""
    match = FIELD_LINE.fullmatch(line)
    if match is None:
        raise RemoteProtocolError(400, CONTROL if has_control(line) else "malformed field line")
    name, value = match.groups()
    return name.lower(), value.rstrip(b" \t")


_NOTHING: Headers = []


class FieldSection:
    """Field lines up to and with the empty line that ends them, taken in any pieces.

    `limit` is the number of octets for the whole section. After `feed` has set `done`, `fields` holds the
    lines and `framing` those among them that the engine acts on.
    """

    __slots__ = ("_budget", "_count", "_size", "done", "fields", "framing")

    def __init__(self, limits: Limits, limit: int) -> None:
        self._count = limits.field_count
        self._size = limits.field_size
        self.reset(limit)

    def reset(self, limit: int) -> None:
        """Begin a new section of at most `limit` octets."""
        self._budget = limit
        self.fields: Headers = []
        self.framing: list[tuple[bytes, bytes]] = []
        self.done = False

    def forget(self) -> None:
        """Keep nothing of the last section."""
        self.fields = self.framing = _NOTHING

    def feed(self, data: bytes, start: int) -> int:
        """Read lines of `data` from `start`, which is the start of a line.

        Returns where the first unread octet stands. Raises `RemoteProtocolError` or `LimitExceeded`.
        """
        if data.startswith(b"\r\n", start):
            self.done = True
            return start + 2
        end = data.find(b"\r\n\r\n", start)
        if end >= 0:
            self.take(data[start:end])
            self.done = True
            return end + 4
        end = data.rfind(b"\r\n", start)
        if end >= 0:
            self.take(data[start:end])
            start = end + 2
        if start < len(data):
            self._check_unfinished(data[start:])
        return start

    def take(self, block: bytes) -> None:
        """Read whole lines: `block` is without the last CRLF. Raises as `feed` does."""
        size = len(block)
        lines = block.split(b"\r\n")
        if size > self._size or size + 2 > self._budget or len(self.fields) + len(lines) > self._count:
            self._take_near_limits(lines)
            return
        self._budget -= size + 2
        fields = self.fields
        known, add = _lines.get, fields.append
        for line in lines:
            add(known(line) or self._parse(line))

    def _take_near_limits(self, lines: list[bytes]) -> None:
        for line in lines:
            self._check_count()
            self._check_length(line)
            self._budget -= len(line) + 2
            self.fields.append(_lines.get(line) or self._parse(line))

    def _parse(self, line: bytes) -> tuple[bytes, bytes]:
        known = _framing_lines.get(line)
        if known is not None:
            self.framing.append(known)
            return known
        field = parse_field(line)
        name = field[0]
        if name in FRAMING:
            self.framing.append(field)
            _keep(_framing_lines, line, field)
        elif name in _SHARED:
            _keep(_lines, line, field)
        return field

    def _check_count(self) -> None:
        if len(self.fields) >= self._count:
            raise LimitExceeded(431, "too many header fields")

    def _check_length(self, line: bytes) -> None:
        room = max(0, min(self._size, self._budget - 2))
        if len(line) > room:
            if has_control(line[: room + 1]):
                raise RemoteProtocolError(400, CONTROL)
            raise LimitExceeded(431, "header fields too large")

    def _check_unfinished(self, line: bytes) -> None:
        """Judge a line whose end has not come yet by what it will be refused for in any case."""
        if line == b"\r":
            return
        self._check_count()
        line = line.removesuffix(b"\r")
        self._check_length(line)
        if has_control(line):
            raise RemoteProtocolError(400, CONTROL)


def _keep(table: dict[bytes, tuple[bytes, bytes]], line: bytes, field: tuple[bytes, bytes]) -> None:
    if len(line) <= _LINE_KEPT_SIZE:
        if len(table) >= LINES_KEPT:
            table.clear()  # somebody sends ever new lines: start again rather than grow or track use
        table[line] = field
