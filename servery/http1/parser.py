"""Octets of a request head into a request: RFC 9112 sections 2, 3 and 6.

Knows the request line, Host and what the fields say of framing and of the connection; knows nothing of
bodies, responses or time. As in `servery.http1.fields`, lines are judged in order as they come; what can only
be judged at the end of a head (Host, body framing) comes last.
"""

from __future__ import annotations

from ..errors import LimitExceeded, RemoteProtocolError
from ..grammar import (
    ABSOLUTE_FORM,
    AUTHORITY_FORM,
    HOST,
    ORIGIN_LINE,
    REQUEST_LINE,
    has_control,
    list_members,
)
from ..limits import Limits
from .fields import CONTROL, LINES_KEPT, FieldSection

CHUNKED = -1
"""Body length of a chunked request."""

MAX_LENGTH = 2**63 - 1
"""Longest body that any part of servery can count."""

_good_hosts: set[tuple[bytes, bytes]] = set()
"""Host fields already found valid."""

_ONE = (1, b"1.1")
_ZERO = (0, b"1.0")


def _has_control(line: bytes) -> RemoteProtocolError:
    """The refusal of a request line with control characters; a TLS handshake (RFC 8446 section 5.1) begins
    with one.
    """
    if line.startswith(b"\x16"):
        return RemoteProtocolError(400, "this port speaks HTTP without TLS: the address begins with http://")
    return RemoteProtocolError(400, CONTROL)


class HeadParser:
    """One request head after the other, in any pieces.

    After `feed` has set `done`: `line` (method, target, version), `raw_path`, `query`, `authority`, `fields`,
    `length` (octets of the body, or `CHUNKED`), `keep_alive`, `expects_continue`, `upgrade`,
    `takes_trailers`. `line` is ``None`` until the request line is read.
    """

    __slots__ = (
        *(
            "_limits",
            "_ordinary",
            "_section",
            "authority",
            "done",
            "empty_lines",
            "expects_continue",
            "fields",
        ),
        *("keep_alive", "length", "line", "minor", "query", "raw_path", "takes_trailers", "upgrade"),
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._ordinary = min(limits.request_line, limits.field_size, limits.head_size - 2)
        self._section = FieldSection(limits, limits.head_size)
        self.authority: bytes | None = None
        self.upgrade: bytes | None = None
        self.reset()

    def reset(self) -> None:
        """Begin the next head."""
        self.empty_lines = 0
        self._section.forget()
        self.fields = self._section.fields
        self.raw_path = self.query = b""
        self.authority = self.upgrade = None
        self.line: tuple[bytes, bytes, bytes] | None = None
        self.done = False

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
            self.empty_lines += 1
            if self.empty_lines > self._limits.empty_lines:
                raise LimitExceeded(400, "too many empty lines before the request line")
        return start

    def _check_unfinished(self, line: bytes) -> None:
        line = line.removesuffix(b"\r")
        self._check_length(line)
        if has_control(line):
            raise _has_control(line)

    def _check_length(self, line: bytes) -> None:
        limit = self._limits.request_line
        if len(line) > limit:
            if has_control(line[: limit + 1]):
                raise _has_control(line)
            raise LimitExceeded(414, "request line too long")

    def _read_request_line(self, line: bytes) -> None:
        self._check_length(line)
        match = REQUEST_LINE.fullmatch(line)
        if match is None:
            raise (
                _has_control(line)
                if has_control(line)
                else RemoteProtocolError(400, "malformed request line")
            )
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
        self.fields = self._section.fields
        framing = self._section.framing
        if framing and framing[0] in _good_hosts:
            if len(framing) == 1:  # the usual GET
                return
            if len(framing) == 2 and framing[1][0] == b"content-length":  # the usual POST
                self.length = self._read_length([framing[1][1]])
                return
        values: dict[bytes, list[bytes]] = {}
        for name, value in framing:
            if name in values:
                values[name].append(value)
            else:
                values[name] = [value]
        self._check_host(values.get(b"host", []))
        if b"content-length" in values or b"transfer-encoding" in values:
            self._read_framing(values)
        if b"connection" in values:
            self._read_connection(values)
        if b"te" in values and self.minor:
            self.takes_trailers = b"trailers" in list_members(values[b"te"])
        if b"expect" in values and self.minor:
            self._read_expect(values[b"expect"])

    def _check_host(self, hosts: list[bytes]) -> None:
        """RFC 9112 section 3.2: exactly one valid Host in HTTP/1.1, at most one in 1.0."""
        if len(hosts) > 1:
            raise RemoteProtocolError(400, "more than one Host field")
        if not hosts:
            if self.minor:
                raise RemoteProtocolError(400, "Host field missing")
        elif (b"host", hosts[0]) in _good_hosts:
            return
        elif not HOST.fullmatch(hosts[0]):
            raise RemoteProtocolError(400, "invalid Host field")
        else:
            if len(_good_hosts) >= LINES_KEPT:
                _good_hosts.clear()
            _good_hosts.add((b"host", hosts[0]))

    def _read_framing(self, values: dict[bytes, list[bytes]]) -> None:
        """RFC 9112 section 6: what is ambiguous is refused, whatever the RFC lets a server guess."""
        codings = values.get(b"transfer-encoding")
        if codings is None:
            self.length = self._read_length(values[b"content-length"])
        else:
            if b"content-length" in values:
                raise RemoteProtocolError(400, "both Content-Length and Transfer-Encoding")
            if self.minor == 0:
                raise RemoteProtocolError(400, "Transfer-Encoding in HTTP/1.0")
            self._read_codings(codings)

    def _read_codings(self, codings: list[bytes]) -> None:
        members = list_members(codings)
        if members != [b"chunked"]:
            if members and members[-1] == b"chunked" and b"chunked" not in members[:-1]:
                raise RemoteProtocolError(501, "transfer coding not implemented")
            raise RemoteProtocolError(400, "invalid Transfer-Encoding")
        self.length = CHUNKED

    def _read_length(self, lengths: list[bytes]) -> int:
        digits = lengths[0]
        if (
            len(lengths) > 1 or not digits.isdigit()
        ):  # of bytes: 1*DIGIT and nothing else (RFC 9110 section 8.6)
            raise RemoteProtocolError(400, "invalid Content-Length")
        if len(digits) > 19:
            digits = digits.lstrip(b"0")[:20] or b"0"
        length = int(digits)
        limit = MAX_LENGTH if self._limits.body_size is None else self._limits.body_size
        if length > limit:
            raise LimitExceeded(413, "request body too large")
        return length

    def _read_connection(self, values: dict[bytes, list[bytes]]) -> None:
        """RFC 9112 section 9.3: close wins; HTTP/1.0 must ask to keep the connection."""
        options = list_members(values[b"connection"])
        self.keep_alive = b"close" not in options and (self.minor == 1 or b"keep-alive" in options)
        if self.minor and b"upgrade" in options and b"upgrade" in values:
            self.upgrade = b", ".join(values[b"upgrade"])

    def _read_expect(self, expectations: list[bytes]) -> None:
        """RFC 9110 section 10.1.1: nothing to wait for without a body, and nothing for HTTP/1.0."""
        if list_members(expectations) != [b"100-continue"]:
            raise RemoteProtocolError(417, "expectation not understood")
        self.expects_continue = self.length != 0
