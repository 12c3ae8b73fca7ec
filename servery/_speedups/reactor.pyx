"""The readiness reactor: sockets in an epoll (kqueue) descriptor of its own, and only that one in the loop.

One callback of the loop serves a batch of ready sockets: receive, hand over, and what is answered meanwhile is sent at once. Readiness
is level-triggered, so that what a batch leaves comes in the next turn, after the loop's other callbacks.

Knows descriptors, flow control and the ways in which a connection ends; knows nothing of what it carries. Everything belongs to the
loop's thread. TLS is inside of a transport: what hooks get and services take is content, what waits in queues are records. The kernel
holds pointers to `Watched` objects, which `Reactor._watched` keeps alive; see poll.h for what is asked of it.
"""

import asyncio
import socket
from collections import deque

from ..errors import LocalProtocolError

from asyncio.trsock import TransportSocket

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.errno cimport EAGAIN, EBADF, EINVAL, ENOTSOCK, EOPNOTSUPP
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strerror

from .records cimport OPENED, Records

cdef extern from "Python.h":
    str PyUnicode_DecodeFSDefaultAndSize(const char *text, Py_ssize_t size)
    int PyContext_Enter(object) except -1
    int PyContext_Exit(object) except -1

cdef extern from *:
    """
    /* What a callback of the loop runs in; there is no function that tells it. */
    #define sv_current_context() (PyThreadState_Get()->context)
    """
    PyObject *sv_current_context()

cdef extern from "poll.h":
    enum: SV_READ, SV_WRITE, SV_BROKEN, SV_EXCLUSIVE, SV_AWAY
    enum: SV_EVENTS, SV_IOVECS, SV_SHORT
    enum: SV_NAMELESS, SV_IPV4, SV_IPV6, SV_UNIX
    ctypedef struct sv_event:
        void *tag
        int what
    ctypedef struct sv_name:
        int kind, size, port
        char text[128]
        uint32_t flow, scope
    const char *sv_poll_kind()
    int sv_poll_open()
    int sv_poll_set(int poll, int fd, int before, int after, void *tag)
    int sv_poll_wait(int poll, sv_event *events, int most)
    double sv_monotonic()
    Py_ssize_t sv_recv(int fd, char *into, size_t size)
    int sv_peek(int fd)
    Py_ssize_t sv_send(int fd, const char *data, size_t size, int more)
    Py_ssize_t sv_sendv(int fd, iovec *parts, int count, int more)
    Py_ssize_t sv_read_file(int file, long long offset, char *into, size_t count)
    size_t sv_send_file(int fd, int file, long long offset, size_t count, int *error)
    bint sv_is_of_network(int error)
    int sv_shut(int fd)
    int sv_take_error(int fd)
    void sv_reset(int fd)
    void sv_close(int fd)
    void sv_prepare(int fd, int is_tcp)
    int sv_accept(int fd, sv_name *peer)
    int sv_own_name(int fd, sv_name *name)
    bint sv_is_exhaustion(int error)

cdef enum:
    READ_SIZE = 65_536      # octets of one read
    READS = 3               # more of them, at most, while each fills the buffer
    TURN = 1_048_576        # octets that one connection sends, of what is queued, before others have their turn
    ACCEPTED = 64           # connections accepted in one go, so that those already open get their turn
    HIGH_WATER = 65_536     # asyncio's default
    BLOCK = 65_536          # octets of a file that are read and encrypted at a time
    JOINED = 2_048          # octets that are copied sooner than the kernel has read where their parts are


POLL = sv_poll_kind().decode()
"""What reactors stand on: ``epoll`` or ``kqueue``."""


cdef object _error(int number):
    """The exception for an error number: the right subclass of OSError."""
    return OSError(number, strerror(number).decode())


cdef object _name(sv_name *name):
    """A socket's address as Python's socket module gives it; None for families that are not known here."""
    if name.kind == SV_IPV4:
        return name.text[:name.size].decode("ascii"), name.port
    if name.kind == SV_IPV6:
        return name.text[:name.size].decode("ascii"), name.port, name.flow, name.scope
    if name.kind == SV_UNIX:
        if name.size and not name.text[0]:
            return PyBytes_FromStringAndSize(name.text, name.size)
        return PyUnicode_DecodeFSDefaultAndSize(name.text, name.size)
    return None


cdef class Reactor:
    """Watches descriptors for `loop`. What it calls runs in a copy of `context`.

    Raises `OSError` if there is no descriptor left to watch with. One belongs to the loop's thread.
    """

    def __cinit__(self):
        self._poll = -1
        self._taken = -1
        self._watched = set()
        self._leaving = []
        self._buffer = <char *>malloc(READ_SIZE)
        if self._buffer is NULL:
            raise MemoryError

    def __init__(self, loop, context):
        cdef int poll = sv_poll_open()
        if poll < 0:
            raise _error(-poll)
        self._poll = poll
        self.loop = loop
        self._context = context
        self._contexts = []
        try:
            context.run(loop.add_reader, poll, self.run)
        except BaseException:
            self._poll = -1
            sv_close(poll)
            raise

    def __dealloc__(self):
        if self._poll != -1:
            sv_close(self._poll)
        free(self._buffer)
        free(self._opened)

    def __repr__(self):
        return f"<Reactor watching {len(self._watched)}>"

    @property
    def watched(self):
        """How many listeners and transports it watches."""
        return len(self._watched)

    def close(self):
        """Abort the transports that are left, whose `connection_lost` comes in the loop's next turn, forget the listeners,
        leave the loop, which must not be closed yet. To be called once more does no harm.
        """
        cdef Watched it
        if self._poll == -1:
            return
        for it in list(self._watched):
            if isinstance(it, Transport):
                (<Transport>it).drop(False)
            else:
                self.forget(it)
        self.loop.remove_reader(self._poll)
        sv_close(self._poll)
        self._poll = -1

    def run(self):
        """Serve what is ready, `SV_EVENTS` at most; the loop calls it.

        What is called may run the loop, and this again. No context can be entered twice: so that the loop can call this, the one
        that it calls it in is left meanwhile, and each call in progress has another one.
        """
        cdef PyObject *entered = sv_current_context()
        callers = <object>entered if entered is not NULL else None
        if self._running == len(self._contexts):
            self._contexts.append(self._context.copy())
        own = self._contexts[self._running]
        self.turns += 1
        if callers is not None:
            PyContext_Exit(callers)
        self._running += 1
        try:
            PyContext_Enter(own)
            try:
                self._serve()
            finally:
                PyContext_Exit(own)
        finally:
            self._running -= 1
            if callers is not None:
                PyContext_Enter(callers)
            if self._leaving and not self._running:
                self._leaving = []

    cdef int _serve(self) except -1:
        """One batch. What belongs to it is on the stack."""
        cdef sv_event events[SV_EVENTS]
        cdef int count, at
        cdef Watched it
        count = sv_poll_wait(self._poll, events, SV_EVENTS)
        if count < 0:
            raise _error(-count)
        self.now = sv_monotonic()
        for at in range(count):
            it = <Watched>events[at].tag
            if it.fd == -1:
                continue  # forgotten by one before
            try:
                it.ready(events[at].what)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                it.failed(error)
        return 0

    cdef double clock(self) noexcept:
        return self.now if self._running else sv_monotonic()

    cdef int watch(self, Watched it, int interest) except -1:
        cdef int error
        if it.interest == interest:
            return 0
        if self._poll == -1:
            raise RuntimeError("the reactor is closed: it watches nothing any more")
        error = sv_poll_set(self._poll, it.fd, it.interest, interest, <PyObject *>it)
        if error < 0:
            raise _error(-error)
        if it.interest == SV_AWAY:
            self._watched.add(it)
        it.interest = interest
        return 0

    cdef int ignore(self, Watched it) except -1:
        cdef int error
        if it.interest == SV_AWAY:
            return 0
        error = sv_poll_set(self._poll, it.fd, it.interest, SV_AWAY, NULL)
        it.interest = SV_AWAY
        if error < 0:
            raise _error(-error)
        return 0

    cdef int forget(self, Watched it) except -1:
        if it.interest != SV_AWAY:
            # The kernel may have dropped it already, if somebody has closed the descriptor behind our back.
            sv_poll_set(self._poll, it.fd, it.interest, SV_AWAY, NULL)
            it.interest = SV_AWAY
        it.fd = -1
        if self._running:
            self._leaving.append(it)
        self._watched.discard(it)
        return 0


cdef class Watched:
    """Something with a descriptor. Not made by itself."""

    def __cinit__(self):
        self.fd = -1
        self.interest = SV_AWAY

    def fileno(self):
        """The descriptor; -1 once it is let go of."""
        return self.fd

    cdef int ready(self, int what) except -1:
        raise NotImplementedError

    cdef int failed(self, object error) except -1:
        self.reactor.loop.call_exception_handler(
            {"message": f"{type(self).__name__} failed", "exception": error}
        )
        return 0


# --- accepting ---------------------------------------------------------------------------------------------

cdef class Listener(Watched):
    """Accepts from `sock`, a listening socket that stays its owner's, in bounded batches.

    `opened(descriptor, peername, sockname)` is called for each connection and takes the descriptor over, for which it makes a
    `Transport`. If it raises before it has made one, the descriptor is closed; the loop's exception handler is told anyhow.

    `exhausted(number)` is called when accepting failed because descriptors or memory have run out: the connections are still
    there, so it should `pause` this listener and `resume` later.
    """

    def __init__(self, Reactor reactor not None, sock, opened, exhausted):
        cdef sv_name name
        cdef int error
        sock.setblocking(False)
        self.reactor = reactor
        self.fd = sock.fileno()
        self._sock = sock
        self._opened = opened
        self._exhausted = exhausted
        error = sv_own_name(self.fd, &name)
        if error < 0:
            raise _error(-error)
        self._is_tcp = name.kind == SV_IPV4 or name.kind == SV_IPV6
        self._name = _name(&name)
        if self._is_tcp and self._name[0] in ("0.0.0.0", "::"):
            self._name = None  # connections have the address by which they came
        reactor.watch(self, SV_READ | SV_EXCLUSIVE)

    def pause(self):
        """Leave connections where they are, until `resume`."""
        if self.fd != -1:
            self._paused = True
            self.reactor.ignore(self)

    def resume(self):
        """Accept again."""
        if self.fd != -1:
            self._paused = False
            self.reactor.watch(self, SV_READ | SV_EXCLUSIVE)

    def accept_all(self):
        """Accept whatever has connected, paused or not: for the end, since it would be reset otherwise."""
        self._accept(-1)

    def close(self):
        """Accept no more. The socket stays open: it is its owner's."""
        if self.fd != -1:
            self.reactor.forget(self)
            self._sock = self._opened = self._exhausted = None

    cdef int ready(self, int what) except -1:
        if not self._paused:
            self._accept(ACCEPTED)
        return 0

    cdef int failed(self, object error) except -1:
        self.pause()  # what is level-triggered would fail again, and again
        self.reactor.loop.call_exception_handler(
            {"message": "accepting connections has failed and is paused", "exception": error, "socket": self._sock}
        )
        return 0

    cdef int _accept(self, Py_ssize_t most) except -1:
        """Accept up to `most` connections, all if it is -1."""
        cdef sv_name peer
        cdef int fd
        while most and self.fd != -1 and not (self._paused and most > 0):
            most -= 1
            fd = sv_accept(self.fd, &peer)
            if fd >= 0:
                sv_prepare(fd, self._is_tcp)
                self._open(fd, _name(&peer))
            elif fd == -EAGAIN:
                return 0
            elif sv_is_exhaustion(-fd):
                self._exhausted(-fd)
                return 0
            elif fd in (-EBADF, -EINVAL, -ENOTSOCK, -EOPNOTSUPP):
                raise _error(-fd)
            # Any other speaks of that one client, which gave up (ECONNABORTED and its like).
        return 0

    cdef int _open(self, int fd, object peername) except -1:
        cdef sv_name name
        cdef object sockname = self._name
        if sockname is None and sv_own_name(fd, &name) == 0:
            sockname = _name(&name)
        self.reactor._taken = -1
        try:
            self._opened(fd, peername, sockname)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            if self.reactor._taken != fd:  # else it is a transport's
                sv_close(fd)
            self.reactor.loop.call_exception_handler(
                {"message": "opening an accepted connection has failed", "exception": error, "socket": self._sock}
            )
        return 0


# --- connections --------------------------------------------------------------------------------------------

@cython.final
@cython.freelist(8)
cdef class FileRange:
    """Octets of a file in a queue. The descriptor is its owner's."""
    cdef int file
    cdef long long offset
    cdef Py_ssize_t count


cdef FileRange _range(int file, long long offset, Py_ssize_t count):
    cdef FileRange made = FileRange.__new__(FileRange)
    made.file = file
    made.offset = offset
    made.count = count
    return made


cdef class Transport(Watched):
    """A connected stream socket, `fd`, which is the transport's from now on, with its `protocol`.

    To Python it is an `asyncio.Transport`, with `start`, `send_file` and `withdraw` besides. `peername` and `sockname` are what
    ``get_extra_info`` says.
    """

    def __init__(self, Reactor reactor not None, int fd, protocol, peername=None, sockname=None):
        if self.fd != -1:
            raise RuntimeError("this transport has its descriptor already")
        self.reactor = reactor
        self.fd = reactor._taken = fd
        self.peername = peername
        self.sockname = sockname
        self._high = HIGH_WATER
        self._low = HIGH_WATER // 4
        if protocol is not None:
            self.set_protocol(protocol)
        sv_prepare(fd, False)

    def __dealloc__(self):
        if self.fd != -1 and not self._lent:  # never started
            sv_close(self.fd)

    def __repr__(self):
        state = "closed" if self.fd == -1 else "closing" if self.closing else "open"
        return f"<{type(self).__name__} fd={self.fd} {state} unsent={self.unsent}>"

    # --- the face of asyncio.Transport ---

    def start(self):
        """Call the protocol's `connection_made`, then begin to read. What it raises is told to the loop's exception
        handler and ends the connection.
        """
        try:
            self._protocol.connection_made(self)
            self.begin()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.failed(error)

    def write(self, data):
        """Send octets, or queue them. Raises `TypeError` for what is not bytes-like, `RuntimeError` after `write_eof`."""
        self.put(_as_bytes(data))

    def writelines(self, list_of_data):
        """`write` for several at once."""
        self.put_all([_as_bytes(data) for data in list_of_data])

    def send_file(self, int file, long long offset, Py_ssize_t count):
        """Send `count` octets of the file with the descriptor `file`, from `offset`, after what is queued.

        True if that is done. Else the protocol's ``file_sent(error)`` is called, with None when they are in the kernel, or with
        an `OSError`, or a `LocalProtocolError` if the file became shorter; not if the connection is lost before. The descriptor
        must stay open until then, or until `withdraw`. Raises `ValueError` for a negative `offset` or `count`.
        """
        if offset < 0 or count < 0:
            raise ValueError(f"{count} octets from {offset} are not in any file")
        return self.put_file(file, offset, count) == 1

    def withdraw(self):
        """Forget what is left of the file that was given to `send_file` last, and whatever was written after it.

        What was sent cannot be taken back: the peer sees that it is cut only if nothing follows.
        """
        self.withdraw_file()

    def can_write_eof(self):
        """Yes."""
        return True

    def write_eof(self):
        """Send FIN after what is queued."""
        self.shut()

    def close(self):
        """Read no more, send what is queued, close; `connection_lost` comes later."""
        self.finish()

    def abort(self):
        """Close now; `connection_lost` comes later."""
        self.drop(False)

    def reset(self):
        """Close now, with RST: the peer must not take what it has for complete."""
        self.drop(True)

    def is_closing(self):
        """Whether it is closed, or about to be."""
        return self.closing

    def pause_reading(self):
        """No `data_received` until `resume_reading`."""
        self.read_on(False)

    def resume_reading(self):
        """Read on."""
        self.read_on(True)

    def is_reading(self):
        """Whether `data_received` may be called."""
        return not (self.closing or self._paused)

    def set_write_buffer_limits(self, high=None, low=None):
        """Octets above which `pause_writing`, and down to which `resume_writing` is called. Raises `ValueError` unless
        high >= low >= 0.
        """
        if high is None:
            high = HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        self.set_marks(high, low)

    def get_write_buffer_limits(self):
        """(low, high)."""
        return self._low, self._high

    def get_write_buffer_size(self):
        """Octets queued, files too."""
        return self.unsent

    def set_protocol(self, protocol):
        """Who is told from now on."""
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def detach(self):
        """The descriptor, which is the caller's from now on. Nothing may be queued; the protocol is told nothing more."""
        cdef int fd = self.fd
        if fd == -1 or self._queue is not None:
            raise RuntimeError("this transport is closed, or has something to send")
        self.closing = True
        self.reactor.forget(self)
        if self._socket is not None:
            self._socket.detach()
        self._protocol = None
        return fd

    def secure(self, session):
        """Speak through `session` from now on, a `servery.drivers.contracts.TlsSession` whose handshake is over.

        `proceed` hands on what has come of it already. Raises `MemoryError`.
        """
        if self.reactor._opened is NULL:
            self.reactor._opened = <char *>malloc(OPENED)
            if self.reactor._opened is NULL:
                raise MemoryError
        self._records = Records(session)

    def proceed(self):
        """After `secure`: give the protocol what came along with the end of the handshake."""
        self.proceed_secure()

    def get_protocol(self):
        """Who is told; None after `connection_lost`."""
        return self._protocol

    def get_extra_info(self, name, default=None):
        """`peername`, `sockname`, or `socket`: an `asyncio.trsock.TransportSocket`; with TLS also `tls`, the extensions of a scope,
        `ssl_object` and `sslcontext`.
        """
        if name == "peername":
            return self.peername
        if name == "sockname":
            return self.sockname
        if name != "socket":
            return default if self._records is None else _told(self._records.session, name, default)
        if self._socket is None and self.fd != -1:
            self._socket = socket.socket(fileno=self.fd)
            self._lent = True
            self._socket.setblocking(False)
        return default if self._socket is None else TransportSocket(self._socket)

    # --- hooks ---

    cdef int received(self, const char *data, Py_ssize_t size) except -1:
        if self._buffered:
            _fill(self._protocol, data, size)
        else:
            self._protocol.data_received(PyBytes_FromStringAndSize(data, size))
        return 0

    cdef int ended(self) except -1:
        if not self._protocol.eof_received():
            self.finish()
        return 0

    cdef int lost(self, object error) except -1:
        self._protocol.connection_lost(error)
        return 0

    cdef int full(self) except -1:
        try:
            self._protocol.pause_writing()
        except Exception as error:
            self._complain("protocol.pause_writing() failed", error)
        return 0

    cdef int drained(self) except -1:
        try:
            self._protocol.resume_writing()
        except Exception as error:
            self._complain("protocol.resume_writing() failed", error)
        return 0

    cdef int file_sent(self, object error) except -1:
        self._protocol.file_sent(error)
        return 0

    # --- from the reactor ---

    cdef int ready(self, int what) except -1:
        if what & (SV_READ | SV_BROKEN):
            if not (self._paused or self._eof or self.closing):
                self._read(what)
            elif what & SV_BROKEN:
                self._broken()
            else:
                self._update()  # the interest ended since, and the kernel was not told: often it begins again before
        if what & SV_WRITE and self._queue is not None:
            self._flush()
        return 0

    cdef int failed(self, object error) except -1:
        self._complain("the connection is aborted: its protocol has raised an exception", error)
        self._lose(error)
        return 0

    def _complain(self, message, error):
        """Tell the loop's exception handler."""
        self.reactor.loop.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )

    def _tell_lost(self, error):
        """The loop's callback after `_lose`."""
        self._lost = True
        try:
            self.lost(error)
        finally:
            self._protocol = self._records = None  # which has the transport: nothing is left to the collector

    # --- reading ---

    cdef int begin(self) except -1:
        return self._update()

    cdef int read_on(self, bint on) except -1:
        if on == self._paused:
            self._paused = not on
            if on:
                self._update()
        return 0

    cdef int _update(self) except -1:
        """Let the kernel know what is of interest now."""
        cdef int wanted = 0
        if self.fd == -1:
            return 0
        if not (self._paused or self._eof or self.closing):
            wanted = SV_READ
        if self._queue is not None:
            wanted |= SV_WRITE
        if wanted != self.interest:
            self.reactor.watch(self, wanted)
        return 0

    cdef int _read(self, int what) except -1:
        cdef char *buffer = self.reactor._buffer
        cdef Py_ssize_t size = sv_recv(self.fd, buffer, READ_SIZE)
        cdef int rest = READS
        while size == READ_SIZE and rest:  # much is coming: the loop's next turn costs more than a read
            self._hand_on(buffer, size)
            if self._paused or self._eof or self.closing:
                return 0
            rest -= 1
            size = sv_recv(self.fd, buffer, READ_SIZE)
        if size > 0:
            return self._hand_on(buffer, size)
        if size == 0:
            return self._read_end()
        if size != -EAGAIN:
            return self._fail(-<int>size, "read")
        if what & SV_BROKEN:
            return self._broken()
        return 0

    cdef int _hand_on(self, const char *data, Py_ssize_t size) except -1:
        return self.received(data, size) if self._records is None else self._open_records(data, size)

    cdef int proceed_secure(self) except -1:
        cdef bytes ahead = self._records.ahead()
        cdef Py_ssize_t at = 0, size = PyBytes_GET_SIZE(ahead)
        while at < size and not self.closing:
            self._open_records(PyBytes_AS_STRING(ahead) + at, min(size - at, READ_SIZE))
            at += READ_SIZE
        return 0

    cdef int _open_records(self, const char *data, Py_ssize_t size) except -1:
        """Content to the hook, if there is any in these octets, and an answer to what was for TLS itself."""
        cdef Records records = self._records
        cdef char *content = self.reactor._opened
        cdef bytes answer
        if records.deaf:
            return 0
        size = records.open(data, size, content)
        answer = records.answer()
        if answer is not None:
            self._put_answer(answer)
        if size and self.fd != -1:
            self.received(content, size)
        if self.closing:
            return 0
        if records.broken:
            return self._break()
        if records.ended:
            self.ended()
        return 0

    cdef int _read_end(self) except -1:
        self._eof = True
        if self._records is None:
            self.ended()
        elif not self._records.ended:  # without a word in TLS: HTTP says itself where a message ends
            self._records.ended = self._records.deaf = True
            self.ended()
        if self._fin:
            return self._lose(None)  # both directions are closed
        return self._update()

    cdef int _broken(self) except -1:
        """An error, or both directions are closed, and nobody reads: it would be told forever."""
        cdef int error = sv_take_error(self.fd)
        if error:
            return self._fail(error, "connection")
        if self._queue is not None:
            self._flush()  # which fails, if nobody can take it
        if self.fd == -1:
            return 0
        if not (self._eof or self.closing) and sv_peek(self.fd) > 0:
            return self.reactor.ignore(self)  # what is left is read when reading goes on
        return self._lose(None)

    # --- writing ---

    cdef int put(self, bytes data) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data), sent = 0
        if self._records is not None:
            return self._put_parts([data], False)
        if self._shut:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self.fd == -1 or not size:
            return 0
        if self._queue is None:
            sent = sv_send(self.fd, PyBytes_AS_STRING(data), size, False)
            if sent == size:
                return 0
            if sent < 0:
                if sent != -EAGAIN:
                    return self._fail(-<int>sent, "write")
                sent = 0
            self._skip = sent
        self._queue_part(data, size - sent)
        return self._queued()

    cdef int put_all(self, list parts) except -1:
        return self._put_parts(parts, False)

    cdef int put_before_file(self, list parts) except -1:
        return self._put_parts(parts, True)

    cdef int _put_parts(self, list parts, bint more) except -1:
        if self._shut:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._records is not None:
            parts = self._seal(parts)
            if parts is None:
                return 0
        return self._send_parts(parts, more)

    cdef list _seal(self, list parts):
        """As records; None if nothing can be written now: a file has to go before, or TLS has come to an end."""
        cdef Records records = self._records
        cdef bytes part
        if self.fd == -1 or records.closed:
            return None
        if self._files:
            for part in parts:
                self._queue_part(part, PyBytes_GET_SIZE(part))
            self._queued()
            return None
        parts = records.seal(parts)
        if parts is None:
            self._break()
        return parts

    cdef int _put_answer(self, bytes octets) except -1:
        """Records that TLS has made itself; none that was made before may come after them."""
        cdef Py_ssize_t at
        if self.fd == -1 or not self._files:
            return self._send_parts([octets], False)
        for at in range(len(self._queue)):
            if type(self._queue[at]) is FileRange:
                break
        self._queue.insert(at, octets)
        self.unsent += PyBytes_GET_SIZE(octets)
        return self._queued()

    cdef int _send_parts(self, list parts, bint more) except -1:
        cdef iovec vectors[SV_IOVECS]
        cdef Py_ssize_t sent = 0, at = 0, size, offered
        cdef int count
        cdef bytes part
        if self.fd == -1:
            return 0
        while self._queue is None and at < len(parts):
            count = 0
            offered = 0
            while count < SV_IOVECS and at + count < len(parts):
                part = parts[at + count]
                vectors[count].iov_base = PyBytes_AS_STRING(part)
                vectors[count].iov_len = PyBytes_GET_SIZE(part)
                offered += PyBytes_GET_SIZE(part)
                count += 1
            sent = self._send(vectors, count, offered, more or at + count < len(parts)) if offered else 0
            if sent < 0 and sent != -EAGAIN:
                return self._fail(-<int>sent, "write")
            if sent < offered:
                break
            sent = 0
            at += count
        sent = max(sent, 0)
        while at < len(parts):
            part = parts[at]
            size = PyBytes_GET_SIZE(part)
            if sent >= size:
                sent -= size
            else:
                if self._queue is None:
                    self._skip = sent
                self._queue_part(part, size - sent)
                sent = 0
            at += 1
        return self._queued() if self._queue is not None else 0

    cdef Py_ssize_t _send(self, iovec *vectors, int count, Py_ssize_t size, bint more) noexcept:
        cdef char joined[JOINED]
        cdef Py_ssize_t at = 0
        cdef int index
        if size > JOINED:
            return sv_sendv(self.fd, vectors, count, more)
        for index in range(count):
            memcpy(joined + at, vectors[index].iov_base, vectors[index].iov_len)
            at += vectors[index].iov_len
        return sv_send(self.fd, joined, size, more)

    cdef int put_file(self, int file, long long offset, Py_ssize_t count) except -1:
        cdef Py_ssize_t sent
        cdef int error = 0
        if self._shut:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self.fd == -1:
            return 0
        if self._records is not None:
            return self._put_blocks(file, offset, count)
        if self._queue is None:
            sent = sv_send_file(self.fd, file, offset, min(count, TURN), &error)
            offset += sent
            count -= sent
            if not count:
                return 1
            if error > 0 and sv_is_of_network(error):
                self._fail(error, "write")
                return 0
        # What is wrong with the file will be so again when the kernel takes more, and `file_sent` can be called.
        self._queue_part(_range(file, offset, count), count)
        self._files += 1
        self._queued()
        return 0

    cdef int _put_blocks(self, int file, long long offset, Py_ssize_t count) except -1:
        """`put_file` in TLS: what the kernel takes now; a block that it takes in part is done with, too."""
        cdef Py_ssize_t left = TURN
        cdef int error = 0
        cdef bytes block
        while count and left > 0 and self._queue is None and not self._records.closed:
            block = _read_block(file, offset, count, &error)
            if block is None:
                break
            offset += PyBytes_GET_SIZE(block)
            count -= PyBytes_GET_SIZE(block)
            left -= PyBytes_GET_SIZE(block)
            self._put_parts([block], count > 0)
        if self.fd == -1 or self._records.closed:
            return 0
        if not count:
            return 1
        self._queue_part(_range(file, offset, count), count)
        self._files += 1
        self._queued()
        return 0

    cdef int withdraw_file(self) except -1:
        cdef object queue = self._queue, part
        cdef Py_ssize_t at
        if queue is None:
            return 0
        for at in range(len(queue) - 1, -1, -1):
            if type(queue[at]) is FileRange:
                break
        else:
            return 0
        while len(queue) > at:
            part = queue.pop()
            if type(part) is FileRange:
                self._files -= 1
                self.unsent -= (<FileRange>part).count
            else:
                self.unsent -= PyBytes_GET_SIZE(part)
        if not queue:
            self._queue = None
        return self._flushed()

    cdef int _queue_part(self, object part, Py_ssize_t size) except -1:
        if self._queue is None:
            self._queue = deque()
        self._queue.append(part)
        self.unsent += size
        return 0

    cdef int _queued(self) except -1:
        """Something was added to the queue."""
        self._update()
        if self.unsent > self._high and not self._full:
            self._full = True
            self.full()
        return 0

    cdef int set_marks(self, Py_ssize_t high, Py_ssize_t low) except -1:
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._high = high
        self._low = low
        if self.unsent > high and not self._full:
            self._full = True
            self.full()
        return 0

    cdef int _flush(self) except -1:
        """Hand over what is queued, as far as the kernel takes it, and not more than `TURN`."""
        cdef object queue = self._queue
        cdef Py_ssize_t left = TURN, sent = 0
        while queue and left > 0 and sent >= 0:
            # Each returns the octets sent, or -2 when the kernel takes no more, or the connection is lost.
            if type(queue[0]) is FileRange:
                sent = self._flush_file(queue) if self._records is None else self._seal_block(queue)
            else:
                sent = self._flush_bytes(queue)
            left -= sent
        if self.fd == -1:
            return 0
        if not queue and self._queue is queue:  # else a hook has withdrawn its file, and begun another queue
            self._queue = None
        return self._flushed()

    cdef Py_ssize_t _flush_bytes(self, object queue) except -1:
        cdef iovec vectors[SV_IOVECS]
        cdef Py_ssize_t sent, rest, offered = 0, skip = self._skip
        cdef int count = 0
        cdef bint more = False
        cdef bytes part
        for item in queue:
            if type(item) is FileRange:
                more = True
                break
            if count == SV_IOVECS:
                break
            part = item
            vectors[count].iov_base = PyBytes_AS_STRING(part) + skip
            vectors[count].iov_len = PyBytes_GET_SIZE(part) - skip
            offered += PyBytes_GET_SIZE(part) - skip
            skip = 0
            count += 1
        sent = sv_sendv(self.fd, vectors, count, more)
        if sent < 0:
            if sent != -EAGAIN:
                self._fail(-<int>sent, "write")
            return -2
        self.unsent -= sent
        rest = sent
        while rest:
            part = queue[0]
            skip = PyBytes_GET_SIZE(part) - self._skip
            if rest < skip:
                self._skip += rest
                break
            rest -= skip
            self._skip = 0
            queue.popleft()
        return sent if sent == offered else -2

    cdef Py_ssize_t _flush_file(self, object queue) except -1:
        cdef FileRange it = queue[0]
        cdef int error = 0
        cdef Py_ssize_t sent = sv_send_file(self.fd, it.file, it.offset, min(it.count, TURN), &error)
        it.offset += sent
        it.count -= sent
        self.unsent -= sent
        if it.count and not error:
            return sent
        if error == EAGAIN:
            return -2
        if error > 0 and sv_is_of_network(error):
            self._fail(error, "write")
            return -2
        queue.popleft()
        self._files -= 1
        self.unsent -= it.count
        self.file_sent(_file_error(error))
        return sent if self.fd != -1 else -2

    cdef Py_ssize_t _seal_block(self, object queue) except -1:
        """The next block of a file, as records, to where the file is; behind its last one, what has waited for that."""
        cdef FileRange it = queue.popleft()
        cdef int error = 0
        cdef bytes block = _read_block(it.file, it.offset, it.count, &error)
        cdef list parts = []
        cdef bint done
        if block is not None:
            it.offset += PyBytes_GET_SIZE(block)
            it.count -= PyBytes_GET_SIZE(block)
            parts.append(block)
        done = block is None or not it.count
        while done and queue and type(queue[0]) is not FileRange:
            parts.append(queue.popleft())
        for part in parts:
            self.unsent -= PyBytes_GET_SIZE(part)
        parts = self._records.seal(parts)
        if parts is None:
            self._break()
            return -2
        if done:
            self.unsent -= it.count
            self._files -= 1
        else:
            queue.appendleft(it)
        for part in reversed(parts):
            queue.appendleft(part)
            self.unsent += PyBytes_GET_SIZE(part)
        if done:
            self.file_sent(_file_error(error))
        return 0 if self.fd != -1 else -2

    cdef int _flushed(self) except -1:
        if self._full and self.unsent <= self._low:
            self._full = False
            self.drained()
        if self._queue is None and self.closing:
            return self._leave()
        if self._queue is None and self._shut and not self._fin:
            self._send_fin()
        return self._update()

    # --- the end ---

    cdef int shut(self) except -1:
        if self._shut or self.closing:
            return 0
        self._shut = True
        if self._records is not None:
            self._records.deaf = True
        if self._queue is None:
            self._send_fin()
        return 0

    cdef int _send_fin(self) except -1:
        if self._records is not None and not self._records.closed:
            self._send_parts([self._records.end()], False)
            if self._queue is not None or self.fd == -1:
                return 0
        self._fin = True
        sv_shut(self.fd)  # if it cannot be, the connection is broken, and that is told in its own way
        if self._eof:
            self._lose(None)  # both directions are closed
        return 0

    cdef int finish(self) except -1:
        if not self.closing:
            self.closing = True
            if self._queue is None:
                self._leave()
        return 0

    cdef int _leave(self) except -1:
        """Nothing is queued: the end in TLS, and close."""
        if self._records is not None and not self._records.closed:
            self._send_parts([self._records.end()], False)
            if self._queue is not None:
                return 0
        return self._lose(None)

    cdef int _break(self) except -1:
        """The peer broke TLS: the alert that says so, if it can be written at once, and the end."""
        cdef Records records = self._records
        cdef bytes alert = records.answer()
        records.closed = records.deaf = True
        if self._queue is not None:
            return self._lose(None)
        if alert is not None:
            self._send_parts([alert], False)
        return self.finish()

    cdef int drop(self, bint reset) except -1:
        if self.fd != -1 and reset:
            sv_reset(self.fd)
        return self._lose(None)

    cdef int _fail(self, int error, str doing) except -1:
        """The system has said `error`."""
        cdef object exception = _error(error)
        if not sv_is_of_network(error):
            self._complain(f"Fatal {doing} error on socket transport", exception)
        return self._lose(exception)

    cdef int _lose(self, object error) except -1:
        """Close, and call `lost` soon."""
        if self.fd == -1:
            return 0
        self.closing = True
        if self._queue is not None:
            self._queue.clear()  # a flush may be under way
            self._queue = None
        self.unsent = 0
        self._close()
        self.reactor.loop.call_soon(self._tell_lost, error, context=self.reactor._context)
        return 0

    cdef int _close(self) except -1:
        cdef int fd = self.fd
        self.reactor.forget(self)
        if self._socket is not None:
            self._socket.detach()
        sv_close(fd)
        return 0


cdef bytes _read_block(int file, long long offset, Py_ssize_t count, int *error):
    """`BLOCK` octets of `count` at most; None if there are none, with the reason in `error`."""
    cdef bytes block = PyBytes_FromStringAndSize(NULL, min(count, BLOCK))
    cdef Py_ssize_t got = sv_read_file(file, offset, PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block))
    if got <= 0:
        error[0] = -<int>got if got else SV_SHORT
        return None
    return block if got == PyBytes_GET_SIZE(block) else block[:got]


cdef object _file_error(int error):
    """What `file_sent` is called with."""
    if not error:
        return None
    if error == SV_SHORT:
        return LocalProtocolError("the file became shorter while it was sent")
    return _error(error)


cdef object _told(object session, object name, object default):
    """See `get_extra_info`."""
    if name == "tls":
        return session.describe()
    if name == "ssl_object":
        return session.ssl
    if name == "sslcontext":
        return session.ssl.context
    return default


cdef bytes _as_bytes(object data):
    if type(data) is bytes:
        return data
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
    return bytes(data)


cdef int _fill(object protocol, const char *data, Py_ssize_t size) except -1:
    """Octets to a BufferedProtocol, as many at a time as it has room for."""
    cdef Py_ssize_t count
    while size:
        view = protocol.get_buffer(size)
        count = min(size, len(view))
        if not count:
            raise RuntimeError("get_buffer() returned an empty buffer")
        memoryview(view)[:count] = data[:count]
        protocol.buffer_updated(count)
        data += count
        size -= count
    return 0
