"""The map of the fused connection; see connection.pyx."""

from .calls cimport Call, Port
from .engine cimport Http1Engine, Request
from .http_cycle cimport HttpCycle
from .websocket cimport WebSocketEngine


cdef class Connection(Port):
    cdef Http1Engine _engine
    cdef WebSocketEngine _websocket     # speaks instead, once it is open
    cdef Call _cycle
    cdef object _fault          # of a handshake that is about to be refused
    cdef int _held              # responses that are queued in the engine only
    cdef object _file_error
    cdef dict _tls              # what scopes say of it, where it was with us
    cdef bint _advance_due, _settling, _file_waits

    cdef int received_frames(self, const char *data, Py_ssize_t size, double now) except -1
    cdef int dispatch(self, list events, double now) except -1
    cdef int hear(self, object event) except -1
    cdef Call begin_event(self, object event, double now)
    cdef Call begin_websocket(self, object event, object handshake, double now)
    cdef int take_request(self, Request request, double now) except -1
    cdef HttpCycle begin_request(self, Request request, double now)
    cdef int adjust(self, Call cycle, str secure) except -1
    cdef int describe(self, Call cycle, object request, long stream, double now) except -1
    cdef int start_cycle(self, Call cycle) except -1
    cdef int refuse_handshake(self, Call cycle) except -1
    cdef int refuse(self, Call cycle, int status, str text, bytes extra) except -1
    cdef int peer_failed(self, object event) except -1
    cdef int lose_cycle(self) except -1
    cdef int log(self, Call cycle, bint aborted) except -1
    cdef int forget_output(self) except -1
    cdef int settle_websocket(self) except -1
    cdef int advance(self) except -1
    cdef int switch_reading(self) except -1
