"""TLS in a reactor's transport: octets of the wire to content, and back, in a session whose handshake is over.

The twin of `servery.drivers.tls_transport`; read that one first. Knows records; sockets, queues and the order of ends are the
transport's. What encrypts is OpenSSL, by way of the methods that Python's `ssl` has compiled: no frame of Python is in between.

Records are given to OpenSSL one by one, when they are whole: it is asked once for each, and never in vain, which would cost an
exception; and its buffers, which never shrink, stay as large as one record.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from ssl import SSLError, SSLWantReadError, SSLZeroReturnError

from ..drivers.service import error_log
from ..drivers.tls_transport import JOINED as _JOINED

cdef Py_ssize_t JOINED = _JOINED

cdef extern from "Python.h":
    object PyMemoryView_FromMemory(char *at, Py_ssize_t size, int flags)
    enum: PyBUF_READ, PyBUF_WRITE

cdef enum:
    HEADER = 5              # octets: type, version, length (RFC 8446 section 5.1)
    FIRST = 20              # types
    LAST = 24
    LONGEST = RECORD + 2_048    # octets behind the header (RFC 5246 section 6.2.3; fewer in TLS 1.3)


@cython.final
cdef class Records:
    """What a transport speaks in `session`."""

    def __init__(self, session):
        self.session = session
        compiled = getattr(session.ssl, "_sslobj", session.ssl)  # the same methods, without a frame of Python for each call
        self._open, self._write = compiled.read, compiled.write
        self._feed, self._take = session.incoming.write, session.outgoing.read
        self._outgoing = session.outgoing

    cdef bytes ahead(self):
        return self.session.incoming.read()

    cdef Py_ssize_t open(self, const char *data, Py_ssize_t size, char *into) except -1:
        cdef Py_ssize_t made = 0, count, got
        while size and not self.deaf:
            count = self._measure(<const unsigned char *>data, size)
            self._feed(PyBytes_FromStringAndSize(data, count))
            data += count
            size -= count
            if self._header == HEADER and not self._to_come:
                self._header = 0
                got = self._read(into + made, OPENED - made)
                if got < 0:
                    self.deaf = True
                    break
                made += got
        return made

    cdef Py_ssize_t _measure(self, const unsigned char *data, Py_ssize_t size) noexcept:
        """How many octets there are of the record in progress. What can be none is taken for whole: OpenSSL says what it is."""
        cdef Py_ssize_t at = 0, rest
        while self._header < HEADER and at < size:
            if self._header == 0 and not FIRST <= data[at] <= LAST:
                self._header, self._to_come = HEADER, 0
                return size
            if self._header == 3:
                self._to_come = data[at] << 8
            elif self._header == 4:
                self._to_come |= data[at]
            self._header += 1
            at += 1
        if self._header < HEADER:
            return at
        if self._to_come > LONGEST:
            self._to_come = 0
            return size
        rest = min(size - at, self._to_come)
        self._to_come -= rest
        return at + rest

    cdef Py_ssize_t _read(self, char *into, Py_ssize_t room) except -2:
        """The content of the record that has come; -1 if TLS comes to an end with it."""
        cdef Py_ssize_t got
        try:
            got = self._open(0, PyMemoryView_FromMemory(into, room, PyBUF_WRITE))  # as much as there is room for
        except SSLWantReadError:
            return 0  # it was for TLS itself
        except SSLZeroReturnError:
            got = 0
        except SSLError as error:
            self._broke(error)
            return -1
        if not got:
            self.ended = True
            return -1
        return got

    cdef list seal(self, list parts):
        cdef list made = []
        cdef bytes part
        cdef Py_ssize_t size = 0
        if len(parts) > 1:
            for part in parts:
                size += PyBytes_GET_SIZE(part)
            if size <= JOINED:
                parts = [b"".join(parts)]
        try:
            for part in parts:
                if PyBytes_GET_SIZE(part):
                    self._seal_part(part, made)
        except SSLError as error:
            self._broke(error)
            return None
        return made

    cdef int _seal_part(self, bytes part, list made) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(part), at = 0
        while at < size:
            if at or size > RECORD:
                at += <Py_ssize_t>self._write(
                    PyMemoryView_FromMemory(PyBytes_AS_STRING(part) + at, min(size - at, RECORD), PyBUF_READ)
                )
            else:
                at += <Py_ssize_t>self._write(part)  # less than all if the client wants smaller records (RFC 6066 section 4)
            made.append(self._take())
        return 0

    cdef bytes answer(self):
        return self._take() if self._outgoing.pending else None

    cdef bytes end(self):
        self.closed = self.deaf = True
        try:
            self.session.ssl.unwrap()
        except SSLError:  # it would have the peer's as well, and that is not awaited
            pass
        return self._take()

    cdef int _broke(self, object error) except -1:
        self.broken = True
        error_log.debug("TLS: the connection is ended: %s", error.reason or type(error).__name__)
        return 0
