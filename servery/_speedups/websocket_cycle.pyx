"""One WebSocket as ASGI sees it: the twin of `servery.asgi.websocket_cycle`; read that one first.

Messages come as they are, without an event around them.
"""

cimport cython

from .calls cimport Call, Port, Twin
from .websocket cimport WebSocketEngine

from collections import deque

from ..asgi import websocket_cycle as _reference
from ..asgi.messages import as_bytes, is_disconnect, required
from ..errors import ClientDisconnected, LocalProtocolError
from ..events import MessageReceived, PongReceived, WebSocketClosed, WebSocketFailed

cdef int NORMAL = _reference.NORMAL
cdef int INTERNAL_ERROR = _reference.INTERNAL_ERROR
cdef int LOST = _reference.LOST
cdef list _PHASES = [phase.value for phase in _reference.Phase]

cdef str _SEND = "websocket.send"

cdef Twin _TWIN = Twin(_reference.WebSocketCycle)


cdef WebSocketCycle new_websocket_cycle(object handshake):
    cycle = <WebSocketCycle>WebSocketCycle.__new__(WebSocketCycle)
    cycle._twin = _TWIN
    cycle._handshake = handshake
    cycle.close_code, cycle.close_reason = 0, ""
    return cycle


@cython.final
cdef class WebSocketCycle(Call):
    """See `servery.asgi.websocket_cycle.WebSocketCycle`."""

    # --- from the connection

    cdef int message(self, object data) except -1:
        """`MessageReceived(data)`; or a `PongReceived`."""
        if self._first is None:
            self._first = data
        else:
            if self._more is None:
                self._more = deque()
            self._more.append(data)
        return self.wake()

    cdef int heard(self, object event) except -1:
        if type(event) is MessageReceived:
            return self.message(event.data)
        if type(event) is PongReceived:
            return self.message(event) if event.asked else 0
        if type(event) is WebSocketClosed:
            self._leave(event.code, event.reason)
        elif type(event) is WebSocketFailed:
            self._leave(event.error.status, event.error.reason)
        return self.wake()

    cdef int disconnected(self, bint lost) except -1:
        if lost:
            self._leave(LOST, "")
        elif self.websocket is None and not self._gone:
            self._gone = True
            self.close_code = LOST
        return self.wake()

    cdef int _leave(self, object code, object reason) except -1:
        self._lost = True
        if not self._gone:
            self._gone = True
            self.close_code, self.close_reason = code, reason
        return 0

    cdef int opened(self, WebSocketEngine websocket) except -1:
        """The port has opened the WebSocket; its first events come after this."""
        self.websocket = websocket
        self._handshake = None
        self.status = 101
        self._phase = OPEN
        return 0

    cdef bint is_answered(self) noexcept:
        return self._phase == ENDED

    # --- from the application

    cdef object take(self):
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        if self._first is not None and self._phase == OPEN:
            return self.take_message()
        if self._gone:
            self._told = self._told or self._phase != ENDED
            return {"type": "websocket.disconnect", "code": self.close_code, "reason": self.close_reason}
        if self._phase == ENDED and self.websocket is None:  # denied: there never was a WebSocket
            return {"type": "websocket.disconnect", "code": LOST, "reason": ""}
        return None

    cdef dict take_message(self):
        cdef Port port = self._port
        data, self._first = self._first, None
        if self._more is not None:
            self._first = self._more.popleft()
            if not self._more:
                self._more = None
        if type(data) is PongReceived:
            return {"type": "servery.websocket.pong", "round_trip": data.round_trip}
        self.websocket.taken(len(data), port.reactor.clock())
        if port._stopped_reading:
            port.settle()
        if type(data) is str:
            return {"type": "websocket.receive", "text": data}
        return {"type": "websocket.receive", "bytes": data}

    cdef object put(self, object message):
        try:
            kind = message["type"]
        except (TypeError, KeyError):
            raise LocalProtocolError(f"an ASGI message is a dict with a 'type', not {message!r:.100}") from None
        if self._phase == ENDED:
            raise LocalProtocolError(f"{kind!r} was sent after the connection was closed or denied")
        if self._lost:
            raise ClientDisconnected("the client has closed the connection")
        if self._phase == OPEN:
            return self.put_open(kind, message)
        if self._phase == CONNECTING and kind == "websocket.accept":
            self.put_accept(message)
        elif self._phase == CONNECTING and kind == "websocket.close":
            self.deny(403)
        elif self._phase == CONNECTING and kind == "websocket.http.response.start":
            self.put_denial_start(message)
        elif self._phase == DENYING and kind == "websocket.http.response.body":
            return self.put_denial_body(message)
        else:
            raise LocalProtocolError(f"{kind!r} is not allowed while the handshake is {_PHASES[self._phase]}")
        return None

    cdef object put_open(self, object kind, object message):
        cdef Port port = self._port
        if kind == _SEND:
            self.put_send(message)
            return self.undrained() if port._full else None
        if kind == "websocket.close":
            code, reason = message.get("code"), message.get("reason")
            self.websocket.close(NORMAL if code is None else code, reason or "", port.reactor.clock())
            self._phase = ENDED
            port.settle()
        elif kind == "servery.websocket.ping":
            self.websocket.ping(port.reactor.clock())
            port.write_out()
        else:
            raise LocalProtocolError(f"{kind!r} is not allowed while the WebSocket is open")
        return None

    cdef int put_send(self, object message) except -1:
        cdef Py_ssize_t size
        if type(message) is dict:
            text, data = (<dict>message).get("text"), (<dict>message).get("bytes")
        else:
            text, data = message.get("text"), message.get("bytes")
        if (text is None) is (data is None):
            raise LocalProtocolError("'websocket.send' needs either 'text' or 'bytes'")
        if data is not None:
            size = self.websocket.send_bytes(data if type(data) is bytes else as_bytes(data))
        elif isinstance(text, str):
            size = self.websocket.send_text(text)
        else:
            raise LocalProtocolError(f"'text' of 'websocket.send' must be str, not {type(text).__name__}")
        return self._port.part_queued(self, size)

    cdef int put_accept(self, object message) except -1:
        if self._gone:
            raise ClientDisconnected("the client has finished sending: there is nobody to talk to")
        return self._port.open_websocket(self._handshake, message.get("subprotocol"), message.get("headers") or ())

    # --- denial

    cdef int deny(self, int status) except -1:
        self._engine.start_response(self.stream, status, (), False)
        self.status = status
        self._engine.send_body(self.stream, b"", False)
        return self.complete()

    cdef int put_denial_start(self, object message) except -1:
        status = required(message, "status")
        self._engine.start_response(self.stream, status, message.get("headers", ()), False)
        self.status = status
        self._phase = DENYING
        return 0

    cdef object put_denial_body(self, object message):
        body = message.get("body", b"")
        body = body if type(body) is bytes else as_bytes(body)
        if self._engine.send_body(self.stream, <bytes>body, bool(message.get("more_body", False))):
            self.complete()
            return None
        self._port.part_queued(self, len(<bytes>body))
        return self.undrained()

    cdef int complete(self) except -1:
        self._phase = ENDED
        self._port.write_out()
        self.wake()
        return self._port.response_complete(self)

    # --- the end

    cdef int returned(self) except -1:
        if self.websocket is None and self._phase != ENDED and not self._gone:
            error = LocalProtocolError("the application returned before it answered the handshake")
            self._port._shared.service.app_failed(self, error)
        return self.give_up(403, NORMAL)

    cdef int failed(self, object error) except -1:
        if not (self._gone and is_disconnect(error)):
            self._port._shared.service.app_failed(self, error)
        return self.abandon()

    cdef int abandon(self) except -1:
        return self.give_up(500, INTERNAL_ERROR)

    cdef int give_up(self, int status, int code) except -1:
        """The call has ended, in whatever phase: `status` answers a handshake, `code` closes a WebSocket."""
        cdef Phase phase = self._phase
        self._phase = ENDED
        self.wake()
        if phase == ENDED or self._lost:
            return 0
        if self.websocket is not None:
            self.websocket.close(code, "", self._port.reactor.clock())
            return self._port.settle()
        if self._told:
            self._engine.abandon(self.stream)
        elif status == 403 and phase == CONNECTING:
            return self.deny(403)
        else:
            self.status = self._engine.fail_response(self.stream)
        return self.complete()
