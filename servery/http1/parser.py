"""Octets of a request head, or of a trailer section, into fields: RFC 9112 sections 2, 3 and 5.

Knows lines and limits; knows nothing of bodies, responses or time. A `FieldSection` takes octets as they come
and decides line by line, in order, so the verdict never depends on how they were cut: per line, first
the number of lines, then its length (only octets within the limit are looked at for control octets), then
its grammar. What can only be judged at the end of a head (Host, body framing) comes last.
"""

from __future__ import annotations

import re

from ..errors import LimitExceeded, RemoteProtocolError
from ..events import Headers
from ..grammar import (
    ABSOLUTE_FORM,
    AUTHORITY_FORM,
    CONTENT_LENGTH,
    FIELD_LINE,
    HOST,
    ORIGIN_LINE,
    REQUEST_LINE,
    has_control,
    list_members,
)
from ..limits import Limits

CHUNKED = -1
"""Body length of a chunked request."""

MAX_LENGTH = 2**63 - 1
"""Longest body that any part of servery can count."""

_CONTROL = "control character or bare line end in the head"

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

_LINES_KEPT = 1024
_LINE_KEPT_SIZE = 256

_lines: dict[bytes, tuple[bytes, bytes]] = {}
"""Lines of `_SHARED` fields already parsed: most of a browser's head is found here, not parsed."""
_framing_lines: dict[bytes, tuple[bytes, bytes]] = {}
"""The same for Host, Connection and their like, apart because each of them is acted on every time."""
_good_hosts: set[tuple[bytes, bytes]] = set()
"""Host fields already found valid."""


def parse_field(line: bytes) -> tuple[bytes, bytes]:
    """One field line, without CRLF, as (lower-cased name, value). Raises `RemoteProtocolError` (400)."""
    match = FIELD_LINE.fullmatch(line)
    if match is None:
        raise RemoteProtocolError(400, _CONTROL if has_control(line) else "malformed field line")
    name, value = match.groups()
    return name.lower(), value.rstrip(b" \t")


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
        for line in lines:
            fields.append(_lines.get(line) or self._parse(line))

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
                raise RemoteProtocolError(400, _CONTROL)
            raise LimitExceeded(431, "header fields too large")

    def _check_unfinished(self, line: bytes) -> None:
        """Judge a line whose end has not come yet by what it will be refused for in any case."""
        if line == b"\r":
            return
        self._check_count()
        line = line.removesuffix(b"\r")
        self._check_length(line)
        if has_control(line):
            raise RemoteProtocolError(400, _CONTROL)


def _keep(table: dict[bytes, tuple[bytes, bytes]], line: bytes, field: tuple[bytes, bytes]) -> None:
    if len(line) <= _LINE_KEPT_SIZE:
        if len(table) >= _LINES_KEPT:
            table.clear()  # somebody sends ever new lines: start again rather than grow or track use
        table[line] = field


_ONE = (1, b"1.1")
_ZERO = (0, b"1.0")


class HeadParser:
    """One request head after the other, in any pieces.

    After `feed` has set `done`: `line` (method, target, version), `raw_path`, `query`, `authority`, `fields`, `length`
    (octets of the body, or `CHUNKED`), `keep_alive`, `expects_continue`, `upgrade`, `takes_trailers`. `line` is ``None``
    until the request line is read.
    """

    __slots__ = (
        *("_empty_lines", "_limits", "_ordinary", "_section", "authority", "done", "expects_continue"),
        *("keep_alive", "length", "line", "minor", "query", "raw_path", "takes_trailers", "upgrade"),
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._ordinary = min(limits.request_line, limits.field_size, limits.head_size - 2)
        self._section = FieldSection(limits, limits.head_size)
        self.authority: bytes | None = None
        self.raw_path = self.query = b""
        self.reset()

    def reset(self) -> None:
        """Begin the next head."""
        self._empty_lines = 0
        self.line: tuple[bytes, bytes, bytes] | None = None
        self.done = False

    @property
    def fields(self) -> Headers:
        """The field lines of the head."""
        return self._section.fields

    def feed(self, data: bytes) -> int:
        """Read `data`, which begins with the octets that the last call left unread.

        Returns how many octets were read. Raises `RemoteProtocolError` or `LimitExceeded`.
        """
        if self.line is None:
            match = ORIGIN_LINE.match(data)
            if match is not None:
                start = match.end()
                end = data.find(b"\r\n\r\n", start - 2)
                if start <= end <= self._ordinary:  # whole, with fields, and no limit on octets is near
                    method, target, path, query, minor = match.groups()
                    if method != b"CONNECT":
                        self.raw_path = path
                        self.query = query or b""
                        self.authority = None
                        self.minor, version = _ONE if minor == b"1" else _ZERO
                        self.line = (method, target, version)
                        section = self._section
                        section.reset(self._limits.head_size - start)
                        section.take(data[start:end])
                        self._conclude()
                        self.done = True
                        return end + 4
        return self._feed_pieces(data)

    def _feed_pieces(self, data: bytes) -> int:
        start = 0
        if self.line is None:
            start = self._skip_empty_lines(data)
            end = data.find(b"\r\n", start)
            if end < 0:
                self._check_unfinished(data[start:])
                return start
            self._read_request_line(data[start:end])
            self._section.reset(self._limits.head_size - (end + 2 - start))
            start = end + 2
        start = self._section.feed(data, start)
        if self._section.done:
            self._conclude()
            self.done = True
        return start

    def _skip_empty_lines(self, data: bytes) -> int:
        start = 0
        while data.startswith(b"\r\n", start):
            start += 2
            self._empty_lines += 1
            if self._empty_lines > self._limits.empty_lines:
                raise LimitExceeded(400, "too many empty lines before the request line")
        return start

    def _check_unfinished(self, line: bytes) -> None:
        line = line.removesuffix(b"\r")
        self._check_length(line)
        if has_control(line):
            raise RemoteProtocolError(400, _CONTROL)

    def _check_length(self, line: bytes) -> None:
        limit = self._limits.request_line
        if len(line) > limit:
            if has_control(line[: limit + 1]):
                raise RemoteProtocolError(400, _CONTROL)
            raise LimitExceeded(414, "request line too long")

    def _read_request_line(self, line: bytes) -> None:
        self._check_length(line)
        match = REQUEST_LINE.fullmatch(line)
        if match is None:
            raise RemoteProtocolError(400, _CONTROL if has_control(line) else "malformed request line")
        method, target, major, minor = match.groups()
        if major != b"1":
            raise RemoteProtocolError(505, "this server speaks HTTP/1.1")
        self.minor = 0 if minor == b"0" else 1  # a higher minor is read as 1.1: RFC 9110 section 2.5
        self.authority = None
        if target.startswith(b"/"):
            self.raw_path, _, self.query = target.partition(b"?")
            if method == b"CONNECT":
                raise RemoteProtocolError(400, "CONNECT needs a host and a port")
        else:
            self._read_other_target(method, target)
        self.line = (method, target, b"1.1" if self.minor else b"1.0")

    def _read_other_target(self, method: bytes, target: bytes) -> None:
        """Asterisk, authority and absolute form (RFC 9112 sections 3.2.2 to 3.2.4)."""
        self.raw_path, self.query = target, b""
        if method == b"CONNECT":
            if not AUTHORITY_FORM.fullmatch(target):
                raise RemoteProtocolError(400, "CONNECT needs a host and a port")
            raise RemoteProtocolError(501, "this server is not a proxy")
        if target == b"*" and method == b"OPTIONS":
            return
        match = ABSOLUTE_FORM.fullmatch(target)
        if match is None or match[1].lower() not in (b"http", b"https") or not HOST.fullmatch(match[2]):
            raise RemoteProtocolError(400, "invalid request target")
        self.authority = match[2]
        self.raw_path = match[3] or b"/"
        self.query = match[4] or b""

    def _conclude(self) -> None:
        """What the fields say together about host, framing and the connection."""
        self.length = 0
        self.keep_alive = self.minor == 1
        self.expects_continue = self.takes_trailers = False
        self.upgrade: bytes | None = None
        framing = self._section.framing
        if len(framing) == 1 and framing[0] in _good_hosts:  # the usual GET
            return
        values: dict[bytes, list[bytes]] = {}
        for name, value in framing:
            values.setdefault(name, []).append(value)
        self._check_host(values.get(b"host", []))
        self._read_framing(values)
        self._read_connection(values)
        self._read_expect(values)

    def _check_host(self, hosts: list[bytes]) -> None:
        """RFC 9112 section 3.2: exactly one valid Host in HTTP/1.1, at most one in 1.0."""
        if len(hosts) > 1:
            raise RemoteProtocolError(400, "more than one Host field")
        if not hosts:
            if self.minor:
                raise RemoteProtocolError(400, "Host field missing")
        elif not HOST.fullmatch(hosts[0]):
            raise RemoteProtocolError(400, "invalid Host field")
        else:
            if len(_good_hosts) >= _LINES_KEPT:
                _good_hosts.clear()
            _good_hosts.add((b"host", hosts[0]))

    def _read_framing(self, values: dict[bytes, list[bytes]]) -> None:
        """RFC 9112 section 6: what is ambiguous is refused, whatever the RFC lets a server guess."""
        lengths = values.get(b"content-length")
        codings = values.get(b"transfer-encoding")
        if codings is not None:
            if lengths is not None:
                raise RemoteProtocolError(400, "both Content-Length and Transfer-Encoding")
            if self.minor == 0:
                raise RemoteProtocolError(400, "Transfer-Encoding in HTTP/1.0")
            self._read_codings(codings)
        elif lengths is not None:
            self.length = self._read_length(lengths)

    def _read_codings(self, codings: list[bytes]) -> None:
        members = list_members(codings)
        if members != [b"chunked"]:
            if members and members[-1] == b"chunked" and b"chunked" not in members[:-1]:
                raise RemoteProtocolError(501, "transfer coding not implemented")
            raise RemoteProtocolError(400, "invalid Transfer-Encoding")
        self.length = CHUNKED

    def _read_length(self, lengths: list[bytes]) -> int:
        match = CONTENT_LENGTH.fullmatch(lengths[0])
        if len(lengths) > 1 or not lengths[0] or match is None:
            raise RemoteProtocolError(400, "invalid Content-Length")
        length = int(match[1] or b"0") if len(match[1]) <= 19 else MAX_LENGTH + 1
        limit = MAX_LENGTH if self._limits.body_size is None else self._limits.body_size
        if length > limit:
            raise LimitExceeded(413, "request body too large")
        return length

    def _read_connection(self, values: dict[bytes, list[bytes]]) -> None:
        """RFC 9112 section 9.3: close wins; HTTP/1.0 must ask to keep the connection."""
        if b"connection" in values:
            options = list_members(values[b"connection"])
            self.keep_alive = b"close" not in options and (self.minor == 1 or b"keep-alive" in options)
            if self.minor and b"upgrade" in options and b"upgrade" in values:
                self.upgrade = b", ".join(values[b"upgrade"])
        self.takes_trailers = self.minor == 1 and b"trailers" in list_members(values.get(b"te", []))

    def _read_expect(self, values: dict[bytes, list[bytes]]) -> None:
        """RFC 9110 section 10.1.1: nothing to wait for without a body, and nothing for HTTP/1.0."""
        if b"expect" in values and self.minor:
            if list_members(values[b"expect"]) != [b"100-continue"]:
                raise RemoteProtocolError(417, "expectation not understood")
            self.expects_continue = self.length != 0
