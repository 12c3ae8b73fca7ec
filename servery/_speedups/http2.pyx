"""The compiled engine of HTTP/2: the twin of `servery.http2.engine` and of the two halves below it.

Frames, windows and the states of streams are kept here; header compression is nghttp2's (see hpack.pyx). Where the reference leaves a
verdict to h2, the same one is spoken here. What a header section may say is judged by the reference's own functions, once for each
section that a client sends again and again. The order of things is the reference's, method by method; read that one first.

One engine belongs to one thread. Nothing points into what was received after a call has returned.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_XDECREF
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memmove

from .engine cimport Answering, KeptStamp, Request
from .hpack cimport NGHTTP2_NV_FLAG_NO_INDEX, NGHTTP2_NV_FLAG_NONE, FieldDecoder, FieldEncoder, nghttp2_nv

from collections import OrderedDict, deque

from ..engine import NEVER as _NEVER
from ..errors import Http2Error, LimitExceeded, LocalProtocolError, RemoteProtocolError
from ..events import BodyReceived, ConnectionFailed, PeerClosed, RequestReceived, StreamFailed
from ..grammar import HOST, HTTP2_PREFACE
from ..http2 import fields as _fields
from ..http2 import frames as _frames
from ..http2 import library as _library
from ..http2.engine import _STOP_PING, stalled
from ..http2.fields import encode_response, malformed, read_request, read_trailers, read_urgency, request_line, stamp_fields
from ..http2.receiving import LARGER
from ..http2.responding import _SECRET, EARNED as _EARNED, PUMPED as _PUMPED
from ..http2.stream import Responding

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **, Py_ssize_t) except -1
    PyObject *_new_bytes "PyBytes_FromStringAndSize"(const char *, Py_ssize_t) except NULL
    char *_bytes_of "PyBytes_AS_STRING"(PyObject *)

cdef double NEVER = _NEVER

cdef enum:  # frames, in the order of their numbers; flags; errors
    DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION
    PRIORITY_UPDATE = 0x10
    END_STREAM = 0x1
    ACK = 0x1
    END_HEADERS = 0x4
    PADDED = 0x8
    HAS_PRIORITY = 0x20

cdef enum:
    NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED
    FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM

cdef enum:
    HEADER_SIZE = 9
    MAX_SIZE = 16384
    PREFACE_SIZE = 24
    WHOLE = 4096        # content of at least so many octets is not copied, if it leaves in one frame
    NAMES = 64          # fields of a section for which no memory is taken

cdef enum:  # Reading
    OPEN, LINGER, CLOSED

cdef enum:  # Responding: how far the response is; powers of two, so that several can be expected
    NONE = 1
    STARTED = 2
    SENDING = 4
    TRAILERS = 8
    DONE = 16

cdef enum:  # why frames may come for a stream that is gone
    BY_US = 1           # they are dropped
    BY_RESET = 2        # it did not end by an END_STREAM

cdef int64_t MAX_WINDOW = _frames.MAX_WINDOW
cdef int64_t DEFAULT_WINDOW = _frames.DEFAULT_WINDOW
cdef uint32_t LAST_STREAM = _frames.LAST_STREAM
cdef Py_ssize_t PUMPED = _PUMPED
cdef int EARNED = _EARNED
cdef Py_ssize_t CLOSED_STREAMS = _library.CLOSED_STREAMS
cdef Py_ssize_t REMEMBERED = _library.REMEMBERED, REMEMBERED_SIZE = _library.REMEMBERED_SIZE
cdef int64_t MOST = 2**63 - 1
cdef bytes PREFACE = HTTP2_PREFACE
cdef bytes STOP_PING = _STOP_PING
cdef bytes V2 = b"2"
cdef dict _STATES = dict(zip((NONE, STARTED, SENDING, TRAILERS, DONE), Responding))
cdef dict _NAMES = _fields._names     # filled by the reference: names as applications spell them
cdef frozenset SECRET = _SECRET
cdef int KIND_LENGTH = _fields._LENGTH, KIND_DROPPED = _fields._DROPPED, KIND_DATE = _fields._DATE
cdef int KIND_SERVER = _fields._SERVER

cdef enum:  # fields that say something of a request
    OF_LENGTH, OF_TRAILERS, OF_PRIORITY, OF_COOKIE, OF_MORE

cdef dict _PARTICULAR = {
    b"content-length": OF_LENGTH, b"te": OF_TRAILERS, b"priority": OF_PRIORITY, b"cookie": OF_COOKIE,
    **dict.fromkeys((b"host", b"expect", *_fields._CONNECTION_FIELDS), OF_MORE),
}
cdef frozenset _ORDINARY_METHODS = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"))
cdef int URGENCY = _fields.DEFAULT_URGENCY
cdef Py_ssize_t ENTRY = _fields.ENTRY

assert MAX_SIZE == _frames.MAX_SIZE and PREFACE_SIZE == len(PREFACE)


cdef inline uint32_t _read32(const uint8_t *at) noexcept:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline void _write32(uint8_t *at, uint32_t value) noexcept:
    at[0], at[1], at[2], at[3] = value >> 24, (value >> 16) & 255, (value >> 8) & 255, value & 255


cdef inline void _write_header(uint8_t *at, Py_ssize_t size, int kind, int flags, uint32_t stream) noexcept:
    at[0], at[1], at[2], at[3], at[4] = size >> 16, (size >> 8) & 255, size & 255, kind, flags
    _write32(at + 5, stream)


cdef inline bint _is_sound(const uint8_t *value, Py_ssize_t size) noexcept:
    """Whether a field value is made of visible ASCII and single kinds of white space inside: others are looked at by the reference."""
    cdef Py_ssize_t at
    if not size:
        return True
    if value[0] <= 0x20 or value[size - 1] <= 0x20:
        return False
    for at in range(size):
        if value[at] < 0x20 or value[at] > 0x7E:
            return False
    return True


cdef inline bint _is_path(const uint8_t *path, Py_ssize_t size) noexcept:
    """Whether it is an absolute path, with or without a query."""
    cdef Py_ssize_t at
    if not size or path[0] != 0x2F:
        return False
    for at in range(size):
        if path[at] < 0x21 or path[at] > 0x7E or path[at] == 0x23:
            return False
    return True


cdef inline bint _is_plain_name(const uint8_t *name, Py_ssize_t size) noexcept:
    """Whether it is made of small letters, digits, hyphens and underscores."""
    cdef Py_ssize_t at
    for at in range(size):
        if not (0x61 <= name[at] <= 0x7A or 0x30 <= name[at] <= 0x39 or name[at] == 0x2D or name[at] == 0x5F):
            return False
    return size > 0


cdef object _error(int code, str reason):
    """A fault of the connection: an exception that is raised."""
    return Http2Error(code, reason)


# --- sections and streams --------------------------------------------------------------------------------


@cython.final
cdef class Known:
    """See http2.pxd."""

    cdef int read(self, object head) except -1:
        """It is a request, and in order: what the reference says of it."""
        self.set_target(head.method, head.path)
        self.authority, self.protocol, self.fields = head.authority, head.protocol, head.fields
        self.length, self.urgency = head.length, head.urgency
        self.expects_continue, self.takes_trailers = head.expects_continue, head.takes_trailers
        self.is_read = True
        return 0

    cdef int set_target(self, bytes method, bytes path) except -1:
        self.method, self.path = method, path
        self.raw_path, _, self.query = path.partition(b"?")
        self.percent, self.is_head = b"%" in self.raw_path, method == b"HEAD"
        return 0


@cython.final
@cython.freelist(64)
cdef class Stream:
    """See `servery.http2.stream.Stream`."""

    cdef bint is_empty(self) noexcept:
        return self.is_head or self.status == 204 or self.status == 304

    cdef int push(self, bytes data) except -1:
        if self.first is None:
            self.first = data
        else:
            if self.more is None:
                self.more = deque()
            self.more.append(data)
        self.queued += PyBytes_GET_SIZE(data)
        return 0

    cdef int drop(self) except -1:
        """Nothing more can be sent."""
        self.first = self.more = None
        self.queued = self.skipped = 0
        self.sending = self.ending = False
        self.write_deadline = NEVER
        self.responding = DONE
        return 0


cdef Stream _new_stream(uint32_t number, bint complete):
    stream = <Stream>Stream.__new__(Stream)
    stream.number, stream.receiving, stream.sending, stream.held = number, not complete, True, True
    stream.responding = NONE
    stream.expected = stream.length = stream.owed = -1
    stream.body_deadline = stream.write_deadline = NEVER
    return stream


cdef object _as_event(Request request):
    return RequestReceived(
        request.stream, request.method, request.target, request.raw_path, request.query, request.authority,
        request.version, request.headers, request.complete, request.expects_continue, request.upgrade,
    )


# --- the connection --------------------------------------------------------------------------------------


cdef class Http2Engine(Answering):
    """See `servery.engine.StreamsEngine` for the contract, `servery.http2.engine` for the reasons."""

    def __init__(self, limits, stamp, double now):
        self._limits = limits
        self.stamp = self._base = stamp
        self._head_size = min(limits.head_size, 1 << 48)
        self._body_size = MOST if limits.body_size is None else min(limits.body_size, MOST)
        self._connection_window = max(limits.h2_connection_window, DEFAULT_WINDOW)
        self._stream_window = min(limits.body_buffer, MAX_WINDOW)
        self._most_fields, self._field_size = min(limits.field_count, 1 << 30), min(limits.field_size, 1 << 48)
        self._line_size = min(limits.request_line, 1 << 48) - len(b"  HTTP/2.0")
        self._most_streams, self._most_continuations = limits.h2_streams, limits.h2_continuations
        self._head_timeout, self._body_timeout = limits.head_timeout, limits.body_timeout
        self._keep_alive_timeout, self._write_timeout = limits.keep_alive_timeout, limits.write_timeout
        self._linger_timeout, self._body_rate = limits.linger_timeout, limits.body_min_rate
        self._decoder, self._encoder = FieldDecoder(limits.head_size * LARGER), FieldEncoder()
        self._known, self._streams, self._ready, self._out = {}, {}, [], []
        self._octets = b""
        self._cut, self._passed = OrderedDict(), deque(maxlen=CLOSED_STREAMS)
        self._window_in = self._largest_in = self._window_out = self._first_in = self._first_out = DEFAULT_WINDOW
        self._largest_frame = MAX_SIZE
        self._control.left = self._control.limit = limits.h2_control_frames
        self._control.rate, self._control.since = limits.h2_control_frames / limits.h2_interval, now
        self._resets.left = self._resets.limit = limits.h2_resets
        self._resets.rate, self._resets.since = limits.h2_resets / limits.h2_interval, now
        self._now, self._goodbye = now, NEVER
        self._idle_at = self.deadline = now + <double>limits.first_byte_timeout
        self.wants_read = True
        self._begin()

    def _begin(self):
        """Our SETTINGS, and a larger window for the connection than the RFC begins with."""
        cdef int64_t more = min(self._connection_window, MAX_WINDOW) - DEFAULT_WINDOW
        frame = _frames.settings_frame(_frames.our_settings(self._limits))
        self._out.append(frame)
        if more > 0:
            self._number_frame(WINDOW_UPDATE, 0, more)
            self._window_in += more
            self._largest_in = self._window_in

    def __dealloc__(self):
        Py_XDECREF(self._buffer)

    # --- from the peer ---------------------------------------------------------------------------------

    def receive(self, bytes data, double now):
        """Take octets from the peer; ``b""`` is EOF."""
        cdef list events
        if not data:
            return self.take_end(now)
        events = self.take(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), now)
        return [_as_event(event) if type(event) is Request else event for event in events]

    cdef list take(self, const uint8_t *data, Py_ssize_t size, double now):
        """Take octets from the peer. A `Request` stands for the event that tells of it."""
        cdef list events = []
        cdef bytes joined
        self._now = now
        if self._reading != OPEN:
            return events
        try:
            if PyBytes_GET_SIZE(self._octets):
                joined = self._octets + data[:size]
                self._octets = b""
                self._feed(<const uint8_t *>PyBytes_AS_STRING(joined), PyBytes_GET_SIZE(joined), events)
            else:
                self._feed(data, size, events)
        except Http2Error as error:
            self._fail(error.with_traceback(None), events)
        return events

    cdef int _feed(self, const uint8_t *data, Py_ssize_t size, list events) except -1:
        """Frame by frame. A frame's header may be too much before its payload has come."""
        cdef Py_ssize_t length, part
        if self._preface < PREFACE_SIZE:
            part = min(size, PREFACE_SIZE - self._preface)
            if memcmp(data, PyBytes_AS_STRING(PREFACE) + self._preface, part):
                raise _error(PROTOCOL_ERROR, "not the preface of HTTP/2")
            self._preface += part
            data += part
            size -= part
        while size >= HEADER_SIZE:
            length = (<Py_ssize_t>data[0] << 16) | (data[1] << 8) | data[2]
            if length > MAX_SIZE:
                raise _error(FRAME_SIZE_ERROR, "frame too large")
            if HEADER_SIZE + length > size:
                break
            self._take(data[3], data[4], _read32(data + 5) & LAST_STREAM, data + HEADER_SIZE, length, events)
            if self._reading != OPEN:
                return 0
            data += HEADER_SIZE + length
            size -= HEADER_SIZE + length
        if size:
            self._octets = data[:size]
        return 0

    cdef int _take(self, int kind, int flags, uint32_t stream, const uint8_t *payload, Py_ssize_t size, list events) except -1:
        if not self._settled:
            if kind != SETTINGS or flags & ACK:
                raise _error(PROTOCOL_ERROR, "the first frame must be SETTINGS")
            self._settled = True
            self._settle_idle()
        if self._block is not None and (kind != CONTINUATION or stream != self._block_stream):
            raise _error(PROTOCOL_ERROR, "a frame inside of a header section")
        if kind == HEADERS:
            return self._on_headers(flags, stream, payload, size, events)
        if kind == DATA:
            return self._on_data(flags, stream, payload, size, events)
        if kind == CONTINUATION:
            return self._on_continuation(flags, stream, payload, size, events)
        if kind == PUSH_PROMISE:
            raise _error(PROTOCOL_ERROR, "PUSH_PROMISE from a client")
        if kind == RST_STREAM:
            return self._on_reset(stream, size, events)
        self._spend(&self._control, "too many frames without content")
        if kind == WINDOW_UPDATE:
            return self._on_window_update(stream, payload, size, events)
        if kind == SETTINGS:
            return self._on_settings(flags, stream, payload, size)
        if kind == PING:
            return self._on_ping(flags, stream, payload, size)
        if kind == GOAWAY:
            return self._on_goaway(stream, size)
        if kind == PRIORITY:
            return self._on_priority(stream, size)
        if kind == PRIORITY_UPDATE:
            return self._on_priority_update(stream, payload, size)
        return 0

    # --- heads -----------------------------------------------------------------------------------------

    cdef int _on_headers(
        self, int flags, uint32_t stream, const uint8_t *payload, Py_ssize_t size, list events
    ) except -1:
        cdef Py_ssize_t padding = 0, whole = size + HEADER_SIZE
        cdef bint circular = False
        if not stream & 1:
            raise _error(PROTOCOL_ERROR, "HEADERS on a stream that is not the client's")
        self._bound_block(whole, 0)
        if not flags & END_HEADERS:
            self._block = []
            self._block_stream, self._block_size, self._block_frames, self._block_since = stream, whole, 0, self._now
            self._due(self._now + self._head_timeout)
        if flags & PADDED:
            if not size:
                raise _error(FRAME_SIZE_ERROR, _frames.WRONG_SIZE)
            padding = payload[0]
            payload += 1
            size -= 1
        if flags & HAS_PRIORITY and size < 5:
            raise _error(FRAME_SIZE_ERROR, _frames.WRONG_SIZE)
        if padding and padding >= size:
            raise _error(PROTOCOL_ERROR, _frames.NOT_ALLOWED)
        if flags & HAS_PRIORITY:
            circular = (_read32(payload) & LAST_STREAM) == stream
            payload += 5
            size -= 5
        size = max(0, size - padding)
        if not flags & END_HEADERS:
            self._block.append(payload[:size])
            self._block_ends, self._block_circular = flags & END_STREAM, circular
            return 0
        return self._end_block(stream, flags & END_STREAM, circular, payload, size, events)

    cdef int _on_continuation(
        self, int flags, uint32_t stream, const uint8_t *payload, Py_ssize_t size, list events
    ) except -1:
        cdef bytes joined
        if self._block is None:
            raise _error(PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._block_size += size + HEADER_SIZE
        self._block_frames += 1
        self._bound_block(self._block_size, self._block_frames)
        self._block.append(payload[:size])
        if not flags & END_HEADERS:
            return self._due(self._block_since + self._head_timeout)
        joined = b"".join(self._block)
        self._block = None
        return self._end_block(
            stream, self._block_ends, self._block_circular, <const uint8_t *>PyBytes_AS_STRING(joined), PyBytes_GET_SIZE(joined), events
        )

    cdef int _bound_block(self, Py_ssize_t size, Py_ssize_t frames) except -1:
        """A header section is bounded before anything of it is decoded."""
        if size > self._head_size + HEADER_SIZE * (frames + 1) or frames > self._most_continuations:
            raise _error(ENHANCE_YOUR_CALM, "a header section too large, or in too many frames")
        return 0

    cdef int _end_block(
        self, uint32_t stream, bint ends, bint circular, const uint8_t *block, Py_ssize_t size, list events
    ) except -1:
        cdef Known known = self._decode(block, size)
        if stream <= self._highest:
            self._read_more_fields(stream, known, ends, circular, events)
        else:
            if circular:
                raise _error(PROTOCOL_ERROR, _frames.NOT_ALLOWED)
            if stream > self._highest + 2:
                self._passed.append((self._highest + 1, stream - 1))
            self._highest = stream
            self._read_request(stream, known, ends, events)
        if not self._streams:
            self._due(self._idle_at)  # which has not counted while the section came
        return 0

    cdef Known _decode(self, const uint8_t *block, Py_ssize_t size):
        """What a block is. See `servery.http2.library.Remembered`."""
        cdef Known known
        cdef bint changed
        key = None
        if size <= REMEMBERED_SIZE:
            key = block[:size]
            found = PyDict_GetItem(self._known, key)
            if found != NULL:
                return <Known>found
        known = <Known>Known.__new__(Known)
        known.section = self._decoder.decode(block, size, &changed)
        if changed:
            self._known.clear()
        elif key is not None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = known
        return known

    cdef int _read_request(self, uint32_t stream, Known known, bint complete, list events) except -1:
        if self._leaving:
            return self._refuse(stream, REFUSED_STREAM)
        if len(self._streams) >= self._most_streams:
            self._refuse(stream, REFUSED_STREAM)
            return self._spend(&self._resets, "too many streams reset")
        if not (known.is_read or self._read_ordinary(known)):
            try:
                known.read(read_request(known.section, self._limits))
            except Http2Error as error:
                return self._malformed(stream, known, error, events)
            except RemoteProtocolError as error:
                return self._answer_fault(stream, known, complete, error.with_traceback(None), events)
        if complete and known.length > 0:
            return self._malformed(stream, known, malformed("a body shorter than its Content-Length"), events)
        self._earn(EARNED)
        return self._open_stream(stream, known, complete, events)

    cdef bint _read_ordinary(self, Known known) except -1:
        """Whether a section is an ordinary request, which is then read: what is not is for the reference to read, or to refuse."""
        cdef list section = known.section
        cdef Py_ssize_t at, cookie = -1, total = 0, size
        cdef tuple field
        known.fields = []
        known.length, known.urgency, known.takes_trailers = -1, -1, False
        if not 4 <= len(section) <= self._most_fields + 4 or not self._read_pseudo(known):
            return False
        for at in range(len(section)):
            field = <tuple>section[at]
            size = PyBytes_GET_SIZE(<bytes>field[0]) + PyBytes_GET_SIZE(<bytes>field[1])
            total += size + ENTRY
            if at >= 4 and (size + 2 > self._field_size or not self._read_field(known, field, &cookie)):
                return False
        if known.urgency < 0:
            known.urgency = URGENCY
        known.is_read = total <= self._head_size
        return known.is_read

    cdef bint _read_pseudo(self, Known known) except -1:
        """The four pseudo-header fields, in any order, and nothing else before the fields."""
        cdef bytes name, value, method = None, path = None, scheme = None, authority = None
        cdef Py_ssize_t at
        for at in range(4):
            name, value = <bytes>(<tuple>known.section[at])[0], <bytes>(<tuple>known.section[at])[1]
            if name == b":method" and method is None:
                method = value
            elif name == b":path" and path is None:
                path = value
            elif name == b":scheme" and scheme is None:
                scheme = value
            elif name == b":authority" and authority is None:
                authority = value
            else:
                return False
        if method not in _ORDINARY_METHODS or not (scheme == b"http" or scheme == b"https"):
            return False
        if not _is_path(<const uint8_t *>PyBytes_AS_STRING(path), PyBytes_GET_SIZE(path)):
            return False
        if PyBytes_GET_SIZE(method) + PyBytes_GET_SIZE(path) > self._line_size:
            return False
        if authority != self._authority:
            if HOST.fullmatch(authority) is None:
                return False
            self._authority = authority
        known.set_target(method, path)
        known.authority = authority
        return True

    cdef bint _read_field(self, Known known, tuple field, Py_ssize_t *cookie) except -1:
        """Whether a field is ordinary: its name, its value, and what it says of the request."""
        cdef bytes name = <bytes>field[0], value = <bytes>field[1]
        cdef int kind
        if not (
            _is_plain_name(<const uint8_t *>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            and _is_sound(<const uint8_t *>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        ):
            return False
        found = PyDict_GetItem(_PARTICULAR, name)
        if found != NULL:
            kind = <object>found
            if kind == OF_LENGTH:
                if known.length >= 0 or not _is_number(value) or <int64_t>int(value) > self._body_size:
                    return False
                known.length = int(value)
            elif kind == OF_TRAILERS:
                if value != b"trailers":
                    return False
                known.takes_trailers = True
            elif kind == OF_PRIORITY:
                if known.urgency >= 0:
                    return False
                known.urgency = read_urgency(value)
            elif kind == OF_COOKIE and cookie[0] >= 0:  # a crumb: section 8.2.3
                known.fields[cookie[0]] = (name, known.fields[cookie[0]][1] + b"; " + value)
                return True
            elif kind == OF_COOKIE:
                cookie[0] = len(known.fields)
            else:
                return False
        known.fields.append(field)
        return True

    cdef int _malformed(self, uint32_t stream, Known known, object error, list events) except -1:
        """A request that is none: its stream is reset."""
        events.append(StreamFailed(error.with_traceback(None), stream, request_line(known.section), 0))
        self._refuse(stream, error.code)
        return self._spend(&self._resets, "too many streams reset")

    cdef int _refuse(self, uint32_t stream, uint32_t code) except -1:
        self._number_frame(RST_STREAM, stream, code)
        return self._mark(stream, BY_US | BY_RESET)

    cdef int _open_stream(self, uint32_t number, Known known, bint complete, list events) except -1:
        cdef Stream stream = _new_stream(number, complete)
        cdef Request request = <Request>Request.__new__(Request)
        stream.is_head, stream.takes_trailers, stream.urgency = known.is_head, known.takes_trailers, known.urgency
        stream.continue_due = known.expects_continue and not complete
        stream.tunnel, stream.expected = known.protocol is not None, known.length
        stream.window_in, stream.window_out = self._first_in, self._first_out
        self._streams[number] = self._recent = stream
        self._idle_at = NEVER
        if not (complete or stream.tunnel):
            stream.body_base = self._now + self._body_timeout
            self._body_due(stream, stream.body_base)
        request.stream, request.method, request.target, request.raw_path = number, known.method, known.path, known.raw_path
        request.query, request.authority, request.version = known.query, known.authority, V2
        request.headers, request.complete = known.fields[:], complete
        request.expects_continue, request.upgrade, request.percent = stream.continue_due, known.protocol, known.percent
        events.append(request)
        return 0

    cdef int _answer_fault(self, uint32_t number, Known known, bint complete, object error, list events) except -1:
        """A request over a limit, or for what is not served: it gets its status, and nothing else."""
        cdef Stream stream = _new_stream(number, complete)
        stream.is_head = dict(known.section[:8]).get(b":method") == b"HEAD"
        stream.window_in, stream.window_out = self._first_in, self._first_out
        stream.urgency = 0
        self._streams[number] = stream
        self._idle_at = NEVER
        stream.held = False
        self.answer(number, error.status, error.reason)
        events.append(StreamFailed(error, number, request_line(known.section), error.status))
        return 0

    cdef int _read_more_fields(self, uint32_t number, Known known, bint ends, bint circular, list events) except -1:
        """A second section of a stream: trailers, or what the stream does not allow."""
        cdef Stream stream = self.find(number)
        if stream is not None and stream.receiving:
            if circular or not ends:
                raise _error(PROTOCOL_ERROR, _frames.NOT_ALLOWED)
            return self._read_trailers(stream, known, events)
        if stream is None or not stream.sending:
            self._check_reset(number)
        self._number_frame(RST_STREAM, number, STREAM_CLOSED)
        self._spend(&self._resets, "too many streams reset")
        return self._fault_of_state(number, stream, events)

    cdef int _check_reset(self, uint32_t number) except -1:
        """Fields for a stream that is gone: a fault of the stream if a reset has ended it, else of the connection (section 5.1)."""
        if self._cut.get(number, 0) & BY_RESET:
            return 0
        for first, last in self._passed:
            if first <= number <= last:
                raise _error(PROTOCOL_ERROR, _frames.PASSED_OVER)
        raise _error(STREAM_CLOSED, _frames.ON_CLOSED)

    cdef int _fault_of_state(self, uint32_t number, Stream stream, list events) except -1:
        """A stream that was half open is reset for a frame that it does not allow."""
        if stream is None or not (stream.sending or stream.receiving):
            return 0
        self._mark(number, BY_US | BY_RESET)
        self._drop(stream)
        events.append(StreamFailed(_error(STREAM_CLOSED, "a frame that the stream does not allow"), number, None, 0))
        return self._spend(&self._resets, "too many streams reset")

    cdef int _read_trailers(self, Stream stream, Known known, list events) except -1:
        cdef list trailers = []
        if stream.responding != DONE:
            try:
                if stream.expected >= 0 and stream.received != stream.expected:
                    raise malformed("a body shorter than its Content-Length")
                trailers = read_trailers(known.section, self._limits)
            except RemoteProtocolError as error:
                stream.receiving = False  # its end has come, whatever it said
                stream.body_deadline = NEVER
                return self._fail_stream(stream, error.with_traceback(None), events)
        return self._end_body(stream, b"", trailers, events)

    # --- bodies ----------------------------------------------------------------------------------------

    cdef int _on_data(self, int flags, uint32_t number, const uint8_t *payload, Py_ssize_t size, list events) except -1:
        cdef Py_ssize_t content = size
        cdef Stream stream
        if not number or number > self._highest:
            raise _error(PROTOCOL_ERROR, "DATA on a stream that has not begun")
        if flags & PADDED:
            content = size - 1 - payload[0] if size else -1
            payload += 1
        if content < 0:
            raise _error(PROTOCOL_ERROR, "more padding than there is room for")
        if content:
            self._earn(EARNED)
        elif not flags & END_STREAM:
            self._spend(&self._control, "too many frames without content")
        stream = self.find(number)
        if stream is None or not stream.receiving:
            return self._late_data(number, stream, size, events)
        if stream.tunnel or stream.responding == DONE or self._fits(stream, content, flags & END_STREAM, size, events):
            return self._take_data(stream, payload, content, size, flags & END_STREAM, events)
        return 0

    cdef int _late_data(self, uint32_t number, Stream stream, Py_ssize_t size, list events) except -1:
        """For a stream that is closed: dropped if it was us who closed it, else a fault."""
        cdef int64_t more
        if self._cut.get(number, 0) & BY_US:
            return self._skip_data(size)
        self._spend(&self._resets, "too many streams reset")
        self._window_in -= size
        if self._window_in < 0:
            raise _error(FLOW_CONTROL_ERROR, _frames.OVER_WINDOW)
        if not number & 1:
            raise _error(PROTOCOL_ERROR, _frames.NOT_BEGUN)
        self._dropped += size
        if self._dropped and (
            self._dropped >= self._largest_in // 2
            or (not self._window_in and self._dropped > min(1024, self._largest_in // 4))
        ):
            more = min(self._dropped, self._largest_in - self._window_in)
            self._dropped = 0
            if more:
                self._window_in += more
                self._number_frame(WINDOW_UPDATE, 0, more)
        self._number_frame(RST_STREAM, number, STREAM_CLOSED)
        self._mark(number, BY_US)
        return self._fault_of_state(number, stream, events)

    cdef int _skip_data(self, Py_ssize_t size) except -1:
        """Octets that nobody is to see: the connection's window is as it was, for both sides."""
        if size > self._window_in:
            raise _error(FLOW_CONTROL_ERROR, "more than the window of the connection")
        return self._number_frame(WINDOW_UPDATE, 0, size) if size else 0

    cdef bint _fits(self, Stream stream, Py_ssize_t content, bint ends, Py_ssize_t size, list events) except -1:
        """Whether `content` more octets fit what was announced, and what is allowed (section 8.1.1)."""
        cdef int64_t total = stream.received + content
        if stream.expected >= 0 and (total > stream.expected or (ends and total != stream.expected)):
            error = malformed("a body that does not fit its Content-Length")
        elif total > self._body_size:
            error = LimitExceeded(413, "request body too large")
        else:
            return True
        self._fail_stream(stream, error, events)
        self._skip_data(size)
        return False

    cdef int _take_data(
        self, Stream stream, const uint8_t *content, Py_ssize_t length, Py_ssize_t size, bint ends, list events
    ) except -1:
        self._window_in -= size
        stream.window_in -= size
        if self._window_in < 0 or stream.window_in < 0:
            raise _error(FLOW_CONTROL_ERROR, _frames.OVER_WINDOW)
        stream.received += length
        stream.continue_due = False
        self._owed += size
        if self._owed * 2 >= self._connection_window:
            self._number_frame(WINDOW_UPDATE, 0, self._owed)
            self._window_in += self._owed
            self._largest_in = max(self._largest_in, self._window_in)
            self._owed = 0
        stream.unacknowledged += size
        if ends:
            return self._end_body(stream, content[:length], [], events)
        if size != length:
            self._give_back(stream, size - length)
        if not (stream.tunnel or stream.responding == DONE):
            self._earn_time(stream)
        if length and stream.responding != DONE:
            events.append(BodyReceived(stream.number, content[:length], True, []))
        return 0

    cdef int _earn_time(self, Stream stream) except -1:
        """The time for more grows with the body, but never past one stall; it stands still for a slow application."""
        if stream.unacknowledged * 2 >= self._stream_window:
            stream.body_deadline = NEVER
            return 0
        earned = stream.body_base + stream.received / self._body_rate if self._body_rate else NEVER
        return self._body_due(stream, min(<double>earned, self._now + self._body_timeout))

    cdef int _body_due(self, Stream stream, double when) except -1:
        stream.body_deadline = when
        return self._due(when)

    cdef int _end_body(self, Stream stream, bytes data, list trailers, list events) except -1:
        stream.receiving = False
        stream.body_deadline = NEVER
        if stream.responding != DONE:
            events.append(BodyReceived(stream.number, data, False, trailers))
        return self._closed(stream)

    cpdef object consumed(self, long stream, Py_ssize_t size, double now):
        """The application took `size` octets of the body."""
        cdef Stream found = self.find(stream)
        self._now = now
        if found is not None and found.receiving:
            self._give_back(found, size)

    cdef int _give_back(self, Stream stream, Py_ssize_t size) except -1:
        """What the application has taken comes back to the window, half of it or more at a time."""
        cdef bint was_full = stream.unacknowledged * 2 >= self._stream_window
        stream.owed_window += size
        if stream.owed_window * 2 < self._stream_window:
            return 0
        self._number_frame(WINDOW_UPDATE, stream.number, stream.owed_window)
        stream.window_in += stream.owed_window
        stream.unacknowledged -= stream.owed_window
        stream.owed_window = 0
        if was_full and not (stream.tunnel or stream.responding == DONE):
            earned = stream.received / self._body_rate if self._body_rate else 0.0
            stream.body_base = self._now + self._body_timeout - <double>earned
            self._body_due(stream, self._now + self._body_timeout)
        return 0

    # --- other frames ----------------------------------------------------------------------------------

    cdef int _on_priority(self, uint32_t stream, Py_ssize_t size) except -1:
        if not stream:
            raise _error(PROTOCOL_ERROR, "PRIORITY without a stream")
        if size != 5:
            raise _error(FRAME_SIZE_ERROR, "PRIORITY of a wrong size")
        return 0

    cdef int _on_priority_update(self, uint32_t stream, const uint8_t *payload, Py_ssize_t size) except -1:
        """RFC 9218 section 7.1."""
        cdef Stream found
        if stream:
            raise _error(PROTOCOL_ERROR, "PRIORITY_UPDATE on a stream")
        if size < 4:
            raise _error(FRAME_SIZE_ERROR, "PRIORITY_UPDATE too short")
        found = self.find(_read32(payload) & LAST_STREAM)
        if found is not None:
            found.urgency = read_urgency(payload[4:size])
        return 0

    cdef int _on_reset(self, uint32_t number, Py_ssize_t size, list events) except -1:
        cdef Stream stream
        if not number or number > self._highest:
            raise _error(PROTOCOL_ERROR, "RST_STREAM for a stream that has not begun")
        if size != 4:
            raise _error(FRAME_SIZE_ERROR, "RST_STREAM of a wrong size")
        self._spend(&self._resets, "too many streams reset")
        stream = self.find(number)
        if stream is not None and (stream.receiving or stream.sending):
            self._mark(number, BY_RESET)
            self._drop(stream)
            events.append(StreamFailed(None, number, None, 0))
        return 0

    cdef int _on_settings(self, int flags, uint32_t stream, const uint8_t *payload, Py_ssize_t size) except -1:
        if flags & ACK and size:
            raise _error(FRAME_SIZE_ERROR, "an acknowledgement that says something")
        if stream:
            raise _error(PROTOCOL_ERROR, _frames.NOT_ALLOWED)
        if flags & ACK:
            self._acknowledged_ours()
        else:
            if size % 6:
                raise _error(FRAME_SIZE_ERROR, _frames.WRONG_SIZE)
            self._apply(payload, size)
            self._frame(SETTINGS, ACK, 0, NULL, 0)
        return self._wake_all()

    cdef int _acknowledged_ours(self) except -1:
        """The peer knows our windows now: those of its streams are what it was told (section 6.9.2)."""
        cdef int64_t delta = self._stream_window - self._first_in
        if not self._acknowledged:
            self._acknowledged = True
            self._first_in += delta
            for stream in self._streams.values():
                (<Stream>stream).window_in += delta
        return 0

    cdef int _apply(self, const uint8_t *payload, Py_ssize_t size) except -1:
        """Settings of the peer: all are looked at before any is in force; of two the later one counts."""
        cdef int64_t window = self._first_out, table = -1, largest = self._largest_frame, delta
        cdef Py_ssize_t at
        cdef uint32_t value
        cdef int name
        for at in range(0, size, 6):
            name, value = (payload[at] << 8) | payload[at + 1], _read32(payload + at + 2)
            if name == 1:
                table = value
            elif name == 4:
                window = value
            elif name == 5:
                largest = value
        self._check_settings({(payload[at] << 8) | payload[at + 1]: _read32(payload + at + 2) for at in range(0, size, 6)})
        delta = window - self._first_out
        self._first_out = window
        for stream in self._streams.values() if delta else ():
            if not ((<Stream>stream).sending or (<Stream>stream).receiving):
                continue
            (<Stream>stream).window_out += delta
            if (<Stream>stream).window_out > MAX_WINDOW:
                raise _error(FLOW_CONTROL_ERROR, _frames.OVER_WINDOW)
        if table >= 0:
            self._encoder.resize(table)
        self._largest_frame = largest
        return 0

    cdef int _check_settings(self, dict settings) except -1:
        for name, value in settings.items():
            if name in (2, 8) and value > 1:
                raise _error(PROTOCOL_ERROR, _frames.WRONG_SETTING)
            if name == 4 and value > MAX_WINDOW:
                raise _error(FLOW_CONTROL_ERROR, _frames.WRONG_SETTING)
            if name == 5 and not MAX_SIZE <= value < 1 << 24:
                raise _error(PROTOCOL_ERROR, _frames.WRONG_SETTING)
        return 0

    cdef int _on_ping(self, int flags, uint32_t stream, const uint8_t *payload, Py_ssize_t size) except -1:
        if stream:
            raise _error(PROTOCOL_ERROR, _frames.NOT_ALLOWED)
        if size != 8:
            raise _error(FRAME_SIZE_ERROR, _frames.WRONG_SIZE)
        if not flags & ACK:
            return self._frame(PING, ACK, 0, payload, 8)
        if not memcmp(payload, PyBytes_AS_STRING(STOP_PING), 8):
            self._say_goodbye()
            self._check_end()
        return 0

    cdef int _on_goaway(self, uint32_t stream, Py_ssize_t size) except -1:
        """The peer begins no more; what is in progress goes on."""
        if stream:
            raise _error(PROTOCOL_ERROR, "GOAWAY on a stream")
        if size < 8:
            raise _error(FRAME_SIZE_ERROR, "GOAWAY too short")
        self._leaving = True
        return self._check_end()

    cdef int _on_window_update(self, uint32_t number, const uint8_t *payload, Py_ssize_t size, list events) except -1:
        cdef Stream stream
        cdef int64_t more
        if size != 4:
            raise _error(FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size")
        if number > self._highest:
            raise _error(PROTOCOL_ERROR, "WINDOW_UPDATE for a stream that has not begun")
        stream = self.find(number) if number else None
        more = _read32(payload) & MAX_WINDOW
        if not more:
            if not number:
                raise _error(PROTOCOL_ERROR, _frames.NOT_ALLOWED)
            if stream is not None and (stream.sending or stream.receiving):
                self._fail_stream(stream, malformed("WINDOW_UPDATE of nothing"), events)
            return 0
        if not number:
            self._window_out += more
            if self._window_out > MAX_WINDOW:
                raise _error(FLOW_CONTROL_ERROR, _frames.OVER_WINDOW)
            return self._wake_all()
        if not number & 1:
            raise _error(PROTOCOL_ERROR, _frames.NOT_BEGUN)
        if stream is None:
            return 0
        if stream.sending or stream.receiving:
            if stream.window_out + more > MAX_WINDOW:
                self._number_frame(RST_STREAM, number, FLOW_CONTROL_ERROR)
                self._mark(number, BY_US | BY_RESET)
                self._drop(stream)
                error = _error(FLOW_CONTROL_ERROR, "a frame that the stream does not allow")
                events.append(StreamFailed(error, number, None, 0))
                return self._spend(&self._resets, "too many streams reset")
            stream.window_out += more
        return self._set_ready(stream) if stream.first is not None else 0

    cdef int _wake_all(self) except -1:
        """Windows have changed: whatever waits is looked at again."""
        for stream in self._streams.values():
            if (<Stream>stream).first is not None:
                self._set_ready(<Stream>stream)
        return 0

    # --- streams that end ------------------------------------------------------------------------------

    cdef int _closed(self, Stream stream) except -1:
        """Nothing is left of `stream`, or it may just have changed so."""
        if not (stream.sending or stream.receiving or stream.held):
            if self._streams.pop(stream.number, None) is not None:
                if self._recent is stream:
                    self._recent = None
            return self._check_end()
        return 0

    cpdef object released(self, long stream, double now):
        """The application call is over."""
        cdef Stream found = self.find(stream)
        self._now = now
        if found is not None:
            found.held = False
            self._closed(found)

    cdef int _fail_stream(self, Stream stream, object error, list events) except -1:
        """A request that cannot be completed. The application may be at work, and may have answered."""
        cdef uint32_t number = stream.number
        if isinstance(error, Http2Error):
            self._spend(&self._resets, "too many streams reset")
            events.append(StreamFailed(error, number, None, 0))
            self._reset(stream, error.code)
        elif stream.responding & (NONE | STARTED):
            events.append(StreamFailed(error, number, None, error.status))
            stream.takes_trailers = False
            self.answer(number, error.status, error.reason)
        else:
            if stream.responding != DONE:
                events.append(StreamFailed(error, number, None, 0))
            self._reset(stream, CANCEL)
        return 0

    cdef int _reset(self, Stream stream, uint32_t code) except -1:
        """RST_STREAM, and whatever still comes for it is dropped."""
        cdef int why = BY_US
        if stream.sending or stream.receiving:  # else both ends have been said
            self._number_frame(RST_STREAM, stream.number, code)
            why |= BY_RESET
        self._mark(stream.number, why)
        return self._drop(stream)

    cdef int _mark(self, uint32_t stream, int why) except -1:
        """Remember why frames may still come for a stream that is gone."""
        cdef object cut = self._cut
        cut[stream] = cut.get(stream, 0) | why
        if len(cut) > CLOSED_STREAMS:
            cut.popitem(last=False)
        return 0

    cdef int _drop(self, Stream stream) except -1:
        stream.drop()
        stream.receiving = False
        stream.body_deadline = NEVER
        self._unready(stream)
        return self._closed(stream)

    # --- the end ---------------------------------------------------------------------------------------

    cdef int _settle_idle(self) except -1:
        self._idle_at = self._now + self._keep_alive_timeout
        return self._due(self._idle_at)

    cdef int _check_end(self) except -1:
        """A stream is gone: if it was the last, the connection is idle, or at its end."""
        if self._streams or self._reading != OPEN:
            return 0
        if self._leaving or self._eof or self._goodbye != NEVER:
            self._say_goodbye()
            return self._linger()
        return self._settle_idle()

    cdef int _say_goodbye(self) except -1:
        """The last GOAWAY: what comes from now on is not served."""
        if not self._said:
            self._goaway(self._highest, NO_ERROR, b"")
        self._said = self._leaving = True
        self._goodbye = NEVER
        return 0

    cdef list take_end(self, double now):
        """EOF."""
        cdef list events
        cdef Stream stream
        self._now = now
        self._eof = True
        if self._reading != OPEN or not self._streams:
            self._close()
            return []
        events = [PeerClosed()]
        for found in list(self._streams.values()):
            stream = <Stream>found
            if stream.receiving:
                events.append(StreamFailed(None, stream.number, None, 0))
                self._reset(stream, CANCEL)
        self._check_end()
        return events

    cpdef object stop(self, double now, bint patient=False):
        """Announce the end, answer what is in progress, then close."""
        self._now = now
        if self._reading != OPEN:
            return
        if not self._streams and not (patient and self._settled):
            if self._settled:
                self._goaway(self._highest, NO_ERROR, b"")
            self._close()
            return
        self._goaway(LAST_STREAM, NO_ERROR, b"")  # what is on its way is still served: section 6.8
        self._frame(PING, 0, 0, PyBytes_AS_STRING(STOP_PING), 8)
        self._goodbye = now + self._linger_timeout
        self._due(self._goodbye)

    cdef int _fail(self, object error, list events) except -1:
        """A fault of the connection: one GOAWAY, and nothing more is read as HTTP/2 (section 5.4.1)."""
        error.__context__ = None
        self._goaway(self._highest, error.code, error.reason.encode("ascii", "replace"))
        events.append(ConnectionFailed(error, 0, None, 0))
        for stream in self._streams.values():
            (<Stream>stream).drop()
            (<Stream>stream).ready = False
        self._streams.clear()
        self._ready.clear()
        self._recent = None
        return self._linger()

    cdef int _linger(self) except -1:
        """FIN, then read on for a while, so that no RST destroys what we sent."""
        self._block = None
        if self._eof:
            return self._close()
        self._reading = LINGER
        self.half_closed = True
        self.deadline = self._now + self._linger_timeout
        return 0

    cdef int _close(self) except -1:
        self._reading = CLOSED
        self.closing = True
        self.deadline = NEVER
        return 0

    cpdef object forget(self):
        """The connection is gone: hold nothing."""
        self._close()
        self._streams.clear()
        self._ready.clear()
        self._recent = None

    def expire(self, double now):
        """The deadline has passed, of one thing or another."""
        cdef list events = []
        self._now = now
        if self._reading != OPEN:
            self._close()
            return events
        try:
            self._expire(now, events)
        except Http2Error as error:
            self._fail(error.with_traceback(None), events)
        if self._reading == OPEN:
            self._plan()
        return events

    cdef int _expire(self, double now, list events) except -1:
        cdef Stream stream
        cdef bint told
        if self._block is not None and self._block_since + self._head_timeout <= now:
            raise _error(PROTOCOL_ERROR, "a header section not complete in time")
        if self._idle_at <= now and not self._streams and self._block is None:
            if self._settled:
                self._goaway(self._highest, NO_ERROR, b"")
            return self._close()
        if self._goodbye <= now:
            self._say_goodbye()
            self._check_end()
        for found in list(self._streams.values()):
            stream = <Stream>found
            if stream.body_deadline <= now and not stream.sending:
                self._reset(stream, NO_ERROR)
            elif stream.body_deadline <= now:
                stream.body_deadline = NEVER
                self._fail_stream(stream, RemoteProtocolError(408, "request body came too slowly"), events)
            elif stream.write_deadline <= now:
                told = stream.responding != DONE
                self._reset(stream, CANCEL)
                if told:
                    events.append(StreamFailed(stalled(), stream.number, None, 0))
        return 0

    cdef int _plan(self) except -1:
        """When to look again."""
        cdef double due = self._goodbye
        if self._block is not None:
            due = min(due, self._block_since + self._head_timeout)
        elif not self._streams:
            due = min(due, self._idle_at)
        for found in self._streams.values():
            due = min(due, min((<Stream>found).body_deadline, (<Stream>found).write_deadline))
        self.deadline = due
        return 0

    cdef int _spend(self, Budget *budget, str reason) except -1:
        """One more. Raises `Http2Error` if that is one too many. See `servery.http2.budget.Budget`."""
        budget.left -= 1
        if budget.left < 0:
            budget.left = min(budget.limit, budget.left + (self._now - budget.since) * budget.rate)
            budget.since = self._now
            if budget.left < 0:
                raise _error(ENHANCE_YOUR_CALM, reason)
        return 0

    cdef int _earn(self, int count) noexcept:
        """The peer has done something that makes more frames without content likely."""
        self._control.left = min(self._control.limit, self._control.left + count)
        return 0

    cdef int _due(self, double when) noexcept:
        if when < self.deadline:
            self.deadline = when
        return 0

    # --- output ----------------------------------------------------------------------------------------

    cpdef list take_output(self):
        """Hand over, and forget, what is to be written."""
        return self.output()

    cdef list output(self):
        cdef list out
        self._cut_output()
        out = self._out
        if out:
            self._out = []
        return out

    cdef int _cut_output(self) except -1:
        """What was made so far is a part of its own."""
        cdef PyObject *made = self._buffer
        if not self._used:
            return 0
        self._buffer = NULL
        used, self._used, self._room = self._used, 0, 0
        _PyBytes_Resize(&made, used)
        part = <object>made
        Py_DECREF(part)
        self._out.append(part)
        return 0

    cdef uint8_t *_reserve(self, Py_ssize_t size) except NULL:
        """Room for `size` octets; `_used` is the caller's business."""
        cdef Py_ssize_t room
        if self._used + size > self._room:
            room = max(max(2 * self._room, self._used + size), 2048)
            if self._buffer == NULL:
                self._buffer = _new_bytes(NULL, room)
            else:
                _PyBytes_Resize(&self._buffer, room)
            self._room = room
        return <uint8_t *>_bytes_of(self._buffer) + self._used

    cdef int _frame(self, int kind, int flags, uint32_t stream, const void *payload, Py_ssize_t size) except -1:
        cdef uint8_t *at = self._reserve(HEADER_SIZE + size)
        _write_header(at, size, kind, flags, stream)
        if size:
            memcpy(at + HEADER_SIZE, payload, size)
        self._used += HEADER_SIZE + size
        return 0

    cdef int _number_frame(self, int kind, uint32_t stream, uint32_t number) except -1:
        """WINDOW_UPDATE or RST_STREAM."""
        cdef uint8_t payload[4]
        _write32(payload, number)
        return self._frame(kind, 0, stream, payload, 4)

    cdef int _goaway(self, uint32_t last, uint32_t code, bytes reason) except -1:
        cdef uint8_t numbers[8]
        cdef bytes payload
        _write32(numbers, last)
        _write32(numbers + 4, code)
        payload = numbers[:8] + reason
        return self._frame(GOAWAY, 0, 0, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))

    cdef int _write_section(self, uint32_t stream, list head, list tail, int status, int64_t length, bint last) except -1:
        """A header section: :status unless that is 0, the fields of `head`, Content-Length unless that is -1, those of `tail`."""
        cdef nghttp2_nv own[NAMES]
        cdef nghttp2_nv *fields = own
        cdef Py_ssize_t most = 2 + len(head) + len(tail)
        cdef size_t count = 0
        cdef char digits[4]
        cdef char number[24]
        if most > NAMES:
            fields = <nghttp2_nv *>malloc(most * sizeof(nghttp2_nv))
            if fields == NULL:
                raise MemoryError
        try:
            if status:
                digits[0], digits[1], digits[2] = 48 + status // 100, 48 + status // 10 % 10, 48 + status % 10
                _set_field(&fields[count], b":status", 7, digits, 3)
                count += 1
            count += _set_fields(&fields[count], head)
            if length >= 0:
                _set_field(&fields[count], b"content-length", 14, number, _write_number(number, length))
                count += 1
            count += _set_fields(&fields[count], tail)
            return self._write_block(stream, fields, count, last)
        finally:
            if fields != own:
                free(fields)

    cdef int _write_block(self, uint32_t stream, nghttp2_nv *fields, size_t count, bint last) except -1:
        """HEADERS, and CONTINUATION as often as it takes."""
        cdef Py_ssize_t bound = self._encoder.bound(fields, count)
        cdef Py_ssize_t frames = bound // self._largest_frame
        cdef uint8_t *at = self._reserve(bound + HEADER_SIZE * (frames + 1))
        cdef Py_ssize_t size = self._encoder.encode(at + HEADER_SIZE, bound, fields, count), rest, part
        cdef int kind = HEADERS, flags = END_STREAM if last else 0
        rest = size
        while True:
            part = min(rest, self._largest_frame)
            rest -= part
            _write_header(at, part, kind, flags | (0 if rest else END_HEADERS), stream)
            at += HEADER_SIZE + part
            self._used += HEADER_SIZE + part
            if not rest:
                return 0
            memmove(at + HEADER_SIZE, at, rest)
            kind, flags = CONTINUATION, 0

    def pump(self, double now):
        """Make frames of what waits: the most urgent first, in turn among equals (RFC 9218 section 10).

        Whether there could be more.
        """
        return self.pump_some(now) != 0

    cdef int pump_some(self, double now) except -1:
        cdef Py_ssize_t room = PUMPED
        cdef int sent
        cdef Stream urgent
        cdef list ready = self._ready
        self._now = now
        while ready and room > 0 and not self.held:
            urgent = <Stream>ready[0]
            if len(ready) > 1:
                for stream in ready:
                    if (<Stream>stream).urgency < urgent.urgency:
                        urgent = <Stream>stream
            sent = self._send_some(urgent, now)
            if sent >= 0:
                room -= sent
                continue
            self._unready(urgent)
            if self._window_out <= 0:
                for stream in ready:
                    self._stalls(<Stream>stream, now)
                self._pump_ends()
                return False
        return room <= 0 and len(ready) > 0

    cdef int _pump_ends(self) except -1:
        """Ends cost nothing of the connection's window, which is used up."""
        for stream in [stream for stream in self._ready if (<Stream>stream).first is None]:
            self._unready(<Stream>stream)
            self._send_end(<Stream>stream)
        return 0

    cdef int _send_some(self, Stream stream, double now) except -2:
        """One frame of `stream`: how many octets, or -1 if there is nothing more to be sent now."""
        cdef int64_t window = min(self._window_out, stream.window_out)
        cdef Py_ssize_t size
        cdef bint last
        if stream.first is None:
            self._unready(stream)
            self._send_end(stream)
            return 0
        if window <= 0:
            self._stalls(stream, now)
            return -1
        size = _next_part(stream, min(window, MAX_SIZE))
        last = size == stream.queued and stream.ending and not stream.trailers
        self._write_data(stream, size, last)
        self._window_out -= size
        stream.window_out -= size
        self._earn(EARNED)
        stream.write_deadline = NEVER
        self._unready(stream)
        if last:
            self._sent_end(stream)
        elif stream.first is not None or stream.ending:
            self._set_ready(stream)
        return size

    cdef int _write_data(self, Stream stream, Py_ssize_t size, bint last) except -1:
        """A DATA frame with the next `size` octets: a whole part, or several, or a piece of one."""
        cdef bytes part = stream.first
        cdef Py_ssize_t length = PyBytes_GET_SIZE(part), rest = size
        cdef uint8_t *at
        if size == length and size >= WHOLE:
            _write_header(self._reserve(HEADER_SIZE), size, DATA, END_STREAM if last else 0, stream.number)
            self._used += HEADER_SIZE
            self._cut_output()
            self._out.append(part)
            _next_queued(stream)
            stream.queued -= size
            return 0
        at = self._reserve(HEADER_SIZE + size)
        _write_header(at, size, DATA, END_STREAM if last else 0, stream.number)
        at += HEADER_SIZE
        self._used += HEADER_SIZE + size
        stream.queued -= size
        while True:
            length = PyBytes_GET_SIZE(part) - stream.skipped
            memcpy(at, PyBytes_AS_STRING(part) + stream.skipped, min(length, rest))
            if length > rest:
                stream.skipped += rest
                return 0
            at += length
            rest -= length
            _next_queued(stream)
            if not rest:
                return 0
            part = stream.first

    cdef int _stalls(self, Stream stream, double now) except -1:
        """The peer's window is used up: it has `Limits.write_timeout` to open it."""
        if stream.first is not None and stream.write_deadline == NEVER:
            stream.write_deadline = now + self._write_timeout
            self._due(stream.write_deadline)
        return 0

    cdef int _send_end(self, Stream stream) except -1:
        if not stream.ending or not stream.sending:
            return 0
        if stream.trailers:
            self._write_section(stream.number, stream.trailers, [], 0, -1, True)
            stream.trailers = None
        else:
            self._frame(DATA, END_STREAM, stream.number, NULL, 0)
        return self._sent_end(stream)

    cdef int _sent_end(self, Stream stream) except -1:
        stream.sending = stream.ending = False
        stream.write_deadline = NEVER
        if stream.receiving:
            stream.body_deadline = self._now + self._linger_timeout
            return self._due(stream.body_deadline)
        return self._closed(stream)

    cdef int _set_ready(self, Stream stream) except -1:
        if not stream.ready:
            stream.ready = True
            self._ready.append(stream)
        return 0

    cdef int _unready(self, Stream stream) except -1:
        cdef Py_ssize_t at
        if stream.ready:
            stream.ready = False
            for at in range(len(self._ready)):
                if self._ready[at] is stream:
                    del self._ready[at]
                    break
        return 0

    # --- from the application --------------------------------------------------------------------------

    cdef Stream find(self, long stream):
        cdef Stream recent = self._recent
        if recent is None or recent.number != stream:
            found = PyDict_GetItem(self._streams, stream)
            if found == NULL:
                return None
            self._recent = recent = <Stream>found
        return recent

    cpdef Py_ssize_t waiting(self, long stream) except -1:
        """Octets of content that wait."""
        cdef Stream found = self.find(stream)
        return 0 if found is None else found.queued

    cpdef object content_sent(self, long stream):
        """Octets of content queued so far."""
        cdef Stream found = self.find(stream)
        return 0 if found is None else found.content_sent

    cpdef bint takes_trailers(self, long stream) except -1:
        """Whether the peer said ``TE: trailers``."""
        cdef Stream found = self.find(stream)  # none if the connection failed behind its head
        return found is not None and found.takes_trailers

    cpdef object adopt_stamp(self, long stream):
        """What `stamp` was set to is of this response alone."""
        cdef Stream found = self.find(stream)
        if found is not None:
            found.stamp = self.stamp
        self.stamp = self._base

    cpdef object continue_body(self, long stream):
        """Queue 100 (Continue), if the peer waits for it and no octet of the body has come."""
        cdef Stream found = self.find(stream)
        if found is not None and found.continue_due and found.responding == NONE:
            found.continue_due = False
            self._write_section(found.number, [], [], 100, -1, False)

    def send_informational(self, long stream, int status, headers):
        """Queue an interim response."""
        cdef Stream found = self._expect(stream, NONE | STARTED)
        if not 102 <= status <= 199:
            raise LocalProtocolError(f"{status} is not the status of an interim response")
        self._write_section(found.number, encode_response(headers).fields, [], status, -1, False)

    cpdef object start_response(self, long stream, object status, object headers, bint trailers):
        """Set status (200..999) and fields; nothing is queued before the first `send_body`."""
        cdef Stream found = self._expect(stream, NONE)
        if not isinstance(status, int) or not 200 <= status <= 999:
            raise LocalProtocolError(f"response status must be an integer from 200 to 999, not {status!r}")
        self._read_response(found, headers)
        found.owed = found.length
        found.status = status
        found.trailers_due = trailers
        found.responding = STARTED

    cdef int _read_response(self, Stream stream, object headers) except -1:
        """The fields of a response. Ordinary ones are checked here, others by the reference, all of them."""
        cdef list fields = []
        cdef PyObject *known
        cdef bytes name, value
        cdef int kind
        stream.has = 0
        stream.length = -1
        if type(headers) is list or type(headers) is tuple:
            for pair in headers:
                if not (type(pair) is tuple or type(pair) is list) or len(pair) != 2:
                    break
                first, second = pair
                if type(first) is not bytes or type(second) is not bytes:
                    break
                name, value = first, second
                known = PyDict_GetItem(_NAMES, name)
                if known == NULL or not _is_sound(<const uint8_t *>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)):
                    break
                kind = (<tuple>known)[1]
                if kind == KIND_LENGTH:
                    if stream.length >= 0 or not _is_number(value):
                        break
                    stream.length = int(value)
                elif kind != KIND_DROPPED:
                    stream.has |= 1 if kind == KIND_DATE else 2 if kind == KIND_SERVER else 0
                    fields.append(((<tuple>known)[0], value))
            else:
                stream.fields = fields
                return 0
        checked = encode_response(headers)
        stream.fields, stream.length, stream.has = checked.fields, min(checked.length, MOST), checked.has
        return 0

    cpdef bint send_body(self, long stream, bytes data, bint more) except -1:
        """Queue content; whether the response is complete now."""
        cdef Stream found = self._expect(stream, STARTED | SENDING)
        self._account(found, PyBytes_GET_SIZE(data), more)
        if not found.is_empty():
            self._queue(found, data)
        return not more and self._end_content(found)

    cpdef bint reserve_body(self, long stream, Py_ssize_t size, bint more) except -1:
        """Announce `size` octets, which come by `send_reserved`, then `end_reserved`."""
        cdef Stream found = self._expect(stream, STARTED | SENDING)
        self._account(found, size, more)
        found.reserved_more = more
        return not found.is_empty()

    cpdef object send_reserved(self, long stream, bytes data):
        """Queue a part of what was announced."""
        self._queue(self._expect(stream, SENDING), data)

    cpdef bint end_reserved(self, long stream) except -1:
        """All of it is queued; whether the response is complete now."""
        cdef Stream found = self._expect(stream, SENDING)
        return not found.reserved_more and self._end_content(found)

    def send_trailers(self, long stream, headers, bint more):
        """Queue trailer fields, for a peer that said ``TE: trailers``; whether the response is complete."""
        cdef Stream found = self._expect(stream, TRAILERS)
        fields = encode_response(headers).fields
        if found.takes_trailers:
            found.trailers = fields if found.trailers is None else found.trailers + fields
        if not more:
            self._end(found)
        return not more

    cpdef object answer(self, long stream, object status, object text, bytes extra=b""):
        """Queue a short text response of the server's own. `extra` is whole field lines."""
        cdef Stream found = self._expect(stream, NONE | STARTED)
        content = f"{text}\n".encode("ascii", "replace")
        found.responding = NONE
        self.start_response(stream, status, [(b"content-type", b"text/plain; charset=utf-8"), *stamp_fields(extra)], False)
        self.send_body(stream, content, False)

    def open_tunnel(self, long stream, headers):
        """Accept an extended CONNECT."""
        cdef Stream found
        self.start_response(stream, 200, headers, False)
        found = self.find(stream)
        self._send_head(found, -1, False)
        found.responding = SENDING

    cpdef object abandon(self, long stream):
        """The application gave up because the peer left."""
        cdef Stream found = self.find(stream)
        if found is not None and found.sending:
            self._reset(found, CANCEL)

    cpdef int fail_response(self, long stream) except -1:
        """The application failed: 500 if nothing was sent yet, else a reset that the peer sees as such."""
        cdef Stream found = self._expect(stream, NONE | STARTED | SENDING | TRAILERS)
        if found.responding & (NONE | STARTED):
            self.answer(stream, 500, "Internal Server Error")
            return 500
        if found.sending:
            self._reset(found, INTERNAL_ERROR)
        else:
            found.drop()  # its end has been sent: all of it was in its head
        return found.status

    # --- inside ----------------------------------------------------------------------------------------

    cdef Stream _expect(self, long stream, int states):
        cdef Stream found = self.find(stream)
        if found is None or found.responding == DONE:
            raise LocalProtocolError("this request was answered before")
        if not found.responding & states:
            raise LocalProtocolError(
                f"the response is {_STATES[found.responding].value}: this message is not allowed now"
            )
        return found

    cdef int _account(self, Stream stream, int64_t size, bint more) except -1:
        """Check `size` more octets against the length that was given; the head is sent if it is due."""
        cdef int64_t owed = stream.owed, length
        cdef bint empty = stream.is_empty(), last
        if not empty:
            if owed >= 0:
                if size > owed or (size < owed and not more):
                    kind = "more" if size > owed else "less"
                    raise LocalProtocolError(f"the response body is {kind} than its content-length")
                stream.owed = owed - size
            stream.content_sent += size
        if stream.responding == STARTED:
            length = owed
            if owed < 0 and not more and not stream.trailers_due and (size or not empty):
                length = size
            last = not more and not (stream.trailers_due and stream.takes_trailers)
            self._send_head(stream, -1 if stream.status == 204 else length, last and (empty or size == 0))
            stream.responding = SENDING
        return 0

    cdef int _send_head(self, Stream stream, int64_t length, bint last) except -1:
        fields, stream.fields = stream.fields, None
        stamp = self.stamp if stream.stamp is None else stream.stamp
        self._write_section(stream.number, fields, self._stamped(stamp, stream.has), stream.status, length, last)
        return self._sent_end(stream) if last else 0

    cdef list _stamped(self, object stamp, int has):
        """The server's own fields."""
        block = (<KeptStamp>stamp).block(has) if type(stamp) is KeptStamp else stamp(has)
        if block is not self._stamp_block:
            self._stamp_block, self._stamp_fields = block, stamp_fields(block)
        return self._stamp_fields

    cdef int _queue(self, Stream stream, bytes data) except -1:
        if PyBytes_GET_SIZE(data) and stream.sending:
            stream.push(data)
            self._set_ready(stream)
        return 0

    cdef bint _end_content(self, Stream stream) except -1:
        if stream.trailers_due:
            stream.responding = TRAILERS
            return False
        self._end(stream)
        return True

    cdef int _end(self, Stream stream) except -1:
        stream.responding = DONE
        if stream.sending:
            stream.body_deadline = NEVER  # whoever is answered may stop sending
            stream.ending = True
            self._set_ready(stream)
        return 0


# --- parts and fields ------------------------------------------------------------------------------------


cdef Py_ssize_t _next_part(Stream stream, Py_ssize_t most) except -1:
    """Octets of the next frame: as many whole parts as fit, or a piece of the first one."""
    cdef Py_ssize_t total = PyBytes_GET_SIZE(<bytes>stream.first) - stream.skipped
    if total > most:
        return most
    if stream.more is not None:
        for part in stream.more:
            if total + PyBytes_GET_SIZE(<bytes>part) > most:
                break
            total += PyBytes_GET_SIZE(<bytes>part)
    return total


cdef int _next_queued(Stream stream) except -1:
    """The first part is gone."""
    stream.skipped = 0
    stream.first = stream.more.popleft() if stream.more else None
    return 0


cdef inline void _set_field(nghttp2_nv *field, const char *name, size_t name_size, const char *value, size_t size) noexcept:
    field.name, field.namelen = <uint8_t *>name, name_size
    field.value, field.valuelen = <uint8_t *>value, size
    field.flags = NGHTTP2_NV_FLAG_NONE


cdef Py_ssize_t _set_fields(nghttp2_nv *fields, list pairs) except -1:
    """Describe `pairs`, which have to stay; those that are nobody else's business are kept out of the table."""
    cdef Py_ssize_t at = 0
    cdef bytes name, value
    for pair in pairs:
        name, value = <bytes>(<tuple>pair)[0], <bytes>(<tuple>pair)[1]
        _set_field(&fields[at], PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        if name in SECRET:
            fields[at].flags = NGHTTP2_NV_FLAG_NO_INDEX
        at += 1
    return at


cdef int _write_number(char *number, int64_t value) noexcept:
    """The digits of `value`; how many they are."""
    cdef char reversed_digits[24]
    cdef int count = 0, index
    while True:
        reversed_digits[count] = 48 + value % 10
        count += 1
        value //= 10
        if not value:
            break
    for index in range(count):
        number[index] = reversed_digits[count - 1 - index]
    return count


cdef bint _is_number(bytes value) noexcept:
    """A Content-Length that fits."""
    cdef Py_ssize_t at
    if not 0 < PyBytes_GET_SIZE(value) <= 18:
        return False
    for at in range(PyBytes_GET_SIZE(value)):
        if not 48 <= PyBytes_AS_STRING(value)[at] <= 57:
            return False
    return True
