"""Response heads and framing as octets: RFC 9110 section 5, RFC 9112 sections 4 and 7.1.

Knows field names, values and status codes; knows nothing of requests, connections or time. What an
application could use to split a response (CR, LF, NUL and other controls) is refused here, in one pass over
the block.
"""

from __future__ import annotations

from typing import Any

from ..engine import RawHeaders, Stamp
from ..errors import LocalProtocolError
from ..grammar import TOKEN, has_control, list_members

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

HAS_DATE = 1
HAS_SERVER = 2
WANTS_CLOSE = 4

_PHRASES = {
    100: "Continue",
    101: "Switching Protocols",
    102: "Processing",
    103: "Early Hints",
    200: "OK",
    201: "Created",
    202: "Accepted",
    203: "Non-Authoritative Information",
    204: "No Content",
    205: "Reset Content",
    206: "Partial Content",
    207: "Multi-Status",
    208: "Already Reported",
    226: "IM Used",
    300: "Multiple Choices",
    301: "Moved Permanently",
    302: "Found",
    303: "See Other",
    304: "Not Modified",
    305: "Use Proxy",
    307: "Temporary Redirect",
    308: "Permanent Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    407: "Proxy Authentication Required",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    411: "Length Required",
    412: "Precondition Failed",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    416: "Range Not Satisfiable",
    417: "Expectation Failed",
    418: "I'm a Teapot",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    423: "Locked",
    424: "Failed Dependency",
    425: "Too Early",
    426: "Upgrade Required",
    428: "Precondition Required",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    451: "Unavailable For Legal Reasons",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
    506: "Variant Also Negotiates",
    507: "Insufficient Storage",
    508: "Loop Detected",
    510: "Not Extended",
    511: "Network Authentication Required",
}
"""Reason phrases (the IANA registry of status codes)."""

STATUS_LINES = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, _PHRASES.get(status, "").encode()) for status in range(100, 1000)
}

(_ORDINARY, _SHARED, _LENGTH, _CODING, _CONNECTION, _DATE, _SERVER) = range(7)
_KINDS = {
    b"content-length": _LENGTH,
    b"transfer-encoding": _CODING,
    b"connection": _CONNECTION,
    b"date": _DATE,
    b"server": _SERVER,
    **dict.fromkeys(
        (
            *(b"accept-ranges", b"access-control-allow-credentials", b"access-control-allow-headers"),
            *(b"access-control-allow-methods", b"access-control-allow-origin", b"access-control-max-age"),
            *(b"cache-control", b"content-encoding", b"content-language", b"content-type", b"pragma"),
            *(b"referrer-policy", b"strict-transport-security", b"vary", b"x-content-type-options"),
            *(b"x-frame-options", b"x-xss-protection"),
        ),
        _SHARED,
    ),
}
_KEPT = 1024
_LINE_KEPT_SIZE = 256

_names: dict[bytes, int] = dict(_KINDS)
"""Names already checked, as the application spells them, and their kind."""
_lines: dict[tuple[bytes, bytes], bytes] = {}
"""Lines of `_SHARED` fields already checked: the same from response to response, and nothing private."""
_lengths: dict[bytes, tuple[int, bytes]] = {}
"""Content-Length values already checked: the number, and the line."""

Fields = tuple[bytes, int, bytes, int]
"""Checked response fields: the lines of those that do not concern framing; the Content-Length that the
application gave, or -1, and its line; flags: `HAS_DATE`, `HAS_SERVER`, `WANTS_CLOSE`."""


def encode_fields(headers: RawHeaders) -> Fields:
    """Check and serialise response fields. Raises `LocalProtocolError` for what must not go on the wire."""
    length, length_line = -1, b""
    flags = 0
    lines: list[bytes] = []
    try:
        for field in headers:
            line = _lines.get(field) if type(field) is tuple else None
            if line is None:
                name, value = field
                kind = _names.get(name)
                if kind is None:
                    kind = _learn(name)
                if kind == _LENGTH:
                    known = _lengths.get(value) or _read_length(value)
                    if length_line and known[0] != length:
                        raise LocalProtocolError("two different content-length fields in the response")
                    length, length_line = known
                    continue
                line = _encode(name, value)
                if kind > _LENGTH:
                    flags |= _flag(kind, value)
                    if kind < _DATE:  # the server's own to write (ASGI, Response Start)
                        continue
                elif kind == _SHARED:
                    _keep(_lines, (name, value), line)
            lines.append(line)
    except (TypeError, ValueError, AttributeError) as error:
        raise LocalProtocolError(
            f"headers must be an iterable of (name, value) pairs of bytes: {error}"
        ) from error
    return b"".join(lines), length, length_line, flags


def _encode(name: bytes, value: bytes) -> bytes:
    line = b"%b: %b\r\n" % (name, value)
    if has_control(value):
        raise LocalProtocolError(f"response field {name!r} has a control character in its value")
    if value.strip(b" \t") != value:
        raise LocalProtocolError(f"response field {name!r} has whitespace at the start or end of its value")
    return line


def _flag(kind: int, value: bytes) -> int:
    if kind == _DATE:
        return HAS_DATE
    if kind == _SERVER:
        return HAS_SERVER
    return WANTS_CLOSE if kind == _CONNECTION and b"close" in list_members([value]) else 0


def _learn(name: bytes) -> int:
    """The kind of a name that was not seen before."""
    if not isinstance(name, bytes):
        raise TypeError(f"field name {name!r} is not bytes")
    if not TOKEN.fullmatch(name):
        raise LocalProtocolError(f"invalid response field name {name!r}")
    kind = _KINDS.get(name.lower(), _ORDINARY)
    _keep(_names, name, kind)
    return kind


def _read_length(value: bytes) -> tuple[int, bytes]:
    """A Content-Length that the application gave. Raises `LocalProtocolError`."""
    if not value.isdigit() or len(value) > 19:
        raise LocalProtocolError(f"invalid content-length {value!r} in the response")
    known = (int(value), b"content-length: %b\r\n" % value)
    _keep(_lengths, value, known)
    return known


def _keep(table: dict[Any, Any], key: Any, line: Any) -> None:
    if not isinstance(line, bytes) or len(line) <= _LINE_KEPT_SIZE:
        if len(table) >= _KEPT:
            table.clear()
        table[key] = line


def switching_head(own: bytes, headers: RawHeaders, stamp: Stamp) -> bytes:
    """The head of a 101 response: `own` is whole field lines of the new protocol, `headers` the
    application's.

    Raises `LocalProtocolError` for what must not go on the wire. Framing fields are left out: it has no
    content.
    """
    block, _, _, flags = encode_fields(headers)
    return b"".join((STATUS_LINES[101], own, block, stamp(flags & 3), b"\r\n"))


def chunk_head(size: int) -> bytes:
    """The line before `size` octets of chunk data (RFC 9112 section 7.1)."""
    return b"%x\r\n" % size


def text_response(status: int, text: str, stamp: Stamp, extra: bytes = b"") -> tuple[bytes, bytes]:
    """A short text response of the server itself, as (head, body). `extra` is whole field lines."""
    body = f"{text}\n".encode("ascii", "replace")
    head = b"".join(
        (
            STATUS_LINES[status],
            b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n" % len(body),
            extra,
            stamp(0),
            b"\r\n",
        )
    )
    return head, body
