"""The map of the compiled WebSocket engine; see websocket.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint64_t

cdef extern from "frames.h":
    enum: SV_MASK_SIZE
    enum: SV_HEAD_MOST
    enum: SV_CONTROL
    enum: SV_FIN
    enum: SV_RSV1
    enum: SV_FRAME
    enum: SV_MORE
    enum: SV_FAULT
    ctypedef struct sv_frame:
        uint64_t size
        unsigned int head
        uint8_t opcode, final, compressed
    ctypedef struct sv_place:
        uint64_t room
        uint8_t deflates, within, compressed
    int sv_read_head(const uint8_t *data, size_t size, const sv_place *place, sv_frame *frame) nogil
    int sv_unmask(uint8_t *out, const uint8_t *data, size_t size, const uint8_t *mask) nogil
    int sv_write_head(uint8_t *out, uint8_t first, uint64_t size) nogil


ctypedef struct Piece:          # see `servery.websocket.frames.Piece`
    int opcode                  # or NOTHING
    const uint8_t *content      # still masked, in the octets that are read
    Py_ssize_t size
    uint8_t mask[4]             # for the first of them
    bint compressed, last
    bint whole                  # all of its message


cdef class FrameDecoder:
    cdef object _max_size
    cdef uint64_t _limit        # the same, or more than any frame has
    cdef bint _deflates
    cdef bytes _kept            # the start of a frame: less than its head, or than a whole control frame
    # the message under way
    cdef int _message           # its opcode, 0 between messages
    cdef bint _compressed
    cdef uint64_t _size
    # the frame under way
    cdef bint _final
    cdef uint64_t _left
    cdef uint8_t _mask[4]
    cdef readonly object error

    cdef bytes joined(self, bytes data)
    cdef Py_ssize_t next(self, const uint8_t *data, Py_ssize_t at, Py_ssize_t end, Piece *piece) except -1
    cdef Py_ssize_t _begin(self, const uint8_t *data, Py_ssize_t size, Piece *piece) except -1
    cdef Py_ssize_t _go_on(self, const uint8_t *data, Py_ssize_t size, Piece *piece) noexcept
    cdef object _fault(self, const uint8_t *data, Py_ssize_t size)


cdef class WebSocketEngine:
    # what it was made with
    cdef object _limits, _deflater
    cdef Py_ssize_t _max_queue, _body_buffer
    cdef double _interval
    # from the peer
    cdef FrameDecoder _decoder
    cdef object _assembler      # the reference's, for text that comes in pieces, and all that is compressed
    cdef PyObject *_binary      # a bytes object that grows, for the rest
    cdef Py_ssize_t _binary_size    # octets of it that have come
    cdef Py_ssize_t _waiting, _waiting_size
    cdef int _state
    # to the peer
    cdef list _out, _pongs
    cdef dict _pings
    cdef long long _pings_sent
    cdef bint _pinged
    # what drivers see
    cdef public double deadline
    cdef public bint wants_read, half_closed, closing, reset
    cdef public long long messages_received, messages_sent, octets_received, octets_sent

    cpdef list receive(self, bytes data, double now)
    cpdef list expire(self, double now)
    cpdef object taken(self, Py_ssize_t size, double now)
    cpdef object unsent(self, double now)
    cpdef Py_ssize_t send_text(self, object text) except -1
    cpdef Py_ssize_t send_bytes(self, object data) except -1
    cpdef object ping(self, double now)
    cpdef object close(self, object code, object reason, double now)
    cpdef list stop(self, double now)
    cpdef list take_output(self)

    cdef object take(self, const char *data, Py_ssize_t size, double now)
    cdef list output(self)
    cdef list receive_octets(self, const char *data, Py_ssize_t size, double now)
    cdef int _read(self, const char *data, Py_ssize_t size, double now, list events) except -1
    cdef object _pieced(self, Piece *piece)
    cdef int _add(self, Piece *piece) except -1
    cdef object _message(self, Piece *piece)
    cdef int _count(self, object message, Py_ssize_t size) except -1
    cdef bint _is_full(self) noexcept
    cdef int _receive_ping_or_pong(self, Piece *piece, double now, list events) except -1
    cdef int _receive_close(self, bytes payload, list events) except -1
    cdef list _receive_eof(self)
    cdef int _fail(self, object error, double now, list events) except -1
    cdef void _heard(self, double now) noexcept
    cdef int _send_ping(self, double now, bint asked) except -1
    cdef Py_ssize_t _send(self, int opcode, bytes content) except -1
    cdef Py_ssize_t _queue(self, int first, bytes content) except -1
    cdef int _forget(self) except -1
    cdef int _close(self) except -1
