"""The map of what the fused connections of a worker share; see shared.pyx."""

from .engine cimport Request
from .tally cimport Tally


cdef class Starter:
    cdef object _create_task, _task_factory, _context
    cdef dict _tasks            # with the class of tasks
    cdef Caught _caught
    cdef object _call_soon
    cdef dict _loop_dict
    cdef dict _options
    cdef bint _inline, _eager, _driving

    cdef object start(self, object call, str name, bint outside)
    cdef object _start_at_once(self, object call, str name, object context)
    cdef object _start_and_step(self, object task_type, object call, object context)


cdef class Caught:
    cdef object context         # of the task that is being made
    cdef readonly object step
    cdef object others          # the loop's own `call_soon`


cdef class Shared:
    # of `Service`
    cdef readonly object service
    cdef object app, loop, create_future, clock, make_engine, front
    cdef set cycles, connections
    cdef bint logs, bounded
    cdef Tally tally            # counts requests of which nobody else wants to know; None if nobody counts
    cdef Py_ssize_t write_buffer, body_buffer
    cdef double write_timeout
    cdef Starter starter
    # what scopes are made from
    cdef dict scope, asgi, extensions, said
    cdef list empties           # names of extensions that have nothing to say
    cdef object state, root_path
    cdef bytes raw_root
    cdef object _sockname, _server  # the server's address that was asked for last, and its ASGI form
    # request ids
    cdef bytes _id_prefix
    cdef unsigned long _count
    cdef object _count_others

    cdef object server(self, object sockname)
    cdef str next_id(self)
    cdef dict http_scope(self, Request request, str request_id, bint trailers, object client, object server)
    cdef dict websocket_scope(self, object request, str request_id, object handshake, object client, object server)


cdef int own_facts(dict scope, dict tls) except -1     # what a scope says of TLS, for it alone
