"""The map of the compiled engine; see engine.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "scan.h":
    enum: SV_ORDINARY
    enum: SV_MAX_FIELDS
    ctypedef struct sv_field:
        uint32_t line, name_len, value, value_len, line_len
    ctypedef struct sv_head:
        uint32_t method_len, target, target_len, path_len, minor, count, end
        int has_percent
        sv_field fields[128]
    uint32_t sv_scan_line(const uint8_t *data, size_t size, uint32_t most, sv_head *head) nogil
    int sv_scan_fields(
        const uint8_t *data, size_t size, uint32_t most, uint32_t max_fields, uint32_t start, sv_head *head
    ) nogil
    const char *sv_scan_path() nogil


cdef class Block:
    cdef PyObject *owner        # the engine, for comparison only
    cdef bytes octets
    cdef tuple fields
    cdef Py_ssize_t length      # of the body
    cdef bint keep              # the connection goes on

    cdef bint is_at(self, const char *octets, Py_ssize_t size) noexcept


cdef class Request:
    cdef readonly long stream
    cdef readonly bytes method, target, raw_path, query, version
    cdef readonly list headers
    cdef readonly bint complete, expects_continue
    cdef readonly object authority, upgrade
    cdef bytes body, rest
    cdef bint percent           # the path has a '%'


cdef class KeptStamp:
    cdef object _stamp
    cdef list _blocks
    cdef long long _second

    cdef bytes block(self, int has)


cdef class Answering:
    """See `servery.engine.Answering`: what a compiled cycle asks of an engine."""

    cpdef object continue_body(self, long stream)
    cpdef object start_response(self, long stream, object status, object headers, bint trailers)
    cpdef bint send_body(self, long stream, bytes data, bint more) except -1
    cpdef bint reserve_body(self, long stream, Py_ssize_t size, bint more) except -1
    cpdef bint end_reserved(self, long stream) except -1
    cpdef object answer(self, long stream, object status, object text, bytes extra=*)
    cpdef object abandon(self, long stream)
    cpdef int fail_response(self, long stream) except -1


cdef class Http1Engine(Answering):
    # what it was made with
    cdef readonly object _limits
    cdef object _stamp
    cdef KeptStamp _kept_stamp  # the same, or None if it is of another kind
    cdef double _keep_alive_timeout
    cdef Py_ssize_t _ordinary, _max_fields, _read_ahead, _drain_size, _body_size
    # reading: the head or body that is under way
    cdef object _head           # HeadParser of the reference, for a head that is not ordinary; else None
    cdef object _decoder        # ChunkedDecoder of the reference, or None
    cdef bytes _pending
    cdef Py_ssize_t _slot, _block_size  # where the fields of the request before may be kept, and their octets
    cdef int _reading
    cdef object _left, _read    # octets; exact whatever their number
    cdef double _body_base, _paused_at
    cdef bint _draining, _eof, _stopping
    # the response
    cdef list _out
    cdef bytes _block, _length_line     # encoded fields, and the Content-Length among them
    cdef uint64_t _length, _owed        # what it says, and what is left of that
    cdef bint _measured                 # whether there is one
    cdef tuple _reserved
    cdef int _responding, _framing, _status, _minor, _flags
    cdef bytes _trailers
    cdef bint _continue_due, _is_head, _keep_alive, _trailers_due
    # what drivers see
    cdef public double deadline
    cdef public bint wants_read, half_closed, closing, reset, takes_trailers
    cdef public long long content_sent
    cdef public long stream

    cpdef list receive(self, bytes data, double now)
    cpdef list expire(self, double now)
    cpdef list advance(self, double now)
    cpdef list take_output(self)
    cpdef object stop(self, double now, bint patient=*)
    cpdef object body_paused(self, bint paused, double now)

    cdef list _receive_eof(self, double now)
    cdef list _next_request(self, double now)
    cdef list _read_head(self, bytes data, double now)
    cdef Request take(self, const char *data, Py_ssize_t size, double now)
    cdef Request take_next(self, double now)
    cdef int _took(
        self, Request request, const char *data, Py_ssize_t size, Py_ssize_t used, Py_ssize_t length, double now
    ) except -1
    cdef Request _scan(self, const char *octets, Py_ssize_t size, Py_ssize_t *used, Py_ssize_t *length)
    cdef list _read_fields(self, const char *octets, sv_head *head, Py_ssize_t *length, bint *keep)
    cdef Block _own_block(self)
    cdef bint _allows(self, Block block, uint32_t start) noexcept
    cdef int _remember(self, const char *octets, Py_ssize_t size, list fields, Py_ssize_t length, bint keep) except -1
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
    cdef bint _account(self, long stream, Py_ssize_t size, bint more) except -1
    cdef bint _is_empty(self) noexcept
    cdef bytes _make_head(self, Py_ssize_t size, bint more, bytes data)
    cdef Py_ssize_t _framed_size(self, Py_ssize_t size, bytes data) noexcept
    cdef bytes _connection_line(self)
    cdef bint _persists(self) except -1
    cdef int _expect(self, long stream, int states) except -1
