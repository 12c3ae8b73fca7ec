"""The map of TLS in a reactor's transport; see records.pyx."""


cdef class Records:
    cdef readonly object session    # `servery.drivers.contracts.TlsSession`
    cdef object _feed, _open, _write, _take     # methods of its `ssl` objects
    cdef object _outgoing
    cdef int _header                # octets of the header of the record in progress that have come
    cdef Py_ssize_t _to_come        # and octets that have not, once it is known
    cdef bint deaf                  # what comes is dropped: the peer has ended, or we have
    cdef bint ended                 # the peer has said its end
    cdef bint broken                # or has broken TLS
    cdef bint closed                # we have said ours, or there is nobody who would take it

    cdef bytes ahead(self)          # what was read before, and belongs to no handshake
    cdef Py_ssize_t open(self, const char *data, Py_ssize_t size, char *into) except -1     # OPENED octets at most, of READ_SIZE
    cdef list seal(self, list parts)    # as records, in order; None if TLS has come to an end
    cdef bytes answer(self)         # what TLS itself has to say, or None
    cdef bytes end(self)            # close_notify

    cdef Py_ssize_t _measure(self, const unsigned char *data, Py_ssize_t size) noexcept
    cdef Py_ssize_t _read(self, char *into, Py_ssize_t room) except -2
    cdef int _seal_part(self, bytes part, list made) except -1
    cdef int _broke(self, object error) except -1


cdef enum:
    RECORD = 16_384             # octets of content in a record, at most (RFC 8446 section 5.1)
    OPENED = 65_536 + 2 * RECORD    # what can be in 64 KiB of the wire, and in a record of which a part came before
