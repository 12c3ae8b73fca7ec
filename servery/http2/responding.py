"""The response half of a connection of HTTP/2: what applications send becomes frames. RFC 9113, 5 to 8.

Knows the order of each response, its framing, and how windows are shared; knows nothing of how requests are
read: the other half, `servery.http2.engine`, is built on top of this one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ..engine import NEVER, RawHeaders, Stamp
from ..errors import LocalProtocolError
from ..events import Headers
from ..limits import Limits
from .budget import Budget
from .fields import encode_response, stamp_fields
from .frames import CANCEL, INTERNAL_ERROR, MAX_SIZE
from .library import CLOSED_STREAMS, Library
from .stream import DONE, NONE, SENDING, STARTED, TRAILERS, Responding, Stream

PUMPED = 65_536
"""Octets of content that are made into frames at a time: then the transport says whether it takes more."""

EARNED = 8
"""Frames without content that are to be expected for one with content, or for a request."""

_SECRET = frozenset((b"set-cookie", b"authorization"))
"""Never kept in the table that both sides share (RFC 7541 section 7.1.3)."""


class ResponseHalf:
    """The part of `servery.engine.StreamsEngine` that applications drive."""

    __slots__ = (
        *("_control", "_cut", "_h2", "_library", "_limits", "_now", "_out", "_ready", "_streams"),
        *("_base", "deadline", "held", "stamp"),
    )

    def __init__(self, library: Library, limits: Limits, stamp: Stamp, now: float) -> None:
        self._library = library
        self._limits = limits
        self.stamp = self._base = stamp
        self._now = now
        self._h2: Any = library.connection()
        self._out: list[bytes] = []
        self._streams: dict[int, Stream] = {}
        self._ready: dict[int, Stream] = {}  # those with something to send, whose turn it is first
        self._cut: OrderedDict[int, None] = OrderedDict()  # those reset by us, lately
        self._control = Budget(
            limits.h2_control_frames, limits.h2_interval, "too many frames without content", now
        )
        self.deadline = NEVER
        self.held = False

    def _closed(self, stream: Stream) -> None:
        """Nothing is left of `stream`, or it may just have changed so."""
        raise NotImplementedError

    # --- output --------------------------------------------------------------------------------------

    def take_output(self) -> list[bytes]:
        """Hand over, and forget, what is to be written."""
        self._collect()
        out, self._out = self._out, []
        return out

    def _collect(self) -> None:
        data = self._h2.data_to_send()
        if data:
            self._out.append(data)

    def _write(self, frame: bytes) -> None:
        """A frame that h2 need not know of, behind what it has made."""
        self._collect()
        self._out.append(frame)

    def _due(self, when: float) -> None:
        if when < self.deadline:
            self.deadline = when

    def pump(self, now: float) -> bool:
        """Make frames of what waits: the most urgent first, in turn among equals (RFC 9218 section 10).

        Whether there could be more.
        """
        self._now = now
        room = PUMPED
        ready = self._ready
        while ready and room > 0 and not self.held:
            urgent = min(ready.values(), key=_urgency) if len(ready) > 1 else next(iter(ready.values()))
            sent = self._send_some(urgent, now)
            if sent < 0:
                ready.pop(urgent.number, None)
                if self._h2.outbound_flow_control_window <= 0:
                    for stream in ready.values():
                        self._stalls(stream, now)
                    self._pump_ends()
                    return False
            else:
                room -= sent
        return room <= 0 and bool(ready)

    def _pump_ends(self) -> None:
        """Ends cost nothing of the connection's window, which is used up."""
        for stream in [stream for stream in self._ready.values() if not stream.queue]:
            self._ready.pop(stream.number)
            self._send_end(stream)

    def _send_some(self, stream: Stream, now: float) -> int:
        """One frame of `stream`: how many octets, or -1 if there is nothing more to be sent now."""
        if not stream.queue:
            self._ready.pop(stream.number, None)
            self._send_end(stream)
            return 0
        window = self._h2.local_flow_control_window(stream.number)
        if window <= 0:
            self._stalls(stream, now)
            return -1
        part, empty = stream.take(min(window, MAX_SIZE))
        last = empty and stream.ending and not stream.trailers
        self._h2.send_data(stream.number, part, end_stream=last)
        self._control.earn(EARNED)
        stream.write_deadline = NEVER
        ready = self._ready
        del ready[stream.number]
        if last:
            self._sent_end(stream)
        elif not empty or stream.ending:
            ready[stream.number] = stream
        return len(part)

    def _stalls(self, stream: Stream, now: float) -> None:
        """The peer's window is used up: it has `Limits.write_timeout` to open it."""
        if stream.queue and stream.write_deadline == NEVER:
            stream.write_deadline = now + self._limits.write_timeout
            self._due(stream.write_deadline)

    def _send_end(self, stream: Stream) -> None:
        if not stream.ending or not stream.sending:
            return
        if stream.trailers:
            self._h2.send_headers(stream.number, stream.trailers, end_stream=True)
            stream.trailers = []
        else:
            self._h2.send_data(stream.number, b"", end_stream=True)
        self._sent_end(stream)

    def _sent_end(self, stream: Stream) -> None:
        stream.sending = stream.ending = False
        stream.write_deadline = NEVER
        if stream.receiving:
            # it need not send what nobody reads (section 8.1), but clients lose an answer that comes with a
            # reset, and most of them have sent all of it in a moment
            stream.body_deadline = self._now + self._limits.linger_timeout
            self._due(stream.body_deadline)
        else:
            self._closed(stream)

    def _reset(self, stream: Stream, code: int) -> None:
        """RST_STREAM, and whatever still comes for it is dropped."""
        if stream.sending or stream.receiving:  # else both ends have been said
            self._h2.reset_stream(stream.number, code)
        self._remember_cut(stream.number)
        self._drop(stream)

    def _remember_cut(self, stream: int) -> None:
        self._cut[stream] = None
        if len(self._cut) > CLOSED_STREAMS:
            self._cut.popitem(last=False)

    def _drop(self, stream: Stream) -> None:
        stream.drop()
        stream.receiving = False
        stream.body_deadline = NEVER
        self._ready.pop(stream.number, None)
        self._closed(stream)

    # --- from the application ------------------------------------------------------------------------

    def waiting(self, stream: int) -> int:
        """Octets of content that wait."""
        found = self._streams.get(stream)
        return 0 if found is None else found.queued

    def content_sent(self, stream: int) -> int:
        """Octets of content queued so far."""
        found = self._streams.get(stream)
        return 0 if found is None else found.content_sent

    def takes_trailers(self, stream: int) -> bool:
        """Whether the peer said ``TE: trailers``."""
        found = self._streams.get(stream)  # none if the connection failed behind its head
        return found is not None and found.takes_trailers

    def adopt_stamp(self, stream: int) -> None:
        """What `stamp` was set to is of this response alone."""
        found = self._streams.get(stream)
        if found is not None:
            found.stamp = self.stamp
        self.stamp = self._base

    def continue_body(self, stream: int) -> None:
        """Queue 100 (Continue), if the peer waits for it and no octet of the body has come."""
        found = self._streams.get(stream)
        if found is not None and found.continue_due and found.responding is NONE:
            found.continue_due = False
            self._h2.send_headers(stream, [(b":status", b"100")])

    def send_informational(self, stream: int, status: int, headers: RawHeaders) -> None:
        """Queue an interim response."""
        self._find(stream, NONE, STARTED)
        if not 102 <= status <= 199:
            raise LocalProtocolError(f"{status} is not the status of an interim response")
        fields = self._guarded(encode_response(headers).fields)
        self._h2.send_headers(stream, [(b":status", b"%d" % status), *fields])

    def start_response(self, stream: int, status: int, headers: RawHeaders, trailers: bool) -> None:
        """Set status (200..999) and fields; nothing is queued before the first `send_body`."""
        found = self._find(stream, NONE)
        if not isinstance(status, int) or not 200 <= status <= 999:
            raise LocalProtocolError(f"response status must be an integer from 200 to 999, not {status!r}")
        found.fields = encode_response(headers)
        found.owed = found.fields.length
        found.status = status
        found.trailers_due = trailers
        found.responding = STARTED

    def send_body(self, stream: int, data: bytes, more: bool) -> bool:
        """Queue content; whether the response is complete now."""
        found = self._find(stream, STARTED, SENDING)
        self._account(found, len(data), more)
        if not found.empty:
            self._queue(found, data)
        return not more and self._end_content(found)

    def reserve_body(self, stream: int, size: int, more: bool) -> bool:
        """Announce `size` octets, which come by `send_reserved`, then `end_reserved`."""
        found = self._find(stream, STARTED, SENDING)
        self._account(found, size, more)
        found.reserved_more = more
        return not found.empty

    def send_reserved(self, stream: int, data: bytes) -> None:
        """Queue a part of what was announced."""
        self._queue(self._find(stream, SENDING), data)

    def end_reserved(self, stream: int) -> bool:
        """All of it is queued; whether the response is complete now."""
        found = self._find(stream, SENDING)
        return not found.reserved_more and self._end_content(found)

    def send_trailers(self, stream: int, headers: RawHeaders, more: bool) -> bool:
        """Queue trailer fields, for a peer that said ``TE: trailers``; whether the response is complete."""
        found = self._find(stream, TRAILERS)
        fields = encode_response(headers).fields
        if found.takes_trailers:
            found.trailers += self._guarded(fields)
        if not more:
            self._end(found)
        return not more

    def answer(self, stream: int, status: int, text: str, extra: bytes = b"") -> None:
        """Queue a short text response of the server's own. `extra` is whole field lines."""
        found = self._find(stream, NONE, STARTED)
        content = f"{text}\n".encode("ascii", "replace")
        kind = (b"content-type", b"text/plain; charset=utf-8")
        found.responding = NONE
        self.start_response(stream, status, [kind, *stamp_fields(extra)], False)
        self.send_body(stream, content, False)

    def open_tunnel(self, stream: int, headers: RawHeaders) -> None:
        """Accept an extended CONNECT."""
        self.start_response(stream, 200, headers, False)
        found = self._streams[stream]
        self._send_head(found, b"", False)
        found.responding = SENDING

    def abandon(self, stream: int) -> None:
        """The application gave up because the peer left."""
        found = self._streams.get(stream)
        if found is not None and found.sending:
            self._reset(found, CANCEL)

    def fail_response(self, stream: int) -> int:
        """The application failed: 500 if nothing was sent yet, else a reset that the peer sees as such."""
        found = self._find(stream, NONE, STARTED, SENDING, TRAILERS)
        if found.responding in (NONE, STARTED):
            self.answer(stream, 500, "Internal Server Error")
            return 500
        if found.sending:
            self._reset(found, INTERNAL_ERROR)
        else:
            found.drop()  # its end has been sent: all of it was in its head
        return found.status

    # --- inside --------------------------------------------------------------------------------------

    def _find(self, stream: int, *expected: Responding) -> Stream:
        found = self._streams.get(stream)
        if found is None or found.responding is DONE:
            raise LocalProtocolError("this request was answered before")
        if found.responding not in expected:
            raise LocalProtocolError(
                f"the response is {found.responding.value}: this message is not allowed now"
            )
        return found

    def _account(self, stream: Stream, size: int, more: bool) -> None:
        """Check `size` more octets against the length that was given; the head is sent if it is due."""
        owed = stream.owed
        if not stream.empty:
            if owed >= 0:
                if size > owed or (size < owed and not more):
                    kind = "more" if size > owed else "less"
                    raise LocalProtocolError(f"the response body is {kind} than its content-length")
                stream.owed = owed - size
            stream.content_sent += size
        if stream.responding is STARTED:
            length = owed
            if owed < 0 and not more and not stream.trailers_due and (size or not stream.empty):
                length = size
            last = not more and not (stream.trailers_due and stream.takes_trailers)
            ends = last and (stream.empty or size == 0)
            self._send_head(stream, b"" if length < 0 or stream.status == 204 else b"%d" % length, ends)
            stream.responding = SENDING

    def _send_head(self, stream: Stream, length: bytes, last: bool) -> None:
        fields = stream.fields
        assert fields is not None
        head: Headers = [(b":status", b"%d" % stream.status)]
        head += self._guarded(fields.fields)
        if length:
            head.append((b"content-length", length))
        head += stamp_fields((stream.stamp or self.stamp)(fields.has))
        stream.fields = None
        self._h2.send_headers(stream.number, head, end_stream=last)
        if last:
            self._sent_end(stream)

    def _guarded(self, fields: Headers) -> Headers:
        """The same, with those marked that no table may keep."""
        secret = self._library.secret
        return [field if field[0] not in _SECRET else secret(*field) for field in fields]

    def _queue(self, stream: Stream, data: bytes) -> None:
        if data and stream.sending:
            stream.queue.append(data)
            stream.queued += len(data)
            self._ready.setdefault(stream.number, stream)

    def _end_content(self, stream: Stream) -> bool:
        if stream.trailers_due:
            stream.responding = TRAILERS
            return False
        self._end(stream)
        return True

    def _end(self, stream: Stream) -> None:
        stream.responding = DONE
        if stream.sending:
            stream.body_deadline = NEVER  # whoever is answered may stop sending
            stream.ending = True
            self._ready.setdefault(stream.number, stream)


def _urgency(stream: Stream) -> int:
    return stream.urgency
