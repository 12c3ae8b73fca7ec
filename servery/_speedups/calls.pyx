"""What an application is called with, and what it waits for: the twin of `servery.asgi.calls`, and of the methods `run`, `receive` and `send`.

Read the reference first: what is done here, and why, is said there; here stands why it is done in another way.

Two things are arranged differently, and an application cannot tell. `receive()` and `send()` return objects of our own, not coroutines of
functions: they have the same methods, and do nothing before they are awaited. And since the coroutine of a request's task is ours, it
knows when the application stops running: what was sent is written then, or when it is much, and needs no callback of its own.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF

from .reactor cimport Reactor

import warnings
from types import CoroutineType, MethodType

from ..addresses import peer_name
from ..engine import NEVER as _NEVER
from ..errors import ClientDisconnected

cdef double NEVER = _NEVER

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    PySendResult PyIter_Send(object, object, PyObject **) except PYGEN_ERROR
    void PyErr_SetObject(object, object)


# --- one call of the application -------------------------------------------------------------------------


@cython.final
cdef class Twin:
    """The functions of the reference that do the same as a kind of `Call` here."""

    def __init__(self, reference):
        self.run, self.receive, self.send = reference.run, reference.receive, reference.send


cdef class Port(Transport):
    """See calls.pxd. What it does itself is the twin of `servery.drivers.writing`."""

    def __init__(self, Reactor reactor, int fd, Shared shared, peername, sockname):
        Transport.__init__(self, reactor, fd, None, peername, sockname)
        self._shared = shared
        self._client = peer_name(peername)
        self._server = shared.server(sockname)
        self.armed = self._write_deadline = NEVER

    cdef int full(self) except -1:
        return self.watch_writing(self.reactor.clock())

    def abort(self):
        """Reset the connection: the peer must not take what it has for complete."""
        self.drop(True)

    def end_of_turn(self):
        """The turn of the loop in which something was kept back is over."""
        self._flush_due = False
        if self._corked and not self._lost:
            self.write_out()

    cdef int start_task(self, Call cycle) except -1:
        cdef Shared shared = self._shared
        shared.cycles.add(cycle)
        task = shared.starter.start(call_of(cycle), cycle.request_id, self.reactor._running != 0)
        if not cycle.ended:
            cycle.task = task
        return 0

    cdef int finished(self, Call cycle) except -1:
        cdef Shared shared = self._shared
        shared.cycles.discard(cycle)
        if not shared.connections:
            shared.service.finished(cycle)
        return 0

    cdef bint watch_deadline(self, double now) except -1:
        if self._write_deadline <= now:
            if self.unsent and self.unsent >= self._was_unsent:
                self.drop(True)
                return True
            self.watch_writing(now)
        return False

    cdef int watch_writing(self, double now) except -1:
        self._was_unsent = self.unsent
        if not self.unsent:
            self._write_deadline = NEVER
            return 0
        self._write_deadline = now + self._shared.write_timeout
        if self._write_deadline < self.armed:
            self._shared.clock.arm(self, self._write_deadline)
        return 0

    cdef int wind_up(self, bint closing, bint reset) except -1:
        if self.closing:
            return 0
        if closing:
            self._ending = True
            if reset:
                self.drop(True)
            else:
                self.finish()
                self.watch_writing(self.reactor.clock())
        elif not self._fin_sent:
            self._fin_sent = True
            self.shut()
        return 0

    cdef bint is_full(self, Call cycle) except -1:
        raise NotImplementedError

    cdef int consumed(self, Call cycle) except -1:
        raise NotImplementedError

    cdef int part_queued(self, Call cycle, Py_ssize_t size) except -1:
        raise NotImplementedError

    cdef int end_queued(self, Call cycle, Py_ssize_t size) except -1:
        raise NotImplementedError

    cdef int write_out(self) except -1:
        raise NotImplementedError

    cdef int settle(self) except -1:
        raise NotImplementedError

    cdef bint write_file(self, object sending) except -1:
        raise NotImplementedError

    cdef int open_websocket(self, object handshake, object subprotocol, object headers) except -1:
        raise NotImplementedError

    cdef int response_complete(self, Call cycle) except -1:
        raise NotImplementedError


cdef class Call:
    """See `servery.asgi.calls.Call`. `receive` is made of `take`, `send` of `put` and `undrained`, `run` of what comes after these."""

    cpdef int wake(self) except -1:
        if self._waiter is not None:
            last, self._waiter = self._waiter, None
            if self._waiters is not None:
                others, self._waiters = self._waiters, None
                for waiter in others:
                    _resolve(waiter)
            _resolve(last)
        return 0

    def wait(self):
        """What to wait for until `wake`."""
        return self.waiter()

    cdef object waiter(self):
        """A future that `wake` resolves."""
        last = self._waiter
        self._waiter = self._port._shared.create_future()
        if last is not None and not last.done():
            self._waiters = [waiter for waiter in self._waiters or () if not waiter.done()]
            self._waiters.append(last)
        return self._waiter

    cdef object undrained(self):
        """What to wait for before it is worth to look again whether the peer has taken enough; None if it has."""
        if self._lost:
            raise ClientDisconnected("the client has closed the connection")
        if self.is_answered():
            return None
        return self.waiter().__await__() if self._port.is_full(self) else None

    @property
    def answered(self):
        """Whether the application is done with the connection."""
        return self.is_answered()

    @property
    def gone(self):
        """Whether the peer has finished sending, or is lost."""
        return self._gone

    @property
    def told(self):
        """Whether the application has been told that the peer left, before it was done."""
        return self._told

    @property
    def engine(self):
        """The engine that the response goes to."""
        return self._engine

    @property
    def port(self):
        """The way out."""
        return self._port

    cdef object take(self):
        """The message that `receive` returns now, or None while there is none."""
        raise NotImplementedError

    cdef object put(self, object message):
        """Do what `message` says. Returns what has to be waited for then, an iterator or coroutine, or None."""
        raise NotImplementedError

    cdef bint is_answered(self) noexcept:
        return False

    cdef int disconnected(self, bint lost) except -1:
        """See `servery.asgi.http_cycle.HttpCycle.disconnected`."""
        raise NotImplementedError

    cdef int returned(self) except -1:
        """The application has returned."""
        raise NotImplementedError

    cdef int failed(self, object error) except -1:
        """The application has raised."""
        raise NotImplementedError

    cdef int abandon(self) except -1:
        """Give the peer an honest end, whatever the application has done."""
        raise NotImplementedError


cdef int _resolve(object waiter) except -1:
    if not waiter.done():
        waiter.set_result(None)
    return 0


# --- receive and send ------------------------------------------------------------------------------------


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
        return self._function

    def __getattr__(self, name):
        return getattr(self._function, name)

    def __repr__(self):
        return f"<bound method {self.__qualname__} of {self._cycle!r}>"


@cython.final
cdef class Receive(Method):
    """ASGI ``receive``."""

    def __call__(self):
        call = <Receiving>Receiving.__new__(Receiving)
        call._cycle, call._function = self._cycle, self._function
        return call


@cython.final
cdef class Send(Method):
    """ASGI ``send``. Raises `ClientDisconnected` once the peer is gone, `LocalProtocolError` for a mistake."""

    def __call__(self, message):
        call = <Sending>Sending.__new__(Sending)
        call._cycle, call._function, call._message = self._cycle, self._function, message
        return call


# --- coroutines ------------------------------------------------------------------------------------------


@cython.freelist(256)
cdef class Coroutine:
    """In everything that ``await`` and asyncio ask of it, a coroutine."""

    cdef bint resume(self, object value, object error, PyObject **yielded) except -1:
        """One step; true when it is over, with the result in `_result`, else what is waited for is in `yielded`."""
        raise NotImplementedError

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

    @property
    def __class__(self):
        """Not ours: to all who look, a coroutine."""
        return CoroutineType

    @property
    def __name__(self):
        """Of the reference's function."""
        return self._function.__name__

    @property
    def __qualname__(self):
        """Of the reference's function."""
        return self._function.__qualname__

    def __repr__(self):
        return f"<coroutine object {self.__qualname__} at {<size_t><PyObject *>self:#x}>"

    @property
    def cr_origin(self):
        """Where it was made: not known."""
        return None

    @property
    def cr_await(self):
        """What it waits for."""
        return self._inner

    @property
    def cr_suspended(self):
        """Whether it waits."""
        return self._inner is not None and not self._running

    @property
    def cr_running(self):
        """Whether it is running."""
        return self._running


cdef class Awaited(Coroutine):
    """What `receive()` and `send()` return."""

    cdef bint proceed(self) except -1:
        """Go on as far as possible; true when it is over, with the result in `_result`, else `_inner` has to be waited for."""
        raise NotImplementedError

    cdef tuple arguments(self):
        """What the call was given; not the message, which may be gone."""
        return ()

    cdef bint resume(self, object value, object error, PyObject **yielded) except -1:
        """See `Coroutine.resume`. Raises what the call raises."""
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

    def close(self):
        """As of a coroutine."""
        self._begun = True
        inner, self._inner, self._cycle = self._inner, None, None
        if inner is not None:
            inner.close()

    @property
    def cr_code(self):
        """The code of the reference that does the same."""
        return self._function.__code__

    @property
    def cr_frame(self):
        """The frame of what it waits for; if that has none, one of the reference that does the same, at its beginning."""
        if self._cycle is None:
            return None
        frame = getattr(self._inner, "cr_frame", None)
        if frame is None:
            call = self._function(self._cycle, *self.arguments())
            frame = call.cr_frame
            call.close()
        return frame

    def __dealloc__(self):
        if not self._begun:  # the level is that of who lets go of it: no frame of ours is in between
            warnings.warn(f"coroutine {self.__qualname__!r} was never awaited", RuntimeWarning, stacklevel=1)


@cython.final
cdef class Receiving(Awaited):
    """A call of `receive`."""

    cdef bint proceed(self) except -1:
        self._result = self._cycle.take()
        if self._result is not None:
            return True
        self._inner = self._cycle.waiter().__await__()
        return False


@cython.final
cdef class Sending(Awaited):
    """A call of `send`."""

    cdef bint proceed(self) except -1:
        if not self._put:
            self._put = True
            message, self._message = self._message, None
            self._inner = self._cycle.put(message)
        else:
            self._inner = self._cycle.undrained()
        return self._inner is None

    cdef tuple arguments(self):
        return (None,)


cdef object call_of(Call cycle):
    call = <ApplicationCall>ApplicationCall.__new__(ApplicationCall)
    call._cycle, call._function = cycle, cycle._twin.run
    return call


@cython.final
cdef class ApplicationCall(Coroutine):
    """The coroutine of a request's task: calls the application and sees its request to an end (`run` of the reference)."""

    cdef bint resume(self, object value, object error, PyObject **yielded) except -1:
        """See `Coroutine.resume`. Raises no `Exception`."""
        cdef Call cycle = self._cycle
        cdef bint over = True
        if cycle is None:
            raise RuntimeError("cannot reuse already awaited coroutine")
        if self._running:
            raise ValueError("coroutine already executing")
        self._running = cycle.stepping = True
        try:
            over = self.step(cycle, value, error, yielded)
            if over:
                cycle.returned()
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

    cdef bint step(self, Call cycle, object value, object error, PyObject **yielded) except -1:
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

    cdef object call(self, Call cycle):
        receive, send = <Receive>Receive.__new__(Receive), <Send>Send.__new__(Send)
        receive._cycle = send._cycle = cycle
        receive._function, send._function = cycle._twin.receive, cycle._twin.send
        scope, cycle._scope = cycle._scope, None  # see `Call._take_scope` of the reference
        return cycle._port._shared.app(scope, receive, send)

    cdef int end(self, Call cycle) except -1:
        self._cycle = None
        self._inner = None
        cycle.ended = True
        cycle.task = None
        return cycle._port.finished(cycle)

    def __await__(self):
        return self

    def close(self):
        """As of a coroutine."""
        if self._cycle is not None:
            try:
                self.throw(GeneratorExit())
            except (GeneratorExit, StopIteration):
                return
            raise RuntimeError("coroutine ignored GeneratorExit")

    @property
    def cr_frame(self):
        """The frame of the application's coroutine."""
        return getattr(self._inner, "cr_frame", None)

    @property
    def cr_code(self):
        """The code of the application."""
        return getattr(self._inner, "cr_code", self._function.__code__)


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
