"""The map of the compiled HTTP/2 engine; see http2.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t

from .engine cimport Answering, Request
from .hpack cimport FieldDecoder, FieldEncoder, nghttp2_nv


cdef struct Budget:
    double left, limit, rate, since


cdef class Known:
    """What a header section has become."""
    cdef list section           # as it was decoded
    cdef bint is_read           # it is a request, and in order: what follows is there
    cdef bytes method, path, raw_path, query
    cdef list fields
    cdef object authority, protocol
    cdef int64_t length
    cdef int urgency
    cdef bint percent, is_head, expects_continue, takes_trailers

    cdef int read(self, object head) except -1
    cdef int set_target(self, bytes method, bytes path) except -1


cdef class Stream:
    """See `servery.http2.stream.Stream`."""
    cdef uint32_t number
    cdef int urgency, responding, status
    # the request
    cdef bint is_head, takes_trailers, continue_due, tunnel, receiving
    cdef int64_t expected, received
    cdef int64_t window_in      # what the peer may still send
    cdef Py_ssize_t unacknowledged, owed_window
    cdef double body_base, body_deadline
    # the response
    cdef list fields, trailers
    cdef int64_t length         # its Content-Length, or -1
    cdef int64_t owed, content_sent
    cdef int64_t window_out     # what the peer still takes
    cdef int has                # what the stamp asks for
    cdef bint trailers_due, ending, sending, reserved_more
    cdef object first, more     # what waits for the peer: bytes, and a deque of those behind them
    cdef Py_ssize_t queued, skipped
    cdef bint ready             # it is in the engine's list of those with something to send
    cdef double write_deadline
    cdef bint held
    cdef object stamp           # that of this response alone

    cdef bint is_empty(self) noexcept
    cdef int push(self, bytes data) except -1
    cdef int drop(self) except -1


cdef class Http2Engine(Answering):
    # what it was made with
    cdef readonly object _limits
    cdef object _base, _stamp_block
    cdef list _stamp_fields
    cdef Py_ssize_t _head_size, _body_size, _connection_window, _stream_window, _most_streams, _most_continuations
    cdef double _head_timeout, _body_timeout, _keep_alive_timeout, _write_timeout, _linger_timeout, _body_rate
    # reading
    cdef FieldDecoder _decoder
    cdef bytes _authority       # the last one that was in order
    cdef Py_ssize_t _most_fields, _field_size, _line_size
    cdef dict _known            # blocks that came, and what they are
    cdef bytes _octets          # of an unfinished frame
    cdef int _preface           # octets of the preface that have come
    cdef int _reading
    cdef list _block            # parts of a header section whose end has not come, or None
    cdef uint32_t _block_stream
    cdef Py_ssize_t _block_size, _block_frames
    cdef double _block_since
    cdef bint _block_ends, _block_circular
    cdef bint _settled, _said, _eof, _leaving, _acknowledged
    cdef double _now, _goodbye, _idle_at
    # streams
    cdef dict _streams
    cdef Stream _recent         # the one that was asked for last
    cdef list _ready            # those with something to send, whose turn it is first
    cdef object _cut            # OrderedDict: streams that were reset lately, and by whom
    cdef object _passed         # deque: streams that were passed over, (first, last)
    cdef uint32_t _highest
    # windows
    cdef int64_t _window_in, _largest_in, _dropped, _window_out, _first_in, _first_out
    cdef Py_ssize_t _owed, _largest_frame
    cdef Budget _control, _resets
    # writing
    cdef FieldEncoder _encoder
    cdef list _out
    cdef PyObject *_buffer      # bytes that nobody else has yet
    cdef Py_ssize_t _used, _room
    # what drivers see
    cdef public object stamp
    cdef public double deadline
    cdef public bint wants_read, half_closed, closing, reset, held

    cpdef list take_output(self)
    cpdef Py_ssize_t waiting(self, long stream) except -1
    cpdef object content_sent(self, long stream)
    cpdef bint takes_trailers(self, long stream) except -1
    cpdef object adopt_stamp(self, long stream)
    cpdef object consumed(self, long stream, Py_ssize_t size, double now)
    cpdef object send_reserved(self, long stream, bytes data)
    cpdef object released(self, long stream, double now)
    cpdef object stop(self, double now, bint patient=*)
    cpdef object forget(self)

    cdef list take(self, const uint8_t *data, Py_ssize_t size, double now)
    cdef list take_end(self, double now)
    cdef int pump_some(self, double now) except -1
    cdef list output(self)
    cdef Stream find(self, long stream)
    cdef int _feed(self, const uint8_t *data, Py_ssize_t size, list events) except -1
    cdef int _take(self, int kind, int flags, uint32_t stream, const uint8_t *payload, Py_ssize_t size, list events) except -1
    cdef int _on_headers(
        self, int flags, uint32_t stream, const uint8_t *payload, Py_ssize_t size, list events
    ) except -1
    cdef int _on_continuation(
        self, int flags, uint32_t stream, const uint8_t *payload, Py_ssize_t size, list events
    ) except -1
    cdef int _bound_block(self, Py_ssize_t size, Py_ssize_t frames) except -1
    cdef int _end_block(
        self, uint32_t stream, bint ends, bint circular, const uint8_t *block, Py_ssize_t size, list events
    ) except -1
    cdef Known _decode(self, const uint8_t *block, Py_ssize_t size)
    cdef int _read_request(self, uint32_t stream, Known known, bint complete, list events) except -1
    cdef bint _read_ordinary(self, Known known) except -1
    cdef bint _read_pseudo(self, Known known) except -1
    cdef bint _read_field(self, Known known, tuple field, Py_ssize_t *cookie) except -1
    cdef int _malformed(self, uint32_t stream, Known known, object error, list events) except -1
    cdef int _open_stream(self, uint32_t stream, Known known, bint complete, list events) except -1
    cdef int _answer_fault(self, uint32_t stream, Known known, bint complete, object error, list events) except -1
    cdef int _read_more_fields(
        self, uint32_t stream, Known known, bint ends, bint circular, list events
    ) except -1
    cdef int _check_reset(self, uint32_t number) except -1
    cdef int _read_trailers(self, Stream stream, Known known, list events) except -1
    cdef int _on_data(self, int flags, uint32_t stream, const uint8_t *payload, Py_ssize_t size, list events) except -1
    cdef int _late_data(self, uint32_t number, Stream stream, Py_ssize_t size, list events) except -1
    cdef int _skip_data(self, Py_ssize_t size) except -1
    cdef bint _fits(self, Stream stream, Py_ssize_t content, bint ends, Py_ssize_t size, list events) except -1
    cdef int _take_data(
        self, Stream stream, const uint8_t *content, Py_ssize_t length, Py_ssize_t size, bint ends, list events
    ) except -1
    cdef int _earn_time(self, Stream stream) except -1
    cdef int _body_due(self, Stream stream, double when) except -1
    cdef int _end_body(self, Stream stream, bytes data, list trailers, list events) except -1
    cdef int _give_back(self, Stream stream, Py_ssize_t size) except -1
    cdef int _on_priority(self, uint32_t stream, Py_ssize_t size) except -1
    cdef int _on_priority_update(self, uint32_t stream, const uint8_t *payload, Py_ssize_t size) except -1
    cdef int _on_reset(self, uint32_t stream, Py_ssize_t size, list events) except -1
    cdef int _on_settings(self, int flags, uint32_t stream, const uint8_t *payload, Py_ssize_t size) except -1
    cdef int _apply(self, const uint8_t *payload, Py_ssize_t size) except -1
    cdef int _check_settings(self, dict settings) except -1
    cdef int _acknowledged_ours(self) except -1
    cdef int _on_ping(self, int flags, uint32_t stream, const uint8_t *payload, Py_ssize_t size) except -1
    cdef int _on_goaway(self, uint32_t stream, Py_ssize_t size) except -1
    cdef int _on_window_update(self, uint32_t stream, const uint8_t *payload, Py_ssize_t size, list events) except -1
    cdef int _wake_all(self) except -1
    cdef int _closed(self, Stream stream) except -1
    cdef int _check_end(self) except -1
    cdef int _settle_idle(self) except -1
    cdef int _say_goodbye(self) except -1
    cdef int _fail(self, object error, list events) except -1
    cdef int _linger(self) except -1
    cdef int _close(self) except -1
    cdef int _expire(self, double now, list events) except -1
    cdef int _plan(self) except -1
    cdef int _fault_of_state(self, uint32_t number, Stream stream, list events) except -1
    cdef int _fail_stream(self, Stream stream, object error, list events) except -1
    cdef int _spend(self, Budget *budget, str reason) except -1
    cdef int _earn(self, int count) noexcept
    cdef int _due(self, double when) noexcept
    cdef int _mark(self, uint32_t stream, int why) except -1
    cdef int _reset(self, Stream stream, uint32_t code) except -1
    cdef int _refuse(self, uint32_t stream, uint32_t code) except -1
    cdef int _drop(self, Stream stream) except -1
    cdef uint8_t *_reserve(self, Py_ssize_t size) except NULL
    cdef int _frame(self, int kind, int flags, uint32_t stream, const void *payload, Py_ssize_t size) except -1
    cdef int _number_frame(self, int kind, uint32_t stream, uint32_t number) except -1
    cdef int _goaway(self, uint32_t last, uint32_t code, bytes reason) except -1
    cdef int _cut_output(self) except -1
    cdef int _write_section(self, uint32_t stream, list head, list tail, int status, int64_t length, bint last) except -1
    cdef int _write_block(self, uint32_t stream, nghttp2_nv *fields, size_t count, bint last) except -1
    cdef int _send_some(self, Stream stream, double now) except -2
    cdef int _write_data(self, Stream stream, Py_ssize_t size, bint last) except -1
    cdef int _send_end(self, Stream stream) except -1
    cdef int _sent_end(self, Stream stream) except -1
    cdef int _pump_ends(self) except -1
    cdef int _stalls(self, Stream stream, double now) except -1
    cdef int _set_ready(self, Stream stream) except -1
    cdef int _unready(self, Stream stream) except -1
    cdef Stream _expect(self, long stream, int states)
    cdef int _read_response(self, Stream stream, object headers) except -1
    cdef int _account(self, Stream stream, int64_t size, bint more) except -1
    cdef int _send_head(self, Stream stream, int64_t length, bint last) except -1
    cdef list _stamped(self, object stamp, int has)
    cdef int _queue(self, Stream stream, bytes data) except -1
    cdef bint _end_content(self, Stream stream) except -1
    cdef int _end(self, Stream stream) except -1
