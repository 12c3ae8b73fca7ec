"""The map of what an application is called with and waits for; see calls.pyx."""

from cpython.object cimport PyObject

from .engine cimport Answering
from .reactor cimport Transport
from .shared cimport Shared


cdef class Call


cdef class Twin:
    cdef object run, receive, send


cdef class Port(Transport):
    """The connection as its cycle sees it: the twin of `servery.engine.Port`."""
    cdef Shared _shared
    cdef object _client, _server
    cdef public double armed    # when the clock looks at it
    cdef double _write_deadline # when the peer must have taken something of
    cdef Py_ssize_t _was_unsent # what was queued then
    cdef Py_ssize_t _corked     # octets, and one for each part, that are queued in the engine only
    cdef bint _secure           # the client has used TLS
    cdef bint _stopped_reading, _flush_due, _fin_sent, _ending

    cdef bint is_full(self, Call cycle) except -1           # more than the high-water mark waits for the peer
    cdef int consumed(self, Call cycle) except -1           # the application has taken what there was of the body
    cdef int part_queued(self, Call cycle, Py_ssize_t size) except -1   # content, and more may follow
    cdef int end_queued(self, Call cycle, Py_ssize_t size) except -1    # the end of a response
    cdef int write_out(self) except -1                      # all that the engine has queued
    cdef int settle(self) except -1
    cdef bint write_file(self, object sending) except -1    # after what is queued; whether the kernel has taken it all
    cdef int open_websocket(self, object handshake, object subprotocol, object headers) except -1
    cdef int response_complete(self, Call cycle) except -1
    cdef int start_task(self, Call cycle) except -1         # run the application: now, up to where it waits, if it can be
    cdef int finished(self, Call cycle) except -1           # the application call has ended
    cdef bint watch_deadline(self, double now) except -1    # whether the peer took nothing for too long, and was reset
    cdef int watch_writing(self, double now) except -1      # within `Limits.write_timeout` it must, again and again
    cdef int wind_up(self, bint closing, bint reset) except -1  # FIN and a lingering close, or the close, behind last words


cdef class Call:
    cdef Twin _twin
    cdef Port _port
    cdef Answering _engine
    cdef dict _scope            # None once the application has it
    cdef readonly object request
    cdef public str request_id
    cdef public object origin   # (client, scheme) where a proxy has told of them
    cdef readonly double started
    cdef readonly long stream
    cdef public int status
    cdef public object task
    cdef readonly Py_ssize_t buffered
    cdef object _waiter         # the future of who waits last,
    cdef list _waiters          # and those of others
    cdef bint _gone             # `receive` tells of the peer's leaving
    cdef bint _lost             # `send` raises
    cdef bint _told             # the application has received that, before it was done
    cdef bint stepping          # the application is running right now
    cdef bint ended             # and has come to its end

    cpdef int wake(self) except -1
    cdef object waiter(self)
    cdef object undrained(self)
    # what differs between the kinds
    cdef object take(self)
    cdef object put(self, object message)
    cdef bint is_answered(self) noexcept
    cdef int disconnected(self, bint lost) except -1
    cdef int returned(self) except -1
    cdef int failed(self, object error) except -1
    cdef int abandon(self) except -1


cdef class Method:
    cdef Call _cycle
    cdef object _function
    cdef object __weakref__


cdef class Coroutine:
    cdef Call _cycle            # None when it is over
    cdef object _function       # of the reference, that does the same
    cdef object _inner          # what is waited for
    cdef object _message        # what `send` was called with, until it is put
    cdef object _result
    cdef bint _begun, _put, _running
    cdef object __weakref__

    cdef bint resume(self, object value, object error, PyObject **yielded) except -1


cdef class Awaited(Coroutine):
    cdef bint proceed(self) except -1
    cdef tuple arguments(self)


cdef class ApplicationCall(Coroutine):
    cdef bint step(self, Call cycle, object value, object error, PyObject **yielded) except -1
    cdef object call(self, Call cycle)
    cdef int end(self, Call cycle) except -1


cdef object call_of(Call cycle)     # the coroutine of its task
