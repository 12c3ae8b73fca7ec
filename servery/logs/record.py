"""What the access log knows about one request."""

from __future__ import annotations

from dataclasses import dataclass

from ..events import Headers


@dataclass(slots=True)
class WebSocketTraffic:
    """What a WebSocket has carried, both ways: whole messages, and octets of their content before
    compression.

    `close_code` is what the application was told: the peer's code, or ours where we closed; 1006 if the
    connection was lost.
    """

    close_code: int
    messages_received: int
    bytes_received: int
    messages_sent: int
    bytes_sent: int


@dataclass(slots=True)
class AccessRecord:
    """One request that was answered, refused or lost.

    `method`, `target` and `version` (``b"1.1"``) are as received; all empty when no request line was
    understood. `client` is (host, port), or ``None`` on a Unix socket. `status` is what the peer saw; 0 when
    it got nothing. `body_bytes_sent` counts content octets without framing. `duration` is monotonic seconds,
    `started_at` is wall-clock seconds since the epoch. `headers` are the request's, with lower-cased names.
    `aborted` says that the connection was lost or the response was cut short. `websocket` is set if a
    WebSocket was opened; the line is then written at its end.
    """

    client: tuple[str, int] | None
    method: bytes
    target: bytes
    version: bytes
    status: int
    body_bytes_sent: int
    duration: float
    started_at: float
    headers: Headers
    request_id: str | None = None
    aborted: bool = False
    scheme: str = "http"
    response_headers: Headers | None = None
    websocket: WebSocketTraffic | None = None


def field(headers: Headers | None, name: bytes) -> bytes | None:
    """The value of field `name` (lower-case), repeated fields joined by a comma; ``None`` when absent."""
    values = [value for key, value in headers or () if key.lower() == name]
    return b", ".join(values) if values else None
