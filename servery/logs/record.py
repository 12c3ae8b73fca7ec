"""What the access log knows about one request."""

from __future__ import annotations

from dataclasses import dataclass

from ..events import Headers


@dataclass(slots=True)
class AccessRecord:
    """One request that was answered, refused or lost.

    `method`, `target` and `version` (``b"1.1"``) are as received; all empty when no request line was
    understood. `client` is (host, port), or ``None`` on a Unix socket. `status` is what the peer saw; 0 when
    it got nothing. `body_bytes_sent` counts content octets without framing. `duration` is monotonic seconds,
    `started_at` is wall-clock seconds since the epoch. `headers` are the request's, with lower-cased names.
    `aborted` says that the connection was lost or the response was cut short.
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


def field(headers: Headers | None, name: bytes) -> bytes | None:
    """The value of field `name` (lower-case), repeated fields joined by a comma; ``None`` when absent."""
    values = [value for key, value in headers or () if key.lower() == name]
    return b", ".join(values) if values else None
