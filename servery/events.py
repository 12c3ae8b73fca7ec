"""What engines tell drivers. Plain values; past participles; bytes, not text.

An engine never raises for a peer's fault: it queues the reply and returns `ConnectionFailed` or
`WebSocketFailed`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import RemoteProtocolError

Headers = list[tuple[bytes, bytes]]
"""Field lines in order: (lower-cased name, value without surrounding whitespace)."""


@dataclass(slots=True)
class RequestReceived:
    """A whole, valid request head.

    `stream` numbers the requests of one connection from 1. `target` is the request-target verbatim
    (RFC 9112 section 3.2); `raw_path` and `query` are its parts, undecoded. `authority` is set only for the
    absolute form, where it replaces Host. `complete` says that no body follows. `expects_continue`
    says that the peer waits for a 100 (RFC 9110 section 10.1.1). `upgrade` is the Upgrade field's value when
    the Connection field names it, else ``None``.

    In HTTP/2 streams are numbered by the peer, `target` is ``:path``, `authority` is ``:authority`` where
    that is there, and `upgrade` is the ``:protocol`` of an extended CONNECT (RFC 8441).
    """

    stream: int
    method: bytes
    target: bytes
    raw_path: bytes
    query: bytes
    authority: bytes | None
    version: bytes
    headers: Headers
    complete: bool
    expects_continue: bool
    upgrade: bytes | None


@dataclass(slots=True)
class BodyReceived:
    """Decoded octets of the body of request `stream`.

    `more` is false exactly once per body, on its last event, which also carries the trailer fields
    (empty where there were none).
    """

    stream: int
    data: bytes
    more: bool
    trailers: Headers


@dataclass(slots=True)
class PeerClosed:
    """The peer has sent EOF after a whole request: it may still read the response (half-close)."""


@dataclass(slots=True)
class ConnectionFailed:
    """The peer broke the protocol, a limit or a time-out; a reply is queued where one is possible.

    `stream` is the request that was cut, or 0 when no request was in progress. `request_line` is (method,
    target, version) of a refused head for the log, or ``None`` if it had no valid one. `replied` is the
    status that was queued for the peer, or 0 where it gets none.
    """

    error: RemoteProtocolError
    stream: int
    request_line: tuple[bytes, bytes, bytes] | None
    replied: int


@dataclass(slots=True)
class StreamFailed:
    """Request `stream` of several on a connection is over before its end; the others go on (HTTP/2).

    `error` is the peer's fault or ``None`` if it has reset the stream; `request_line` and `replied` are as in
    `ConnectionFailed`. There may have been no `RequestReceived` for it.
    """

    error: RemoteProtocolError | None
    stream: int
    request_line: tuple[bytes, bytes, bytes] | None
    replied: int


@dataclass(slots=True)
class MessageReceived:
    """A whole message of a WebSocket: `str` if it is text, `bytes` if it is binary."""

    data: str | bytes


@dataclass(slots=True)
class PongReceived:
    """The peer has answered a ping after `round_trip` seconds.

    `asked` says that the application wanted that ping; the others keep the connection alive.
    """

    round_trip: float
    asked: bool


@dataclass(slots=True)
class WebSocketClosed:
    """No message comes any more, and none can be sent.

    `code` and `reason` are the peer's where it has sent a close frame (1005 if that held no code), ours where
    we began to close; 1006 if the peer left without a close frame, or did not answer ours (RFC 6455 section
    7.1.5).
    """

    code: int
    reason: str


@dataclass(slots=True)
class WebSocketFailed:
    """The peer broke the protocol or a limit, or is silent: a close frame with ``error.status`` is queued."""

    error: RemoteProtocolError


Event = (
    RequestReceived
    | BodyReceived
    | PeerClosed
    | ConnectionFailed
    | StreamFailed
    | MessageReceived
    | PongReceived
    | WebSocketClosed
    | WebSocketFailed
)
