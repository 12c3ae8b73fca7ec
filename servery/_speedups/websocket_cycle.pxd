"""The map of the compiled WebSocket cycle; see websocket_cycle.pyx."""

from .calls cimport Call
from .websocket cimport WebSocketEngine

cdef enum Phase:  # see `servery.asgi.websocket_cycle.Phase`
    CONNECTING, DENYING, OPEN, ENDED


cdef class WebSocketCycle(Call):
    cdef object _handshake
    cdef readonly WebSocketEngine websocket     # None until it is accepted
    cdef readonly object close_code, close_reason
    cdef Phase _phase
    cdef bint _connected        # `receive` has told ``websocket.connect``
    cdef object _first          # what `receive` tells next: the data of a message, or a `PongReceived`
    cdef object _more           # a deque of what comes then; None if there is nothing

    cdef int message(self, object data) except -1
    cdef int heard(self, object event) except -1
    cdef int opened(self, WebSocketEngine websocket) except -1
    cdef int _leave(self, object code, object reason) except -1
    cdef dict take_message(self)
    cdef object put_open(self, object kind, object message)
    cdef int put_send(self, object message) except -1
    cdef int put_accept(self, object message) except -1
    cdef int deny(self, int status) except -1
    cdef int put_denial_start(self, object message) except -1
    cdef object put_denial_body(self, object message)
    cdef int complete(self) except -1
    cdef int give_up(self, int status, int code) except -1


cdef WebSocketCycle new_websocket_cycle(object handshake)
