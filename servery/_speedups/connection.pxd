"""The map of the fused connection; see connection.pyx."""

from cpython.object cimport PyObject

from .engine cimport Http1Engine, Request
from .reactor cimport Transport

cdef class Shared:
    # of `Service`
    cdef readonly object service
    cdef object app, loop, context, clock, state, root_path, make_engine
    cdef set cycles, connections
    cdef bint logs, bounded
    cdef Py_ssize_t write_buffer, body_buffer
    cdef double write_timeout
    # how a task is started
    cdef object _create_task, _task_factory
    cdef dict _tasks            # with the class of tasks
    cdef Caught _caught
    cdef object _call_soon
    cdef dict _loop_dict
    cdef dict _task_options
    cdef bint _inline, _eager, _driving
    # what scopes are made from
    cdef dict scope, asgi, extensions, said
    cdef list empties           # names of extensions that have nothing to say
    cdef bytes raw_root
    cdef object _sockname, _server  # the server's address that was asked for last, and its ASGI form
    # request ids
    cdef bytes _id_prefix
    cdef unsigned long _count

    cdef object server(self, object sockname)
    cdef str next_id(self)
    cdef object start(self, ApplicationCall call, str name, bint outside)
    cdef object start_at_once(self, ApplicationCall call, str name, object context)
    cdef object start_and_step(self, object task_type, ApplicationCall call, object context)


cdef class Caught:
    cdef object context         # of the task that is being made
    cdef readonly object step
    cdef object others          # the loop's own `call_soon`


cdef class HttpCycle:
    cdef Connection _port
    cdef Http1Engine _engine
    cdef readonly dict scope
    cdef readonly Request request
    cdef readonly str request_id
    cdef readonly double started
    cdef readonly long stream
    cdef public int status
    cdef public object task
    cdef readonly Py_ssize_t buffered
    cdef bytes _body            # what has come of the body; None if there is nothing to tell
    cdef list _parts            # more of it, behind `_body`
    cdef list _trailers
    cdef object _wakeup
    cdef bint _more_body, _answered, _gone, _lost, _told
    cdef bint stepping          # the application call is running right now
    cdef bint ended             # and has come to its end

    cdef int body_received(self, bytes data, bint more, list trailers) except -1
    cdef int disconnected(self, bint lost) except -1
    cdef int wake(self) except -1
    cdef object pause(self)
    cdef object take(self)
    cdef dict take_body(self)
    cdef object put(self, object message)
    cdef object put_path(self, object message)
    cdef int end_file(self) except -1
    cdef int put_start(self, dict message) except -1
    cdef int put_body(self, object body, bint more) except -1
    cdef object undrained(self)
    cdef int failed(self, object error) except -1
    cdef int abandon(self) except -1
    cpdef int complete(self) except -1


cdef class Method:
    cdef HttpCycle _cycle
    cdef object __weakref__


cdef class Awaited:
    cdef HttpCycle _cycle       # None when it is over
    cdef object _inner          # a coroutine that is waited for
    cdef object _message        # what `send` was called with, until it is put
    cdef object _result
    cdef bint _begun, _put
    cdef object __weakref__

    cdef bint proceed(self) except -1
    cdef object reference(self)
    cdef bint resume(self, object value, object error, PyObject **yielded) except -1


cdef class ApplicationCall:
    cdef HttpCycle _cycle
    cdef object _inner
    cdef bint _running

    cdef bint resume(self, object value, object error, PyObject **yielded) except -1
    cdef bint step(self, HttpCycle cycle, object value, object error, PyObject **yielded) except -1
    cdef object call(self, HttpCycle cycle)
    cdef int end(self, HttpCycle cycle) except -1


cdef class Connection(Transport):
    cdef Shared _shared
    cdef Http1Engine _engine
    cdef HttpCycle _cycle
    cdef object _client, _server
    cdef public double armed
    cdef double _write_deadline
    cdef Py_ssize_t _was_unsent, _corked
    cdef int _held
    cdef object _file_error
    cdef bint _handed_over      # to the reference's connection: this one is only its transport now
    cdef bint _stopped_reading, _fin_sent, _ending, _advance_due, _settling, _flush_due, _file_waits

    cdef int dispatch(self, list events, double now) except -1
    cdef int hand_over(self, list events, double now) except -1
    cdef int take_request(self, Request request, double now) except -1
    cdef HttpCycle begin_request(self, Request request, double now)
    cdef int start_cycle(self, HttpCycle cycle) except -1
    cdef dict scope_of(self, Request request, str request_id)
    cdef int refuse(self, HttpCycle cycle) except -1
    cdef bint write_file(self, object sending) except -1
    cdef int finished(self, HttpCycle cycle) except -1
    cdef int response_complete(self, HttpCycle cycle) except -1
    cdef int peer_failed(self, object event) except -1
    cdef int lose_cycle(self) except -1
    cdef int log(self, HttpCycle cycle, bint aborted) except -1
    cdef int part_queued(self, Py_ssize_t size) except -1
    cdef int end_queued(self, Py_ssize_t size) except -1
    cdef int write_out(self) except -1
    cdef int settle(self) except -1
    cdef int advance(self) except -1
    cdef int switch_reading(self) except -1
    cdef int wind_up(self) except -1
    cdef int watch_writing(self, double now) except -1
