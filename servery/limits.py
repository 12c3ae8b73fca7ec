"""Every bound on what a peer controls: sizes in bytes, counts, times in seconds, each with its reason.

This is the one table of these defaults: the engines enforce it, `config.py` maps flags onto it, and
`--print-config` shows it. A time is never renewed by a single byte; see `Limits.body_min_rate`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes (bytes), counts and times (seconds). ``None`` switches a limit off where that is allowed."""

    # --- sizes and counts: one octet more is refused -------------------------------------------------
    request_line: int = 8192
    """Octets of method, target and version without CRLF. RFC 9112 section 3 asks for 8,000 at least; 414."""
    field_count: int = 100
    """Field lines of one head or trailer section: what gunicorn, granian and h2corn allow; 431."""
    field_size: int = 16_384
    """Octets of one field line without CRLF: room for SSO cookies, four times a browser's cookie; 431."""
    head_size: int = 65_536
    """Octets of the whole head: a few full-size fields at once, and a bound on memory per peer; 431."""
    trailer_size: int = 8192
    """Octets of a trailer section: trailers carry digests and grpc-status, not documents; 431."""
    chunk_line: int = 1024
    """Octets of one chunk-size line with its extensions, which nobody uses and which we ignore; 400."""
    chunk_extensions: int = 16_384
    """Octets of chunk extensions in one body, all together (RFC 9112 section 7.1.1 asks for a bound); 400."""
    body_size: int | None = None
    """Octets of a request body. Off: only the application knows its uploads, and it gets them streamed;
    413."""
    empty_lines: int = 4
    """CRLFs skipped before a request line (RFC 9112 section 2.2): some old clients send one after a body;
    400."""
    read_ahead: int = 65_536
    """Octets read beyond the request in progress before the socket is paused: a few pipelined requests."""
    body_buffer: int = 65_536
    """Octets of request body kept for an application that does not call receive() before pausing the
    socket."""
    drain_size: int = 65_536
    """Octets of unread request body that are read and dropped to keep a connection; more closes it."""
    write_buffer: int = 65_536
    """High-water mark: `send()` waits while more octets than this wait for the peer; low water is a
    quarter."""

    # --- times -----------------------------------------------------------------------------------------
    first_byte_timeout: float = 10.0
    """From accept to the first octet: browsers open spare connections, but not for longer; silent close."""
    head_timeout: float = 20.0
    """From the first octet of a head to its end, in total: enough for 64 KiB on a very bad line; 408."""
    body_timeout: float = 20.0
    """Longest stall of a request body, and the grace before `body_min_rate` counts; 408."""
    body_min_rate: int = 240
    """Octets per second that a request body must reach on average after the grace: Kestrel's figure; 408."""
    keep_alive_timeout: float = 5.0
    """Idle time between two requests: uvicorn's figure, above most proxies' connect jitter; silent close."""
    write_timeout: float = 30.0
    """Longest time in which a peer takes nothing of what waits for it; then the connection is reset."""
    linger_timeout: float = 2.0
    """How long octets are read and dropped after a refusal so that the peer can read it (RFC 9112 9.6)."""

    # --- TLS -------------------------------------------------------------------------------------------
    tls_handshake_timeout: float = 10.0
    """From accept to the end of the handshake, in total: three round trips, and a phone that computes; silent
    close."""
    tls_handshakes: int = 1000
    """Handshakes in flight at once: each holds some 50 KiB until it is over. One more, and the one that has
    taken longest gives way: it is the least likely to come to an end."""
    # --- the PROXY protocol, where it is on -------------------------------------------------------------
    proxy_protocol_size: int = 4096
    """Octets of a preamble: addresses take 52, the rest is for extensions (certificate names, tokens of cloud
    providers), which few balancers send; close."""
    proxy_protocol_timeout: float = 5.0
    """From accept to the end of the preamble: a balancer sends it first, in one packet; close."""

    # --- HTTP/2 ----------------------------------------------------------------------------------------
    h2_streams: int = 100
    """Requests of one connection at a time, answered ones whose application still runs among them: the least
    that RFC 9113 section 6.5.2 recommends. One more is refused, and may be sent again: REFUSED_STREAM."""
    h2_connection_window: int = 1_048_576
    """Octets that all request bodies of a connection may be ahead of us on the network: a fast upload from
    the other side of an ocean. What waits for an application is bounded by `body_buffer` for each request."""
    h2_continuations: int = 16
    """CONTINUATION frames of one head: a head of `head_size` octets needs four; ENHANCE_YOUR_CALM."""
    h2_resets: int = 200
    """Streams that the peer resets, or by its faults makes us reset, within `h2_interval`: a browser that
    leaves a page with all of its images, twice; ENHANCE_YOUR_CALM."""
    h2_control_frames: int = 1000
    """Frames without content (PING, SETTINGS, WINDOW_UPDATE, empty DATA and others) within `h2_interval`,
    besides eight for each request and each DATA frame with content, either way; ENHANCE_YOUR_CALM."""
    h2_interval: float = 10.0
    """The time for which `h2_resets` and `h2_control_frames` count: what is unused comes back evenly."""

    # --- WebSockets ------------------------------------------------------------------------------------
    ws_max_size: int | None = 16_777_216
    """Octets of one message, assembled and inflated: what most servers allow, so that applications can move
    here; close code 1009."""
    ws_max_queue: int = 32
    """Messages kept for an application that does not call receive() before pausing the socket: uvicorn's
    figure. Pausing begins at `body_buffer` octets of them, too."""
    ws_ping_interval: float | None = 20.0
    """Silence after which a peer is pinged: below the minute after which proxies and NATs forget a
    connection."""
    ws_ping_timeout: float | None = 20.0
    """How long the peer may stay silent after a ping: a phone that changes networks gets time; 1011."""
    ws_close_timeout: float = 5.0
    """How long the peer may take to answer our close frame: one that lives needs a round trip."""

    # --- the stop --------------------------------------------------------------------------------------
    stream_grace: float = 5.0
    """After the stop signal, how long a request may run before receive() tells it `http.disconnect`."""
    graceful_timeout: float = 30.0
    """After the stop signal, when requests still running are cancelled: Kubernetes kills after 30 s."""
    cancel_timeout: float = 2.0
    """How long cancelled requests may take to unwind before the server leaves them behind."""


DEFAULTS = Limits()
