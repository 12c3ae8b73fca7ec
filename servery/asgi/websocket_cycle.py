"""One WebSocket as ASGI sees it: https://asgi.readthedocs.io/en/latest/specs/www.html, WebSocket spec version
2.5.

Knows messages and their order; knows no socket, no event loop and no frames. It answers the handshake through
the HTTP engine, or has its port open the WebSocket, and goes on with the engine of that.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from ..engine import Answering, Message, Scope, WebSocketEngine, WebSocketHandshake, WebSocketPort
from ..errors import ClientDisconnected, LocalProtocolError
from ..events import Event, MessageReceived, PongReceived, RequestReceived, WebSocketClosed, WebSocketFailed
from .calls import Call
from .messages import as_bytes, required

NORMAL, INTERNAL_ERROR, LOST = 1000, 1011, 1006
"""Close codes (RFC 6455 section 7.4.1): for a call that returned, for one that raised, and for no close
frame."""


class Phase(Enum):
    """How far the application is with the connection."""

    CONNECTING = "not answered yet"
    DENYING = "being denied"
    OPEN = "open"
    ENDED = "closed by the application, or denied"


CONNECTING, DENYING, OPEN, ENDED = Phase


class WebSocketCycle(Call):
    """The life of one WebSocket. The driver feeds it; the application calls `receive` and `send`.

    `status` is that of the answer to the handshake. `websocket` is ``None`` until that is accepted; its
    engine counts the messages that the application has not taken.
    """

    __slots__ = (
        *("_connected", "_handshake", "_messages", "_phase"),
        *("close_code", "close_reason", "websocket"),
    )

    port: WebSocketPort

    def __init__(
        self,
        scope: Scope,
        request: RequestReceived,
        handshake: WebSocketHandshake,
        engine: Answering,
        port: WebSocketPort,
        now: float,
        request_id: str,
    ) -> None:
        super().__init__(scope, request, engine, port, now, request_id)
        self.websocket: WebSocketEngine | None = None
        self.close_code = 0
        self.close_reason = ""
        self._handshake = handshake
        self._phase = CONNECTING
        self._connected = False  # receive() has told websocket.connect
        self._messages: deque[Event] = deque()

    # --- from the driver -----------------------------------------------------------------------------

    def heard(self, event: Event) -> None:
        """An event of the WebSocket's engine."""
        if type(event) is MessageReceived:
            self._messages.append(event)
        elif type(event) is PongReceived:
            if event.asked:
                self._messages.append(event)
        elif type(event) is WebSocketClosed:
            self._end(event.code, event.reason)
        elif type(event) is WebSocketFailed:
            self._end(event.error.status, event.error.reason)
        self.wake()

    def disconnected(self, lost: bool) -> None:
        """The peer left, or should be thought of so.

        `lost` when nothing can be sent any more. Otherwise the handshake can still be denied, but not
        accepted; an open WebSocket knows no half-close, and its engine tells what is to be told.
        """
        if lost:
            self._end(LOST, "")
        elif self.websocket is None and not self._gone:
            self._gone = True
            self.close_code = LOST
        self.wake()

    def _end(self, code: int, reason: str) -> None:
        self._lost = True
        if not self._gone:
            self._gone = True
            self.close_code, self.close_reason = code, reason

    @property
    def answered(self) -> bool:
        """Whether the application is done with the connection."""
        return self._phase is ENDED

    # --- from the application ------------------------------------------------------------------------

    async def receive(self) -> Message:
        """ASGI ``receive``: ``websocket.connect``, messages, then ``websocket.disconnect``."""
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        while True:
            if self._messages and self._phase is OPEN:
                return self._take()
            if self._gone:
                self._told = self._told or self._phase is not ENDED
                return {
                    "type": "websocket.disconnect",
                    "code": self.close_code,
                    "reason": self.close_reason,
                }
            if self._phase is ENDED and self.websocket is None:  # denied: there never was a WebSocket
                return {"type": "websocket.disconnect", "code": LOST, "reason": ""}
            await self.wait()

    def _take(self) -> Message:
        event = self._messages.popleft()
        if type(event) is PongReceived:
            return {"type": "servery.websocket.pong", "round_trip": event.round_trip}
        assert type(event) is MessageReceived
        assert self.websocket is not None
        data = event.data
        port = self.port
        self.websocket.taken(len(data), port.now())
        port.consumed()
        return {"type": "websocket.receive", "text" if type(data) is str else "bytes": data}

    async def send(self, message: Message) -> None:
        """ASGI ``send``. Raises `ClientDisconnected` once the peer is gone, `LocalProtocolError` for a
        mistake.
        """
        try:
            kind = message["type"]
        except (TypeError, KeyError):
            raise LocalProtocolError(
                f"an ASGI message is a dict with a 'type', not {message!r:.100}"
            ) from None
        if self._phase is ENDED:
            raise LocalProtocolError(f"{kind!r} was sent after the connection was closed or denied")
        if self._lost:
            raise ClientDisconnected("the client has closed the connection")
        if self._phase is OPEN:
            await self._send_open(kind, message)
        elif self._phase is CONNECTING and kind == "websocket.accept":
            self._accept(message)
        elif self._phase is CONNECTING and kind == "websocket.close":
            self._deny(403)
        elif self._phase is CONNECTING and kind == "websocket.http.response.start":
            self._start_denial(message)
        elif self._phase is DENYING and kind == "websocket.http.response.body":
            await self._send_denial(message)
        else:
            raise LocalProtocolError(f"{kind!r} is not allowed while the handshake is {self._phase.value}")

    async def _send_open(self, kind: str, message: Message) -> None:
        websocket, port = self.websocket, self.port
        assert websocket is not None
        if kind == "websocket.send":
            text, data = message.get("text"), message.get("bytes")
            if (text is None) is (data is None):
                raise LocalProtocolError("'websocket.send' needs either 'text' or 'bytes'")
            if data is not None:
                size = websocket.send_bytes(data if type(data) is bytes else as_bytes(data))
            elif isinstance(text, str):
                size = websocket.send_text(text)
            else:
                raise LocalProtocolError(f"'text' of 'websocket.send' must be str, not {type(text).__name__}")
            port.flush_soon(size)
            if not port.writable:
                await self._drained()
        elif kind == "websocket.close":
            code, reason = message.get("code"), message.get("reason")
            websocket.close(NORMAL if code is None else code, reason or "", port.now())
            self._phase = ENDED
            port.settle()
        elif kind == "servery.websocket.ping":
            websocket.ping(port.now())
            port.flush()
        else:
            raise LocalProtocolError(f"{kind!r} is not allowed while the WebSocket is open")

    def _accept(self, message: Message) -> None:
        if self._gone:
            raise ClientDisconnected("the client has finished sending: there is nobody to talk to")
        subprotocol, headers = message.get("subprotocol"), message.get("headers") or ()
        self.port.open_websocket(self, self._handshake, subprotocol, headers)

    def opened(self, websocket: WebSocketEngine) -> None:
        """The port has opened the WebSocket; its first events come after this."""
        self.websocket = websocket
        self.status = 200 if self.request.version == b"2" else 101  # RFC 8441 section 5
        self._phase = OPEN

    # --- denial --------------------------------------------------------------------------------------

    def _deny(self, status: int) -> None:
        """Answer the handshake with a response without content (ASGI: 403 for a close)."""
        self.engine.start_response(self.stream, status, (), False)
        self.status = status
        self.engine.send_body(self.stream, b"", False)
        self._complete()

    def _start_denial(self, message: Message) -> None:
        status = required(message, "status")
        self.engine.start_response(self.stream, status, message.get("headers", ()), False)
        self.status = status
        self._phase = DENYING

    async def _send_denial(self, message: Message) -> None:
        body = message.get("body", b"")
        more = bool(message.get("more_body", False))
        body = body if type(body) is bytes else as_bytes(body)
        port = self.port
        if self.engine.send_body(self.stream, body, more):
            self._complete()
            return
        port.flush_soon(len(body))
        await self._drained()

    def _complete(self) -> None:
        self._phase = ENDED
        self.port.flush()
        self.wake()
        self.port.response_complete(self)

    # --- the end -------------------------------------------------------------------------------------

    def _returned(self) -> None:
        if self.websocket is None and self._phase is not ENDED and not self._gone:
            self.port.app_failed(
                self, LocalProtocolError("the application returned before it answered the handshake")
            )
        self._give_up(403, NORMAL)

    def _abandon(self) -> None:
        self._give_up(500, INTERNAL_ERROR)

    def _give_up(self, status: int, code: int) -> None:
        """The call has ended, in whatever phase: `status` answers a handshake, `code` closes a WebSocket."""
        phase, self._phase = self._phase, ENDED
        self.wake()
        if phase is ENDED or self._lost:
            return
        if self.websocket is not None:
            self.websocket.close(code, "", self.port.now())
            self.port.settle()
        elif self._told:
            self.engine.abandon(self.stream)
            self._complete()
        elif status == 403 and phase is CONNECTING:
            self._deny(403)
        else:
            self.status = self.engine.fail_response(self.stream)
            self._complete()
