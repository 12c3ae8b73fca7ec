"""The map of the readiness reactor; see reactor.pyx.

Others build on `Transport`: they override its hooks, and use its services without a Python call in between.
"""

from .records cimport Records

cdef extern from "poll.h":
    ctypedef struct iovec "struct iovec":
        void *iov_base
        size_t iov_len


cdef class Watched


cdef class Reactor:
    cdef readonly object loop
    cdef readonly long turns    # calls of `run`
    cdef object _context        # callbacks run in copies of it, so that none keeps a request's variables
    cdef list _contexts         # these copies: one for each call of `run` that may be in progress
    cdef int _poll              # the epoll or kqueue descriptor, -1 once closed
    cdef double now             # monotonic seconds when the batch in progress began
    cdef char *_buffer          # what is read goes here first; it belongs to nobody after the hook returned
    cdef char *_opened          # the same for what was in records, NULL until there are some
    cdef set _watched           # keeps alive what the kernel points to
    cdef list _leaving          # forgotten during this batch: events of theirs may still be in it
    cdef int _taken             # the descriptor that a transport was made for last
    cdef int _running           # calls of `run` that are in progress

    cdef int _serve(self) except -1
    cdef double clock(self) noexcept    # reactor.now inside of a batch, else the clock
    cdef int watch(self, Watched it, int interest) except -1    # to begin, and to change
    cdef int ignore(self, Watched it) except -1     # the kernel tells nothing of it, until it is watched again
    cdef int forget(self, Watched it) except -1     # for good; its descriptor is still to be closed


cdef class Watched:
    """Something with a descriptor that a reactor watches."""
    cdef readonly Reactor reactor
    cdef int fd                 # -1 once it is let go of
    cdef int interest           # as the kernel knows it

    cdef int ready(self, int what) except -1
    cdef int failed(self, object error) except -1   # `ready` has raised


cdef class Listener(Watched):
    cdef object _sock           # keeps it open; not ours
    cdef object _opened         # called with (descriptor, peername, sockname) for each connection
    cdef object _exhausted      # called with the error number when descriptors or memory have run out
    cdef object _name           # sockname of all its connections, or None if each has to be asked
    cdef bint _is_tcp, _paused

    cdef int _accept(self, Py_ssize_t most) except -1
    cdef int _open(self, int fd, object peername) except -1


cdef class Transport(Watched):
    """A connected stream socket. As a Python object it has the face of `asyncio.Transport`."""
    cdef object _protocol       # None in classes that override the hooks
    cdef Records _records       # None without TLS
    cdef object peername, sockname, _socket
    cdef object _queue          # a deque of what the kernel did not take: bytes, file ranges; None while there is nothing.
                                # In TLS bytes are records, but behind a file they are not yet
    cdef int _files             # file ranges in it
    cdef readonly Py_ssize_t unsent     # octets in it, files too
    cdef Py_ssize_t _skip       # octets of its first bytes object that are sent
    cdef Py_ssize_t _high, _low
    cdef bint _buffered         # the protocol is a BufferedProtocol
    cdef bint _paused           # reading is paused by the owner
    cdef bint _eof              # the peer has sent FIN
    cdef bint _full             # `full` was called and `drained` not since
    cdef bint _shut             # FIN goes, or went, after what is queued
    cdef bint _fin              # it went
    cdef bint _lent             # there is, or was, a `_socket` that closes the descriptor
    cdef readonly bint closing  # close() or abort() was called, or the connection is lost
    cdef bint _lost             # the hook `lost` was called

    # Hooks: called by the reactor; an exception ends the connection. Here they call the asyncio protocol.
    cdef int received(self, const char *data, Py_ssize_t size) except -1
    cdef int ended(self) except -1              # FIN from the peer; sending goes on
    cdef int lost(self, object error) except -1 # exactly once, last, never from inside of a service
    cdef int full(self) except -1               # `unsent` has gone above the high-water mark
    cdef int drained(self) except -1            # and is below the low-water mark now
    cdef int file_sent(self, object error) except -1    # of `put_file`; never from inside of it

    # Services
    cdef int begin(self) except -1                      # read, unless paused; before it nothing is watched
    cdef int put(self, bytes data) except -1            # write, or queue what the kernel does not take
    cdef int put_all(self, list parts) except -1        # the same for several bytes objects, in one system call
    cdef int put_before_file(self, list parts) except -1    # the same; they leave with what `put_file` adds at once
    cdef int put_file(self, int file, long long offset, Py_ssize_t count) except -1
    cdef int withdraw_file(self) except -1              # the last one, and what is behind it: its descriptor must not be used any more
    cdef int read_on(self, bint on) except -1           # pause and resume reading
    cdef int shut(self) except -1                       # FIN, after what is queued
    cdef int finish(self) except -1                     # close, after what is queued
    cdef int drop(self, bint reset) except -1           # close now; with RST if `reset`
    cdef int set_marks(self, Py_ssize_t high, Py_ssize_t low) except -1
    cdef int proceed_secure(self) except -1             # after `secure`: hand on what came along with the end of the handshake

    # Inside
    cdef int _update(self) except -1
    cdef int _read(self, int what) except -1
    cdef int _hand_on(self, const char *data, Py_ssize_t size) except -1
    cdef int _open_records(self, const char *data, Py_ssize_t size) except -1
    cdef int _read_end(self) except -1
    cdef int _broken(self) except -1
    cdef int _put_parts(self, list parts, bint more) except -1
    cdef list _seal(self, list parts)
    cdef int _send_parts(self, list parts, bint more) except -1
    cdef int _put_answer(self, bytes octets) except -1
    cdef int _put_blocks(self, int file, long long offset, Py_ssize_t count) except -1
    cdef Py_ssize_t _send(self, iovec *vectors, int count, Py_ssize_t size, bint more) noexcept
    cdef int _queue_part(self, object part, Py_ssize_t size) except -1
    cdef int _queued(self) except -1
    cdef int _flush(self) except -1
    cdef Py_ssize_t _flush_bytes(self, object queue) except -1
    cdef Py_ssize_t _flush_file(self, object queue) except -1
    cdef Py_ssize_t _seal_block(self, object queue) except -1
    cdef int _flushed(self) except -1
    cdef int _send_fin(self) except -1
    cdef int _leave(self) except -1
    cdef int _break(self) except -1
    cdef int _fail(self, int error, str doing) except -1
    cdef int _lose(self, object error) except -1
    cdef int _close(self) except -1
