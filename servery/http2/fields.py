"""Field sections: what a request, its trailers and a response may say (RFC 9113 section 8, RFC 8441).

Knows names, values and what they say together; knows no frames, no streams and no time. Header compression is
undone before, and done after.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..engine import RawHeaders
from ..errors import Http2Error, LimitExceeded, LocalProtocolError, RemoteProtocolError
from ..events import Headers
from ..grammar import HOST, TOKEN, has_control, list_members
from ..limits import Limits
from .frames import PROTOCOL_ERROR

ENTRY = 32
"""What each field counts besides its octets in the size of a list (section 6.5.2)."""
DEFAULT_URGENCY = 3
"""RFC 9218 section 4.1."""
MAX_LENGTH = 2**63 - 1

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]++")
_PATH = re.compile(rb"/[\x21\x22\x24-\x7e]*+")
_SCHEME = re.compile(rb"[A-Za-z][A-Za-z0-9+.\-]*+")
_URGENCY = re.compile(rb"(?:^|,)[ \t]*u[ \t]*=[ \t]*([0-7])[ \t]*(?:$|[,;])")
_PSEUDO = frozenset((b":method", b":scheme", b":authority", b":path", b":protocol"))
_CONNECTION_FIELDS = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)
"""Section 8.2.2: these belong to HTTP/1."""


@dataclass(slots=True)
class RequestHead:
    """A valid request head. `length` is the Content-Length, or -1; `protocol` that of an extended CONNECT."""

    method: bytes
    path: bytes
    authority: bytes | None
    protocol: bytes | None
    fields: Headers
    length: int
    expects_continue: bool
    takes_trailers: bool
    urgency: int


def malformed(reason: str) -> Http2Error:
    """The error of a message that is none (section 8.1.1): of its stream alone."""
    return Http2Error(PROTOCOL_ERROR, reason)


def read_request(section: Headers, limits: Limits) -> RequestHead:
    """What a header section asks for.

    Raises `Http2Error` if it is malformed, else `RemoteProtocolError` with the status that answers it.
    """
    pseudo, fields = _divide(section)
    values = _concerning(fields)
    _check_host(pseudo, values)
    method, path, protocol = _read_target(pseudo)
    _check_sizes(section, len(method) + len(path), limits)
    if method == b"CONNECT" and protocol != b"websocket":
        raise RemoteProtocolError(501, "this server is not a proxy")
    return RequestHead(
        method,
        path,
        pseudo.get(b":authority"),
        protocol,
        fields,
        _read_length(values.get(b"content-length"), limits),
        _read_expect(values.get(b"expect")),
        b"te" in values,
        read_urgency(values.get(b"priority", [b""])[0]),
    )


def request_line(section: Headers) -> tuple[bytes, bytes, bytes] | None:
    """(method, target, version) of a section that is refused, for the log, if it names them well."""
    pseudo = dict(section)
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if TOKEN.fullmatch(method) and _PATH.fullmatch(path):
        return method, path, b"2"
    return None


def read_trailers(section: Headers, limits: Limits) -> Headers:
    """The fields behind a body. Raises as `read_request` does."""
    pseudo, fields = _divide(section)
    if pseudo:
        raise malformed("a pseudo-header field in trailers")
    if len(section) > limits.field_count or _list_size(section) - ENTRY * len(section) > limits.trailer_size:
        raise LimitExceeded(431, "trailer section too large")
    return fields


def read_urgency(value: bytes) -> int:
    """The urgency in a Priority field (RFC 9218 section 4.1), from 0, the most urgent, to 7."""
    match = _URGENCY.search(value)
    return int(match[1]) if match else DEFAULT_URGENCY


def _divide(section: Headers) -> tuple[dict[bytes, bytes], Headers]:
    """(pseudo-header fields, the others, with the crumbs of Cookie joined: section 8.2.3)."""
    pseudo: dict[bytes, bytes] = {}
    fields: Headers = []
    cookie = -1
    for name, value in section:
        if has_control(value):
            raise malformed("a control character in a field value")
        if value != value.strip(b" \t"):
            raise malformed("whitespace around a field value")
        if name[:1] == b":":
            if fields or name in pseudo or name not in _PSEUDO:
                raise malformed("a pseudo-header field that is unknown, there twice, or behind others")
            pseudo[name] = value
        elif not _NAME.fullmatch(name):
            raise malformed("invalid field name")
        elif name in _CONNECTION_FIELDS or (name == b"te" and value.lower() != b"trailers"):
            raise malformed("a field that belongs to connections of HTTP/1")
        elif name == b"cookie" and cookie >= 0:
            fields[cookie] = (name, fields[cookie][1] + b"; " + value)
        else:
            if name == b"cookie":
                cookie = len(fields)
            fields.append((name, value))
    return pseudo, fields


_CONCERNING = frozenset((b"host", b"content-length", b"expect", b"te", b"priority"))


def _concerning(fields: Headers) -> dict[bytes, list[bytes]]:
    """The values of those fields that the server itself looks at."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        if name in _CONCERNING:
            values.setdefault(name, []).append(value)
    return values


def _check_host(pseudo: dict[bytes, bytes], values: dict[bytes, list[bytes]]) -> None:
    """Section 8.3.1: one authority, whether in :authority or in Host; both say the same."""
    hosts = values.get(b"host", [])
    authority = pseudo.get(b":authority")
    if len(hosts) > 1:
        raise malformed("more than one Host field")
    if authority is None and not hosts:
        raise malformed("neither :authority nor Host")
    for value in (*hosts, *(() if authority is None else (authority,))):
        if not HOST.fullmatch(value):
            raise malformed("invalid :authority or Host")
    if hosts and authority is not None and hosts[0].lower() != authority.lower():
        raise malformed(":authority and Host differ")


def _read_target(pseudo: dict[bytes, bytes]) -> tuple[bytes, bytes, bytes | None]:
    """(method, path, protocol). Section 8.3.1, 8.5 for CONNECT, RFC 8441 section 4 for its extended form."""
    method, protocol = pseudo.get(b":method", b""), pseudo.get(b":protocol")
    if not TOKEN.fullmatch(method):
        raise malformed("no valid :method")
    if protocol is not None and (method != b"CONNECT" or not TOKEN.fullmatch(protocol)):
        raise malformed(":protocol without CONNECT")
    if method == b"CONNECT" and protocol is None:
        if b":scheme" in pseudo or b":path" in pseudo or b":authority" not in pseudo:
            raise malformed("CONNECT with :scheme or :path, or without :authority")
        return method, pseudo[b":authority"], None
    path = pseudo.get(b":path", b"")
    if not _SCHEME.fullmatch(pseudo.get(b":scheme", b"")):
        raise malformed("no valid :scheme")
    if not _PATH.fullmatch(path) and not (path == b"*" and method == b"OPTIONS"):
        raise malformed("no valid :path")
    if protocol is not None and b":authority" not in pseudo:
        raise malformed("extended CONNECT without :authority")
    return method, path, protocol


def _list_size(section: Headers) -> int:
    return sum(len(name) + len(value) for name, value in section) + ENTRY * len(section)


def _check_sizes(section: Headers, line: int, limits: Limits) -> None:
    if line + len(b"  HTTP/2.0") > limits.request_line:
        raise LimitExceeded(414, "request line too long")
    if len(section) - 4 > limits.field_count:  # the pseudo-header fields are the request line
        raise LimitExceeded(431, "too many fields")
    if _list_size(section) > limits.head_size:
        raise LimitExceeded(431, "request head too large")
    largest = limits.field_size
    if any(len(name) + len(value) + 2 > largest for name, value in section if name[:1] != b":"):
        raise LimitExceeded(431, "field too large")


def _read_length(lengths: list[bytes] | None, limits: Limits) -> int:
    if lengths is None:
        return -1
    digits = lengths[0]
    if len(lengths) > 1 or not digits.isdigit():  # of bytes: 1*DIGIT (RFC 9110 section 8.6)
        raise malformed("invalid Content-Length")
    if len(digits) > 19:
        digits = digits.lstrip(b"0")[:20] or b"0"
    length = int(digits)
    if length > (MAX_LENGTH if limits.body_size is None else limits.body_size):
        raise LimitExceeded(413, "request body too large")
    return length


def _read_expect(expectations: list[bytes] | None) -> bool:
    if expectations is None:
        return False
    if list_members(expectations) != [b"100-continue"]:
        raise RemoteProtocolError(417, "expectation not understood")
    return True


# --- responses ---------------------------------------------------------------------------------------

HAS_DATE, HAS_SERVER = 1, 2

_ORDINARY, _LENGTH, _DROPPED, _DATE, _SERVER = range(5)
_KINDS = {
    b"content-length": _LENGTH,
    b"date": _DATE,
    b"server": _SERVER,
    **dict.fromkeys(_CONNECTION_FIELDS, _DROPPED),
}
_KEPT = 1024
_names: dict[bytes, tuple[bytes, int]] = {}
"""Names already checked, as the application spells them: in lower case, and of what kind."""


@dataclass(slots=True)
class ResponseFields:
    """Checked fields of a response: `length` is its Content-Length or -1; `has`, what the stamp asks for."""

    fields: Headers
    length: int
    has: int


def encode_response(headers: RawHeaders) -> ResponseFields:
    """Check what an application gives. Raises `LocalProtocolError` for what must not go on the wire.

    Fields that belong to connections of HTTP/1 are left out (section 8.2.2).
    """
    fields: Headers = []
    length, has = -1, 0
    try:
        for name, value in headers:
            lower, kind = _names.get(name) or _learn(name)
            if has_control(value):
                raise LocalProtocolError(f"response field {name!r} has a control character in its value")
            if value.strip(b" \t") != value:
                raise LocalProtocolError(
                    f"response field {name!r} has whitespace at the start or end of its value"
                )
            if kind == _LENGTH:
                given = _response_length(value)
                if length >= 0 and given != length:
                    raise LocalProtocolError("two different content-length fields in the response")
                length = given
            elif kind != _DROPPED:
                has |= {_DATE: HAS_DATE, _SERVER: HAS_SERVER}.get(kind, 0)
                fields.append((lower, bytes(value)))
    except (TypeError, ValueError, AttributeError) as error:
        raise LocalProtocolError(
            f"headers must be an iterable of (name, value) pairs of bytes: {error}"
        ) from error
    return ResponseFields(fields, length, has)


def _response_length(value: bytes) -> int:
    if not value.isdigit() or len(value) > 19:
        raise LocalProtocolError(f"invalid content-length {value!r} in the response")
    return int(value)


def _learn(name: Any) -> tuple[bytes, int]:
    if not isinstance(name, bytes):
        raise TypeError(f"field name {name!r} is not bytes")
    if not TOKEN.fullmatch(name):
        raise LocalProtocolError(f"invalid response field name {name!r}")
    lower = name.lower()
    known = (lower, _KINDS.get(lower, _ORDINARY))
    if len(_names) >= _KEPT:
        _names.clear()
    _names[name] = known
    return known


_stamped: dict[bytes, Headers] = {}


def stamp_fields(block: bytes) -> Headers:
    """The server's own field lines, as a stamp for HTTP/1 writes them, as fields."""
    known = _stamped.get(block)
    if known is None:
        lines = (line.partition(b": ") for line in block.split(b"\r\n") if line)
        known = [(name, value) for name, _, value in lines]
        if len(_stamped) >= 16:
            _stamped.clear()
        _stamped[block] = known
    return known
