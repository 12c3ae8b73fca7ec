"""The compiled twin of `servery.websocket.engine` and `servery.websocket.frames`: the same events, limits, errors and octets.

Frames are read and written here, and a message that is whole in what came, and not compressed, is made here. Every other one
goes through the reference's own `Assembler` and `Inflater`; what a close frame may say is decided by the reference's functions,
and a frame that must not be is shown to the reference's `FrameDecoder`, which says why. The order of things is the reference's,
method by method; read that one first.

One engine belongs to one thread. Nothing points into a buffer after a call has returned.
"""

from cpython.bytes cimport _PyBytes_Resize, PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ..engine import NEVER as _NEVER
from ..errors import RemoteProtocolError
from ..events import MessageReceived, PongReceived, WebSocketClosed, WebSocketFailed
from ..websocket import closing as _closing
from ..websocket import engine as _reference
from ..websocket import frames as _frames
from ..websocket.messages import Assembler, not_utf8

cdef extern from "Python.h":
    str PyUnicode_New(Py_ssize_t size, uint32_t largest)
    void *PyUnicode_1BYTE_DATA(object)
    bint PyUnicode_Check(object)
    bint PyUnicode_IS_COMPACT_ASCII(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    object PyType_GenericAlloc(type, Py_ssize_t count)

cdef double NEVER = _NEVER

cdef enum:
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10
    NOTHING = -1
    GROWTH = 4  # times what a binary message needs so far may be reserved for it

cdef enum:  # State
    OPEN, CLOSING, LINGER, CLOSED

cdef Py_ssize_t _JOINED = _reference._JOINED
cdef Py_ssize_t PONGS_KEPT = _reference.PONGS_KEPT
cdef Py_ssize_t PINGS_KEPT = _reference.PINGS_KEPT
cdef uint64_t NO_LIMIT = <uint64_t>1 << 63
cdef Py_ssize_t MOST = <Py_ssize_t>((<size_t>-1) >> 1)
cdef int LOST = _closing.LOST
cdef int RESTART = _closing.RESTART


cdef bytes _content(Piece *piece):
    """The octets of a piece, unmasked."""
    content = PyBytes_FromStringAndSize(NULL, piece.size)
    if piece.size:  # nothing is written into the one object that all empty bytes are
        sv_unmask(<uint8_t *>PyBytes_AS_STRING(content), piece.content, piece.size, piece.mask)
    return content


cdef str _text(Piece *piece):
    """The text of a piece that is all of its message: ASCII, as nearly all is, needs no decoding and no second copy."""
    if not piece.size:
        return ""
    text = PyUnicode_New(piece.size, 127)
    cdef uint8_t *octets = <uint8_t *>PyUnicode_1BYTE_DATA(text)
    if sv_unmask(octets, piece.content, piece.size, piece.mask):
        return text
    try:
        decoded = PyUnicode_DecodeUTF8(<const char *>octets, piece.size, NULL)
    except UnicodeDecodeError:
        decoded = None
    if decoded is None:
        raise not_utf8()
    return decoded


cdef object _received(object message):
    """`MessageReceived(message)`, without its `__init__`: to call that costs as much as all the rest of a message."""
    event = PyType_GenericAlloc(MessageReceived, 0)
    event.data = message
    return event


cdef bytes _frame(int first, const char *content, Py_ssize_t size):
    """A whole frame of ours."""
    cdef uint8_t head[10]
    cdef int width = sv_write_head(head, first, size)
    frame = PyBytes_FromStringAndSize(NULL, width + size)
    memcpy(PyBytes_AS_STRING(frame), head, width)
    memcpy(PyBytes_AS_STRING(frame) + width, content, size)
    return frame


cdef class FrameDecoder:
    """See `servery.websocket.frames.FrameDecoder`."""

    def __init__(self, max_size, bint deflates):
        self._max_size = max_size
        self._limit = NO_LIMIT if max_size is None else min(max_size, NO_LIMIT)
        self._deflates = deflates
        self._kept = b""

    def feed(self, bytes data not None):
        """Take octets; returns what they complete, up to the first fault."""
        cdef Piece piece
        cdef list pieces = []
        cdef Py_ssize_t at = 0
        data = self.joined(data)
        while True:
            at = self.next(<const uint8_t *>PyBytes_AS_STRING(data), at, PyBytes_GET_SIZE(data), &piece)
            if piece.opcode == NOTHING:
                return pieces
            pieces.append((piece.opcode, _content(&piece), piece.compressed, piece.last))

    cdef bytes joined(self, bytes data):
        """What was kept, and `data`: to be read next."""
        if self._kept:
            data = self._kept + data
            self._kept = b""
        return data

    cdef Py_ssize_t next(self, const uint8_t *data, Py_ssize_t at, Py_ssize_t end, Piece *piece) except -1:
        """Find the next piece from `at` on, which may be `NOTHING`; returns where to go on."""
        cdef Py_ssize_t used
        piece.opcode = NOTHING
        while at < end:
            piece.whole = False
            if not self._left:
                used = self._begin(data + at, end - at, piece)
                if not used:
                    return end
                at += used
                if piece.opcode != NOTHING:
                    return at
            if self._left and at < end:
                return at + self._go_on(data + at, end - at, piece)
        return at

    cdef Py_ssize_t _begin(self, const uint8_t *data, Py_ssize_t size, Piece *piece) except -1:
        """Read the head of a frame, and the whole of a control frame or an empty one.

        Returns how many octets that were: 0 if they are kept, since not enough has come, or if there is a fault.
        """
        cdef sv_place place
        cdef sv_frame frame
        place.room = self._limit - self._size if self._size < self._limit else 0
        place.deflates = self._deflates
        place.within = self._message != 0
        place.compressed = self._compressed
        cdef int found = sv_read_head(data, size, &place, &frame)
        if found == SV_FAULT:
            self.error = self._fault(data, size)
            return 0
        if found == SV_MORE or (frame.opcode >= SV_CONTROL and frame.head + frame.size > <uint64_t>size):
            self._kept = PyBytes_FromStringAndSize(<const char *>data, size)
            return 0
        memcpy(piece.mask, data + frame.head - SV_MASK_SIZE, SV_MASK_SIZE)
        piece.content = data + frame.head
        piece.size = 0
        piece.last = True
        if frame.opcode >= SV_CONTROL:
            piece.opcode = frame.opcode
            piece.size = <Py_ssize_t>frame.size
            piece.compressed = False
            return frame.head + piece.size
        if frame.opcode:
            self._message, self._compressed = frame.opcode, frame.compressed
            piece.whole = frame.final
        self._size += frame.size
        self._final = frame.final
        self._left = frame.size
        memcpy(self._mask, piece.mask, SV_MASK_SIZE)
        if not frame.size and frame.final:
            piece.opcode, piece.compressed = self._message, self._compressed
            self._message, self._size = 0, 0
        return frame.head

    cdef Py_ssize_t _go_on(self, const uint8_t *data, Py_ssize_t size, Piece *piece) noexcept:
        """Take octets of the frame under way; returns how many."""
        cdef int turn, index
        if self._left < <uint64_t>size:
            size = <Py_ssize_t>self._left
        self._left -= size
        piece.opcode, piece.compressed = self._message, self._compressed
        piece.content, piece.size = data, size
        piece.last = self._final and not self._left
        piece.whole = piece.whole and piece.last
        memcpy(piece.mask, self._mask, SV_MASK_SIZE)
        if self._left:
            turn = size & 3
            for index in range(SV_MASK_SIZE):
                self._mask[index] = piece.mask[(index + turn) & 3]
        elif piece.last:
            self._message, self._size = 0, 0
        return size

    cdef object _fault(self, const uint8_t *data, Py_ssize_t size):
        """What the reference says of a frame that starts so, at this point."""
        reference = _frames.FrameDecoder(self._max_size, self._deflates)
        reference._message, reference._compressed, reference._size = self._message, self._compressed, self._size
        reference.feed(PyBytes_FromStringAndSize(<const char *>data, min(size, <Py_ssize_t>SV_HEAD_MOST)))
        return reference.error


cdef class WebSocketEngine:
    """See `servery.engine.WebSocketEngine` for the contract, `servery.websocket.engine` for the reasons."""

    def __init__(self, limits, double now, bytes head=b"", deflater=None, inflater=None, double spread=0.0):
        self._limits = limits
        self._deflater = deflater
        self._decoder = FrameDecoder(limits.ws_max_size, inflater is not None)
        self._assembler = Assembler(inflater, limits.ws_max_size)
        self._max_queue = min(limits.ws_max_queue, MOST)
        self._body_buffer = min(limits.body_buffer, MOST)
        self._out = [head] if head else []
        self._pongs = []
        self._pings = {}
        interval = limits.ws_ping_interval
        self._interval = NEVER if interval is None else interval * (1 - spread / 10)
        self.deadline = now + self._interval
        self.wants_read = True

    # --- from the peer ---------------------------------------------------------------------------------

    cpdef list receive(self, bytes data, double now):
        if not data:
            return self._receive_eof()
        return self.receive_octets(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), now)

    cdef list receive_octets(self, const char *data, Py_ssize_t size, double now):
        """`receive` of octets that are in nobody's object."""
        if self._state == OPEN:
            self._heard(now)
        elif self._state != CLOSING:
            return []
        cdef list events = []
        try:
            self._read(data, size, now, events)
        except RemoteProtocolError as error:
            self._fail(error.with_traceback(None), now, events)
        return events

    cdef object take(self, const char *data, Py_ssize_t size, double now):
        """The short way for what most reads bring, a whole message in one frame: the message, without an event around it.

        None if it is anything else, or a fault: then nothing has happened, and `receive` is to be called.
        """
        cdef sv_place place
        cdef sv_frame frame
        cdef Piece piece
        cdef FrameDecoder decoder = self._decoder
        if self._state != OPEN or decoder._left or decoder._message or decoder._kept:
            return None
        place.room = decoder._limit
        place.deflates = place.within = place.compressed = False  # a compressed message is a fault here
        if sv_read_head(<const uint8_t *>data, size, &place, &frame) != SV_FRAME or not frame.final:
            return None
        if frame.opcode >= SV_CONTROL or frame.head + frame.size != <uint64_t>size:
            return None
        piece.opcode, piece.content, piece.size = frame.opcode, <const uint8_t *>data + frame.head, <Py_ssize_t>frame.size
        memcpy(piece.mask, piece.content - SV_MASK_SIZE, SV_MASK_SIZE)
        if piece.opcode == BINARY:
            message = _content(&piece)
        else:
            try:
                message = _text(&piece)
            except RemoteProtocolError:
                return None
        self._heard(now)
        self._count(message, piece.size)
        if self._is_full():
            self.wants_read = False
            self.deadline = NEVER
        return message

    cdef int _read(self, const char *data, Py_ssize_t size, double now, list events) except -1:
        cdef FrameDecoder decoder = self._decoder
        cdef Piece piece
        cdef Py_ssize_t at = 0
        cdef bytes joined
        if decoder._kept:
            joined = decoder.joined(PyBytes_FromStringAndSize(data, size))
            data, size = PyBytes_AS_STRING(joined), PyBytes_GET_SIZE(joined)
        while True:
            at = decoder.next(<const uint8_t *>data, at, size, &piece)
            if piece.opcode == NOTHING:
                break
            if piece.opcode == CLOSE:
                return self._receive_close(_content(&piece), events)
            if piece.opcode >= SV_CONTROL:
                self._receive_ping_or_pong(&piece, now, events)
            elif self._state == OPEN:
                message = self._message(&piece)
                if message is not None:
                    events.append(_received(message))
        if decoder.error is not None:
            raise decoder.error
        if self._state == OPEN and self._is_full():
            self.wants_read = False
            self.deadline = NEVER
        return 0

    cdef object _message(self, Piece *piece):
        """The message that a piece ends, or None. Raises `RemoteProtocolError`."""
        cdef Py_ssize_t size = piece.size
        if not piece.whole or piece.compressed:
            message = self._pieced(piece)
            if message is None:
                return None
            size = self._assembler.size if piece.opcode == TEXT or piece.compressed else len(message)
        elif piece.opcode == TEXT:
            message = _text(piece)
        else:
            message = _content(piece)
        self._count(message, size)
        return message

    cdef object _pieced(self, Piece *piece):
        """The same, of a message that comes in pieces, or compressed."""
        if piece.opcode == TEXT or piece.compressed:
            return self._assembler.take(piece.opcode, _content(piece), piece.compressed, piece.last)
        self._add(piece)
        if not piece.last:
            return None
        if PyBytes_GET_SIZE(<object>self._binary) != self._binary_size:
            _PyBytes_Resize(&self._binary, self._binary_size)
        message = <object>self._binary
        Py_XDECREF(self._binary)
        self._binary = NULL
        self._binary_size = 0
        return message

    cdef int _add(self, Piece *piece) except -1:
        """A piece of a binary message, unmasked into its place. What is kept free is in proportion to what has come, not to what was announced."""
        cdef Py_ssize_t needed = self._binary_size + piece.size, most = GROWTH * needed
        cdef Py_ssize_t room = 0 if self._binary == NULL else PyBytes_GET_SIZE(<object>self._binary)
        if needed > room or self._binary == NULL:
            if self._decoder._final and self._decoder._left < <uint64_t>(most - needed):
                most = needed + <Py_ssize_t>self._decoder._left  # all that will come
            if self._binary == NULL:
                new = PyBytes_FromStringAndSize(NULL, most)
                Py_INCREF(new)
                self._binary = <PyObject *>new
            else:
                _PyBytes_Resize(&self._binary, most)
        if piece.size:
            sv_unmask(<uint8_t *>PyBytes_AS_STRING(<object>self._binary) + self._binary_size, piece.content, piece.size, piece.mask)
        self._binary_size = needed
        return 0

    cdef int _count(self, object message, Py_ssize_t size) except -1:
        self.messages_received += 1
        self.octets_received += size
        self._waiting += 1
        self._waiting_size += len(message)
        return 0

    cdef bint _is_full(self) noexcept:
        return self._waiting > self._max_queue or self._waiting_size > self._body_buffer

    cdef int _receive_ping_or_pong(self, Piece *piece, double now, list events) except -1:
        if self._state != OPEN:
            return 0
        octets = _content(piece)
        if piece.opcode == PING:
            if len(self._pongs) >= PONGS_KEPT:
                del self._pongs[0]
            self._pongs.append(_frame(SV_FIN | PONG, PyBytes_AS_STRING(octets), piece.size))
        elif octets in self._pings:
            sent, asked = self._pings[octets]
            events.append(PongReceived(now - <double>sent, asked))
            self._pings = {payload: told for payload, told in self._pings.items() if payload > octets}
        return 0

    cdef int _receive_close(self, bytes payload, list events) except -1:
        code, reason = _closing.read_close(payload)
        if self._state == OPEN:
            self._queue(SV_FIN | CLOSE, payload[:2])
        self._close()
        events.append(WebSocketClosed(code, reason))
        return 0

    cdef list _receive_eof(self):
        cdef int was = self._state
        self._close()
        return [WebSocketClosed(LOST, "")] if was == OPEN or was == CLOSING else []

    cdef int _fail(self, object error, double now, list events) except -1:
        if self._state == OPEN:
            self._queue(SV_FIN | CLOSE, _closing.close_payload(error.status, error.reason))
        self._state = LINGER
        self._forget()
        self.wants_read = True
        self.half_closed = True
        self.deadline = now + <double>self._limits.linger_timeout
        events.append(WebSocketFailed(error))
        return 0

    # --- time ------------------------------------------------------------------------------------------

    cpdef list expire(self, double now):
        cdef list events = []
        timeout = self._limits.ws_ping_timeout
        if self._state == OPEN:
            if self._pinged and timeout is not None:
                self._fail(_reference.silent(), now, events)
            else:
                self._send_ping(now, False)
                self.deadline = now + (self._interval if timeout is None else <double>timeout)
                self._pinged = True
        else:
            if self._state == CLOSING:
                events.append(_reference.unanswered())
            self._close()
        return events

    cpdef object taken(self, Py_ssize_t size, double now):
        self._waiting -= 1
        self._waiting_size -= size
        if not self.wants_read and not self._is_full():
            self.wants_read = True
            self._heard(now)

    cpdef object unsent(self, double now):
        if self._state == OPEN and self.wants_read:
            self._heard(now)
        elif self._state == CLOSING:
            self.deadline = now + <double>self._limits.ws_close_timeout

    cdef void _heard(self, double now) noexcept:
        self._pinged = False
        self.deadline = now + self._interval

    cdef int _send_ping(self, double now, bint asked) except -1:
        self._pings_sent += 1
        payload = self._pings_sent.to_bytes(8, "big")
        if len(self._pings) >= PINGS_KEPT:
            del self._pings[next(iter(self._pings))]
        self._pings[payload] = (now, asked)
        self._queue(SV_FIN | PING, payload)
        return 0

    # --- from the application --------------------------------------------------------------------------

    cpdef Py_ssize_t send_text(self, object text) except -1:
        """An ASCII string holds the octets already: no `bytes` are made of it first."""
        cdef Py_ssize_t size
        if self._deflater is None and PyUnicode_Check(text) and PyUnicode_IS_COMPACT_ASCII(text):
            size = PyUnicode_GET_LENGTH(text)
            if size < _JOINED:
                frame = _frame(SV_FIN | TEXT, <const char *>PyUnicode_1BYTE_DATA(text), size)
                self._out.append(frame)
                self.messages_sent += 1
                self.octets_sent += size
                return PyBytes_GET_SIZE(frame)
        return self._send(TEXT, _reference.encode_text(text))

    cpdef Py_ssize_t send_bytes(self, object data) except -1:
        return self._send(BINARY, data if type(data) is bytes else b"%b" % (data,))

    cdef Py_ssize_t _send(self, int opcode, bytes content) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(content)
        self.messages_sent += 1
        self.octets_sent += size
        deflater = self._deflater
        if deflater is not None and size >= deflater.min_size:
            return self._queue(SV_FIN | SV_RSV1 | opcode, deflater.deflate(content))
        return self._queue(SV_FIN | opcode, content)

    cpdef object ping(self, double now):
        self._send_ping(now, True)

    cpdef object close(self, object code, object reason, double now):
        payload = _closing.close_payload(code, reason)
        if self._state == OPEN:
            self._queue(SV_FIN | CLOSE, payload)
            self._state = CLOSING
            self._forget()
            self.wants_read = True
            self.deadline = now + <double>self._limits.ws_close_timeout

    cpdef list stop(self, double now):
        if self._state != OPEN:
            return []
        self.close(RESTART, "", now)
        return [WebSocketClosed(RESTART, "")]

    cpdef list take_output(self):
        cdef list out = self.output()
        self._out = []
        return out

    cdef list output(self):
        """What is to be written: the caller hands it over, and forgets it."""
        if self._pongs:
            self._out += self._pongs
            self._pongs = []
        return self._out

    # --- inside ----------------------------------------------------------------------------------------

    cdef Py_ssize_t _queue(self, int first, bytes content) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(content)
        cdef uint8_t head[10]
        cdef int width
        if size < _JOINED:
            frame = _frame(first, PyBytes_AS_STRING(content), size)
            self._out.append(frame)
            return PyBytes_GET_SIZE(frame)
        width = sv_write_head(head, first, size)
        self._out.append(PyBytes_FromStringAndSize(<const char *>head, width))
        self._out.append(content)
        return width + size

    def __dealloc__(self):
        Py_XDECREF(self._binary)

    cdef int _forget(self) except -1:
        Py_XDECREF(self._binary)
        self._binary = NULL
        self._binary_size = 0
        self._pongs = []
        self._deflater = None
        self._assembler = Assembler(None, 0)
        return 0

    cdef int _close(self) except -1:
        self._state = CLOSED
        self._forget()
        self.closing = True
        self.deadline = NEVER
        return 0
