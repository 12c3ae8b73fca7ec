"""What the fused connections of a worker share: the service unpacked for quick hands, scopes, request ids, and how a task is started.

The twin of `servery.asgi.scope`; read that one first.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Copy, PyDict_GetItem
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

cimport cython

from .engine cimport Request

import asyncio
import sys

from ..addresses import server_name
from ..asgi import scope as _scope
from ..events import RequestReceived

cdef extern from "Python.h":
    object PyContext_Copy(object)
    int PyContext_Enter(object) except -1
    int PyContext_Exit(object) except -1
    object PyObject_Call(object, tuple, dict)
    str PyUnicode_New(Py_ssize_t size, uint32_t largest)
    void *PyUnicode_1BYTE_DATA(object)

cdef dict _METHODS = _scope._METHODS
cdef bytes _V11 = b"1.1", _V2 = b"2"
cdef str _CALL_SOON = "call_soon"


# --- how a task is started -------------------------------------------------------------------------------


@cython.final
cdef class Starter:
    """Starts the tasks of requests, each in a copy of `context`: at once where nobody can tell."""

    def __init__(self, loop, context):
        self._context = context
        self._create_task = loop.create_task
        self._task_factory = loop.get_task_factory
        # looked up each time, as asyncio does it itself
        self._tasks = vars(asyncio.tasks) if _owner(loop, "create_task") == "asyncio" else {"Task": asyncio.Task}
        self._inline = not loop.get_debug() and all(
            _owner(loop, name) in ("asyncio", "uvloop") for name in ("create_task", "call_soon")
        )
        self._caught = <Caught>Caught.__new__(Caught)
        self._caught.others = loop.call_soon
        self._call_soon = self._caught.call_soon
        self._loop_dict = getattr(loop, "__dict__", None)
        self._options = {"loop": loop, "name": None, "context": None}
        self._eager = sys.version_info >= (3, 12)
        if self._eager:
            self._options["eager_start"] = True

    cdef object start(self, object call, str name, bint outside):
        """The task of a request. `outside` says that nothing of any application is running."""
        context = PyContext_Copy(self._context)
        if outside and self._inline and not self._driving and self._task_factory() is None:
            return self._start_at_once(call, name, context)
        return self._create_task(call, name=name, context=context)

    cdef object _start_at_once(self, object call, str name, object context):
        """An ordinary task, whose first step does not wait for the loop's next turn."""
        cdef dict options = self._options  # one for all: to make it takes as long as to make the task
        task_type = <object>PyDict_GetItem(self._tasks, "Task")
        options["name"], options["context"] = name, context
        self._driving = True
        try:
            if self._eager:
                return PyObject_Call(task_type, (call,), options)
            return self._start_and_step(task_type, call, context)
        finally:
            self._driving = False
            options["name"] = options["context"] = None

    cdef object _start_and_step(self, object task_type, object call, object context):
        """What ``eager_start`` does, for Python 3.11, which does not have it.

        A task asks its loop for its first step with ``call_soon`` when it is made: it is taken at its word.
        """
        cdef Caught caught = self._caught
        cdef dict names = self._loop_dict
        if _CALL_SOON in names:  # somebody else has had the same idea
            return self._create_task(call, name=self._options["name"], context=context)
        caught.context = context
        names[_CALL_SOON] = self._call_soon
        try:
            task = PyObject_Call(task_type, (call,), self._options)
        finally:
            del names[_CALL_SOON]
        step, caught.step = caught.step, None
        PyContext_Enter(context)
        try:
            step()
        finally:
            PyContext_Exit(context)
        return task


@cython.final
cdef class Caught:
    """Keeps what a task that is being made would have the loop call: it is known by its context.

    Making a task may start the garbage collector, and finalizers may ask something of the loop, too: that is done.
    """

    def call_soon(self, callback, *args, context=None):
        """In place of the loop's."""
        if context is None or context is not self.context:
            return self.others(callback, *args, context=context)
        self.step, self.context = callback, None


def _owner(loop, name):
    """The library of which a loop has got this method; "" if an object of its own replaces it."""
    if name in getattr(loop, "__dict__", (name,)):
        return ""
    return next((kind.__module__.partition(".")[0] for kind in type(loop).__mro__ if name in vars(kind)), "")


# --- what connections share, and scopes ------------------------------------------------------------------


@cython.final
cdef class Shared:
    """`servery.drivers.service.Service`, unpacked."""

    def __init__(self, service):
        limits = service.limits
        self.service = service
        self.app, self.loop, self.clock, self.make_engine = service.app, service.loop, service.clock, service.make_engine
        self.create_future = service.loop.create_future
        self.cycles, self.connections = service.cycles, service.connections
        self.logs, self.front = service.logged, service.front
        self.tally = None if service.metrics is None else service.metrics.tally
        self.bounded = service.concurrency is not None
        self.write_buffer, self.body_buffer = limits.write_buffer, limits.body_buffer
        self.write_timeout = limits.write_timeout
        self.starter = Starter(service.loop, service.context)
        self.state, self.root_path, self.raw_root = service.state, service.root_path, service.root_path.encode()
        self._id_prefix = f"{service.id_prefix}-".encode("ascii")
        self._count_others, service.count_requests = service.count_requests, self.count_requests
        service.next_request_id = self.take_id
        self._prepare_scopes()

    def _prepare_scopes(self):
        """Let the reference make a scope, and keep what all scopes of this worker have of it."""
        request = RequestReceived(0, b"", b"", b"/", b"", None, _V11, [], True, False, None)
        self.scope = _scope.http_scope(request, self._info(None, None), "", False)
        self.scope.pop("state", None)  # each scope has its own
        self.asgi = self.scope["asgi"]
        self.extensions = self.scope["extensions"]
        self.said = self.extensions["servery"]
        self.empties = [name for name, value in self.extensions.items() if value == {}]

    def _info(self, client, server):
        return _scope.ConnectionInfo(client, server, "http", self.root_path, self.state, self.service.runs)

    cdef object server(self, object sockname):
        if sockname is not self._sockname or self._server is None:
            self._sockname, self._server = sockname, server_name(sockname)
        return self._server

    def count_requests(self):
        """How many requests the worker has begun: the fused connections', and those of other drivers."""
        return self._count + self._count_others()

    def take_id(self):
        """The same, for cycles of the reference: there is one count."""
        return self.next_id()

    cdef str next_id(self):
        """See `servery.drivers.service.numbered`."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self._id_prefix)
        cdef unsigned long rest
        cdef int digits = 0
        self._count += 1
        rest = self._count
        while rest:
            digits += 1
            rest >>= 4
        made = PyUnicode_New(size + digits, 127)
        cdef char *at = <char *>PyUnicode_1BYTE_DATA(made)
        memcpy(at, PyBytes_AS_STRING(self._id_prefix), size)
        rest = self._count
        while rest:
            digits -= 1
            at[size + digits] = b"0123456789abcdef"[rest & 15]
            rest >>= 4
        return made

    cdef dict http_scope(self, Request request, str request_id, bint trailers, object client, object server):
        """See `servery.asgi.scope.http_scope`."""
        cdef bytes raw_path = request.raw_path
        cdef dict scope = PyDict_Copy(self.scope), extensions = PyDict_Copy(self.extensions), said = PyDict_Copy(self.said)
        if request.percent:
            path = _scope.decode_path(raw_path)
        else:
            path = PyUnicode_DecodeASCII(PyBytes_AS_STRING(raw_path), PyBytes_GET_SIZE(raw_path), NULL)
        if self.raw_root:
            path, raw_path = self.root_path + path, self.raw_root + raw_path
        said["request_id"] = request_id
        extensions["servery"] = said
        for name in self.empties:
            extensions[name] = {}
        if trailers:
            extensions["http.response.trailers"] = {}
        scope["asgi"] = PyDict_Copy(self.asgi)
        if request.version != _V11:
            scope["http_version"] = "2" if request.version == _V2 else "1.0"
        scope["method"] = "GET" if request.method == b"GET" else _METHODS.get(request.method) or request.method.decode()
        scope["path"] = path
        scope["raw_path"] = raw_path
        scope["query_string"] = request.query
        scope["headers"] = request.headers if request.authority is None else _scope._with_host(request)
        scope["client"] = client
        scope["server"] = server
        scope["extensions"] = extensions
        if self.state is not None:
            scope["state"] = PyDict_Copy(self.state) if type(self.state) is dict else self.state.copy()
        return scope

    cdef dict websocket_scope(self, object request, str request_id, object handshake, object client, object server):
        """See `servery.asgi.scope.websocket_scope`: a handshake is rare, and costs more than its scope."""
        return _scope.websocket_scope(request, self._info(client, server), request_id, handshake.subprotocols)


cdef int own_facts(dict scope, dict tls) except -1:
    """See `servery.asgi.scope._own`."""
    cdef dict extensions = scope["extensions"], facts
    for name in tls:
        extensions[name] = PyDict_Copy(tls[name])
    facts = extensions["tls"]
    facts["client_cert_chain"] = list(facts["client_cert_chain"])
    return 0
