"""Response heads and framing as octets: RFC 9110 section 5, RFC 9112 sections 4 and 7.1.

Knows field names, values and status codes; knows nothing of requests, connections or time. What an application
could use to split a response (CR, LF, NUL and other controls) is refused here, in one pass over the block.
"""

from __future__ import annotations

from collections.abc import Callable

from ..engine import RawHeaders
from ..errors import LocalProtocolError
from ..grammar import CONTROLS, TOKEN, has_control, list_members

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

HAS_DATE = 1
HAS_SERVER = 2
WANTS_CLOSE = 4

Stamp = Callable[[int], bytes]
"""Gives the server's own field lines (Date, Server, extra ones); the argument says which the application
has set itself: `HAS_DATE`, `HAS_SERVER` or both. A function, since an engine reads no clock."""

_PHRASES = {
    **{100: "Continue", 101: "Switching Protocols", 102: "Processing", 103: "Early Hints"},
    **{200: "OK", 201: "Created", 202: "Accepted", 203: "Non-Authoritative Information", 204: "No Content"},
    **{
        205: "Reset Content",
        206: "Partial Content",
        207: "Multi-Status",
        208: "Already Reported",
        226: "IM Used",
    },
    **{
        300: "Multiple Choices",
        301: "Moved Permanently",
        302: "Found",
        303: "See Other",
        304: "Not Modified",
    },
    **{305: "Use Proxy", 307: "Temporary Redirect", 308: "Permanent Redirect"},
    **{400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found"},
    **{405: "Method Not Allowed", 406: "Not Acceptable", 407: "Proxy Authentication Required"},
    **{
        408: "Request Timeout",
        409: "Conflict",
        410: "Gone",
        411: "Length Required",
        412: "Precondition Failed",
    },
    **{413: "Content Too Large", 414: "URI Too Long", 415: "Unsupported Media Type"},
    **{
        416: "Range Not Satisfiable",
        417: "Expectation Failed",
        418: "I'm a Teapot",
        421: "Misdirected Request",
    },
    **{422: "Unprocessable Content", 423: "Locked", 424: "Failed Dependency", 425: "Too Early"},
    **{426: "Upgrade Required", 428: "Precondition Required", 429: "Too Many Requests"},
    **{431: "Request Header Fields Too Large", 451: "Unavailable For Legal Reasons"},
    **{500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable"},
    **{504: "Gateway Timeout", 505: "HTTP Version Not Supported", 506: "Variant Also Negotiates"},
    **{507: "Insufficient Storage", 508: "Loop Detected", 510: "Not Extended"},
    511: "Network Authentication Required",
}
"""Reason phrases (the IANA registry of status codes)."""

STATUS_LINES = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, _PHRASES.get(status, "").encode()) for status in range(100, 1000)
}

(_ORDINARY, _LENGTH, _CODING, _CONNECTION, _DATE, _SERVER) = range(6)
_SPECIAL = {
    b"content-length": _LENGTH,
    b"transfer-encoding": _CODING,
    b"connection": _CONNECTION,
    b"date": _DATE,
    b"server": _SERVER,
}
_NAMES_KEPT = 1024
_names: dict[bytes, int] = {**_SPECIAL, b"content-type": _ORDINARY}
"""Names already checked, as the application spells them, and what they mean to the framing."""


Fields = tuple[bytes, int, int]
"""Checked response fields: their lines without the ones that concern framing, the Content-Length that the
application gave or -1, and flags: `HAS_DATE`, `HAS_SERVER`, `WANTS_CLOSE`."""


def encode_fields(headers: RawHeaders) -> Fields:
    """Check and serialise response fields. Raises `LocalProtocolError` for what must not go on the wire."""
    length = -1
    flags = 0
    parts: list[bytes] = []
    known = _names.get
    try:
        for name, value in headers:
            kind = known(name)
            if kind is None:
                kind = _learn(name)
            if kind:
                if kind == _LENGTH:
                    given = content_length(value)
                    if length not in (-1, given):
                        raise LocalProtocolError("two different content-length fields in the response")
                    length = given
                    continue
                if kind == _DATE:
                    flags |= HAS_DATE
                elif kind == _SERVER:
                    flags |= HAS_SERVER
                else:  # connection and transfer-encoding are the server's own to write (ASGI, Response Start)
                    if kind == _CONNECTION and b"close" in list_members([value]):
                        flags |= WANTS_CLOSE
                    continue
            parts += (name, b": ", value, b"\r\n")
        block = b"".join(parts)
    except (TypeError, ValueError, AttributeError) as error:
        raise LocalProtocolError(f"headers must be an iterable of (name, value) pairs of bytes: {error}") from error
    controls = len(block) - len(block.translate(None, CONTROLS))  # ours are CR and LF, once for each four parts
    if controls != len(parts) // 2 or b" \r\n" in block or b":  " in block or b"\t" in block:
        _find_fault(parts)
    return block, length, flags


def _find_fault(parts: list[bytes]) -> None:
    """Refuse the value that is at fault, if one is: ``a:  b`` inside of a value is none."""
    for name, value in zip(parts[::4], parts[2::4], strict=True):
        if has_control(value):
            raise LocalProtocolError(f"response field {name!r} has a control character in its value")
        if value.strip(b" \t") != value:
            raise LocalProtocolError(f"response field {name!r} has whitespace at the start or end of its value")


def content_length(value: bytes) -> int:
    """The number in a Content-Length that the application gave. Raises `LocalProtocolError`."""
    if not value.isdigit() or len(value) > 19:
        raise LocalProtocolError(f"invalid content-length {value!r} in the response")
    return int(value)


def _learn(name: bytes) -> int:
    if not isinstance(name, bytes):
        raise TypeError(f"field name {name!r} is not bytes")
    if not TOKEN.fullmatch(name):
        raise LocalProtocolError(f"invalid response field name {name!r}")
    kind = _SPECIAL.get(name.lower(), _ORDINARY)
    if len(_names) < _NAMES_KEPT:
        _names[name] = kind
    return kind


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
