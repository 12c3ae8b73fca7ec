"""The two ready-made access log formats, ``text`` and ``json``, and the pieces that all formats share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from .escaping import escape, escape_word
from .record import AccessRecord, field
from .stamps import clf_time, iso_time


@cache
def _encoder() -> Callable[[Any], str]:
    from json import JSONEncoder  # only where somebody wants it

    return JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


def text_line(record: AccessRecord) -> str:
    """The common log format, then the duration in seconds and the request id, then ``aborted`` if it was.

    ``127.0.0.1:52100 - - [30/Nov/2026:11:22:33 +0000] "GET /x?y HTTP/1.1" 200 1024 0.001532 -``; a WebSocket
    adds its close code, and messages and octets both ways: ``closed 1000 in 3/120 out 5/99``
    """
    line = (
        f"{peer(record)} - - [{clf_time(record.started_at)}]"
        f' "{request_line(record)}" {record.status:03d} {record.body_bytes_sent}'
        f" {record.duration:.6f} {request_id(record)}"
    )
    traffic = record.websocket
    if traffic is not None:
        line += (
            f" closed {traffic.close_code} in {traffic.messages_received}/{traffic.bytes_received}"
            f" out {traffic.messages_sent}/{traffic.bytes_sent}"
        )
    return line + " aborted" if record.aborted else line


def json_line(record: AccessRecord) -> str:
    """One JSON object with the same keys in the same order in every line; what is unknown is null.

    Octets become the code points of the same number (latin-1), so that nothing is lost. `duration` is
    seconds, `bytes` is content octets, `status` 0 means that the peer got no answer.
    """
    host, port = record.client or (None, None)
    traffic = record.websocket
    values: dict[str, Any] = {
        "time": iso_time(record.started_at),
        "client": _valid(host),
        "client_port": port,
        "scheme": record.scheme,
        "method": _latin(record.method or None),
        "target": _latin(record.target or None),
        "protocol": _latin(b"HTTP/" + record.version if record.version else None),
        "status": record.status,
        "bytes": record.body_bytes_sent,
        "duration": round(record.duration, 6),
        "aborted": record.aborted,
        "request_id": _valid(record.request_id),
        "referer": _latin(field(record.headers, b"referer")),
        "user_agent": _latin(field(record.headers, b"user-agent")),
        "close_code": traffic.close_code if traffic else None,
        "messages_received": traffic.messages_received if traffic else None,
        "bytes_received": traffic.bytes_received if traffic else None,
        "messages_sent": traffic.messages_sent if traffic else None,
    }
    return _encoder()(values).replace("\x7f", "\\u007f")  # JSON allows a bare DEL, terminals do not like it


def peer(record: AccessRecord) -> str:
    """``host:port``, ``[v6]:port``, or ``-`` for a peer without an address."""
    if record.client is None:
        return "-"
    host, port = record.client
    return f"[{escape_word(host)}]:{port}" if ":" in host else f"{escape_word(host)}:{port}"


def request_line(record: AccessRecord) -> str:
    """The request line as received and escaped, without quotes around; ``-`` if none was understood."""
    line = b" ".join(
        filter(None, (record.method, record.target, record.version and b"HTTP/" + record.version))
    )
    return escape(line) or "-"


def request_id(record: AccessRecord) -> str:
    """The request id as one word; ``-`` without one."""
    return escape_word(record.request_id or "")


def _latin(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _valid(text: str | None) -> str | None:
    # A lone surrogate would make JSON that strict readers refuse.
    return None if text is None else text.encode("utf-8", "replace").decode()
