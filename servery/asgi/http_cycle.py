"""One request and its response as ASGI sees them: https://asgi.readthedocs.io/en/latest/specs/www.html.

Knows messages and their order; knows no socket, no event loop and no HTTP version: octets go to the engine it
was given, and it waits on the port's `Wakeup`. A cycle lives as long as its application call; after the
response is complete it can no longer reach the connection, which may already serve the next request.
"""

from __future__ import annotations

from ..engine import Answering, Message, Port, Scope
from ..errors import ClientDisconnected, LocalProtocolError
from ..events import Headers, RequestReceived
from .calls import Call
from .messages import as_bytes, send_other

SMALL = 1024
"""Parts of a body that wait are joined up to here: a peer may send them an octet at a time."""


class HttpCycle(Call):
    """The life of one request. The driver feeds it; the application calls `receive` and `send`."""

    __slots__ = ("_answered", "_more_body", "_parts", "_trailers")

    def __init__(
        self,
        scope: Scope,
        request: RequestReceived,
        engine: Answering,
        port: Port,
        now: float,
        request_id: str,
    ) -> None:
        super().__init__(scope, request, engine, port, now, request_id)
        self._parts: list[bytes] | None = [b""] if request.complete else None
        self._more_body = not request.complete
        self._trailers: Headers = []
        self._answered = False  # the response is complete

    # --- from the driver -----------------------------------------------------------------------------

    def body_received(self, data: bytes, more: bool, trailers: Headers) -> None:
        """More of the request body; `buffered` says how many octets the application has not taken."""
        if self._answered:
            return
        parts = self._parts
        if parts is None:
            self._parts = [data]
        elif len(parts[-1]) < SMALL:
            parts[-1] += data
        else:
            parts.append(data)
        self.buffered += len(data)
        if not more:
            self._more_body = False
            self._trailers = trailers
        self.wake()

    def disconnected(self, lost: bool) -> None:
        """Tell the application that the peer left, or should be thought of so.

        `lost` when nothing can be sent any more; otherwise the peer has only finished sending, or the server
        is about to stop: ``receive()`` says ``http.disconnect``, and ``send()`` goes on working.
        """
        self._gone = True
        self._lost = self._lost or lost
        self.wake()

    @property
    def answered(self) -> bool:
        """Whether the response is complete."""
        return self._answered

    # --- from the application ------------------------------------------------------------------------

    async def receive(self) -> Message:
        """ASGI ``receive``: ``http.request`` messages, then ``http.disconnect`` once the peer is gone."""
        while True:
            if self._answered:
                break
            if self._parts is not None:
                return self._take_body()
            if self._gone:
                break
            if self._more_body:
                self.engine.continue_body(self.stream)
                self.port.flush()
            await self.wait()
        self._told = self._told or not self._answered
        return {"type": "http.disconnect"}

    def _take_body(self) -> Message:
        parts = self._parts
        assert parts is not None
        self._parts = None
        message: Message = {
            "type": "http.request",
            "body": parts[0] if len(parts) == 1 else b"".join(parts),
            "more_body": self._more_body,
        }
        if self._trailers:
            message["trailers"] = self._trailers
            self._trailers = []
        if self.buffered:
            self.buffered = 0
            self.port.consumed()
        return message

    async def send(self, message: Message) -> None:
        """ASGI ``send``. Raises `ClientDisconnected` once the peer is gone, `LocalProtocolError` for a
        mistake.
        """
        if self._lost:
            raise ClientDisconnected("the client has closed the connection")
        try:
            kind = message["type"]
        except (TypeError, KeyError):
            raise LocalProtocolError(
                f"an ASGI message is a dict with a 'type', not {message!r:.100}"
            ) from None
        if self._answered:
            raise LocalProtocolError(f"{kind!r} was sent after the response was complete")
        if kind == "http.response.body":
            more = message.get("more_body", False)
            body = message.get("body", b"")
            if type(body) is not bytes:
                body = as_bytes(body)
            complete = self.engine.send_body(self.stream, body, bool(more))
            port = self.port
            if complete:
                port.flush()
                self.complete()
            else:
                port.flush_soon(len(body))
                if not port.writable:
                    await self._drained()
        elif kind == "http.response.start":
            self._start(message)
        else:
            await send_other(self, kind, message)

    def _start(self, message: Message) -> None:
        try:
            status = message["status"]
        except KeyError:
            raise LocalProtocolError("'http.response.start' lacks 'status'") from None
        trailers = message.get("trailers", False)
        self.engine.start_response(self.stream, status, message.get("headers", ()), bool(trailers))
        self.status = status

    def complete(self) -> None:
        """The response is queued to its end: let go of the connection."""
        self._answered = True
        self.wake()
        self.port.response_complete(self)

    # --- the end -------------------------------------------------------------------------------------

    def _returned(self) -> None:
        if self._answered:
            return
        if not self._told and not self._lost:
            self.port.app_failed(
                self, LocalProtocolError("the application returned before its response was complete")
            )
        self._abandon()

    def _abandon(self) -> None:
        """A 500, or a response that is visibly cut."""
        if self._answered:
            return
        self._answered = True
        self.wake()
        if self._lost:
            return
        if self._told:
            self.engine.abandon(self.stream)
        else:
            self.status = self.engine.fail_response(self.stream)
        self.port.flush()
        self.port.response_complete(self)
