"""The response half of an HTTP/1.1 connection: what the application sends becomes octets. RFC 9112 sections 6
to 9.

Knows the order of one response, its framing and whether the connection can outlive it; knows nothing of how
requests are read: the other half, `servery.http1.engine`, is built on top of this one and tells it what the
request allows.

    NONE -> STARTED -> SENDING -> [TRAILERS ->] DONE    once per request
"""

from __future__ import annotations

from enum import Enum

from ..engine import RawHeaders, Stamp
from ..errors import LocalProtocolError
from .writer import (
    CONTINUE,
    LAST_CHUNK,
    STATUS_LINES,
    WANTS_CLOSE,
    Fields,
    chunk_head,
    encode_fields,
    text_response,
)


class Responding(Enum):
    """How far the response to the request in progress is."""

    NONE = "not started"
    STARTED = "started, with nothing queued yet"
    SENDING = "under way"
    TRAILERS = "waiting for its trailers"
    DONE = "complete"


class Framing(Enum):
    """How the content of a response is delimited (RFC 9112 section 6)."""

    LENGTH = "by Content-Length"
    CHUNKS = "by chunks"
    CLOSE = "by the end of the connection"
    EMPTY = "there is none: HEAD, 204, 304"


NONE, STARTED, SENDING, TRAILERS, DONE = Responding
LENGTH, CHUNKS, CLOSE, EMPTY = Framing

_NO_FIELDS: Fields = (b"", -1, b"", 0)

_JOINED = 16_384
"""Content of fewer octets is joined with its framing: one copy is cheaper than one more buffer to write."""


class ResponseHalf:
    """The part of `servery.engine.HttpEngine` that the application drives."""

    __slots__ = (
        *("_fields", "_framing", "_owed", "_reserved", "_status", "_streaming"),
        *("_continue_due", "_drain_size", "_is_head", "_keep_alive", "_left", "_minor", "_out"),
        *("_responding", "_trailers", "_trailers_due"),
        *("closing", "content_sent", "reset", "stamp", "stream", "takes_trailers"),
    )

    def __init__(self, stamp: Stamp, drain_size: int) -> None:
        self.stamp = stamp
        self._drain_size = drain_size
        self._left = 0  # octets of the request body that are known to come still
        self._out: list[bytes] = []
        self._responding = NONE
        self._fields = _NO_FIELDS
        self._owed = 0
        self._streaming = False  # in chunks, with no length to keep: nothing to check for one more part
        self._minor = 1
        self._continue_due = self._is_head = False
        self._keep_alive = True
        self.takes_trailers = False
        self.stream = 0
        self.content_sent = 0
        self.closing = self.reset = False

    def _begin_exchange(
        self, method: bytes, minor: int, keep_alive: bool, continues: bool, trailers: bool
    ) -> None:
        """A request was received: what its response may be like."""
        self.stream += 1
        self.content_sent = 0
        self._is_head = method == b"HEAD"
        self._minor = minor
        self._keep_alive = keep_alive
        self._continue_due = continues
        self.takes_trailers = trailers

    def _forget_response(self) -> None:
        """The next request may come: keep nothing of this one."""
        self._responding = NONE
        self._fields = _NO_FIELDS

    def _close(self) -> None:
        """Close once the output is flushed."""
        raise NotImplementedError

    def take_output(self) -> list[bytes]:
        """Hand over, and forget, what is to be written."""
        out = self._out
        self._out = []
        return out

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
        if self._minor:
            self._out.append(STATUS_LINES[status] + block + b"\r\n")

    def start_response(self, stream: int, status: int, headers: RawHeaders, trailers: bool) -> None:
        """Set status (200..999) and fields; nothing is queued before the first `send_body`."""
        if stream != self.stream or self._responding is not NONE:
            self._check_stream(stream, NONE)
        if not isinstance(status, int) or not 200 <= status <= 999:
            raise LocalProtocolError(f"response status must be an integer from 200 to 999, not {status!r}")
        self._fields = encode_fields(headers)
        self._streaming = False
        self._status = status
        self._trailers_due = trailers
        self._responding = STARTED

    def send_body(self, stream: int, data: bytes, more: bool) -> bool:
        """Queue content; whether the response is complete now.

        Raises `LocalProtocolError`, with nothing queued, if the content breaks the length that was given.
        """
        size = len(data)
        if more and size and self._responding is SENDING and self._streaming and stream == self.stream:
            self.content_sent += size
            self._out += (b"%x\r\n" % size, data, b"\r\n")
            return False
        head = self._account(stream, size, more)
        framing = self._framing
        if framing is CHUNKS and size:
            self._out += (head + chunk_head(size), data, b"\r\n")
        elif framing is LENGTH and head and size >= _JOINED:
            self._out += (head, data)
        else:
            self._queue(head if framing is EMPTY else head + data)
        return not more and self._end_content()

    def reserve_body(self, stream: int, size: int, more: bool) -> bool:
        """Queue the framing before `size` octets that the driver writes itself; then comes `end_reserved`.

        Returns whether they are to be written: a response to HEAD, a 204 and a 304 have no content.
        """
        head = self._account(stream, size, more)
        chunked = self._framing is CHUNKS and size > 0
        self._queue(head + chunk_head(size) if chunked else head)
        self._reserved = (chunked, more)
        return self._framing is not EMPTY

    def _queue(self, part: bytes) -> None:
        """Never an empty part: behind one, the transports of asyncio take their buffer for full for ever."""
        if part:
            self._out.append(part)

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
                self._out.append(b"0\r\n" + self._trailers + b"\r\n" if self.takes_trailers else LAST_CHUNK)
        return not more

    def answer(self, stream: int, status: int, text: str, extra: bytes = b"") -> None:
        """Queue a short text response of the server's own. `extra` is whole field lines."""
        self._check_stream(stream, NONE, STARTED)
        self._keep_alive = self._persists()
        head, body = text_response(status, text, self.stamp, extra + self._connection_line())
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

    def _account(self, stream: int, size: int, more: bool) -> bytes:
        """Check `size` more octets of content against the state and the length; returns the head if it is
        due.
        """
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
        if flags & WANTS_CLOSE or not self._persists():
            self._keep_alive = False
        if length < 0 and not more and (size or not empty) and not self._trailers_due:
            length = size  # the whole content is here: no need for chunks
            framing_line = b"content-length: %d\r\n" % size
        if empty:
            self._framing = EMPTY
            if self._status == 204:
                framing_line = b""  # RFC 9110 section 8.6
        elif length >= 0 and not (self._trailers_due and self.takes_trailers):
            self._framing = LENGTH
        elif self._minor:
            self._framing = CHUNKS
            self._streaming = length < 0
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
                b"" if self._keep_alive and self._minor else self._connection_line(),
                self.stamp(flags & 3),
                b"\r\n",
            )
        )

    def _connection_line(self) -> bytes:
        if not self._keep_alive:
            return b"connection: close\r\n"
        return b"" if self._minor else b"connection: keep-alive\r\n"

    def _persists(self) -> bool:
        """Whether the connection can outlive this response.

        A peer that still waits for a 100 may never send its body, so nothing could be made of what comes
        next.
        """
        return self._keep_alive and not self._continue_due and self._left <= self._drain_size

    def _check_stream(self, stream: int, *expected: Responding) -> None:
        if stream != self.stream:
            raise LocalProtocolError("this request was answered before")
        if self._responding not in expected:
            raise LocalProtocolError(
                f"the response is {self._responding.value}: this message is not allowed now"
            )
