"""The requests of a connection of HTTP/2: heads, bodies, and what becomes of a faulty one. RFC 9113 sections
6 and 8.

Knows what begins and feeds a stream, its flow control and its deadlines; of the connection only what its
bodies take of the window. `servery.http2.engine` is built on top of this.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..engine import NEVER, Stamp
from ..errors import Http2Error, LimitExceeded, RemoteProtocolError
from ..events import BodyReceived, Event, RequestReceived, StreamFailed
from ..limits import Limits
from .budget import Budget
from .fields import RequestHead, malformed, read_request, read_trailers, request_line
from .frames import (
    CANCEL,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    GOAWAY_SIZE,
    HEADER_SIZE,
    MAX_WINDOW,
    NOT_ALLOWED,
    NOT_BEGUN,
    ON_CLOSED,
    OVER_WINDOW,
    PADDED,
    PASSED_OVER,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    WRONG_SETTING,
    WRONG_SIZE,
    window_update_frame,
)
from .library import FieldDecoder, Library
from .responding import EARNED, ResponseHalf
from .stream import DONE, NONE, STARTED, Stream

LARGER = 2
"""A list of fields is decoded up to this many times the announced size, so that 431 can answer it."""


class Block(NamedTuple):
    """A header section whose end has not come."""

    stream: int
    size: int
    frames: int
    since: float


class RequestHalf(ResponseHalf):
    """The part of `servery.engine.StreamsEngine` that requests go into."""

    __slots__ = (
        *("_block", "_decoder", "_highest", "_idle_at", "_last", "_leaving", "_owed", "_resets"),
        *("_stream_window", "_window"),
    )

    def __init__(self, library: Library, limits: Limits, stamp: Stamp, now: float) -> None:
        super().__init__(library, limits, stamp, now)
        self._decoder = FieldDecoder(library, limits.head_size * LARGER)
        self._resets = Budget(limits.h2_resets, limits.h2_interval, "too many streams reset", now)
        self._block: Block | None = None
        self._last: tuple[Any, Any] = (None, None)  # a section, and the head that it is
        self._highest = 0
        self._owed = 0  # of the connection's window, not given back yet
        self._window = max(limits.h2_connection_window, DEFAULT_WINDOW)
        self._stream_window = min(limits.body_buffer, MAX_WINDOW)
        self._leaving = False  # no stream begins any more, by the peer's word or the server's
        self._idle_at = now + limits.first_byte_timeout

    def _feed(self, frame: bytes) -> list[Any]:
        """Let h2 take a frame; its events. Raises `Http2Error` for a fault of the connection."""
        try:
            events: list[Any] = self._h2.receive_data(frame)
        except self._library.protocol_error as error:
            self._out.append(self._h2.data_to_send()[:-GOAWAY_SIZE])  # we say that ourselves
            raise Http2Error(int(getattr(error, "error_code", PROTOCOL_ERROR)), _safe(error)) from None
        return events

    # --- heads ---------------------------------------------------------------------------------------

    def _on_headers(self, flags: int, stream: int, frame: bytes, events: list[Event]) -> None:
        if not stream & 1:
            raise Http2Error(PROTOCOL_ERROR, "HEADERS on a stream that is not the client's")
        self._open_block(stream, len(frame), 0, flags, frame, events, self._now)

    def _on_continuation(self, flags: int, stream: int, frame: bytes, events: list[Event]) -> None:
        block = self._block
        if block is None:
            raise Http2Error(PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        size, frames = block.size + len(frame), block.frames + 1
        self._open_block(stream, size, frames, flags, frame, events, block.since)

    def _open_block(
        self, stream: int, size: int, frames: int, flags: int, frame: bytes, events: list[Event], since: float
    ) -> None:
        """One more frame of a header section, which is bounded before anything of it is decoded."""
        limits = self._limits
        if size > limits.head_size + HEADER_SIZE * (frames + 1) or frames > limits.h2_continuations:
            raise Http2Error(ENHANCE_YOUR_CALM, "a header section too large, or in too many frames")
        if not flags & END_HEADERS:
            self._block = Block(stream, size, frames, since)
            self._due(since + limits.head_timeout)
            self._feed(frame)
            return
        self._block = None
        known = self._streams.get(stream)
        began = self._highest
        received = self._feed(frame)
        if stream <= began:
            self._read_trailers(known, received, events)
        else:
            self._highest = stream
            self._read_request(stream, _ends(received, self._library), events)
        if not self._streams:
            self._due(self._idle_at)  # which has not counted while the section came

    def _read_request(self, stream: int, complete: bool, events: list[Event]) -> None:
        section = self._decoder.section
        if self._leaving:
            self._refuse(stream, REFUSED_STREAM)
            return
        if len(self._streams) >= self._limits.h2_streams:
            self._refuse(stream, REFUSED_STREAM)
            self._resets.spend(self._now)
            return
        try:
            if section is self._last[0]:
                head = self._last[1]
            else:
                head = read_request(section, self._limits)
                self._last = (section, head)
            if complete and head.length > 0:
                raise malformed("a body shorter than its Content-Length")
        except Http2Error as error:
            events.append(StreamFailed(error.with_traceback(None), stream, request_line(section), 0))
            self._refuse(stream, error.code)
            self._resets.spend(self._now)
        except RemoteProtocolError as error:
            self._answer_fault(stream, complete, error.with_traceback(None), events)
        else:
            self._control.earn(EARNED)
            events.append(self._open_stream(stream, head, complete))

    def _refuse(self, stream: int, code: int) -> None:
        self._h2.reset_stream(stream, code)
        self._remember_cut(stream)

    def _open_stream(self, stream: int, head: RequestHead, complete: bool) -> RequestReceived:
        state = self._streams[stream] = Stream(stream, head, complete)
        self._idle_at = NEVER
        if not complete and not state.tunnel:
            state.body_base = self._now + self._limits.body_timeout
            self._body_due(state, state.body_base)
        raw_path, _, query = head.path.partition(b"?")
        return RequestReceived(
            stream,
            head.method,
            head.path,
            raw_path,
            query,
            head.authority,
            b"2",
            head.fields.copy(),
            complete,
            state.continue_due,
            head.protocol,
        )

    def _answer_fault(
        self, stream: int, complete: bool, error: RemoteProtocolError, events: list[Event]
    ) -> None:
        """A request over a limit, or for what is not served: it gets its status, and nothing else."""
        section = self._decoder.section
        method = dict(section[:8]).get(b":method", b"")
        head = RequestHead(method, b"", None, None, [], -1, False, False, 0)
        state = self._streams[stream] = Stream(stream, head, complete)
        self._idle_at = NEVER
        state.held = False
        self.answer(stream, error.status, error.reason)
        events.append(StreamFailed(error, stream, request_line(section), error.status))

    def _read_trailers(self, stream: Stream | None, received: list[Any], events: list[Event]) -> None:
        """A second section of a stream: trailers, or what h2 has answered with a reset already."""
        if stream is None or not stream.receiving:
            self._resets.spend(self._now)
            self._hear_resets(received, events)
            return
        try:
            if stream.responding is DONE:
                self._end_body(stream, b"", [], events)
                return
            if not _ends(received, self._library):
                raise malformed("trailers that do not end the stream")
            if stream.expected >= 0 and stream.received != stream.expected:
                raise malformed("a body shorter than its Content-Length")
            trailers = read_trailers(self._decoder.section, self._limits)
        except RemoteProtocolError as error:
            stream.receiving = False  # its end has come, whatever it said
            stream.body_deadline = NEVER
            self._fail_stream(stream, error.with_traceback(None), events)
            return
        self._end_body(stream, b"", trailers, events)

    # --- bodies --------------------------------------------------------------------------------------

    def _on_data(self, flags: int, stream: int, frame: bytes, events: list[Event]) -> None:
        if not stream or stream > self._highest:
            raise Http2Error(PROTOCOL_ERROR, "DATA on a stream that has not begun")
        size = len(frame) - HEADER_SIZE
        content = size - 1 - frame[HEADER_SIZE] if flags & PADDED and size else size
        if content < 0 or (flags & PADDED and not size):
            raise Http2Error(PROTOCOL_ERROR, "more padding than there is room for")
        if content or flags & END_STREAM:
            self._control.earn(EARNED if content else 0)
        else:
            self._control.spend(self._now)
        state = self._streams.get(stream)
        if state is None or not state.receiving:
            self._late_data(stream, size, frame, events)
            return
        unchecked = state.tunnel or state.responding is DONE
        if unchecked or self._fits(state, content, bool(flags & END_STREAM), size, events):
            self._take_data(state, size, frame, events)

    def _late_data(self, stream: int, size: int, frame: bytes, events: list[Event]) -> None:
        """For a stream that is closed: dropped if it was us who closed it, else a fault."""
        if stream in self._cut:
            self._skip_data(size)
            return
        self._resets.spend(self._now)
        received = self._feed(frame)
        self._remember_cut(stream)
        self._hear_resets(received, events)

    def _skip_data(self, size: int) -> None:
        """Octets that h2 is not to see: the connection's window is as it was, for both sides."""
        if size > self._h2.inbound_flow_control_window:
            raise Http2Error(FLOW_CONTROL_ERROR, "more than the window of the connection")
        if size:
            self._write(window_update_frame(0, size))

    def _fits(self, stream: Stream, content: int, ends: bool, size: int, events: list[Event]) -> bool:
        """Whether `content` more octets fit what was announced, and what is allowed (section 8.1.1)."""
        total = stream.received + content
        expected, limit = stream.expected, self._limits.body_size
        error: RemoteProtocolError
        if expected >= 0 and (total > expected or (ends and total != expected)):
            error = malformed("a body that does not fit its Content-Length")
        elif limit is not None and total > limit:
            error = LimitExceeded(413, "request body too large")
        else:
            return True
        self._fail_stream(stream, error, events)
        self._skip_data(size)
        return False

    def _take_data(self, stream: Stream, size: int, frame: bytes, events: list[Event]) -> None:
        received = self._feed(frame)
        data = received[0].data
        stream.received += len(data)
        stream.continue_due = False
        self._owed += size
        if self._owed * 2 >= self._window:
            self._h2.increment_flow_control_window(self._owed)
            self._owed = 0
        stream.unacknowledged += size
        if _ends(received, self._library):
            self._end_body(stream, data, [], events)
            return
        if size != len(data):
            self._give_back(stream, size - len(data))
        if not (stream.tunnel or stream.responding is DONE):
            self._earn_time(stream)
        if data and stream.responding is not DONE:
            events.append(BodyReceived(stream.number, data, True, []))

    def _earn_time(self, stream: Stream) -> None:
        """The time for more grows with the body, but never past one stall; it stands still for a slow
        application.
        """
        limits, now = self._limits, self._now
        if stream.unacknowledged * 2 >= self._stream_window:
            stream.body_deadline = NEVER
            return
        rate = limits.body_min_rate
        earned = stream.body_base + stream.received / rate if rate else NEVER
        self._body_due(stream, min(earned, now + limits.body_timeout))

    def _body_due(self, stream: Stream, when: float) -> None:
        stream.body_deadline = when
        self._due(when)

    def _end_body(self, stream: Stream, data: bytes, trailers: Any, events: list[Event]) -> None:
        stream.receiving = False
        stream.body_deadline = NEVER
        if stream.responding is not DONE:
            events.append(BodyReceived(stream.number, data, False, trailers))
        self._closed(stream)

    def consumed(self, stream: int, size: int, now: float) -> None:
        """The application took `size` octets of the body."""
        self._now = now
        state = self._streams.get(stream)
        if state is not None and state.receiving:
            self._give_back(state, size)

    def _give_back(self, stream: Stream, size: int) -> None:
        """What the application has taken comes back to the window, half of it or more at a time."""
        window = self._stream_window
        was_full = stream.unacknowledged * 2 >= window
        stream.owed_window += size
        if stream.owed_window * 2 < window:
            return
        self._h2.increment_flow_control_window(stream.owed_window, stream.number)
        stream.unacknowledged -= stream.owed_window
        stream.owed_window = 0
        if was_full and not (stream.tunnel or stream.responding is DONE):
            stream.body_base = self._now + self._limits.body_timeout - self._earned(stream)
            self._body_due(stream, self._now + self._limits.body_timeout)

    def _earned(self, stream: Stream) -> float:
        rate = self._limits.body_min_rate
        return stream.received / rate if rate else 0.0

    # --- faults of one stream ------------------------------------------------------------------------

    def _hear_resets(self, received: list[Any], events: list[Event]) -> None:
        """h2 has reset a stream for a fault of the peer."""
        for event in received:
            if isinstance(event, self._library.stream_reset):
                stream = self._streams.get(event.stream_id)
                self._remember_cut(event.stream_id)
                if stream is not None and (stream.sending or stream.receiving):
                    error = Http2Error(int(event.error_code), "a frame that the stream does not allow")
                    self._drop(stream)
                    events.append(StreamFailed(error, stream.number, None, 0))
                    self._resets.spend(self._now)

    def _fail_stream(self, stream: Stream, error: RemoteProtocolError, events: list[Event]) -> None:
        """A request that cannot be completed. The application may be at work, and may have answered."""
        number = stream.number
        if isinstance(error, Http2Error):
            self._resets.spend(self._now)
            events.append(StreamFailed(error, number, None, 0))
            self._reset(stream, error.code)
        elif stream.responding in (NONE, STARTED):
            events.append(StreamFailed(error, number, None, error.status))
            stream.takes_trailers = False
            self.answer(number, error.status, error.reason)
        else:
            if stream.responding is not DONE:
                events.append(StreamFailed(error, number, None, 0))
            self._reset(stream, CANCEL)


def _ends(received: list[Any], library: Library) -> bool:
    return any(isinstance(event, library.stream_ended) for event in received)


_REASONS = {
    "FlowControlError": OVER_WINDOW,
    "FrameDataMissingError": WRONG_SIZE,
    "InvalidSettingsValueError": WRONG_SETTING,
    "NoSuchStreamError": NOT_BEGUN,
    "StreamClosedError": ON_CLOSED,
    "StreamIDTooLowError": PASSED_OVER,
}


def _safe(error: Exception) -> str:
    """What an error of h2 means, without anything of the peer's in it."""
    return _REASONS.get(type(error).__name__, NOT_ALLOWED)
