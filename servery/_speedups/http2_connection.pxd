"""The map of the fused connection of HTTP/2; see http2_connection.pyx."""

from .calls cimport Call, Port
from .engine cimport Request
from .http2 cimport Http2Engine
from .http_cycle cimport HttpCycle


cdef class StreamCycle(HttpCycle):
    """The cycle of a request, and what else its connection knows of it: see `servery.drivers.http2_stream.StreamPort`."""
    cdef Py_ssize_t _unread     # octets of content that the application has not taken
    cdef bint _waits            # more than the high-water mark waits, and not yet less than the low one
    cdef bint _over             # nothing more can reach the peer
    cdef bint _logged


cdef class Http2Connection(Port):
    cdef Http2Engine _engine
    cdef dict _cycles           # by stream, those of requests
    cdef dict _ports            # and ports of the reference, for what opens a tunnel
    cdef set _waiting           # cycles that wait for the peer
    cdef readonly set waiting     # ports that do
    cdef object _info
    cdef bint _batch            # octets are being dispatched: what is made of them leaves behind the last one

    cdef int dispatch(self, list events, double now) except -1
    cdef StreamCycle begin_request(self, Request request, double now)
    cdef object begin_tunnel(self, Request request, double now)
    cdef int body_received(self, object event) except -1
    cdef int stream_failed(self, object event) except -1
    cdef int start_cycle(self, StreamCycle cycle) except -1
    cdef int start_port(self, object port) except -1
    cdef int refuse(self, StreamCycle cycle) except -1
    cdef int fail_cycle(self, StreamCycle cycle) except -1
    cdef int fail_port(self, object port) except -1
    cdef int release_cycle(self, StreamCycle cycle) except -1
    cdef int lose_cycles(self) except -1
    cdef int log_cycle(self, StreamCycle cycle, bint aborted) except -1
    cdef int look_again(self) except -1
