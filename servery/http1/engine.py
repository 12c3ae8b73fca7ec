"""The HTTP/1.1 connection, server side, sans-I/O: RFC 9112. The reference for every other engine.

Knows the order of things on one connection: heads, bodies, responses, keep-alive, pipelining, the lingering
close. Knows no socket, no clock (`now` comes in, the Date line through a `Stamp`) and no application.
One request at a time is in progress; what the peer sends ahead waits, up to `Limits.read_ahead`.

    HEAD -> BODY -> READY -> HEAD ...            LINGER and CLOSED end it

This is the half that reads; `servery.http1.responding` is the half that answers.
"""

from __future__ import annotations

from enum import Enum

from ..engine import NEVER, Stamp
from ..errors import RemoteProtocolError
from ..events import BodyReceived, ConnectionFailed, Event, PeerClosed, RequestReceived
from ..limits import Limits
from .body import ChunkedDecoder
from .parser import CHUNKED, HeadParser
from .responding import DONE, NONE, STARTED, ResponseHalf
from .writer import text_response


class Reading(Enum):
    """What the next octet from the peer belongs to."""

    HEAD = "a request head, or nothing yet"
    BODY = "the body of the request in progress"
    READY = "requests behind the one in progress"
    LINGER = "nobody: it is dropped until the peer has read our last words"
    CLOSED = "nobody"


HEAD, BODY, READY, LINGER, CLOSED = Reading


class Http1Engine(ResponseHalf):
    """See `servery.engine.HttpEngine` for the contract."""

    __slots__ = (
        *("_begun", "_body_base", "_decoder", "_draining", "_paused_at", "_read"),  # the body that is read
        *("_eof", "_head", "_limits", "_pending", "_reading", "_stopping"),
        *("deadline", "half_closed", "wants_read"),
    )

    def __init__(self, limits: Limits, stamp: Stamp, now: float) -> None:
        super().__init__(stamp, limits.drain_size)
        self._limits = limits
        self._head = HeadParser(limits)
        self._pending = b""
        self._reading = HEAD
        self._begun = False  # any octet of the next head has come; empty lines before it count too
        self._decoder: ChunkedDecoder | None = None
        self._eof = self._stopping = self.half_closed = False
        self.deadline = now + limits.first_byte_timeout
        self.wants_read = True

    # --- from the peer -------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take octets from the peer; ``b""`` is EOF."""
        if not data:
            return self._receive_eof(now)
        if self._reading is HEAD:
            return self._read_head(self._pending + data if self._pending else data, now)
        if self._reading is BODY:
            return self._read_body(data, now)
        if self._reading is READY:
            self._pending += data
            self.wants_read = len(self._pending) <= self._limits.read_ahead
        return []

    def expire(self, now: float) -> list[Event]:
        """The deadline has passed: what was awaited did not come."""
        self.deadline = NEVER
        if self._reading is HEAD:
            if self._pending or self._head.line:
                return self._refuse(RemoteProtocolError(408, "request head not complete in time"), now)
            self._close()
        elif self._reading is BODY:
            return self._fail_request(RemoteProtocolError(408, "request body came too slowly"), now)
        else:
            self._close()
        return []

    def stop(self, now: float, patient: bool = False) -> None:
        """Serve what has begun, with ``Connection: close``; close a connection that is idle.

        A head that is under way, or a first request that was never sent, gets a short time to arrive; with
        `patient`, any next request does.
        """
        self._stopping = True
        self._keep_alive = False
        if self._reading is HEAD:
            if patient or self._begun or self.stream == 0:
                self.deadline = min(self.deadline, now + self._limits.linger_timeout)
            else:
                self._close()

    def hand_over(self) -> bytes:
        """Give the connection to another protocol (after an upgrade): returns what was read ahead."""
        rest, self._pending = self._pending, b""
        self._reading = CLOSED
        self.deadline = NEVER
        return rest

    def advance(self, now: float) -> list[Event]:
        """After a complete response: drain its request, and go on with the next one."""
        if self._reading is BODY:
            self.wants_read = True
            self._read = 0
            self._draining = True
            if self._keep_alive and not self._eof:
                self.deadline = now + self._limits.linger_timeout  # the rest of the body is being dropped
            else:
                self._linger(now)
            return []
        return self._next_request(now) if self._reading is READY else []

    def _next_request(self, now: float) -> list[Event]:
        self.wants_read = True
        data = self._pending
        if not self._keep_alive:
            self._linger(now)
            return []
        self._reading = HEAD
        self._begun = False
        self._forget_response()
        self._head.reset()
        if data:
            self._pending = b""
            self.deadline = NEVER
            events = self._read_head(data, now)
            if self._eof and not self.closing:  # it came before: this request has to hear of it, too
                events += self._receive_eof(now)
            return events
        if self._eof:
            self._close()
        else:
            self.deadline = now + self._limits.keep_alive_timeout
        return []

    def _receive_eof(self, now: float) -> list[Event]:
        self._eof = True
        if self._reading is HEAD:
            if self._pending or self._head.line:  # empty lines alone are no request: nothing to refuse
                return self._refuse(
                    RemoteProtocolError(400, "connection closed inside of a request head"), now
                )
            self._close()
        elif self._reading is BODY:
            return self._fail_request(
                RemoteProtocolError(400, "connection closed inside of a request body"), now
            )
        elif self._reading is READY:
            return [PeerClosed()]
        else:
            self._close()
        return []

    def _read_head(self, data: bytes, now: float) -> list[Event]:
        head = self._head
        try:
            used = head.feed(data)
        except RemoteProtocolError as error:
            # the traceback has the frames that get the event that has the error: a circle of references
            return self._refuse(error.with_traceback(None), now)
        if not head.done:
            self._pending = data[used:]
            if not self._begun:
                self._begun = True
                wait = self._limits.linger_timeout if self._stopping else self._limits.head_timeout
                self.deadline = now + wait
            return []
        request = self._request(head)
        rest = data[used:]
        if request.complete:
            self._reading = READY
            self._pending = rest
            self.deadline = NEVER
            self.wants_read = len(rest) <= self._limits.read_ahead
            return [request]
        self._pending = b""
        self._begin_body(head.length, now)
        return [request, *self._read_body(rest, now)] if rest else [request]

    def _request(self, head: HeadParser) -> RequestReceived:
        assert head.line is not None
        method, target, version = head.line
        keep_alive = head.keep_alive and not self._stopping
        self._begin_exchange(method, head.minor, keep_alive, head.expects_continue, head.takes_trailers)
        return RequestReceived(
            self.stream,
            method,
            target,
            head.raw_path,
            head.query,
            head.authority,
            version,
            head.fields,
            head.length == 0,
            head.expects_continue,
            head.upgrade,
        )

    def _begin_body(self, length: int, now: float) -> None:
        self._reading = BODY
        self._draining = False
        self._read = 0
        self._paused_at = now
        self._body_base = now + self._limits.body_timeout
        self.deadline = self._body_base
        if length == CHUNKED:
            self._decoder = ChunkedDecoder(self._limits)
            self._left = 0
        else:
            self._decoder = None
            self._left = length

    def _read_body(self, data: bytes, now: float) -> list[Event]:
        self._continue_due = False
        decoder = self._decoder
        if decoder is None:
            left = self._left
            if len(data) < left:
                self._left = left - len(data)
                return self._body_part(data, now)
            return self._end_body(data[:left], data[left:], now)
        part = decoder.feed(data)
        if decoder.error is not None:
            events: list[Event] = []
            if part and self._responding is not DONE:
                events.append(BodyReceived(self.stream, part, True, []))
            return events + self._fail_request(decoder.error, now)
        if decoder.done:
            return self._end_body(part, decoder.rest, now)
        return self._body_part(part, now)

    def _body_part(self, part: bytes, now: float) -> list[Event]:
        """Content that is not the last: the time for more grows with it, but never past one stall."""
        self._read += len(part)
        limits = self._limits
        if self._responding is DONE:
            if self._draining and self._read > limits.drain_size:
                self._linger(now)
            return []
        if part:
            earned = self._body_base + self._read / limits.body_min_rate if limits.body_min_rate else NEVER
            self.deadline = min(earned, now + limits.body_timeout)
            return [BodyReceived(self.stream, part, True, [])]
        return []

    def _end_body(self, part: bytes, rest: bytes, now: float) -> list[Event]:
        trailers = self._decoder.trailers if self._decoder is not None else []
        self._decoder = None
        self._left = 0
        self._reading = READY
        self._pending = rest
        self.deadline = NEVER
        self.wants_read = len(rest) <= self._limits.read_ahead
        if self._responding is not DONE:
            return [BodyReceived(self.stream, part, False, trailers)]
        return self._next_request(now) if self._draining else []

    def body_paused(self, paused: bool, now: float) -> None:
        """Tell that the driver stopped (or resumed) reading for the application's sake: time stands still."""
        if self._reading is BODY and self._responding is not DONE:
            if paused:
                self._paused_at = now
                self.deadline = NEVER
            else:
                self._body_base += now - self._paused_at
                self.deadline = now + self._limits.body_timeout

    # --- a peer's fault ------------------------------------------------------------------------------

    def _refuse(self, error: RemoteProtocolError, now: float) -> list[Event]:
        """A head that is no request: one reply, and nothing more is read as HTTP."""
        line = self._head.line
        self._reply(error)
        self._linger(now)
        return [ConnectionFailed(error, 0, line, error.status)]

    def _fail_request(self, error: RemoteProtocolError, now: float) -> list[Event]:
        """A body that cannot be completed. The application may be at work, and may have answered."""
        if self._responding is DONE:  # it was only being dropped
            self._linger(now)
            return []
        replied = 0
        if self._responding in (NONE, STARTED):
            self._reply(error)
            replied = error.status
        self._responding = DONE
        self._linger(now)
        return [ConnectionFailed(error, self.stream, None, replied)]

    def _reply(self, error: RemoteProtocolError) -> None:
        head, body = text_response(error.status, error.reason, self.stamp, b"connection: close\r\n")
        line = self._head.line
        if line is not None and line[0] == b"HEAD":
            self._out.append(head)
        else:
            self._out.append(head + body)
            self.content_sent = len(body)
        self._keep_alive = False

    def _linger(self, now: float) -> None:
        """RFC 9112 section 9.6: FIN, then read on for a while, so that no RST destroys what we sent."""
        self._decoder = None
        self._pending = b""
        self.wants_read = True
        if self._eof:
            self._close()
        else:
            self._reading = LINGER
            self.half_closed = True
            self.deadline = now + self._limits.linger_timeout

    def _close(self) -> None:
        self._reading = CLOSED
        self.closing = True
        self.deadline = NEVER
