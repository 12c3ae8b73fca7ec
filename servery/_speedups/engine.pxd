"""The map of the compiled engine; see engine.pyx."""

cdef class Http1Engine:
    # what it was made with
    cdef readonly object _limits
    cdef object _stamp
    cdef Py_ssize_t _ordinary, _max_fields, _read_ahead, _drain_size, _body_size
    # reading: the head or body that is under way
    cdef object _head           # HeadParser of the reference, for a head that is not ordinary; else None
    cdef object _decoder        # ChunkedDecoder of the reference, or None
    cdef bytes _pending
    cdef int _reading
    cdef object _left, _read    # octets; exact whatever their number
    cdef double _body_base, _paused_at
    cdef bint _draining, _eof, _stopping
    # the response
    cdef list _out
    cdef tuple _fields, _reserved
    cdef int _responding, _framing, _status, _minor
    cdef object _owed
    cdef bytes _trailers
    cdef bint _continue_due, _is_head, _keep_alive, _trailers_due
    # what drivers see
    cdef public double deadline
    cdef public bint wants_read, half_closed, closing, reset, takes_trailers
    cdef public object content_sent
    cdef public long stream

    cpdef list receive(self, bytes data, double now)
    cpdef list expire(self, double now)
    cpdef list advance(self, double now)
    cpdef list take_output(self)

    cdef list _receive_eof(self, double now)
    cdef list _next_request(self, double now)
    cdef list _read_head(self, bytes data, double now)
    cdef object _scan(self, bytes data, Py_ssize_t *used, Py_ssize_t *length)
    cdef list _read_piece(self, bytes data, double now)
    cdef list _took_head(self, object request, Py_ssize_t used, object length, bytes data, double now)
    cdef bint _head_begun(self)
    cdef int _begin_body(self, object length, double now) except -1
    cdef list _read_body(self, bytes data, double now)
    cdef list _body_part(self, bytes part, double now)
    cdef list _end_body(self, bytes part, bytes rest, double now)
    cdef list _refuse(self, object error, double now)
    cdef list _fail_request(self, object error, double now)
    cdef int _reply(self, object error, bint to_head) except -1
    cdef int _linger(self, double now) except -1
    cdef int _close(self) except -1
    cdef int _begin_exchange(self, bytes method, int minor, bint keep, bint continues, bint trailers) except -1
    cdef bint _end_content(self)
    cdef int _cut(self) except -1
    cdef bytes _account(self, long stream, Py_ssize_t size, bint more)
    cdef bytes _make_head(self, Py_ssize_t size, bint more, bint empty)
    cdef bytes _connection_line(self)
    cdef bint _persists(self) except -1
    cdef int _expect(self, long stream, int states) except -1
