"""The compiled twin of `servery.http1.engine`: the same events, limits, errors and octets.

An ordinary head (see scan.h) is read here; every other one goes, whole, to the reference's own `HeadParser`, chunked bodies to
its `ChunkedDecoder`, unusual response fields to its `encode_fields`: what is refused is refused by one piece of code. The order
of things is the reference's, method by method; read that one first.

One engine belongs to one thread. Nothing points into a buffer after a call has returned. The tables of this module are filled as
lines are seen, and only hold what the reference would hold too.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from ..engine import NEVER as _NEVER
from ..errors import LocalProtocolError, RemoteProtocolError
from ..events import BodyReceived, ConnectionFailed, PeerClosed, RequestReceived
from ..grammar import HOST
from ..http1 import fields as _reference_fields
from ..http1 import writer as _writer
from ..http1.body import ChunkedDecoder
from ..http1.parser import CHUNKED, MAX_LENGTH, HeadParser
from ..http1 import responding as _responding
from ..http1.responding import Responding

cdef extern from *:
    """
    #ifndef SERVERY_COMPILER
    #if defined(__clang__)
    #define SERVERY_COMPILER "clang " __clang_version__
    #elif defined(__GNUC__)
    #define SERVERY_COMPILER "gcc " __VERSION__
    #elif defined(_MSC_VER)
    #define SERVERY_STRING_(x) #x
    #define SERVERY_STRING(x) SERVERY_STRING_(x)
    #define SERVERY_COMPILER "msvc " SERVERY_STRING(_MSC_VER)
    #else
    #define SERVERY_COMPILER "unknown"
    #endif
    #endif
    #ifndef SERVERY_FLAGS
    #define SERVERY_FLAGS "unknown"
    #endif
    """
    const char *SERVERY_COMPILER
    const char *SERVERY_FLAGS
    const char *CYTHON_ABI

cdef double NEVER = _NEVER

cdef enum:
    MAX_SCANNED = 1 << 30

cdef enum:  # Reading
    HEAD, BODY, READY, LINGER, CLOSED

cdef enum:  # Responding, as bits so that several can be expected at once
    NONE = 1
    STARTED = 2
    SENDING = 4
    TRAILERS = 8
    DONE = 16

cdef enum:  # Framing
    LENGTH, CHUNKS, UNTIL_CLOSE, EMPTY

cdef dict _SAID = {1 << at: member.value for at, member in enumerate(Responding)}
cdef list _STATUS_LINES = [b""] * 100 + [_writer.STATUS_LINES[status] for status in range(100, 1000)]
cdef Py_ssize_t _JOINED = _responding._JOINED
cdef int _WANTS_CLOSE = _writer.WANTS_CLOSE
cdef bytes _CRLF = b"\r\n"
cdef bytes _V11 = b"1.1"
cdef bytes _LENGTH_NAME = b"content-length: "
cdef bytes _CHUNKED_LINE = b"transfer-encoding: chunked\r\n"


# --- tables of lines and names seen before -------------------------------------------------------------

cdef enum:  # what a field line is to the engine
    PLAIN      # nothing
    KEPT       # nothing, and its line may be remembered
    HOST_LINE
    LENGTH_LINE
    KEEP_LINE  # Connection: keep-alive
    CLOSE_LINE  # Connection: close
    CONNECTION_LINE
    STRANGE_LINE  # Transfer-Encoding, Expect, TE, Upgrade: not for here

cdef enum:
    SLOTS = 1024
    LINE_KEPT = 256
    NAME_KEPT = 64

ctypedef struct Slot:
    uint64_t hash
    PyObject *key
    PyObject *value
    int kind

cdef Slot _lines[SLOTS]
cdef Slot _names[SLOTS]

cdef dict _KINDS = {name: KEPT for name in _reference_fields._SHARED}
_KINDS.update({
    b"host": HOST_LINE, b"content-length": LENGTH_LINE, b"connection": CONNECTION_LINE,
    b"transfer-encoding": STRANGE_LINE, b"expect": STRANGE_LINE, b"te": STRANGE_LINE, b"upgrade": STRANGE_LINE,
})

import os as _os
import time as _time
cdef uint64_t _SEED = int.from_bytes(_os.urandom(8), "little") | 1
del _os


cdef inline uint64_t _hash(const char *at, Py_ssize_t size) noexcept nogil:
    """Quick and seeded; a collision only costs a slot its former line."""
    cdef uint64_t mixed = _SEED ^ <uint64_t>size, word
    while size >= 8:
        memcpy(&word, at, 8)
        mixed = (mixed ^ word) * <uint64_t>0x9E3779B97F4A7C15
        mixed ^= mixed >> 29
        at += 8
        size -= 8
    word = 0
    memcpy(&word, at, size)
    mixed = (mixed ^ word) * <uint64_t>0x9E3779B97F4A7C15
    return mixed ^ (mixed >> 32)


cdef inline Slot *_look(Slot *table, const char *at, Py_ssize_t size, uint64_t hashed) noexcept:
    """The slot that holds these octets, or NULL."""
    cdef Slot *slot = &table[hashed & (SLOTS - 1)]
    if slot.hash != hashed or slot.key == NULL or PyBytes_GET_SIZE(<object>slot.key) != size:
        return NULL
    return slot if memcmp(PyBytes_AS_STRING(<object>slot.key), at, size) == 0 else NULL


cdef int _put(Slot *table, bytes key, object value, int kind, uint64_t hashed) except -1:
    cdef Slot *slot = &table[hashed & (SLOTS - 1)]
    cdef PyObject *old_key = slot.key
    cdef PyObject *old_value = slot.value
    Py_INCREF(key)
    Py_INCREF(value)
    slot.hash, slot.key, slot.value, slot.kind = hashed, <PyObject *>key, <PyObject *>value, kind
    Py_XDECREF(old_key)
    Py_XDECREF(old_value)
    return 0


cdef object _name(const char *at, Py_ssize_t size, int *kind):
    """A field name in lower case, and what it is to the engine."""
    cdef uint64_t hashed = _hash(at, size)
    cdef Slot *slot = _look(_names, at, size, hashed)
    if slot != NULL:
        kind[0] = slot.kind
        return <object>slot.value
    raw = PyBytes_FromStringAndSize(at, size)
    lower = raw.lower()
    kind[0] = _KINDS.get(lower, PLAIN)
    if size <= NAME_KEPT:
        _put(_names, raw, lower, kind[0], hashed)
    return lower


cdef object _field(const char *data, sv_field *field, int *kind):
    """One line as (name, value), and what it is to the engine."""
    cdef const char *line = data + field.line
    cdef uint64_t hashed = 0
    cdef Slot *slot
    cdef bint short = field.line_len <= LINE_KEPT
    if short:
        hashed = _hash(line, field.line_len)
        slot = _look(_lines, line, field.line_len, hashed)
        if slot != NULL:
            kind[0] = slot.kind
            return <object>slot.value
    name = _name(line, field.name_len, kind)
    value = PyBytes_FromStringAndSize(data + field.value, field.value_len)
    pair = (name, value)
    if kind[0] == HOST_LINE:
        if not HOST.fullmatch(value):
            kind[0] = STRANGE_LINE
    elif kind[0] == CONNECTION_LINE:
        lower = value.lower()
        kind[0] = KEEP_LINE if lower == b"keep-alive" else CLOSE_LINE if lower == b"close" else STRANGE_LINE
    if short and kind[0] in (KEPT, HOST_LINE, KEEP_LINE, CLOSE_LINE):
        _put(_lines, PyBytes_FromStringAndSize(line, field.line_len), pair, kind[0], hashed)
    return pair


# Most peers send the same fields with each request of a connection. The block of them that a connection has read last, with the
# empty line, stands here, and what comes is compared with it, octet for octet. It may have secrets in it: it is used for
# its own connection only, and goes with it. A connection whose place was given to another one looks for a new one.

cdef enum:
    BLOCKS = 1024
    BLOCK_LEAST = 128  # fewer octets are read as quickly
    BLOCK_MOST = 2048


@cython.final
cdef class Block:
    """The fields of a head, as octets and as what was read from them."""

    cdef bint is_at(self, const char *octets, Py_ssize_t size) noexcept:
        return PyBytes_GET_SIZE(self.octets) <= size and memcmp(
            PyBytes_AS_STRING(self.octets), octets, PyBytes_GET_SIZE(self.octets)
        ) == 0


cdef list _BLOCKS = [None] * BLOCKS
cdef Py_ssize_t _next_slot = 0


cdef Py_ssize_t _digits(bytes value) noexcept:
    """A Content-Length of at most 18 digits, or -1 for what the reference shall look at."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(value), number = 0
    cdef const char *at = PyBytes_AS_STRING(value)
    if not 0 < size <= 18:
        return -1
    for index in range(size):
        if not c"0" <= at[index] <= c"9":
            return -1
        number = number * 10 + (at[index] - c"0")
    return number


# --- response fields ------------------------------------------------------------------------------------

cdef dict _RESPONSE_LINES = _writer._lines
cdef dict _RESPONSE_LENGTHS = _writer._lengths
cdef dict _RESPONSE_NAMES = _writer._names
cdef int _ORDINARY_NAME = _writer._ORDINARY
cdef object _encode_unusual = _writer.encode_fields


cdef bytes _line(bytes name, bytes value):
    """A checked line, or None for a value that the reference shall refuse."""
    cdef Py_ssize_t name_size = PyBytes_GET_SIZE(name), size = PyBytes_GET_SIZE(value), index
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(value)
    cdef char *out
    if size and (at[0] == 32 or at[0] == 9 or at[size - 1] == 32 or at[size - 1] == 9):
        return None
    for index in range(size):
        if (at[index] < 32 and at[index] != 9) or at[index] == 127:
            return None
    line = PyBytes_FromStringAndSize(NULL, name_size + size + 4)
    out = PyBytes_AS_STRING(line)
    memcpy(out, PyBytes_AS_STRING(name), name_size)
    memcpy(out + name_size, b": ", 2)
    memcpy(out + name_size + 2, at, size)
    memcpy(out + name_size + 2 + size, b"\r\n", 2)
    return line


cdef tuple _encode(object headers):
    """`encode_fields` of the reference, for the usual case; what is not usual goes there."""
    if type(headers) is not list:
        return _encode_unusual(headers)
    cdef list lines = []
    cdef PyObject *found
    cdef bytes length_line = b"", line
    cdef object length = -1
    for field in <list>headers:
        if type(field) is not tuple or len(<tuple>field) != 2:
            return _encode_unusual(headers)
        name, value = (<tuple>field)[0], (<tuple>field)[1]
        if type(name) is not bytes or type(value) is not bytes:
            return _encode_unusual(headers)
        found = PyDict_GetItem(_RESPONSE_LINES, field)
        if found != NULL:
            lines.append(<object>found)
            continue
        if name == b"content-length":
            found = PyDict_GetItem(_RESPONSE_LENGTHS, value)
            if found == NULL or length_line:
                return _encode_unusual(headers)
            length, length_line = <tuple>found
            continue
        found = PyDict_GetItem(_RESPONSE_NAMES, name)
        if found == NULL or <int>(<object>found) != _ORDINARY_NAME:
            return _encode_unusual(headers)
        line = _line(name, value)
        if line is None:
            return _encode_unusual(headers)
        lines.append(line)
    return <bytes>lines[0] if len(lines) == 1 else b"".join(lines), length, length_line, 0


@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class Request:
    """What `servery.events.RequestReceived` says; and what came with the head: `body`, if that is all of it, or `rest`, if it is not.

    Both are None where there is nothing.
    """


cdef object _as_event(Request request):
    return RequestReceived(
        request.stream, request.method, request.target, request.raw_path, request.query, request.authority, request.version,
        request.headers, request.complete, request.expects_continue, request.upgrade,
    )


@cython.final
cdef class KeptStamp:
    """A stamp (see `servery.engine.Stamp`) that is asked once a second; the wall clock is compared, not counted."""

    def __init__(self, stamp):
        self._stamp = stamp
        self._blocks = [None] * 4
        self._second = -1

    def __call__(self, int has):
        return self.block(has)

    cdef bytes block(self, int has):
        cdef long long second = <long long><double>_time.time()
        if second != self._second:
            self._second = second
            self._blocks[:] = [self._stamp(flags) for flags in range(4)]
        return <bytes>self._blocks[has]


cdef inline char *_append(char *at, bytes piece) noexcept:
    memcpy(at, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
    return at + PyBytes_GET_SIZE(piece)


cdef inline char *_append_number(char *at, const char *number, int digits) noexcept:
    """`number` and the end of its line."""
    memcpy(at, number, digits)
    memcpy(at + digits, b"\r\n", 2)
    return at + digits + 2


cdef int _write_number(char *number, Py_ssize_t value, int base) noexcept:
    """The digits of `value`; how many they are."""
    cdef char reversed_digits[24]
    cdef int count = 0, index
    while True:
        reversed_digits[count] = b"0123456789abcdef"[value % base]
        count += 1
        value //= base
        if not value:
            break
    for index in range(count):
        number[index] = reversed_digits[count - 1 - index]
    return count


cdef bytes _chunk_line(Py_ssize_t size):
    """`servery.http1.writer.chunk_head`."""
    cdef char number[24]
    cdef char line[26]
    cdef int digits = _write_number(number, size, 16)
    _append_number(line, number, digits)
    return PyBytes_FromStringAndSize(line, digits + 2)


cdef class Answering:
    """See `servery.engine.Answering`."""

    cpdef object continue_body(self, long stream):
        raise NotImplementedError

    cpdef object start_response(self, long stream, object status, object headers, bint trailers):
        raise NotImplementedError

    cpdef bint send_body(self, long stream, bytes data, bint more) except -1:
        raise NotImplementedError

    cpdef bint reserve_body(self, long stream, Py_ssize_t size, bint more) except -1:
        raise NotImplementedError

    cpdef bint end_reserved(self, long stream) except -1:
        raise NotImplementedError

    cpdef object answer(self, long stream, object status, object text, bytes extra=b""):
        raise NotImplementedError

    cpdef object abandon(self, long stream):
        raise NotImplementedError

    cpdef int fail_response(self, long stream) except -1:
        raise NotImplementedError


cdef class Http1Engine(Answering):
    """See `servery.engine.HttpEngine` for the contract, `servery.http1.engine` for the reasons."""

    def __init__(self, limits, stamp, double now):
        self._limits = limits
        self.stamp = stamp
        self._keep_alive_timeout = limits.keep_alive_timeout
        # A limit may be any number; the scanner counts in 32 bits, and leaves longer heads to the reference.
        self._ordinary = max(0, min(limits.request_line, limits.field_size, limits.head_size - 2, MAX_SCANNED))
        self._max_fields = min(limits.field_count, SV_MAX_FIELDS)
        self._read_ahead = min(limits.read_ahead, MAX_LENGTH)
        self._drain_size = min(limits.drain_size, MAX_LENGTH)
        self._body_size = MAX_LENGTH if limits.body_size is None else min(limits.body_size, MAX_LENGTH)
        self._pending = b""
        self._out = []
        self._reading = HEAD
        self._responding = NONE
        self._block = b""
        self._length_line = b""
        self._left = self._read = 0
        self._minor = 1
        self._slot = -1
        self._keep_alive = self.wants_read = True
        self.deadline = now + <double>limits.first_byte_timeout

    @property
    def stamp(self):
        """What the responses from now on carry of the server's own."""
        return self._stamp

    @stamp.setter
    def stamp(self, stamp):
        self._stamp = stamp
        self._kept_stamp = stamp if type(stamp) is KeptStamp else None

    def __dealloc__(self):
        if _BLOCKS is not None and self._own_block() is not None:
            _BLOCKS[self._slot] = None

    # --- from the peer ---------------------------------------------------------------------------------

    cpdef list receive(self, bytes data, double now):
        if not data:
            return self._receive_eof(now)
        if self._reading == HEAD:
            return self._read_head(self._pending + data if self._pending else data, now)
        if self._reading == BODY:
            return self._read_body(data, now)
        if self._reading == READY:
            self._pending += data
            self.wants_read = PyBytes_GET_SIZE(self._pending) <= self._read_ahead
        return []

    cpdef list expire(self, double now):
        self.deadline = NEVER
        if self._reading == HEAD:
            if self._pending or (self._head is not None and self._head.line):
                return self._refuse(RemoteProtocolError(408, "request head not complete in time"), now)
            self._close()
        elif self._reading == BODY:
            return self._fail_request(RemoteProtocolError(408, "request body came too slowly"), now)
        else:
            self._close()
        return []

    cpdef object stop(self, double now, bint patient=False):
        self._stopping = True
        self._keep_alive = False
        if self._reading == HEAD:
            if patient or self._head_begun() or self.stream == 0:
                self.deadline = min(self.deadline, now + <double>self._limits.linger_timeout)
            else:
                self._close()

    def hand_over(self):
        rest, self._pending = self._pending, b""
        self._reading = CLOSED
        self.deadline = NEVER
        return rest

    cpdef list advance(self, double now):
        if self._reading == BODY:
            self.wants_read = True
            self._read = 0
            self._draining = True
            if self._keep_alive and not self._eof:
                self.deadline = now + <double>self._limits.linger_timeout
            else:
                self._linger(now)
            return []
        return self._next_request(now) if self._reading == READY else []

    cdef list _next_request(self, double now):
        cdef list events
        cdef bytes data = self._pending
        self.wants_read = True
        if not self._keep_alive:
            self._linger(now)
            return []
        self._reading = HEAD
        self._responding = NONE
        self._block = b""
        self._head = None
        if data:
            self._pending = b""
            self.deadline = NEVER
            events = self._read_head(data, now)
            if self._eof and not self.closing:
                events += self._receive_eof(now)
            return events
        if self._eof:
            self._close()
        else:
            self.deadline = now + self._keep_alive_timeout
        return []

    cdef list _receive_eof(self, double now):
        self._eof = True
        if self._reading == HEAD:
            if self._pending or (self._head is not None and self._head.line):
                return self._refuse(RemoteProtocolError(400, "connection closed inside of a request head"), now)
            self._close()
        elif self._reading == BODY:
            return self._fail_request(RemoteProtocolError(400, "connection closed inside of a request body"), now)
        elif self._reading == READY:
            return [PeerClosed()]
        else:
            self._close()
        return []

    cdef list _read_head(self, bytes data, double now):
        cdef Py_ssize_t used = 0, length = 0
        if self._head is None:
            request = self._scan(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &used, &length)
            if request is not None:
                return self._took_head(_as_event(request), used, length, data, now)
        return self._read_piece(data, now)

    # `receive` and `advance` for who has octets, not bytes, and builds scopes, not events: for an ordinary request they say the same.

    cdef Request take(self, const char *data, Py_ssize_t size, double now):
        """The ordinary request at `data`, if a head is due and nothing of it came before; else None, and nothing has happened.

        Octets of a body that is not whole are in its `rest`, for `receive`; of what follows a request this keeps a copy.
        """
        cdef Py_ssize_t used = 0, length = 0
        cdef Request request
        if self._reading != HEAD or self._head is not None or self._pending:
            return None
        request = self._scan(data, size, &used, &length)
        if request is not None:
            self._took(request, data, size, used, length, now)
        return request

    cdef Request take_next(self, double now):
        """The ordinary request that came behind one that is answered; else None, and nothing has happened."""
        cdef bytes data = self._pending
        cdef Py_ssize_t used = 0, length = 0
        cdef Request request
        if self._reading != READY or not self._keep_alive or self._eof or not data:
            return None
        request = self._scan(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &used, &length)
        if request is not None:
            self.wants_read = True
            self._responding = NONE
            self._block = b""
            self._took(request, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), used, length, now)
        return request

    cdef int _took(
        self, Request request, const char *data, Py_ssize_t size, Py_ssize_t used, Py_ssize_t length, double now
    ) except -1:
        if size - used < length:
            self._pending = b""
            self._begin_body(length, now)
            if size > used:
                request.rest = PyBytes_FromStringAndSize(data + used, size - used)
            return 0
        if length:
            request.body = PyBytes_FromStringAndSize(data + used, length)
            used += length
        self._reading = READY
        self._left = 0
        self._pending = PyBytes_FromStringAndSize(data + used, size - used) if size > used else b""
        self.deadline = NEVER
        self.wants_read = size - used <= self._read_ahead
        return 0

    cdef Request _scan(self, const char *octets, Py_ssize_t size, Py_ssize_t *used, Py_ssize_t *length):
        """The request of an ordinary head, or None for one that the reference shall read."""
        cdef sv_head head
        cdef Request request
        cdef list fields
        cdef Block block = self._own_block()
        cdef uint32_t start = sv_scan_line(<const uint8_t *>octets, size, <uint32_t>self._ordinary, &head)
        cdef bint keep
        if start == 0 or head.minor == 0:
            return None
        if block is not None and block.is_at(octets + start, size - start) and self._allows(block, start):
            fields = list(block.fields)
            used[0], length[0], keep = start + PyBytes_GET_SIZE(block.octets), block.length, block.keep
        else:
            if sv_scan_fields(
                <const uint8_t *>octets, size, <uint32_t>self._ordinary, <uint32_t>self._max_fields, start, &head
            ) != SV_ORDINARY:
                return None
            fields = self._read_fields(octets, &head, length, &keep)
            if fields is None:
                return None
            used[0] = head.end
            self._remember(octets + start, head.end - start, fields, length[0], keep)
        request = Request.__new__(Request)
        request.method = _method(octets, head.method_len)
        request.target = PyBytes_FromStringAndSize(octets + head.target, head.target_len)
        if head.path_len == head.target_len:
            request.raw_path, request.query = request.target, b""
        else:
            request.raw_path = PyBytes_FromStringAndSize(octets + head.target, head.path_len)
            request.query = PyBytes_FromStringAndSize(
                octets + head.target + head.path_len + 1, head.target_len - head.path_len - 1
            )
        self._begin_exchange(request.method, 1, keep and not self._stopping, False, False)
        request.stream = self.stream
        request.version = _V11
        request.headers = fields
        request.complete = length[0] == 0
        request.percent = head.has_percent
        return request

    cdef list _read_fields(self, const char *octets, sv_head *head, Py_ssize_t *length, bint *keep):
        """The fields of a scanned head, and what they say of body and connection; None if the reference shall read them."""
        cdef int kind, hosts = 0, lengths = 0, connections = 0
        cdef uint32_t index
        cdef list fields = []
        length[0], keep[0] = 0, True
        for index in range(head.count):
            pair = _field(octets, &head.fields[index], &kind)
            if kind > KEPT:
                if kind == HOST_LINE:
                    hosts += 1
                elif kind == LENGTH_LINE:
                    lengths += 1
                    length[0] = _digits((<tuple>pair)[1])
                    if length[0] < 0 or length[0] > self._body_size:
                        return None
                elif kind == KEEP_LINE or kind == CLOSE_LINE:
                    connections += 1
                    keep[0] = kind == KEEP_LINE
                else:
                    return None
            fields.append(pair)
        return fields if hosts == 1 and lengths <= 1 and connections <= 1 else None

    cdef bint _allows(self, Block block, uint32_t start) noexcept:
        """Whether a block of fields is within the limits of this engine, behind a request line of `start` octets."""
        return (
            start + PyBytes_GET_SIZE(block.octets) <= self._ordinary + 4
            and len(block.fields) <= self._max_fields
            and block.length <= self._body_size
        )

    cdef int _remember(self, const char *octets, Py_ssize_t size, list fields, Py_ssize_t length, bint keep) except -1:
        """Keep a block of fields when the second one of its size comes in a row: this peer may repeat itself."""
        global _next_slot
        cdef Block block
        if size == self._block_size and BLOCK_LEAST <= size <= BLOCK_MOST:
            block = Block.__new__(Block)
            block.owner = <PyObject *>self
            block.octets = PyBytes_FromStringAndSize(octets, size)
            block.fields, block.length, block.keep = tuple(fields), length, keep
            if self._own_block() is None:
                self._slot = _next_slot
                _next_slot = (_next_slot + 1) % BLOCKS
            _BLOCKS[self._slot] = block
        self._block_size = size
        return 0

    cdef Block _own_block(self):
        cdef Block block
        if self._slot < 0:
            return None
        block = <Block>_BLOCKS[self._slot]
        return block if block is not None and block.owner == <PyObject *>self else None

    cdef list _read_piece(self, bytes data, double now):
        """A head that the reference reads, in as many pieces as it comes in."""
        cdef bint begun = self._head_begun()
        cdef Py_ssize_t used
        if self._head is None:
            self._head = HeadParser(self._limits)
        head = self._head
        try:
            used = head.feed(data)
        except RemoteProtocolError as error:
            return self._refuse(error.with_traceback(None), now)
        if not head.done:
            self._pending = data[used:]
            if not begun:
                wait = self._limits.linger_timeout if self._stopping else self._limits.head_timeout
                self.deadline = now + <double>wait
            return []
        method, target, version = head.line
        keep = head.keep_alive and not self._stopping
        self._begin_exchange(method, head.minor, keep, head.expects_continue, head.takes_trailers)
        request = RequestReceived(
            self.stream, method, target, head.raw_path, head.query, head.authority, version, head.fields,
            head.length == 0, head.expects_continue, head.upgrade,
        )
        return self._took_head(request, used, head.length, data, now)

    cdef list _took_head(self, object request, Py_ssize_t used, object length, bytes data, double now):
        cdef bytes rest = data[used:] if used < PyBytes_GET_SIZE(data) else b""
        self._head = None
        if length == 0:
            self._reading = READY
            self._pending = rest
            self.deadline = NEVER
            self.wants_read = PyBytes_GET_SIZE(rest) <= self._read_ahead
            return [request]
        self._pending = b""
        self._begin_body(length, now)
        return [request, *self._read_body(rest, now)] if rest else [request]

    cdef bint _head_begun(self):
        return bool(self._pending) or (self._head is not None and bool(self._head.line or self._head.empty_lines))

    cdef int _begin_body(self, object length, double now) except -1:
        self._reading = BODY
        self._draining = False
        self._read = 0
        self._paused_at = now
        self._body_base = now + <double>self._limits.body_timeout
        self.deadline = self._body_base
        if length == CHUNKED:
            self._decoder = ChunkedDecoder(self._limits)
            self._left = 0
        else:
            self._decoder = None
            self._left = length
        return 0

    cdef list _read_body(self, bytes data, double now):
        cdef list events
        self._continue_due = False
        decoder = self._decoder
        if decoder is None:
            left = self._left
            if len(data) < left:
                self._left = left - len(data)
                return self._body_part(data, now)
            return self._end_body(data[:left], data[left:], now)
        part = decoder.feed(data)
        if decoder.error is not None:
            events = []
            if part and self._responding != DONE:
                events.append(BodyReceived(self.stream, part, True, []))
            return events + self._fail_request(decoder.error, now)
        if decoder.done:
            return self._end_body(part, decoder.rest, now)
        return self._body_part(part, now)

    cdef list _body_part(self, bytes part, double now):
        self._read += len(part)
        if self._responding == DONE:
            if self._draining and self._read > self._drain_size:
                self._linger(now)
            return []
        if part:
            rate = self._limits.body_min_rate
            earned = self._body_base + self._read / rate if rate else NEVER
            self.deadline = min(<double>earned, now + <double>self._limits.body_timeout)
            return [BodyReceived(self.stream, part, True, [])]
        return []

    cdef list _end_body(self, bytes part, bytes rest, double now):
        trailers = self._decoder.trailers if self._decoder is not None else []
        self._decoder = None
        self._reading = READY
        self._pending = rest
        self.deadline = NEVER
        self.wants_read = PyBytes_GET_SIZE(rest) <= self._read_ahead
        if self._responding != DONE:
            return [BodyReceived(self.stream, part, False, trailers)]
        return self._next_request(now) if self._draining else []

    cpdef object body_paused(self, bint paused, double now):
        if self._reading == BODY and self._responding != DONE:
            if paused:
                self._paused_at = now
                self.deadline = NEVER
            else:
                self._body_base += now - self._paused_at
                self.deadline = now + <double>self._limits.body_timeout

    # --- a peer's fault --------------------------------------------------------------------------------

    cdef list _refuse(self, object error, double now):
        line = self._head.line if self._head is not None else None
        self._reply(error, line is not None and line[0] == b"HEAD")
        self._linger(now)
        return [ConnectionFailed(error, 0, line, error.status)]

    cdef list _fail_request(self, object error, double now):
        if self._responding == DONE:
            self._linger(now)
            return []
        replied = 0
        if self._responding & (NONE | STARTED):
            self._reply(error, self._is_head)
            replied = error.status
        self._responding = DONE
        self._linger(now)
        return [ConnectionFailed(error, self.stream, None, replied)]

    cdef int _reply(self, object error, bint to_head) except -1:
        head, body = _writer.text_response(error.status, error.reason, self._stamp, b"connection: close\r\n")
        if to_head:
            self._out.append(head)
        else:
            self._out.append(head + body)
            self.content_sent = len(body)
        self._keep_alive = False
        return 0

    cdef int _linger(self, double now) except -1:
        self._decoder = None
        self._pending = b""
        self.wants_read = True
        if self._eof:
            self._close()
        else:
            self._reading = LINGER
            self.half_closed = True
            self.deadline = now + <double>self._limits.linger_timeout
        return 0

    cdef int _close(self) except -1:
        self._reading = CLOSED
        self.closing = True
        self.deadline = NEVER
        return 0

    # --- from the application --------------------------------------------------------------------------

    cdef int _begin_exchange(self, bytes method, int minor, bint keep, bint continues, bint trailers) except -1:
        self.stream += 1
        self.content_sent = 0
        self._is_head = method == b"HEAD"
        self._minor = minor
        self._keep_alive = keep
        self._continue_due = continues
        self.takes_trailers = trailers
        return 0

    cpdef list take_output(self):
        cdef list out = self._out
        self._out = []
        return out

    cpdef object continue_body(self, long stream):
        if self._continue_due and stream == self.stream and self._responding == NONE:
            self._continue_due = False
            self._out.append(_writer.CONTINUE)

    def send_informational(self, long stream, status, headers):
        self._expect(stream, NONE | STARTED)
        if not 102 <= status <= 199:
            raise LocalProtocolError(f"{status} is not the status of an interim response")
        block = _encode(headers)[0]
        if self._minor:
            self._out.append(<bytes>_STATUS_LINES[status] + block + _CRLF)

    cpdef object start_response(self, long stream, object status, object headers, bint trailers):
        self._expect(stream, NONE)
        if not isinstance(status, int) or not 200 <= status <= 999:
            raise LocalProtocolError(f"response status must be an integer from 200 to 999, not {status!r}")
        block, length, framing, flags = _encode(headers)
        self._block, self._length_line, self._flags = block, framing, flags
        self._measured = length >= 0
        self._length = length if self._measured else 0
        self._status = status
        self._trailers_due = trailers
        self._responding = STARTED

    cpdef bint send_body(self, long stream, bytes data, bint more) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef list out = self._out
        cdef bint joined = False
        if self._account(stream, size, more):
            joined = size < _JOINED
            out.append(self._make_head(size, more, data if joined else None))
        elif self._framing == CHUNKS and size:
            out.append(_chunk_line(size))
        if not joined and self._framing != EMPTY and size:
            out.append(data)
            if self._framing == CHUNKS:
                out.append(_CRLF)
        return not more and self._end_content()

    cpdef bint reserve_body(self, long stream, Py_ssize_t size, bint more) except -1:
        cdef bint chunked
        if self._account(stream, size, more):
            self._out.append(self._make_head(size, more, None))
            chunked = self._framing == CHUNKS and size > 0
        else:
            chunked = self._framing == CHUNKS and size > 0
            if chunked:
                self._out.append(_chunk_line(size))
        self._reserved = (chunked, more)
        return self._framing != EMPTY

    cpdef bint end_reserved(self, long stream) except -1:
        self._expect(stream, SENDING)
        chunked, more = self._reserved
        if chunked:
            self._out.append(_CRLF)
        return not more and self._end_content()

    cdef bint _end_content(self):
        if self._trailers_due:
            self._responding = TRAILERS
            self._trailers = b""
            return False
        self._responding = DONE
        if self._framing == CHUNKS:
            self._out.append(_writer.LAST_CHUNK)
        return True

    def send_trailers(self, long stream, headers, bint more):
        self._expect(stream, TRAILERS)
        self._trailers += <bytes>_encode(headers)[0]
        if not more:
            self._responding = DONE
            if self._framing == CHUNKS:
                self._out.append(
                    b"0\r\n" + self._trailers + _CRLF if self.takes_trailers else _writer.LAST_CHUNK
                )
        return not more

    cpdef object answer(self, long stream, object status, object text, bytes extra=b""):
        self._expect(stream, NONE | STARTED)
        self._keep_alive = self._persists()
        head, body = _writer.text_response(status, text, self._stamp, extra + self._connection_line())
        self._responding = DONE
        if self._is_head:
            self._out.append(head)
        else:
            self._out.append(head + body)
            self.content_sent = len(body)

    cpdef object abandon(self, long stream):
        self._expect(stream, NONE | STARTED | SENDING | TRAILERS)
        self._cut()

    cdef int _cut(self) except -1:
        self.reset = self._responding == SENDING and self._framing == UNTIL_CLOSE
        self._responding = DONE
        self._keep_alive = False
        return self._close()

    cpdef int fail_response(self, long stream) except -1:
        if self._responding & (NONE | STARTED):
            self.answer(stream, 500, "Internal Server Error")
            return 500
        self._expect(stream, SENDING | TRAILERS)
        self._cut()
        return self._status

    cdef bint _account(self, long stream, Py_ssize_t size, bint more) except -1:
        """As in the reference, but for the head: whether it is due."""
        cdef bint starts
        cdef uint64_t owed
        self._expect(stream, STARTED | SENDING)
        starts = self._responding == STARTED
        owed = self._length if starts else self._owed
        if not self._is_empty():
            if self._measured:
                if <uint64_t>size > owed or (<uint64_t>size < owed and not more):
                    kind = "more" if <uint64_t>size > owed else "less"
                    raise LocalProtocolError(f"the response body is {kind} than its content-length")
                owed -= size
            self.content_sent += size
        self._owed = owed
        return starts

    cdef bint _is_empty(self) noexcept:
        return self._is_head or self._status == 304 or self._status == 204

    cdef bytes _make_head(self, Py_ssize_t size, bint more, bytes data):
        """The head, and behind it the framing of `size` octets of content; and these, if they are given as `data`."""
        cdef bytes line = <bytes>_STATUS_LINES[self._status], block = self._block, framing = self._length_line
        cdef bytes connection, stamp, head
        cdef bint empty = self._is_empty(), counted = False
        cdef char number[24]
        cdef int digits = 0
        cdef char *at
        self._keep_alive = self._persists() and not self._flags & _WANTS_CLOSE
        if empty:
            self._framing = EMPTY
            if self._status == 204:
                framing = b""
            else:
                counted = not self._measured and not more and size > 0 and not self._trailers_due
        elif self._measured and not (self._trailers_due and self.takes_trailers):
            self._framing = LENGTH
        elif not self._measured and not more and not self._trailers_due:
            self._framing = LENGTH
            counted = True
        elif self._minor:
            self._framing = CHUNKS
            framing = _CHUNKED_LINE
        else:
            self._framing = UNTIL_CLOSE
            self._keep_alive = False
            framing = b""
        self._responding = SENDING
        connection = self._connection_line()
        stamp = self._kept_stamp.block(self._flags & 3) if self._kept_stamp is not None else self._stamp(self._flags & 3)
        if counted:
            framing = _LENGTH_NAME
            digits = _write_number(number, size, 10)
        elif self._framing == CHUNKS and size:
            digits = _write_number(number, size, 16)
        # One allocation; what is not written of it is given back.
        head = PyBytes_FromStringAndSize(
            NULL,
            PyBytes_GET_SIZE(line) + PyBytes_GET_SIZE(block) + PyBytes_GET_SIZE(framing) + PyBytes_GET_SIZE(connection)
            + PyBytes_GET_SIZE(stamp) + 2 + (digits + 2 if digits else 0) + self._framed_size(size, data),
        )
        at = _append(PyBytes_AS_STRING(head), line)
        at = _append(_append(at, block), framing)
        if counted:
            at = _append_number(at, number, digits)
        at = _append(_append(_append(at, connection), stamp), _CRLF)
        if not counted and digits:
            at = _append_number(at, number, digits)
        if data is not None and self._framing != EMPTY:
            at = _append(at, data)
            if self._framing == CHUNKS and size:
                _append(at, _CRLF)
        return head

    cdef Py_ssize_t _framed_size(self, Py_ssize_t size, bytes data) noexcept:
        """Octets of `data` and what ends its chunk."""
        if data is None or self._framing == EMPTY:
            return 0
        return size + 2 if self._framing == CHUNKS and size else size

    cdef bytes _connection_line(self):
        if not self._keep_alive:
            return b"connection: close\r\n"
        return b"" if self._minor else b"connection: keep-alive\r\n"

    cdef bint _persists(self) except -1:
        if not self._keep_alive or self._continue_due:
            return False
        return self._reading != BODY or self._left <= self._drain_size

    cdef int _expect(self, long stream, int states) except -1:
        """The reference's `_check_stream`."""
        if stream != self.stream:
            raise LocalProtocolError("this request was answered before")
        if not self._responding & states:
            raise LocalProtocolError(f"the response is {_SAID[self._responding]}: this message is not allowed now")
        return 0


cdef object _method(const char *at, Py_ssize_t size):
    """A method; the usual ones are shared."""
    if size == 3 and memcmp(at, b"GET", 3) == 0:
        return b"GET"
    if size == 4 and memcmp(at, b"POST", 4) == 0:
        return b"POST"
    return PyBytes_FromStringAndSize(at, size)


def build_info():
    """How this module was built: a dict of text."""
    return {
        "cython": CYTHON_ABI.decode().replace("_", "."),
        "compiler": SERVERY_COMPILER.decode(),
        "flags": SERVERY_FLAGS.decode(),
        "scan": sv_scan_path().decode(),
    }
