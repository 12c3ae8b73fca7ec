"""The map of the readiness reactor; see reactor.pyx.

Others build on `Transport`: they override its hooks, and use its services without a Python call in between.
"""

cdef class Reactor:
    cdef readonly object loop
    cdef object _context        # callbacks run in it, so that none keeps a request's variables
    cdef int _poll              # the epoll or kqueue descriptor, -1 once closed
    cdef double now             # monotonic seconds when the batch in progress began
    cdef char *_buffer          # what is read goes here first; it belongs to nobody after the hook returned
    cdef set _watched           # keeps alive what the kernel points to
    cdef list _leaving          # forgotten during this batch: events of theirs may still be in it
    cdef bint _running

    cdef double clock(self) noexcept    # reactor.now inside of a batch, else the clock
    cdef int watch(self, Watched it, int interest) except -1    # to begin, and to change
    cdef int forget(self, Watched it) except -1


cdef class Watched:
    """Something with a descriptor that a reactor watches."""
    cdef readonly Reactor reactor
    cdef int fd                 # -1 once it is let go of
    cdef int interest           # as the kernel knows it

    cdef int ready(self, int what) except -1


cdef class Listener(Watched):
    cdef object _sock           # keeps it open; not ours
    cdef object _opened         # called with (descriptor, peername, sockname) for each connection
    cdef object _exhausted      # called with the error number when descriptors or memory have run out
    cdef object _name           # sockname of all its connections, or None if each has to be asked


cdef class Transport(Watched):
    """A connected stream socket. As a Python object it has the face of `asyncio.Transport`."""
    cdef object _protocol       # None in classes that override the hooks
    cdef object peername, sockname, _socket
    cdef object _queue          # a deque of what the kernel did not take: bytes, memoryviews, files; None if it never was needed
    cdef readonly Py_ssize_t unsent     # octets in it, files too
    cdef Py_ssize_t _high, _low
    cdef bint _paused           # reading is paused by the owner
    cdef bint _eof              # the peer has sent FIN
    cdef bint _full             # `full` was called and `drained` not since
    cdef bint _shut             # FIN goes, or went, after what is queued
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
    cdef int put(self, bytes data) except -1            # write, or queue what the kernel does not take
    cdef int put_all(self, list parts) except -1        # the same for several bytes objects, in one system call
    cdef int put_file(self, int file, long long offset, Py_ssize_t count) except -1
    cdef int read_on(self, bint on) except -1           # pause and resume reading
    cdef int shut(self) except -1                       # FIN, after what is queued
    cdef int finish(self) except -1                     # close, after what is queued
    cdef int drop(self, bint reset) except -1           # close now; with RST if `reset`
    cdef int set_marks(self, Py_ssize_t high, Py_ssize_t low) except -1
