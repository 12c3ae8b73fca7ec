"""A WebSocket, server side, sans-I/O: RFC 6455. The reference for every other engine of the kind.

Knows the order of things on one connection: messages, pings, the closing handshake, the lingering close.
Knows no socket, no clock (`now` comes in) and no application. What a frame, a message or a close is made of
stands in the modules beside this one.

    OPEN -> CLOSING -> CLOSED            we close, the peer answers
    OPEN -> CLOSED                       the peer closes, we answer; or it leaves
    OPEN or CLOSING -> LINGER -> CLOSED  the peer is at fault
"""

from __future__ import annotations

from enum import Enum

from ..engine import NEVER
from ..errors import LocalProtocolError, RemoteProtocolError
from ..events import Event, MessageReceived, PongReceived, WebSocketClosed, WebSocketFailed
from ..limits import Limits
from .closing import INTERNAL_ERROR, LOST, RESTART, close_payload, read_close
from .deflate import Deflater, Inflater
from .frames import BINARY, CLOSE, CONTROL, PING, PONG, TEXT, FrameDecoder, frame_head
from .messages import Assembler


class State(Enum):
    """How far the connection is."""

    OPEN = "messages go both ways"
    CLOSING = "our close frame is sent, and the peer's is awaited"
    LINGER = "the peer is at fault: what comes is dropped until it has read our last words"
    CLOSED = "it is over"


OPEN, CLOSING, LINGER, CLOSED = State

PONGS_KEPT = 64
"""Pings that wait for their answer to be written: beyond that the last ones are answered (RFC 6455 section
5.5.3)."""

PINGS_KEPT = 64
"""Pings of ours whose answer is still awaited; older ones are forgotten."""

_JOINED = 16_384
"""Content of fewer octets is joined with its head: one copy is cheaper than one more buffer to write."""


class WebSocketEngine:
    """See `servery.engine.WebSocketEngine` for the contract.

    `head` is written first: the answer to the handshake. `deflater` and `inflater` are given if compression
    was agreed on. `spread`, from 0 to 1, takes up to a tenth from the ping interval, so that peers that came
    together are not pinged together.
    """

    __slots__ = (
        *("_assembler", "_decoder", "_deflater", "_limits", "_out", "_state"),
        *("_interval", "_pinged", "_pings", "_pings_sent", "_pongs"),
        *("_waiting", "_waiting_size"),
        *("closing", "deadline", "half_closed", "reset", "wants_read"),
        *("messages_received", "messages_sent", "octets_received", "octets_sent"),
    )

    def __init__(
        self,
        limits: Limits,
        now: float,
        head: bytes = b"",
        deflater: Deflater | None = None,
        inflater: Inflater | None = None,
        spread: float = 0.0,
    ) -> None:
        self._limits = limits
        self._state = OPEN
        self._decoder = FrameDecoder(limits.ws_max_size, inflater is not None)
        self._assembler = Assembler(inflater, limits.ws_max_size)
        self._deflater = deflater
        self._out = [head] if head else []
        self._pongs: list[bytes] = []
        self._pings: dict[
            bytes, tuple[float, bool]
        ] = {}  # payload -> when it was sent, whether it was asked for
        self._pings_sent = 0
        self._pinged = False  # and not a single octet has come since
        self._waiting = self._waiting_size = 0  # messages that the application has not taken
        interval = limits.ws_ping_interval
        self._interval = NEVER if interval is None else interval * (1 - spread / 10)
        self.deadline = now + self._interval
        self.wants_read = True
        self.half_closed = self.closing = self.reset = False
        self.messages_received = self.messages_sent = self.octets_received = self.octets_sent = 0

    # --- from the peer -------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take octets from the peer; ``b""`` is EOF."""
        if not data:
            return self._receive_eof()
        if self._state is OPEN:
            self._heard(now)  # whatever it is: who sends is alive
        elif self._state is not CLOSING:
            return []
        events: list[Event] = []
        try:
            self._read(data, now, events)
        except RemoteProtocolError as error:
            # The traceback has the frames that have the events, and one of them gets the error: a cycle.
            self._fail(error.with_traceback(None), now, events)
        return events

    def _read(self, data: bytes, now: float, events: list[Event]) -> None:
        decoder = self._decoder
        for opcode, octets, compressed, last in decoder.feed(data):
            if opcode >= CONTROL:
                if opcode == CLOSE:
                    self._receive_close(octets, events)
                    return
                self._receive_ping_or_pong(opcode, octets, now, events)
            elif self._state is OPEN:  # while closing, messages come too late
                message = self._assembler.take(opcode, octets, compressed, last)
                if message is not None:
                    self._deliver(message, events)
        if decoder.error is not None:
            raise decoder.error
        if self._state is OPEN and self._is_full():
            self.wants_read = False
            self.deadline = NEVER  # nothing can be heard, and nothing is to be concluded from that

    def _deliver(self, message: str | bytes, events: list[Event]) -> None:
        self.messages_received += 1
        self.octets_received += self._assembler.size
        self._waiting += 1
        self._waiting_size += len(message)
        events.append(MessageReceived(message))

    def _is_full(self) -> bool:
        return self._waiting > self._limits.ws_max_queue or self._waiting_size > self._limits.body_buffer

    def _receive_ping_or_pong(self, opcode: int, octets: bytes, now: float, events: list[Event]) -> None:
        if self._state is not OPEN:
            return
        if opcode == PING:
            if len(self._pongs) >= PONGS_KEPT:
                del self._pongs[0]
            self._pongs.append(frame_head(PONG, len(octets)) + octets)
        elif octets in self._pings:
            sent, asked = self._pings[octets]
            events.append(PongReceived(now - sent, asked))
            # it answers those before it as well, and they are numbered
            self._pings = {payload: told for payload, told in self._pings.items() if payload > octets}

    def _receive_close(self, payload: bytes, events: list[Event]) -> None:
        code, reason = read_close(payload)
        if self._state is OPEN:
            self._queue(CLOSE, payload[:2])  # the peer's own code comes back (RFC 6455 section 5.5.1)
        self._close()  # a server does not wait for the peer to close TCP first: section 7.1.1
        events.append(WebSocketClosed(code, reason))

    def _receive_eof(self) -> list[Event]:
        was = self._state
        self._close()
        return [WebSocketClosed(LOST, "")] if was is OPEN or was is CLOSING else []

    def _fail(self, error: RemoteProtocolError, now: float, events: list[Event]) -> None:
        """Section 7.1.7: last words, FIN, and reading on for a while so that no RST destroys them."""
        if self._state is OPEN:
            self._queue(CLOSE, close_payload(error.status, error.reason))
        self._state = LINGER
        self._forget()
        self.wants_read = True
        self.half_closed = True
        self.deadline = now + self._limits.linger_timeout
        events.append(WebSocketFailed(error))

    # --- time ----------------------------------------------------------------------------------------

    def expire(self, now: float) -> list[Event]:
        """The deadline has passed: the peer is silent, or has not answered our close frame."""
        events: list[Event] = []
        if self._state is OPEN:
            if self._pinged and self._limits.ws_ping_timeout is not None:
                self._fail(silent(), now, events)
            else:
                self._send_ping(now, asked=False)
                timeout = self._limits.ws_ping_timeout
                self.deadline = now + (self._interval if timeout is None else timeout)
                self._pinged = True
        else:
            if self._state is CLOSING:
                events.append(unanswered())
            self._close()
        return events

    def taken(self, size: int, now: float) -> None:
        """The application has taken a message of this length: reading may go on."""
        self._waiting -= 1
        self._waiting_size -= size
        if not self.wants_read and not self._is_full():
            self.wants_read = True
            self._heard(now)

    def unsent(self, now: float) -> None:
        """The peer is slow to take what was queued for it: no answer can be expected yet."""
        if self._state is OPEN and self.wants_read:
            self._heard(now)
        elif self._state is CLOSING:
            self.deadline = now + self._limits.ws_close_timeout

    def _heard(self, now: float) -> None:
        self._pinged = False
        self.deadline = now + self._interval

    def _send_ping(self, now: float, asked: bool) -> None:
        self._pings_sent += 1
        payload = self._pings_sent.to_bytes(8, "big")
        if len(self._pings) >= PINGS_KEPT:
            del self._pings[next(iter(self._pings))]
        self._pings[payload] = (now, asked)
        self._queue(PING, payload)

    # --- from the application ------------------------------------------------------------------------

    def send_text(self, text: str) -> int:
        """Queue a text message; returns how many octets wait for it. Raises `LocalProtocolError`."""
        return self._send(TEXT, encode_text(text))

    def send_bytes(self, data: bytes) -> int:
        """Queue a binary message; returns how many octets wait for it."""
        return self._send(BINARY, data)

    def _send(self, opcode: int, content: bytes) -> int:
        size = len(content)
        self.messages_sent += 1
        self.octets_sent += size
        deflater = self._deflater
        if deflater is not None and size >= deflater.min_size:
            return self._queue(opcode, deflater.deflate(content), compressed=True)
        return self._queue(opcode, content)

    def ping(self, now: float) -> None:
        """Queue a ping of the application's: `PongReceived` tells of its answer."""
        self._send_ping(now, asked=True)

    def close(self, code: int, reason: str, now: float) -> None:
        """Queue a close frame. Raises `LocalProtocolError` for a code or reason that must not be sent."""
        payload = close_payload(code, reason)
        if self._state is OPEN:
            self._queue(CLOSE, payload)
            self._state = CLOSING
            self._forget()
            self.wants_read = True
            self.deadline = now + self._limits.ws_close_timeout

    def stop(self, now: float) -> list[Event]:
        """The server stops: close with 1012."""
        if self._state is not OPEN:
            return []
        self.close(RESTART, "", now)
        return [WebSocketClosed(RESTART, "")]

    def take_output(self) -> list[bytes]:
        """Hand over, and forget, what is to be written."""
        out = self._out
        self._out = []
        if self._pongs:
            out += self._pongs
            self._pongs = []
        return out

    # --- inside --------------------------------------------------------------------------------------

    def _queue(self, opcode: int, content: bytes, *, compressed: bool = False) -> int:
        size = len(content)
        head = frame_head(opcode, size, compressed=compressed)
        if size < _JOINED:
            self._out.append(head + content)
        else:
            self._out += (head, content)
        return len(head) + size

    def _forget(self) -> None:
        """No message will come or go: keep nothing that was for them, and answer no ping behind a close
        frame."""
        self._pongs = []
        self._deflater = None
        self._assembler = Assembler(None, 0)

    def _close(self) -> None:
        self._state = CLOSED
        self._forget()
        self.closing = True
        self.deadline = NEVER


def silent() -> RemoteProtocolError:
    """The fault of a peer that has not answered a ping."""
    return RemoteProtocolError(INTERNAL_ERROR, "no answer to a ping in time")


def unanswered() -> WebSocketClosed:
    """The end of a connection whose peer has not answered our close frame."""
    return WebSocketClosed(LOST, "no answer to our close frame in time")


def encode_text(text: str) -> bytes:
    """The content of a text message. Raises `LocalProtocolError`."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"the text of a message cannot be UTF-8: {error}") from None
