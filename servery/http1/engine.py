"""The HTTP/1.1 connection, server side, sans-I/O: RFC 9112. The reference for every other engine.

Knows the order of things on one connection: heads, bodies, responses, keep-alive, pipelining, the lingering
close. Knows no socket, no clock (`now` comes in, the Date line through a `Stamp`) and no application.
One request at a time is in progress; what the peer sends ahead waits, up to `Limits.read_ahead`.

    reading     HEAD -> BODY -> READY -> HEAD ...            LINGER and CLOSED end it
    responding  NONE -> STARTED -> SENDING -> [TRAILERS ->] DONE    once per request
"""

from __future__ import annotations

from enum import Enum

from ..engine import NEVER, RawHeaders
from ..errors import LocalProtocolError, RemoteProtocolError
from ..events import BodyReceived, ConnectionFailed, Event, PeerClosed, RequestReceived
from ..limits import Limits
from .body import ChunkedDecoder
from .parser import CHUNKED, HeadParser
from .writer import (
    CONTINUE,
    LAST_CHUNK,
    STATUS_LINES,
    WANTS_CLOSE,
    Stamp,
    chunk_head,
    encode_fields,
    text_response,
)


class Reading(Enum):
    """What the next octet from the peer belongs to."""

    HEAD = "a request head, or nothing yet"
    BODY = "the body of the request in progress"
    READY = "requests behind the one in progress"
    LINGER = "nobody: it is dropped until the peer has read our last words"
    CLOSED = "nobody"


class Responding(Enum):
    """How far the response to the request in progress is."""

    NONE = "not started"
    STARTED = "status and fields are set, nothing is queued"
    SENDING = "the head is queued"
    TRAILERS = "the content is complete, trailers are due"
    DONE = "complete"


class Framing(Enum):
    """How the content of a response is delimited (RFC 9112 section 6)."""

    LENGTH = "by Content-Length"
    CHUNKS = "by chunks"
    CLOSE = "by the end of the connection"
    EMPTY = "there is none: HEAD, 204, 304"


HEAD, BODY, READY, LINGER, CLOSED = Reading
NONE, STARTED, SENDING, TRAILERS, DONE = Responding
LENGTH, CHUNKS, CLOSE, EMPTY = Framing

_JOINED = 16_384
"""Content of fewer octets is joined with its framing: one copy is cheaper than one more buffer to write."""


class Http1Engine:
    """See `servery.engine.HttpEngine` for the contract."""

    __slots__ = (
        *("_body_base", "_decoder", "_left", "_read"),  # the body that is read
        *("_fields", "_framing", "_owed", "_reserved", "_status", "_trailers", "_trailers_due"),
        *("_continue_due", "_eof", "_head", "_is_head", "_keep_alive", "_limits", "_out", "_pending", "_reading"),
        *(
            "_responding",
            "_stamp",
            "_stopping",
            "closing",
            "content_sent",
            "deadline",
            "half_closed",
            "reset",
        ),
        *("stream", "wants_read"),
    )

    def __init__(self, limits: Limits, stamp: Stamp, now: float) -> None:
        self._limits = limits
        self._stamp = stamp
        self._head = HeadParser(limits)
        self._pending = b""
        self._out: list[bytes] = []
        self._reading = HEAD
        self._responding = NONE
        self._owed = 0
        self._decoder: ChunkedDecoder | None = None
        self._eof = self._stopping = self._continue_due = False
        self._is_head = False
        self._keep_alive = True
        self.stream = 0
        self.content_sent = 0
        self.deadline = now + limits.first_byte_timeout
        self.wants_read = True
        self.half_closed = self.closing = self.reset = False

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

    def stop(self, now: float) -> None:
        """Serve what has begun, with ``Connection: close``; close a connection that is idle.

        A head that is under way, or a first request that was never sent, gets a short time to arrive.
        """
        self._stopping = True
        self._keep_alive = False
        if self._reading is HEAD:
            if self._pending or self._head.line or self.stream == 0:
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
        self._responding = NONE
        self._head.reset()
        if data:
            self._pending = b""
            self.deadline = NEVER
            events = self._read_head(data, now)
            if self._eof and self._reading is HEAD and not self.closing:
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
            if self._pending or self._head.line:
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
        begun = self._pending or head.line
        try:
            used = head.feed(data)
        except RemoteProtocolError as error:
            return self._refuse(error, now)
        if not head.done:
            self._pending = data[used:]
            if not begun:
                wait = self._limits.linger_timeout if self._stopping else self._limits.head_timeout
                self.deadline = now + wait
            return []
        self._pending = b""
        self.stream += 1
        self._keep_alive = head.keep_alive and not self._stopping
        self._continue_due = head.expects_continue
        complete = head.length == 0
        assert head.line is not None
        method, target, version = head.line
        event = RequestReceived(
            self.stream,
            method,
            target,
            head.raw_path,
            head.query,
            head.authority,
            version,
            head.fields,
            complete,
            head.expects_continue,
            head.upgrade,
        )
        self._is_head = method == b"HEAD"
        rest = data[used:]
        if complete:
            self._reading = READY
            self._pending = rest
            self.deadline = NEVER
            self.wants_read = len(rest) <= self._limits.read_ahead
            return [event]
        self._begin_body(head.length, now)
        return [event, *self._read_body(rest, now)] if rest else [event]

    def _begin_body(self, length: int, now: float) -> None:
        self._reading = BODY
        self._read = 0
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
            if self._read > limits.drain_size:
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
        self._reading = READY
        self._pending = rest
        self.deadline = NEVER
        self.wants_read = len(rest) <= self._limits.read_ahead
        if self._responding is DONE:
            return self._next_request(now)
        return [BodyReceived(self.stream, part, False, trailers)]

    def body_paused(self, paused: bool, now: float) -> None:
        """Tell that the driver stopped (or resumed) reading for the application's sake: time stands still."""
        if self._reading is BODY and self._responding is not DONE:
            self.deadline = NEVER if paused else now + self._limits.body_timeout

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
        head, body = text_response(error.status, error.reason, self._stamp, b"connection: close\r\n")
        line = self._head.line
        self._out.append(head if line is not None and line[0] == b"HEAD" else head + body)
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

    # --- from the application ------------------------------------------------------------------------

    def continue_body(self, stream: int) -> None:
        """Queue 100 (Continue), if the peer waits for it and no octet of the body has come."""
        if self._continue_due and stream == self.stream and self._responding is NONE:
            self._continue_due = False
            self._out.append(CONTINUE)

    def send_informational(self, stream: int, status: int, headers: RawHeaders) -> None:
        """Queue an interim response; an HTTP/1.0 peer gets none (RFC 9110 section 15.2)."""
        self._check_stream(stream, NONE, STARTED)
        if not 102 <= status <= 199:
            raise LocalProtocolError(f"{status} is not the status of an interim response")
        block = encode_fields(headers)[0]
        if self._head.minor:
            self._out.append(STATUS_LINES[status] + block + b"\r\n")

    def start_response(self, stream: int, status: int, headers: RawHeaders, trailers: bool) -> None:
        """Set status (200..999) and fields; nothing is queued before the first `send_body`."""
        if stream != self.stream or self._responding is not NONE:
            self._check_stream(stream, NONE)
        if not isinstance(status, int) or not 200 <= status <= 999:
            raise LocalProtocolError(f"response status must be an integer from 200 to 999, not {status!r}")
        self._fields = encode_fields(headers)
        self._status = status
        self._trailers_due = trailers
        self.content_sent = 0
        self._responding = STARTED

    def send_body(self, stream: int, data: bytes, more: bool) -> bool:
        """Queue content; whether the response is complete now.

        Raises `LocalProtocolError`, with nothing queued, if the content breaks the length that was given.
        """
        size = len(data)
        head = self._account(stream, size, more)
        framing = self._framing
        if framing is LENGTH:
            if size < _JOINED:
                self._out.append(head + data if head else data)
            else:
                self._out += (head, data)
        elif framing is CHUNKS:
            if size:
                self._out += (head + chunk_head(size), data, b"\r\n")
            else:
                self._out.append(head)
        else:
            self._out.append(head if framing is EMPTY else head + data)
        return not more and self._end_content()

    def reserve_body(self, stream: int, size: int, more: bool) -> bool:
        """Queue the framing before `size` octets that the driver writes itself; then comes `end_reserved`.

        Returns whether they are to be written: a response to HEAD, a 204 and a 304 have no content.
        """
        head = self._account(stream, size, more)
        chunked = self._framing is CHUNKS and size > 0
        self._out.append(head + chunk_head(size) if chunked else head)
        self._reserved = (chunked, more)
        return self._framing is not EMPTY

    def end_reserved(self, stream: int) -> bool:
        """The octets reserved last are written; whether the response is complete now."""
        self._check_stream(stream, SENDING)
        chunked, more = self._reserved
        if chunked:
            self._out.append(b"\r\n")
        return not more and self._end_content()

    def _end_content(self) -> bool:
        if self._trailers_due:
            self._responding = TRAILERS
            self._trailers = b""
            return False
        self._responding = DONE
        if self._framing is CHUNKS:
            self._out.append(LAST_CHUNK)
        return True

    def send_trailers(self, stream: int, headers: RawHeaders, more: bool) -> bool:
        """Queue trailer fields, for a peer that said ``TE: trailers``; others get none of them.

        Returns whether the response is complete now.
        """
        self._check_stream(stream, TRAILERS)
        self._trailers += encode_fields(headers)[0]
        if not more:
            self._responding = DONE
            if self._framing is CHUNKS:
                self._out.append(
                    b"0\r\n" + self._trailers + b"\r\n" if self._head.takes_trailers else LAST_CHUNK
                )
        return not more

    def answer(self, stream: int, status: int, text: str, extra: bytes = b"") -> None:
        """Queue a short text response of the server's own. `extra` is whole field lines."""
        self._check_stream(stream, NONE, STARTED)
        self._keep_alive = self._persists()
        head, body = text_response(status, text, self._stamp, extra + self._connection_line())
        self.content_sent = 0
        self._responding = DONE
        if self._is_head:
            self._out.append(head)
        else:
            self._out.append(head + body)
            self.content_sent = len(body)

    def abandon(self, stream: int) -> None:
        """The application gave up because the peer left: close, with no answer if none was begun."""
        self._check_stream(stream, NONE, STARTED, SENDING, TRAILERS)
        self._cut()

    def _cut(self) -> None:
        self.reset = self._responding is SENDING and self._framing is CLOSE
        self._responding = DONE
        self._keep_alive = False
        self._close()

    def fail_response(self, stream: int) -> int:
        """The application failed: 500 if nothing was queued, else an end that the peer sees as truncation.

        RFC 9112 section 8: no last chunk, too few octets; only a body that ends with the connection needs a
        reset to look incomplete. Returns the status that the peer sees.
        """
        if self._responding in (NONE, STARTED):
            self.answer(stream, 500, "Internal Server Error")
            return 500
        self._check_stream(stream, SENDING, TRAILERS)
        self._cut()
        return self._status

    @property
    def takes_trailers(self) -> bool:
        """Whether the peer of the request in progress wants trailer fields."""
        return self._head.takes_trailers

    def take_output(self) -> list[bytes]:
        """Hand over, and forget, what is to be written."""
        out = self._out
        self._out = []
        return out

    def _account(self, stream: int, size: int, more: bool) -> bytes:
        """Check `size` more octets of content against the state and the length; returns the head if it is due."""
        if stream != self.stream or (self._responding is not STARTED and self._responding is not SENDING):
            self._check_stream(stream, STARTED, SENDING)
        starts = self._responding is STARTED
        owed = self._fields[1] if starts else self._owed
        empty = self._is_head or self._status == 304 or self._status == 204
        if not empty:
            if owed >= 0:
                if size > owed or (size < owed and not more):
                    kind = "more" if size > owed else "less"
                    raise LocalProtocolError(f"the response body is {kind} than its content-length")
                owed -= size
            self.content_sent += size
        self._owed = owed
        return self._make_head(size, more, empty) if starts else b""

    def _make_head(self, size: int, more: bool, empty: bool) -> bytes:
        block, length, framing_line, flags = self._fields
        if self._reading is BODY or self._continue_due or flags & WANTS_CLOSE:
            self._keep_alive = self._persists() and not flags & WANTS_CLOSE
        if length < 0 and not more and (size or not empty) and not self._trailers_due:
            length = size  # the whole content is here: no need for chunks
            framing_line = b"content-length: %d\r\n" % size
        if empty:
            self._framing = EMPTY
            if self._status == 204:
                framing_line = b""  # RFC 9110 section 8.6
        elif length >= 0 and not (self._trailers_due and self._head.takes_trailers):
            self._framing = LENGTH
        elif self._head.minor:
            self._framing = CHUNKS
            framing_line = b"transfer-encoding: chunked\r\n"
        else:
            self._framing = CLOSE
            self._keep_alive = False
            framing_line = b""
        self._responding = SENDING
        return b"".join(
            (
                STATUS_LINES[self._status],
                block,
                framing_line,
                b"" if self._keep_alive and self._head.minor else self._connection_line(),
                self._stamp(flags & 3),
                b"\r\n",
            )
        )

    def _connection_line(self) -> bytes:
        if not self._keep_alive:
            return b"connection: close\r\n"
        return b"" if self._head.minor else b"connection: keep-alive\r\n"

    def _persists(self) -> bool:
        """Whether the connection can outlive this response: the rest of the request must be cheap to drop.

        A peer that still waits for a 100 may never send its body, so nothing could be made of what comes next.
        """
        if not self._keep_alive or self._continue_due:
            return False
        return self._reading is not BODY or self._left <= self._limits.drain_size

    def _check_stream(self, stream: int, *expected: Responding) -> None:
        if stream != self.stream:
            raise LocalProtocolError("this request was answered before")
        if self._responding not in expected:
            raise LocalProtocolError(
                f"the response is {self._responding.value}: this message is not allowed now"
            )
