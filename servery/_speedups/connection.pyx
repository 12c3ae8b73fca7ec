"""The fused connection: parses, builds the scope, runs the application and writes, in one compiled piece on the reactor.

The twin of three modules of the reference, and in their order: `servery.asgi.scope`, `servery.asgi.http_cycle` and
`servery.drivers.asyncio_driver`. Read those first: what is done here, and why, is said there; here stands why it is done in another
way. Rare things (files, trailers, logs, refusals) are handed to the reference's own functions.

Two things are arranged differently, and an application cannot tell. `receive()` and `send()` return objects of our own, not coroutines of
functions: they have the same methods, and do nothing before they are awaited. And since the coroutine of a request's task is ours, it
knows when the application stops running: what was sent is written then, or when it is much, and needs no callback of its own.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Copy, PyDict_GetItem
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from .engine cimport Http1Engine, Request
from .reactor cimport Reactor, Transport

import asyncio
import sys
import warnings
from types import CoroutineType, MethodType

from ..addresses import peer_name, server_name
from ..asgi import scope as _scope
from ..asgi.http_cycle import HttpCycle as _Reference
from ..asgi.messages import as_bytes, is_disconnect, required, send_other
from ..drivers.asyncio_driver import AsyncioConnection
from ..drivers.sendfile import FileToSend
from ..drivers.service import error_log
from ..drivers.wakeup import AsyncioWakeup
from ..drivers.writing import CORK_SIZE as _CORK_SIZE
from ..engine import NEVER as _NEVER
from ..errors import ClientDisconnected, LocalProtocolError
from ..events import BodyReceived, ConnectionFailed, RequestReceived

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    PySendResult PyIter_Send(object, object, PyObject **) except PYGEN_ERROR
    object PyContext_Copy(object)
    object PyObject_Call(object, tuple, dict)
    int PyContext_Enter(object) except -1
    int PyContext_Exit(object) except -1
    str PyUnicode_New(Py_ssize_t size, uint32_t largest)
    void *PyUnicode_1BYTE_DATA(object)
    void PyErr_SetObject(object, object)

cdef double NEVER = _NEVER
cdef Py_ssize_t CORK_SIZE = _CORK_SIZE

cdef enum:
    HELD = 16  # responses to pipelined requests that may wait to leave together

cdef dict _METHODS = _scope._METHODS
cdef bytes _V11 = b"1.1"
cdef str _START = "http.response.start"
cdef str _BODY = "http.response.body"
cdef str _PATH = "http.response.pathsend"
cdef str _CALL_SOON = "call_soon"


# --- what the connections of a worker share, and scopes --------------------------------------------------


cdef class Shared:
    """`servery.drivers.service.Service`, unpacked for quick hands. `start` begins the task of a request."""

    def __init__(self, service):
        loop = service.loop
        limits = service.limits
        self.service = service
        self.app, self.loop, self.context, self.clock = service.app, loop, service.context, service.clock
        self.state, self.root_path, self.raw_root = service.state, service.root_path, service.root_path.encode()
        self.make_engine = service.make_engine
        self.cycles, self.connections = service.cycles, service.connections
        self.logs = service.access is not None
        self.bounded = service.concurrency is not None
        self.write_buffer, self.body_buffer = limits.write_buffer, limits.body_buffer
        self.write_timeout = limits.write_timeout
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
        self._task_options = {"loop": loop, "name": None, "context": None}
        self._eager = sys.version_info >= (3, 12)
        if self._eager:
            self._task_options["eager_start"] = True
        self._id_prefix = f"{service.id_prefix}-".encode("ascii")
        service.next_request_id = self.new_request_id  # for connections that are handed over
        self._prepare_scopes()

    def _prepare_scopes(self):
        """Let the reference make a scope, and keep what all scopes of this worker have of it."""
        request = RequestReceived(0, b"", b"", b"/", b"", None, _V11, [], True, False, None)
        info = _scope.ConnectionInfo(None, None, "http", self.root_path, None, self.service.runs)
        self.scope = _scope.http_scope(request, info, "", False)
        self.asgi = self.scope["asgi"]
        self.extensions = self.scope["extensions"]
        self.said = self.extensions["servery"]
        self.empties = [name for name, value in self.extensions.items() if value == {}]

    cdef object server(self, object sockname):
        if sockname is not self._sockname or self._server is None:
            self._sockname, self._server = sockname, server_name(sockname)
        return self._server

    def new_request_id(self):
        """See `servery.drivers.service.numbered`."""
        return self.next_id()

    cdef str next_id(self):
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

    cdef object start(self, ApplicationCall call, str name, bint outside):
        """The task of a request. `outside` says that nothing of any application is running."""
        context = PyContext_Copy(self.context)
        if outside and self._inline and not self._driving and self._task_factory() is None:
            return self.start_at_once(call, name, context)
        return self._create_task(call, name=name, context=context)

    cdef object start_at_once(self, ApplicationCall call, str name, object context):
        """An ordinary task, whose first step does not wait for the loop's next turn."""
        cdef dict options = self._task_options  # one for all: to make it takes as long as to make the task
        task_type = <object>PyDict_GetItem(self._tasks, "Task")
        options["name"], options["context"] = name, context
        self._driving = True
        try:
            if self._eager:
                return PyObject_Call(task_type, (call,), options)
            return self.start_and_step(task_type, call, context)
        finally:
            self._driving = False
            options["name"] = options["context"] = None

    cdef object start_and_step(self, object task_type, ApplicationCall call, object context):
        """What ``eager_start`` does, for Python 3.11, which does not have it.

        A task asks its loop for its first step with ``call_soon`` when it is made: it is taken at its word.
        """
        cdef Caught caught = self._caught
        cdef dict names = self._loop_dict
        if _CALL_SOON in names:  # somebody else has had the same idea
            return self._create_task(call, name=self._task_options["name"], context=context)
        caught.context = context
        names[_CALL_SOON] = self._call_soon
        try:
            task = PyObject_Call(task_type, (call,), self._task_options)
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


cdef Request _request_of(object event):
    """A request that did not come by the short way."""
    request = <Request>Request.__new__(Request)
    request.stream, request.method, request.target = event.stream, event.method, event.target
    request.raw_path, request.query, request.authority = event.raw_path, event.query, event.authority
    request.version, request.headers, request.complete = event.version, event.headers, event.complete
    request.expects_continue, request.upgrade = event.expects_continue, event.upgrade
    request.percent = b"%" in event.raw_path
    return request


# --- one request: the twin of asgi.http_cycle ------------------------------------------------------------


@cython.freelist(64)
@cython.final
cdef class HttpCycle:
    """See `servery.asgi.http_cycle.HttpCycle`."""

    # --- from the connection

    cdef int body_received(self, bytes data, bint more, list trailers) except -1:
        if self._answered:
            return 0
        if self._body is None:
            self._body = data
        elif self._parts is None:
            self._parts = [self._body, data]
        else:
            self._parts.append(data)
        self.buffered += PyBytes_GET_SIZE(data)
        if not more:
            self._more_body = False
            self._trailers = trailers
        return self.wake()

    cdef int disconnected(self, bint lost) except -1:
        self._gone = True
        self._lost = self._lost or lost
        return self.wake()

    cdef int wake(self) except -1:
        if self._wakeup is not None:
            self._wakeup.set()
        return 0

    @property
    def answered(self):
        """Whether the response is complete."""
        return self._answered

    @property
    def told(self):
        """Whether the application has received ``http.disconnect`` before its response was complete."""
        return self._told

    @property
    def engine(self):
        """The engine that the response goes to."""
        return self._engine

    @property
    def port(self):
        """The way out."""
        return self._port

    # --- from the application

    cdef object pause(self):
        """A coroutine that waits until `wake`."""
        if self._wakeup is None:
            self._wakeup = AsyncioWakeup(self._port._shared.loop)
        return self._wakeup.wait()

    def wait(self):
        """A coroutine that waits until the driver has news."""
        return self.pause()

    cdef object take(self):
        """The message that `receive` returns now, or None while there is none."""
        if not self._answered:
            if self._body is not None:
                return self.take_body()
            if not self._gone:
                if self._more_body:
                    self._engine.continue_body(self.stream)
                    self._port.write_out()
                return None
            self._told = True
        return {"type": "http.disconnect"}

    cdef dict take_body(self):
        cdef dict message = {"type": "http.request", "body": self._body, "more_body": self._more_body}
        if self._parts is not None:
            message["body"] = b"".join(self._parts)
            self._parts = None
        self._body = None
        if self._trailers:
            message["trailers"] = self._trailers
            self._trailers = None
        if self.buffered:
            self.buffered = 0
            if self._port._stopped_reading:
                self._port.settle()
        return message

    cdef object put(self, object message):
        """Do what `message` says. Returns a coroutine that has to be waited for, or None."""
        cdef dict fields
        if self._lost:
            raise ClientDisconnected("the client has closed the connection")
        try:
            kind = (<dict>message)["type"] if type(message) is dict else message["type"]
        except (TypeError, KeyError):
            raise LocalProtocolError(f"an ASGI message is a dict with a 'type', not {message!r:.100}") from None
        if self._answered:
            raise LocalProtocolError(f"{kind!r} was sent after the response was complete")
        if kind == _BODY:
            if type(message) is dict:
                fields = message
                more, body = fields.get("more_body", False), fields.get("body", b"")
            else:
                more, body = message.get("more_body", False), message.get("body", b"")
            self.put_body(body if type(body) is bytes else as_bytes(body), more)
            return None if not self._port._full else self.undrained()
        if kind == _START:
            self.put_start(message if type(message) is dict else dict(message))
            return None
        if kind == _PATH:
            return self.put_path(message)
        return send_other(self, kind, message)

    cdef object put_path(self, object message):
        """`servery.asgi.messages.send_other`, for a file that the kernel may take at once."""
        cdef bint complete = True
        sending = FileToSend(required(message, "path"), 0, None)
        try:
            if self._engine.reserve_body(self.stream, sending.size, False):
                complete = self._port.write_file(sending)
            if complete:
                self.end_file()
        except BaseException:
            sending.close()
            raise
        if not complete:
            return self.wait_for_file(sending)
        sending.close()
        return None

    async def wait_for_file(self, sending):
        """The rest of `put_path`."""
        try:
            await self._port.rest_of_file()
        finally:
            sending.close()
        self.end_file()

    cdef int end_file(self) except -1:
        if self._engine.end_reserved(self.stream):
            self._port.end_queued(0)
            return self.complete()
        return self._port.write_out()

    cdef int put_start(self, dict message) except -1:
        try:
            status = message["status"]
        except KeyError:
            raise LocalProtocolError("'http.response.start' lacks 'status'") from None
        self._engine.start_response(self.stream, status, message.get("headers", ()), message.get("trailers", False))
        self.status = status
        return 0

    cdef int put_body(self, object body, bint more) except -1:
        cdef Connection port = self._port
        if self._engine.send_body(self.stream, <bytes>body, more):
            port.end_queued(PyBytes_GET_SIZE(<bytes>body))
            return self.complete()
        return port.part_queued(PyBytes_GET_SIZE(<bytes>body))

    cdef object undrained(self):
        """A coroutine to wait for before it is worth to look again whether the peer has taken enough; None if it has."""
        if self._answered:
            return None
        if self._lost:
            raise ClientDisconnected("the client has closed the connection")
        return self.pause() if self._port._full else None

    cpdef int complete(self) except -1:
        """The response is queued to its end: let go of the connection."""
        self._answered = True
        self.wake()
        return self._port.response_complete(self)

    # --- the end

    cdef int failed(self, object error) except -1:
        service = self._port._shared.service
        if error is not None and not (self._gone and is_disconnect(error)):
            service.app_failed(self, error)
        elif error is None and not self._told and not self._lost:
            service.app_failed(self, LocalProtocolError("the application returned before its response was complete"))
        return self.abandon()

    cdef int abandon(self) except -1:
        if self._answered:
            return 0
        self._answered = True
        self.wake()
        if self._lost:
            return 0
        if self._told:
            self._engine.abandon(self.stream)
        else:
            self.status = self._engine.fail_response(self.stream)
        self._port.write_out()
        return self._port.response_complete(self)


@cython.freelist(128)
cdef class Method:
    """`receive` or `send`, as an application gets it: to all who look, the reference's bound method.

    A compiled method would not look like a coroutine function, and whoever wraps functions wants to know.
    """

    @property
    def __class__(self):
        """Not ours."""
        return MethodType

    @property
    def __self__(self):
        """The cycle."""
        return self._cycle

    @property
    def __func__(self):
        """The function of the reference that does the same."""
        raise NotImplementedError

    def __getattr__(self, name):
        return getattr(self.__func__, name)

    def __repr__(self):
        return f"<bound method {self.__qualname__} of {self._cycle!r}>"


@cython.final
cdef class Receive(Method):
    """ASGI ``receive``: ``http.request`` messages, then ``http.disconnect`` once the peer is gone."""

    def __call__(self):
        call = <Receiving>Receiving.__new__(Receiving)
        call._cycle = self._cycle
        return call

    @property
    def __func__(self):
        """The function of the reference that does the same."""
        return _Reference.receive


@cython.final
cdef class Send(Method):
    """ASGI ``send``. Raises `ClientDisconnected` once the peer is gone, `LocalProtocolError` for a mistake."""

    def __call__(self, message):
        call = <Sending>Sending.__new__(Sending)
        call._cycle = self._cycle
        call._message = message
        return call

    @property
    def __func__(self):
        """The function of the reference that does the same."""
        return _Reference.send


@cython.freelist(128)
cdef class Awaited:
    """What `receive()` and `send()` return: in everything that ``await`` and asyncio ask of it, a coroutine."""

    cdef bint proceed(self) except -1:
        """Go on as far as possible; true when it is over, with the result in `_result`, else `_inner` has to be waited for."""
        raise NotImplementedError

    cdef object reference(self):
        """The function of the reference that does the same."""
        raise NotImplementedError

    cdef bint resume(self, object value, object error, PyObject **yielded) except -1:
        """One step; true when it is over. Raises what the call raises."""
        cdef bint over = False
        if self._cycle is None:
            raise RuntimeError("cannot reuse already awaited coroutine")
        self._begun = True
        try:
            if error is not None and self._inner is None:
                raise error
            while True:
                if self._inner is None and self.proceed():
                    over = True
                    break
                if error is not None:
                    error, thrown = None, error
                    try:
                        value = self._inner.throw(thrown)
                    except StopIteration:
                        self._inner = None
                        continue
                    Py_INCREF(value)
                    yielded[0] = <PyObject *>value
                    break
                if PyIter_Send(self._inner, value, yielded) == PYGEN_NEXT:
                    break
                Py_DECREF(<object>yielded[0])
                self._inner = None
                value = None
        except BaseException:
            self._cycle = self._inner = None
            raise
        if over:
            self._cycle = None
        return over

    def __await__(self):
        if self._inner is not None:
            raise RuntimeError("coroutine is being awaited already")
        return self

    def __iter__(self):  # for ``yield from`` in coroutines that are generators
        return self

    def __next__(self):
        cdef PyObject *yielded = NULL
        if self.resume(None, None, &yielded):
            if self._result is not None:
                PyErr_SetObject(StopIteration, self._result)
            raise StopIteration  # bare, Cython only returns: no exception is made, or the one above is left alone
        return _owned(yielded)

    def send(self, value):
        """As of a coroutine."""
        cdef PyObject *yielded = NULL
        if self.resume(value, None, &yielded):
            raise StopIteration(self._result)
        return _owned(yielded)

    def throw(self, kind, value=None, trace=None):
        """As of a coroutine."""
        cdef PyObject *yielded = NULL
        if self.resume(None, _thrown(kind, value, trace), &yielded):
            raise StopIteration(self._result)
        return _owned(yielded)

    def close(self):
        """As of a coroutine."""
        self._begun = True
        inner, self._inner, self._cycle = self._inner, None, None
        if inner is not None:
            inner.close()

    @property
    def __class__(self):
        """Not ours: to all who look, a coroutine."""
        return CoroutineType

    def __repr__(self):
        return f"<coroutine object {self.__qualname__} at {<size_t><PyObject *>self:#x}>"

    @property
    def cr_code(self):
        """The code of the reference that does the same."""
        return self.reference().__code__

    @property
    def cr_origin(self):
        """Where it was made: not known."""
        return None

    @property
    def cr_suspended(self):
        """Whether it waits."""
        return self._inner is not None

    @property
    def cr_await(self):
        """What it waits for."""
        return self._inner

    @property
    def cr_frame(self):
        """The frame of what it waits for."""
        return getattr(self._inner, "cr_frame", None)

    @property
    def cr_running(self):
        """Whether it is running: never, when somebody can ask."""
        return False

    def __dealloc__(self):
        if not self._begun:  # the level is that of who lets go of it: no frame of ours is in between
            warnings.warn(f"coroutine {self.__qualname__!r} was never awaited", RuntimeWarning, stacklevel=1)


@cython.final
cdef class Receiving(Awaited):
    """A call of `HttpCycle.receive`."""

    __name__ = "receive"
    __qualname__ = "HttpCycle.receive"

    cdef bint proceed(self) except -1:
        self._result = self._cycle.take()
        if self._result is not None:
            return True
        self._inner = self._cycle.pause()
        return False

    cdef object reference(self):
        return _Reference.receive


@cython.final
cdef class Sending(Awaited):
    """A call of `HttpCycle.send`."""

    __name__ = "send"
    __qualname__ = "HttpCycle.send"

    cdef bint proceed(self) except -1:
        if not self._put:
            self._put = True
            message, self._message = self._message, None
            self._inner = self._cycle.put(message)
        else:
            self._inner = self._cycle.undrained()
        return self._inner is None

    cdef object reference(self):
        return _Reference.send


async def _awaiting(awaitable):
    """What an application returned that is no coroutine of a function: what can be awaited is decided by ``await``."""
    return await awaitable


cdef object _owned(PyObject *made):
    """A reference that is ours already, as an object."""
    result = <object>made
    Py_DECREF(result)
    return result


cdef object _thrown(object kind, object value, object trace):
    """The exception that the arguments of ``throw`` stand for."""
    error = kind if isinstance(kind, BaseException) else value if isinstance(value, BaseException) else kind(
        *(() if value is None else value if isinstance(value, tuple) else (value,))
    )
    return error if trace is None else error.with_traceback(trace)


@cython.freelist(64)
@cython.final
cdef class ApplicationCall:
    """The coroutine of a request's task: calls the application and sees its request to an end (`HttpCycle.run` of the reference)."""

    __name__ = "run"
    __qualname__ = "HttpCycle.run"

    cdef bint resume(self, object value, object error, PyObject **yielded) except -1:
        """One step; true when it is over. Raises no `Exception`."""
        cdef HttpCycle cycle = self._cycle
        cdef bint over = True
        if cycle is None:
            raise RuntimeError("cannot reuse already awaited coroutine")
        if self._running:
            raise ValueError("coroutine already executing")
        self._running = cycle.stepping = True
        try:
            over = self.step(cycle, value, error, yielded)
            if over and not cycle._answered:
                cycle.failed(None)
        except Exception as failure:
            cycle.failed(failure)
        except BaseException:
            cycle.abandon()
            raise
        finally:
            self._running = cycle.stepping = False
            if over:
                self.end(cycle)
        if not over and cycle._port._corked:
            cycle._port.write_out()
        return over

    cdef bint step(self, HttpCycle cycle, object value, object error, PyObject **yielded) except -1:
        cdef PySendResult how
        if self._inner is None:
            if error is not None:
                raise error
            made = self.call(cycle)
            self._inner = made if type(made) is CoroutineType else _awaiting(made)
        if error is not None:
            try:
                value = self._inner.throw(error)
            except StopIteration:
                return True
            Py_INCREF(value)
            yielded[0] = <PyObject *>value
            return False
        how = PyIter_Send(self._inner, value, yielded)
        if how == PYGEN_NEXT:
            return False
        Py_DECREF(<object>yielded[0])
        return True

    cdef object call(self, HttpCycle cycle):
        receive, send = <Receive>Receive.__new__(Receive), <Send>Send.__new__(Send)
        receive._cycle = send._cycle = cycle
        return cycle._port._shared.app(cycle.scope, receive, send)

    cdef int end(self, HttpCycle cycle) except -1:
        self._cycle = None
        self._inner = None
        cycle.ended = True
        cycle.task = None
        return cycle._port.finished(cycle)

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        cdef PyObject *yielded = NULL
        if self.resume(None, None, &yielded):
            raise StopIteration
        return _owned(yielded)

    def send(self, value):
        """As of a coroutine."""
        cdef PyObject *yielded = NULL
        if self.resume(value, None, &yielded):
            raise StopIteration
        return _owned(yielded)

    def throw(self, kind, value=None, trace=None):
        """As of a coroutine."""
        cdef PyObject *yielded = NULL
        if self.resume(None, _thrown(kind, value, trace), &yielded):
            raise StopIteration
        return _owned(yielded)

    def close(self):
        """As of a coroutine."""
        if self._cycle is not None:
            try:
                self.throw(GeneratorExit())
            except (GeneratorExit, StopIteration):
                return
            raise RuntimeError("coroutine ignored GeneratorExit")

    @property
    def __class__(self):
        """Not ours: to all who look, a coroutine."""
        return CoroutineType

    def __repr__(self):
        return f"<coroutine object {self.__qualname__} at {<size_t><PyObject *>self:#x}>"

    @property
    def cr_code(self):
        """The code of the application."""
        return getattr(self._inner, "cr_code", _Reference.run.__code__)

    @property
    def cr_origin(self):
        """Where it was made: not known."""
        return None

    @property
    def cr_suspended(self):
        """Whether the application waits."""
        return self._inner is not None and not self._running

    @property
    def cr_await(self):
        """The application's coroutine."""
        return self._inner

    @property
    def cr_frame(self):
        """The frame of the application's coroutine."""
        return getattr(self._inner, "cr_frame", None)

    @property
    def cr_running(self):
        """Whether the application is running."""
        return self._running


# --- one connection: the twin of drivers.asyncio_driver --------------------------------------------------


@cython.final
cdef class Connection(Transport):
    """See `servery.drivers.asyncio_driver.AsyncioConnection`; here it is its own transport."""

    def __init__(self, Reactor reactor, int fd, Shared shared, peername, sockname):
        Transport.__init__(self, reactor, fd, None, peername, sockname)
        self._shared = shared
        self._client = peer_name(peername)
        self._server = shared.server(sockname)
        self._engine = shared.make_engine(reactor.clock())
        self.armed = self._write_deadline = NEVER

    def start(self):
        """The connection was accepted."""
        shared = self._shared
        service = shared.service
        self.set_marks(shared.write_buffer, shared.write_buffer // 4)
        service.connected(self)
        self.begin()
        if service.stopping:
            self.stop(self.reactor.clock())
        else:
            shared.clock.arm(self, self._engine.deadline)

    # --- from the reactor

    cdef int received(self, const char *data, Py_ssize_t size) except -1:
        if self._handed_over:
            return Transport.received(self, data, size)
        cdef double now = self.reactor.now
        cdef list events
        cdef Request request = self._engine.take(data, size, now)
        if request is not None:
            self.take_request(request, now)
        else:
            events = self._engine.receive(PyBytes_FromStringAndSize(data, size), now)
            if events:
                self.dispatch(events, now)
        return self.settle()

    cdef int ended(self) except -1:
        if self._handed_over:
            return Transport.ended(self)
        cdef double now = self.reactor.clock()
        self.dispatch(self._engine.receive(b"", now), now)
        return self.settle()

    cdef int lost(self, object error) except -1:
        if self._handed_over:
            return Transport.lost(self, error)
        self._full = False
        self._shared.clock.disarm(self)
        self._shared.service.disconnected(self)
        return self.lose_cycle()

    cdef int full(self) except -1:
        if self._handed_over:
            return Transport.full(self)
        return self.watch_writing(self.reactor.clock())

    cdef int drained(self) except -1:
        if self._handed_over:
            return Transport.drained(self)
        if not self._ending:
            self._write_deadline = NEVER
        if self._cycle is not None:
            self._cycle.wake()
        return self.settle()

    cdef int file_sent(self, object error) except -1:
        self._file_waits = False
        self._file_error = error
        if self._cycle is not None:
            self._cycle.wake()
        return 0

    # --- from the clock and the server

    def on_deadline(self, double now):
        """The time has come that the clock was armed for; it may have moved on since."""
        if self._write_deadline <= now:
            if self.unsent and self.unsent >= self._was_unsent:
                self.drop(True)
                return
            self.watch_writing(now)
        if self._engine.deadline <= now:
            self.dispatch(self._engine.expire(now), now)
        self.settle()

    def stop(self, double now):
        """Finish what is in progress, then close; close at once if nothing is."""
        self._engine.stop(now)
        self.settle()

    def told_to_end(self):
        """The stream grace is over: ``receive()`` of the request in progress says ``http.disconnect``."""
        if self._cycle is not None:
            self._cycle.disconnected(False)

    def abort(self):
        """Reset the connection: the peer must not take what it has for complete."""
        self.drop(True)

    def end_of_turn(self):
        """The turn of the loop in which something was kept back is over."""
        self._flush_due = False
        if self._corked and not self._lost:
            self.write_out()

    # --- from the cycle

    @property
    def writable(self):
        """False while more than the high-water mark waits for the peer."""
        return not self._full

    def flush(self):
        """Write what the engine has queued."""
        self.write_out()

    def debug(self, info):
        """The application sent ``http.response.debug``."""
        error_log.debug("http.response.debug: %r", info)

    def open_file(self, file, offset, count):
        """Open a path, or take an open file or descriptor."""
        return FileToSend(file, offset, count)

    async def send_file(self, sending):
        """Write an open file after what was flushed."""
        if not self.write_file(sending):
            await self.rest_of_file()

    cdef bint write_file(self, object sending) except -1:
        """Write what is queued, and an open file behind it; whether the kernel has taken all of it."""
        cdef list out = self._engine._out
        if self._cycle is not None and not self.closing:
            self._corked = self._held = 0
            self._engine._out = []
            self._file_error = None
            self.put_before_file(out)
            if self.put_file(sending.fd, sending.offset, sending.size):
                return True
        if self._cycle is None or self.closing:
            self.lose_cycle()  # now: the loop's word on it comes later than the application's next message
            raise ClientDisconnected("the client has closed the connection")
        self._file_waits = True
        self.watch_writing(self.reactor.clock())
        return False

    async def rest_of_file(self):
        """Wait until the kernel has all of the file that was written last."""
        cdef HttpCycle cycle = self._cycle
        try:
            while self._file_waits and self._cycle is cycle:
                await cycle.pause()
        finally:
            self._write_deadline = NEVER
            if self._file_waits:  # its descriptor is about to be closed
                self._file_waits = False
                self.withdraw_file()
        if self._file_error is not None:
            raise self._file_error
        if self._cycle is not cycle or self.closing:
            raise ClientDisconnected("the client has closed the connection")

    cdef int finished(self, HttpCycle cycle) except -1:
        """The application call has ended."""
        cdef Shared shared = self._shared
        shared.cycles.discard(cycle)
        if not shared.connections:
            shared.service.finished(cycle)
        return 0

    cdef int part_queued(self, Py_ssize_t size) except -1:
        """Content was queued, and more may follow."""
        self._corked += size + 1
        if self._corked > CORK_SIZE:
            return self.write_out()
        if not self._flush_due and not (self._cycle is not None and self._cycle.stepping):
            self._flush_due = True
            self._shared.service.flush_later(self)
        return 0

    cdef int end_queued(self, Py_ssize_t size) except -1:
        """A response was queued to its end: it leaves at once, or with the next one if that was asked for already."""
        self._corked += size + 1
        self._held += 1
        if self._corked > CORK_SIZE or self._held >= HELD or not PyBytes_GET_SIZE(self._engine._pending):
            return self.write_out()
        return 0

    cdef int write_out(self) except -1:
        cdef list out = self._engine._out
        self._corked = self._held = 0
        if not out or self._lost:
            return 0
        if self.closing:
            self._engine._out = []
            return self.lose_cycle()
        if len(out) == 1:
            self.put(<bytes>out[0])
            out.clear()
        else:
            self._engine._out = []
            self.put_all(out)
        return 0

    cdef int response_complete(self, HttpCycle cycle) except -1:
        if self._cycle is cycle:
            self._cycle = None
            if self._shared.logs:
                self.log(cycle, self._engine.closing)
            self._advance_due = True
            if not self._settling:
                self.settle()
        return 0

    # --- inside

    cdef int dispatch(self, list events, double now) except -1:
        cdef HttpCycle begun = None
        for event in events:
            if type(event) is RequestReceived:
                if event.upgrade is not None and b"websocket" in event.upgrade.lower():
                    return self.hand_over(events, now)  # it is the first of them, and the rest is about it
                begun = self.begin_request(_request_of(event), now)
            elif type(event) is BodyReceived:
                if self._cycle is not None:
                    self._cycle.body_received(event.data, event.more, event.trailers)
            elif type(event) is ConnectionFailed:
                self.peer_failed(event)
            elif self._cycle is not None:
                self._cycle.disconnected(False)
        return self.start_cycle(begun) if begun is not None else 0

    cdef int hand_over(self, list events, double now) except -1:
        """A WebSocket is asked for: from here on the reference's connection owns this one, which is its transport.

        It may be denied, or the request may be plain HTTP after all: then the connection goes on over there.
        """
        service = self._shared.service
        self.write_out()
        connection = AsyncioConnection(service, self._engine)
        self._handed_over = True
        self.set_protocol(connection)
        self._shared.clock.disarm(self)
        self._shared.connections.discard(self)
        connection.take_over(self, self._stopped_reading, events, now)
        if self._full:
            connection.pause_writing()
        return 0

    cdef int take_request(self, Request request, double now) except -1:
        """A request that came the short way."""
        cdef HttpCycle cycle = self.begin_request(request, now)
        if request.rest is not None:
            rest, request.rest = request.rest, None
            self.dispatch(self._engine.receive(rest, now), now)
        return self.start_cycle(cycle)

    cdef HttpCycle begin_request(self, Request request, double now):
        """The cycle of a request. What was read behind its head is for it, too."""
        cdef Shared shared = self._shared
        cdef str request_id = shared.next_id()
        cdef HttpCycle cycle = <HttpCycle>HttpCycle.__new__(HttpCycle)
        cycle._port, cycle._engine, cycle.request, cycle.stream = self, self._engine, request, request.stream
        cycle.started, cycle.request_id = now, request_id
        cycle.scope = self.scope_of(request, request_id)
        if request.complete:
            cycle._body = b""
        elif request.body is not None:
            cycle._body = request.body
            cycle.buffered = PyBytes_GET_SIZE(request.body)
            request.body = None
        else:
            cycle._more_body = True
        self._cycle = cycle
        return cycle

    cdef int start_cycle(self, HttpCycle cycle) except -1:
        """Run the application: now, up to where it waits, if nothing of any application is running.

        What was read behind the head may have failed the request already.
        """
        cdef Shared shared = self._shared
        cdef ApplicationCall call
        if shared.bounded and shared.service.full:
            return self.refuse(cycle) if self._cycle is cycle else 0
        shared.cycles.add(cycle)
        call = <ApplicationCall>ApplicationCall.__new__(ApplicationCall)
        call._cycle = cycle
        task = shared.start(call, cycle.request_id, self.reactor._running != 0)
        if not cycle.ended:
            cycle.task = task
        return 0

    cdef dict scope_of(self, Request request, str request_id):
        """The twin of asgi.scope."""
        cdef Shared shared = self._shared
        cdef bytes raw_path = request.raw_path
        cdef dict scope = PyDict_Copy(shared.scope), extensions = PyDict_Copy(shared.extensions), said = PyDict_Copy(shared.said)
        if request.percent:
            path = _scope.decode_path(raw_path)
        else:
            path = PyUnicode_DecodeASCII(PyBytes_AS_STRING(raw_path), PyBytes_GET_SIZE(raw_path), NULL)
        if shared.raw_root:
            path, raw_path = shared.root_path + path, shared.raw_root + raw_path
        said["request_id"] = request_id
        extensions["servery"] = said
        for name in shared.empties:
            extensions[name] = {}
        if self._engine.takes_trailers:
            extensions["http.response.trailers"] = {}
        scope["asgi"] = PyDict_Copy(shared.asgi)
        if request.version != _V11:
            scope["http_version"] = "1.0"
        scope["method"] = "GET" if request.method == b"GET" else _METHODS.get(request.method) or request.method.decode()
        scope["path"] = path
        scope["raw_path"] = raw_path
        scope["query_string"] = request.query
        scope["headers"] = request.headers if request.authority is None else _scope._with_host(request)
        scope["client"] = self._client
        scope["server"] = self._server
        scope["extensions"] = extensions
        if shared.state is not None:
            scope["state"] = PyDict_Copy(shared.state) if type(shared.state) is dict else shared.state.copy()
        return scope

    cdef int refuse(self, HttpCycle cycle) except -1:
        """More requests than `--limit-concurrency` are in progress."""
        self._cycle = None
        cycle.status = 503
        self._engine.answer(cycle.stream, 503, "Service Unavailable", b"retry-after: 1\r\n")
        self.write_out()
        self.log(cycle, False)
        self._advance_due = True
        return 0

    cdef int peer_failed(self, object event) except -1:
        cdef HttpCycle cycle = self._cycle
        error_log.debug("%s: %s", self._client, event.error)
        if cycle is None:
            self._shared.service.log_refusal(self._client, event.request_line, event.replied)
            return 0
        self._cycle = None
        cycle.status = event.replied or cycle.status
        self.log(cycle, True)
        return cycle.disconnected(True)

    cdef int lose_cycle(self) except -1:
        cdef HttpCycle cycle = self._cycle
        if cycle is not None:
            self._cycle = None
            self.log(cycle, True)
            cycle.disconnected(True)
        return 0

    cdef int log(self, HttpCycle cycle, bint aborted) except -1:
        if self._shared.logs:
            self._shared.service.log_request(cycle, self._client, self._engine.content_sent, aborted)
        return 0

    cdef int settle(self) except -1:
        """See the reference: go on as far as possible, and make the socket what engine and cycle say."""
        cdef Http1Engine engine = self._engine
        cdef bint wanted
        if self._advance_due:
            self.advance()
        if self._handed_over:
            return 0
        wanted = engine.wants_read and not (
            self._cycle is not None and self._cycle.buffered > self._shared.body_buffer
        )
        if self._stopped_reading == wanted:
            self.switch_reading()
        if engine.half_closed or engine.closing:
            self.wind_up()
        if engine.deadline < self.armed and not self._lost:
            self._shared.clock.arm(self, engine.deadline)
        return 0

    cdef int advance(self) except -1:
        cdef Http1Engine engine = self._engine
        cdef Request request
        cdef list events
        cdef double now
        self._settling = True
        while self._advance_due and (not self._full or engine.closing):
            self._advance_due = False
            now = self.reactor.clock()
            request = engine.take_next(now)
            if request is not None:
                self.take_request(request, now)
                continue
            events = engine.advance(now)
            if events:
                self.dispatch(events, now)
        self._settling = False
        if self._corked and self._cycle is None:
            self.write_out()  # nobody else would
        return 0

    cdef int switch_reading(self) except -1:
        self._stopped_reading = not self._stopped_reading
        self.read_on(not self._stopped_reading)
        self._engine.body_paused(self._stopped_reading, self.reactor.clock())
        return 0

    cdef int wind_up(self) except -1:
        """Last words, then FIN and a lingering close, or the close itself."""
        self.write_out()
        if self.closing:
            return 0
        if self._engine.closing:
            self._ending = True
            if self._engine.reset:
                self.drop(True)
            else:
                self.finish()
                self.watch_writing(self.reactor.clock())
        elif not self._fin_sent:
            self._fin_sent = True
            self.shut()
        return 0

    cdef int watch_writing(self, double now) except -1:
        """The peer must take something within `Limits.write_timeout`, again and again."""
        self._was_unsent = self.unsent
        if not self.unsent:
            self._write_deadline = NEVER
            return 0
        self._write_deadline = now + self._shared.write_timeout
        if self._write_deadline < self.armed:
            self._shared.clock.arm(self, self._write_deadline)
        return 0
