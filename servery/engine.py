"""The contracts between the layers: engines (sans-I/O), the port that a driver gives to a cycle, wake-ups.

Bytes in, events out, time as an argument, no I/O. Nothing here waits; a cycle waits only on a `Wakeup`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from .events import Event

NEVER = float("inf")
"""The deadline of an engine that waits for nothing."""

Scope = dict[str, Any]
Message = dict[str, Any]
RawHeaders = Iterable[tuple[bytes, bytes]]

Stamp = Callable[[int], bytes]
"""Gives the server's own field lines of a response (Date, Server, extra ones); the argument says which the
application has set itself: bit 1 Date, bit 2 Server. A function, since an engine reads no clock."""


class Engine(Protocol):
    """One connection's protocol state. `now` is monotonic seconds and only ever grows."""

    deadline: float
    """When `expire` must be called, in `now` time; `NEVER` while the engine waits for nothing."""
    wants_read: bool
    """False while more input would only pile up: the driver stops reading the socket."""
    half_closed: bool
    """Send FIN once the output is flushed, and go on reading (lingering close, RFC 9112 section 9.6)."""
    closing: bool
    """Close the socket once the output is flushed."""
    reset: bool
    """With `closing`: reset the connection, for nothing else would look incomplete to the peer."""

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take octets from the peer; ``b""`` is EOF. A peer's fault comes back as an event."""
        ...

    def expire(self, now: float) -> list[Event]:
        """The deadline has passed."""
        ...

    def take_output(self) -> list[bytes]:
        """Hand over, and forget, what is to be written, in order."""
        ...


class Answering(Protocol):
    """What a cycle asks of an engine that speaks HTTP. Wrong use by the application raises
    `LocalProtocolError`.
    """

    def continue_body(self, stream: int) -> None:
        """The application waits for the body: queue 100 (Continue) if the peer waits for it."""
        ...

    def send_informational(self, stream: int, status: int, headers: RawHeaders) -> None:
        """Queue an interim (1xx) response."""
        ...

    def start_response(self, stream: int, status: int, headers: RawHeaders, trailers: bool) -> None:
        """Set status and fields; they leave with the first body octets, or the end."""
        ...

    def send_body(self, stream: int, data: bytes, more: bool) -> bool:
        """Queue response content; ``more=False`` completes it, unless trailers were announced.

        Returns whether the response is complete now; so do `end_reserved` and `send_trailers`.
        """
        ...

    def reserve_body(self, stream: int, size: int, more: bool) -> bool:
        """Queue the framing before `size` octets that the driver writes itself (sendfile).

        Returns whether they are to be written: HEAD, 204 and 304 have no content.
        """
        ...

    def end_reserved(self, stream: int) -> bool:
        """The octets reserved last are written: queue what follows them."""
        ...

    def send_trailers(self, stream: int, headers: RawHeaders, more: bool) -> bool:
        """Queue trailer fields; ``more=False`` completes the response."""
        ...

    def answer(self, stream: int, status: int, text: str, extra: bytes = b"") -> None:
        """Queue a short text response of the server's own. `extra` is whole field lines."""
        ...

    def abandon(self, stream: int) -> None:
        """The application gave up because the peer left: close, with no answer if none was begun."""
        ...

    def fail_response(self, stream: int) -> int:
        """The application failed: 500 if nothing was sent yet, else visible truncation.

        Returns the status that the peer sees.
        """
        ...


class HttpEngine(Engine, Answering, Protocol):
    """An engine that speaks HTTP/1: one request after the other."""

    content_sent: int
    """Octets of content queued so far for the response in progress."""
    takes_trailers: bool
    """Whether the peer of the request in progress wants trailer fields."""
    stamp: Stamp
    """What the responses from now on carry of the server's own."""

    def advance(self, now: float) -> list[Event]:
        """Go on after a response was completed: the next pipelined request, or the idle deadline."""
        ...

    def stop(self, now: float, patient: bool = False) -> None:
        """Answer what is in progress, with ``Connection: close``; close at once if nothing is.

        A `patient` stop gives an idle peer a moment: its next request may be on its way.
        """
        ...

    def hand_over(self) -> bytes:
        """The connection speaks another protocol from now on: returns the octets that were read ahead."""
        ...

    def body_paused(self, paused: bool, now: float) -> None:
        """The driver stopped, or resumed, reading because the application does not take the body."""
        ...


class StreamsEngine(Engine, Answering, Protocol):
    """An engine that speaks HTTP/2: many requests at a time, each with flow control of its own.

    The octets behind `take_output` are made by `pump`, so that what is urgent can still go first.
    """

    stamp: Stamp
    """What the responses carry of the server's own, but for those with a stamp of their own."""
    held: bool
    """True while the transport takes no more: `pump` then makes no content."""

    def pump(self, now: float) -> bool:
        """Make frames of what waits, as far as flow control and `held` allow, a bounded number of them;
        whether there could be more.
        """
        ...

    def waiting(self, stream: int) -> int:
        """Octets of content that wait for the peer's window, or for `pump`."""
        ...

    def content_sent(self, stream: int) -> int:
        """Octets of content queued so far for this response."""
        ...

    def takes_trailers(self, stream: int) -> bool:
        """Whether the peer wants trailer fields."""
        ...

    def adopt_stamp(self, stream: int) -> None:
        """What `stamp` was set to is of this response alone: others carry what they did before."""
        ...

    def consumed(self, stream: int, size: int, now: float) -> None:
        """The application took `size` octets of the body: the peer may send as many again."""
        ...

    def send_reserved(self, stream: int, data: bytes) -> None:
        """Queue octets that `reserve_body` has announced."""
        ...

    def open_tunnel(self, stream: int, headers: RawHeaders) -> None:
        """Accept an extended CONNECT: from now on content goes both ways, unframed (RFC 8441 section 5)."""
        ...

    def released(self, stream: int, now: float) -> None:
        """The application call is over, whatever became of the response."""
        ...

    def stop(self, now: float, patient: bool = False) -> None:
        """Announce the end (GOAWAY), answer what is in progress, then close; at once if nothing is, unless
        the stop is `patient`.
        """
        ...

    def forget(self) -> None:
        """The connection is gone. Only `released`, `consumed` and `waiting` may be called after this."""
        ...


class WebSocketEngine(Engine, Protocol):
    """An engine that speaks the WebSocket protocol. Wrong use by the application raises
    `LocalProtocolError`."""

    messages_received: int
    """Whole messages from the peer so far."""
    octets_received: int
    """Their content, assembled and inflated, in octets."""
    messages_sent: int
    """Messages queued for the peer so far."""
    octets_sent: int
    """Their content before compression, in octets."""

    def send_text(self, text: str) -> int:
        """Queue a text message; returns how many octets wait for it. Raises `LocalProtocolError`."""
        ...

    def send_bytes(self, data: bytes) -> int:
        """Queue a binary message; returns how many octets wait for it."""
        ...

    def ping(self, now: float) -> None:
        """Queue a ping of the application's: `PongReceived` tells of its answer."""
        ...

    def close(self, code: int, reason: str, now: float) -> None:
        """Queue a close frame; the answer, or `Limits.ws_close_timeout`, ends the connection.

        Nothing happens if the connection is closing already. Raises `LocalProtocolError` for a code that must
        not be sent (RFC 6455 section 7.4) or a reason of more than 123 octets of UTF-8.
        """
        ...

    def stop(self, now: float) -> list[Event]:
        """The server stops: close with 1012."""
        ...

    def taken(self, size: int, now: float) -> None:
        """The application has taken a message of this length (`len`): reading may go on."""
        ...

    def unsent(self, now: float) -> None:
        """The peer is slow to take what was queued for it: no answer to a ping or a close frame can be
        expected yet.
        """
        ...


class WebSocketHandshake(Protocol):
    """A valid request to open a WebSocket (RFC 6455 section 4.2.1)."""

    subprotocols: list[str]
    """What the peer offers, in its order of preference."""

    def accept(self, subprotocol: str | None, headers: RawHeaders, now: float) -> WebSocketEngine:
        """The engine of the WebSocket, with the 101 response queued in it.

        Raises `LocalProtocolError` for a subprotocol that was not offered and for headers that must not be
        sent.
        """
        ...

    def agree(
        self, subprotocol: str | None, headers: RawHeaders, now: float
    ) -> tuple[WebSocketEngine, RawHeaders]:
        """The same over HTTP/2 (RFC 8441 section 5): the engine with nothing queued, and the fields of the
        200 response.
        """
        ...


class Wakeup(Protocol):
    """What a cycle waits on. One wake-up serves any number of waiters."""

    def set(self) -> None:
        """Wake all who wait now."""
        ...

    async def wait(self) -> None:
        """Wait for the next `set`."""
        ...


class FileSending(Protocol):
    """An open file about to be sent."""

    size: int
    """Octets that will be sent."""

    def close(self) -> None:
        """Close what the driver opened itself."""
        ...


class Port(Protocol):
    """What a driver offers to a cycle: the way out, a way to wait, and somebody to tell.

    `cycle` arguments are the calling cycle (`servery.asgi.http_cycle.HttpCycle`).
    """

    @property
    def writable(self) -> bool:
        """False while more than the high-water mark waits for the peer."""
        ...

    def wakeup(self) -> Wakeup:
        """A fresh wake-up of this driver's kind."""
        ...

    def flush(self) -> None:
        """Write what the engine has queued."""
        ...

    def flush_soon(self, size: int) -> None:
        """Write it before the loop waits again: `size` more octets of content are queued; more may follow."""
        ...

    def consumed(self) -> None:
        """The application took request body octets: reading may go on."""
        ...

    def open_file(self, file: Any, offset: int | None, count: int | None) -> FileSending:
        """Open a path, or take an open file or descriptor, from `offset` (its position) for `count`
        octets.
        """
        ...

    async def send_file(self, sending: FileSending) -> None:
        """Write `sending` after what was flushed. Raises `ClientDisconnected` if the connection is lost."""
        ...

    def response_complete(self, cycle: Any) -> None:
        """The response is queued to its end: the connection may go on with the next request."""
        ...

    def app_failed(self, cycle: Any, error: Exception) -> None:
        """The application raised `error`, or returned too early."""
        ...

    def finished(self, cycle: Any) -> None:
        """The application call has ended."""
        ...

    def debug(self, info: Any) -> None:
        """The application sent ``http.response.debug``."""
        ...


class WebSocketPort(Port, Protocol):
    """What a driver offers to the cycle of a WebSocket besides."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def settle(self) -> None:
        """The engine closes: write what it has queued, and look at what it wants now."""
        ...

    def open_websocket(
        self, cycle: Any, handshake: WebSocketHandshake, subprotocol: str | None, headers: RawHeaders
    ) -> None:
        """Accept the handshake: `cycle.opened` gets the engine that speaks from now on.

        Raises `LocalProtocolError` as `WebSocketHandshake.accept` does; the handshake is then still
        unanswered.
        """
        ...
