"""The HTTP/2 connection, server side, sans-I/O: RFC 9113, with RFC 8441 (WebSockets) and 9218 (priorities).

Knows which frames may come, what floods are, and when a stream or the connection is at its end. Frames are
looked at here first; what is sound goes to h2, which keeps the states of streams, the windows and the tables
of header compression. A fault of one request costs its stream alone, wherever the RFC lets it.

    OPEN -> LINGER -> CLOSED       a fault of the connection, or the end of a stop
    OPEN -> CLOSED                 idle for too long, or the peer has left

Requests are read by `servery.http2.receiving`, and answered by `servery.http2.responding`, below it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from ..engine import NEVER, Stamp
from ..errors import Http2Error, RemoteProtocolError
from ..events import ConnectionFailed, Event, PeerClosed, StreamFailed
from ..grammar import HTTP2_PREFACE
from ..limits import Limits
from .fields import malformed, read_urgency
from .frames import (
    ACK,
    CANCEL,
    CONTINUATION,
    DEFAULT_WINDOW,
    FRAME_SIZE_ERROR,
    HEADER_SIZE,
    LAST_STREAM,
    MAX_WINDOW,
    NO_ERROR,
    PROTOCOL_ERROR,
    SETTINGS,
    WINDOW,
    FrameReader,
    goaway_frame,
    our_settings,
    ping_frame,
    settings_frame,
)
from .library import FieldEncoder, Library
from .receiving import RequestHalf
from .stream import DONE, Stream

_STOP_PING = b"goodbye\0"
"""Its answer says that the peer knows of the stop."""


class Reading(Enum):
    """What becomes of the octets that come."""

    OPEN = "frames"
    LINGER = "dropped until the peer has read our last words"
    CLOSED = "nothing"


OPEN, LINGER, CLOSED = Reading


class Http2Engine(RequestHalf):
    """See `servery.engine.StreamsEngine` for the contract."""

    __slots__ = (
        *("_eof", "_goodbye", "_reader", "_reading", "_said", "_settled"),
        *("closing", "half_closed", "reset", "wants_read"),
    )

    def __init__(self, library: Library, limits: Limits, stamp: Stamp, now: float) -> None:
        super().__init__(library, limits, stamp, now)
        self._reader = FrameReader()
        self._reading = OPEN
        self._settled = False  # the first SETTINGS frame has come
        self._said = False  # the last GOAWAY is sent
        self._goodbye = NEVER  # when the last GOAWAY of a stop is due
        self._eof = False
        self.deadline = self._idle_at
        self.wants_read = True
        self.half_closed = self.closing = self.reset = False
        self._begin(limits)

    def _begin(self, limits: Limits) -> None:
        """Our SETTINGS, and a larger window for the connection than the RFC begins with."""
        h2 = self._h2
        h2.decoder = self._decoder
        h2.encoder = FieldEncoder(self._library)
        h2.initiate_connection()
        h2.receive_data(HTTP2_PREFACE)  # the reader has looked at it
        h2.update_settings({WINDOW: self._stream_window})
        h2.clear_outbound_data_buffer()  # it knows nothing of some of them
        self._out.append(settings_frame(our_settings(limits)))
        if self._window > DEFAULT_WINDOW:
            h2.increment_flow_control_window(min(self._window, MAX_WINDOW) - DEFAULT_WINDOW)

    # --- from the peer -------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take octets from the peer; ``b""`` is EOF."""
        self._now = now
        if not data:
            return self._receive_eof()
        events: list[Event] = []
        if self._reading is not OPEN:
            return events
        try:
            for kind, flags, stream, frame in self._reader.feed(data):
                self._take(kind, flags, stream, frame, events)
                if self._reading is not OPEN:
                    break
        except Http2Error as error:
            # the traceback has the frames that get the event that has the error: a circle of references
            self._fail(error.with_traceback(None), events)
        return events

    def _take(self, kind: int, flags: int, stream: int, frame: bytes, events: list[Event]) -> None:
        if not self._settled:
            if kind != SETTINGS or flags & ACK:
                raise Http2Error(PROTOCOL_ERROR, "the first frame must be SETTINGS")
            self._settled = True
            self._settle_idle()
        if self._block is not None and (kind != CONTINUATION or stream != self._block.stream):
            raise Http2Error(PROTOCOL_ERROR, "a frame inside of a header section")
        if kind < len(_HANDLERS):
            _HANDLERS[kind](self, flags, stream, frame, events)
            return
        self._control.spend(self._now)
        if kind == 0x10:
            self._on_priority_update(stream, frame)

    # --- other frames --------------------------------------------------------------------------------

    def _on_priority(self, flags: int, stream: int, frame: bytes, events: list[Event]) -> None:
        self._control.spend(self._now)
        if not stream:
            raise Http2Error(PROTOCOL_ERROR, "PRIORITY without a stream")
        if len(frame) != HEADER_SIZE + 5:
            raise Http2Error(FRAME_SIZE_ERROR, "PRIORITY of a wrong size")

    def _on_priority_update(self, stream: int, frame: bytes) -> None:
        """RFC 9218 section 7.1."""
        if stream:
            raise Http2Error(PROTOCOL_ERROR, "PRIORITY_UPDATE on a stream")
        if len(frame) < HEADER_SIZE + 4:
            raise Http2Error(FRAME_SIZE_ERROR, "PRIORITY_UPDATE too short")
        number = int.from_bytes(frame[HEADER_SIZE : HEADER_SIZE + 4], "big") & LAST_STREAM
        found = self._streams.get(number)
        if found is not None:
            found.urgency = read_urgency(frame[HEADER_SIZE + 4 :])

    def _on_reset(self, flags: int, stream: int, frame: bytes, events: list[Event]) -> None:
        if not stream or stream > self._highest:
            raise Http2Error(PROTOCOL_ERROR, "RST_STREAM for a stream that has not begun")
        if len(frame) != HEADER_SIZE + 4:
            raise Http2Error(FRAME_SIZE_ERROR, "RST_STREAM of a wrong size")
        self._resets.spend(self._now)
        self._feed(frame)
        found = self._streams.get(stream)
        if found is not None and (found.receiving or found.sending):
            self._drop(found)
            events.append(StreamFailed(None, stream, None, 0))

    def _on_settings(self, flags: int, stream: int, frame: bytes, events: list[Event]) -> None:
        self._control.spend(self._now)
        if flags & ACK and len(frame) != HEADER_SIZE:
            raise Http2Error(FRAME_SIZE_ERROR, "an acknowledgement that says something")
        self._feed(frame)
        self._wake_all()

    def _on_push(self, flags: int, stream: int, frame: bytes, events: list[Event]) -> None:
        raise Http2Error(PROTOCOL_ERROR, "PUSH_PROMISE from a client")

    def _on_ping(self, flags: int, stream: int, frame: bytes, events: list[Event]) -> None:
        self._control.spend(self._now)
        self._feed(frame)
        if flags & ACK and frame[HEADER_SIZE:] == _STOP_PING:
            self._say_goodbye()
            self._check_end()

    def _on_goaway(self, flags: int, stream: int, frame: bytes, events: list[Event]) -> None:
        """The peer begins no more; what is in progress goes on. h2 would end it."""
        self._control.spend(self._now)
        if stream:
            raise Http2Error(PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(frame) < HEADER_SIZE + 8:
            raise Http2Error(FRAME_SIZE_ERROR, "GOAWAY too short")
        self._leaving = True
        self._check_end()

    def _on_window_update(self, flags: int, stream: int, frame: bytes, events: list[Event]) -> None:
        self._control.spend(self._now)
        if len(frame) != HEADER_SIZE + 4:
            raise Http2Error(FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size")
        if stream > self._highest:
            raise Http2Error(PROTOCOL_ERROR, "WINDOW_UPDATE for a stream that has not begun")
        found = self._streams.get(stream)
        if frame[HEADER_SIZE] & 0x80:  # a reserved bit, which h2 would take for a part of the number
            frame = frame[:HEADER_SIZE] + bytes([frame[HEADER_SIZE] & 0x7F]) + frame[HEADER_SIZE + 1 :]
        if stream and not int.from_bytes(frame[HEADER_SIZE:], "big"):
            if found is not None and (found.sending or found.receiving):
                self._fail_stream(found, malformed("WINDOW_UPDATE of nothing"), events)
            return
        self._hear_resets(self._feed(frame), events)
        if not stream:
            self._wake_all()
        elif found is not None and found.queue:
            self._ready.setdefault(stream, found)

    def _wake_all(self) -> None:
        """Windows have changed: whatever waits is looked at again."""
        for number, stream in self._streams.items():
            if stream.queue:
                self._ready.setdefault(number, stream)

    # --- streams that end ----------------------------------------------------------------------------

    def _closed(self, stream: Stream) -> None:
        if not (stream.sending or stream.receiving or stream.held):
            self._streams.pop(stream.number, None)
            self._check_end()

    def released(self, stream: int, now: float) -> None:
        """The application call is over."""
        self._now = now
        found = self._streams.get(stream)
        if found is not None:
            found.held = False
            self._closed(found)

    # --- the end -------------------------------------------------------------------------------------

    def _settle_idle(self) -> None:
        self._idle_at = self._now + self._limits.keep_alive_timeout
        self._due(self._idle_at)

    def _check_end(self) -> None:
        """A stream is gone: if it was the last, the connection is idle, or at its end."""
        if self._streams or self._reading is not OPEN:
            return
        if self._leaving or self._eof or self._goodbye != NEVER:
            self._say_goodbye()
            self._linger()
        else:
            self._settle_idle()

    def _say_goodbye(self) -> None:
        """The last GOAWAY: what comes from now on is not served."""
        if not self._said:
            self._write(goaway_frame(self._highest, NO_ERROR))
        self._said = self._leaving = True
        self._goodbye = NEVER

    def _receive_eof(self) -> list[Event]:
        self._eof = True
        if self._reading is not OPEN or not self._streams:
            self._close()
            return []
        events: list[Event] = [PeerClosed()]
        for stream in list(self._streams.values()):
            if stream.receiving:
                events.append(StreamFailed(None, stream.number, None, 0))
                self._reset(stream, CANCEL)
        self._check_end()
        return events

    def stop(self, now: float, patient: bool = False) -> None:
        """Announce the end, answer what is in progress, then close."""
        self._now = now
        if self._reading is not OPEN:
            return
        if not self._streams and not (patient and self._settled):
            if self._settled:
                self._write(goaway_frame(self._highest, NO_ERROR))
            self._close()
            return
        self._write(goaway_frame(LAST_STREAM, NO_ERROR))  # what is on its way is still served: section 6.8
        self._write(ping_frame(_STOP_PING))
        self._goodbye = now + self._limits.linger_timeout
        self._due(self._goodbye)

    def _fail(self, error: Http2Error, events: list[Event]) -> None:
        """A fault of the connection: one GOAWAY, and nothing more is read as HTTP/2 (section 5.4.1)."""
        error.__context__ = None  # that of h2, whose traceback has the same frames
        self._write(goaway_frame(self._highest, error.code, error.reason))
        events.append(ConnectionFailed(error, 0, None, 0))
        for stream in list(self._streams.values()):
            stream.drop()
        self._streams.clear()
        self._ready.clear()
        self._linger()

    def _linger(self) -> None:
        """FIN, then read on for a while, so that no RST destroys what we sent."""
        self._block = None
        if self._eof:
            self._close()
        else:
            self._reading = LINGER
            self.half_closed = True
            self.deadline = self._now + self._limits.linger_timeout

    def _close(self) -> None:
        self._reading = CLOSED
        self.closing = True
        self.deadline = NEVER

    def forget(self) -> None:
        """The connection is gone: hold nothing, and let go of h2, which holds itself."""
        self._close()
        self._streams.clear()
        self._ready.clear()
        vars(self._h2).clear()

    def expire(self, now: float) -> list[Event]:
        """The deadline has passed, of one thing or another."""
        self._now = now
        events: list[Event] = []
        if self._reading is not OPEN:
            self._close()
            return events
        try:
            self._expire(now, events)
        except Http2Error as error:
            self._fail(error.with_traceback(None), events)
        if self._reading is OPEN:
            self._plan()
        return events

    def _expire(self, now: float, events: list[Event]) -> None:
        if self._block is not None and self._block.since + self._limits.head_timeout <= now:
            raise Http2Error(PROTOCOL_ERROR, "a header section not complete in time")
        if self._idle_at <= now and not self._streams and self._block is None:
            if self._settled:
                self._write(goaway_frame(self._highest, NO_ERROR))
            self._close()
            return
        if self._goodbye <= now:
            self._say_goodbye()
            self._check_end()
        for stream in list(self._streams.values()):
            if stream.body_deadline <= now and not stream.sending:
                self._reset(stream, NO_ERROR)
            elif stream.body_deadline <= now:
                stream.body_deadline = NEVER
                error = RemoteProtocolError(408, "request body came too slowly")
                self._fail_stream(stream, error, events)
            elif stream.write_deadline <= now:
                told = stream.responding is not DONE
                self._reset(stream, CANCEL)
                if told:
                    events.append(StreamFailed(stalled(), stream.number, None, 0))

    def _plan(self) -> None:
        """When to look again."""
        block = NEVER if self._block is None else self._block.since + self._limits.head_timeout
        idle = NEVER if self._streams or block != NEVER else self._idle_at
        self.deadline = min(
            block,
            idle,
            self._goodbye,
            *(min(stream.body_deadline, stream.write_deadline) for stream in self._streams.values()),
        )


_HANDLERS: tuple[Callable[[Http2Engine, int, int, bytes, list[Event]], None], ...] = (
    *(Http2Engine._on_data, Http2Engine._on_headers, Http2Engine._on_priority, Http2Engine._on_reset),
    *(Http2Engine._on_settings, Http2Engine._on_push, Http2Engine._on_ping, Http2Engine._on_goaway),
    *(Http2Engine._on_window_update, Http2Engine._on_continuation),
)
"""What takes a frame, by its type."""


def stalled() -> RemoteProtocolError:
    """The fault of a peer that does not open its window."""
    return RemoteProtocolError(408, "the peer took nothing of the response in time")
