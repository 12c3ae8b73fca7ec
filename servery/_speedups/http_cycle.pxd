"""The map of the compiled HTTP cycle; see http_cycle.pyx."""

from .calls cimport Call, Twin
from .engine cimport Request


cdef class HttpCycle(Call):
    cdef bytes _body            # what has come of the body; None if there is nothing to tell
    cdef list _parts            # more of it, behind `_body`
    cdef list _trailers
    cdef bint _more_body, _answered

    cdef int begin_body(self, Request request) except -1
    cdef int body_received(self, bytes data, bint more, list trailers) except -1
    cdef dict take_body(self)
    cdef object put_path(self, object message)
    cdef int end_file(self) except -1
    cdef int put_start(self, dict message) except -1
    cdef int put_body(self, object body, bint more) except -1
    cpdef int complete(self) except -1


cdef HttpCycle new_http_cycle()
cdef Twin http_twin()   # for those that are made elsewhere
