"""One request and its response as ASGI sees them: https://asgi.readthedocs.io/en/latest/specs/www.html.

Knows messages and their order; knows no socket, no event loop and no HTTP version: octets go to the engine it
was given, and it waits on the port's `Wakeup`. A cycle lives as long as its application call; after the
response is complete it can no longer reach the connection, which may already serve the next request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ..engine import HttpEngine, Message, Port, Scope, Wakeup
from ..errors import ClientDisconnected, LocalProtocolError
from ..events import Headers, RequestReceived

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class HttpCycle:
    """The life of one request. The driver feeds it; the application calls `receive` and `send`.

    `request`, `request_id` and `started` (monotonic seconds) are kept for the log. `task` is set by the
    driver that runs `run`.
    """

    __slots__ = (
        *("_answered", "_engine", "_gone", "_lost", "_more_body", "_parts", "_port", "_stream", "_told"),
        *("_trailers", "_wakeup", "buffered", "request", "request_id", "scope", "started", "status", "task"),
    )

    def __init__(
        self,
        scope: Scope,
        request: RequestReceived,
        engine: HttpEngine,
        port: Port,
        now: float,
        request_id: str,
    ) -> None:
        self.scope = scope
        self.request = request
        self.request_id = request_id
        self.started = now
        self.status = 0
        self.task: Any = None
        self.buffered = 0
        self._engine = engine
        self._port = port
        self._stream = request.stream
        self._parts: list[bytes] | None = [b""] if request.complete else None
        self._more_body = not request.complete
        self._trailers: Headers = []
        self._answered = False  # the response is complete
        self._gone = False  # receive() tells http.disconnect
        self._lost = False  # send() raises
        self._told = False  # http.disconnect was received, while the response was not complete
        self._wakeup: Wakeup | None = None

    # --- from the driver -----------------------------------------------------------------------------

    def body_received(self, data: bytes, more: bool, trailers: Headers) -> None:
        """More of the request body; `buffered` says how many octets the application has not taken."""
        if self._answered:
            return
        if self._parts is None:
            self._parts = [data]
        else:
            self._parts.append(data)
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

    def wake(self) -> None:
        """Let what waits look again: the connection is writable, or something arrived."""
        if self._wakeup is not None:
            self._wakeup.set()

    @property
    def answered(self) -> bool:
        """Whether the response is complete."""
        return self._answered

    @property
    def told(self) -> bool:
        """Whether the application has received ``http.disconnect`` before its response was complete."""
        return self._told

    async def run(self, app: App) -> None:
        """Call the application and see its request to an end. Never raises `Exception`."""
        port = self._port
        try:
            await app(self.scope, self.receive, self.send)
        except Exception as error:
            self._failed(error)
        except BaseException:
            self._abandon()
            raise
        else:
            if not self._answered:
                self._failed(None)
        finally:
            port.finished(self)

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
                self._engine.continue_body(self._stream)
                self._port.flush()
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
            self._port.consumed()
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
                body = _as_bytes(body)
            complete = self._engine.send_body(self._stream, body, bool(more))
            port = self._port
            if complete:
                port.flush()
                self._complete()
            else:
                port.flush_soon(len(body))
                if not port.writable:
                    await self._drained()
        elif kind == "http.response.start":
            self._start(message)
        else:
            await self._send_other(kind, message)

    def _start(self, message: Message) -> None:
        try:
            status = message["status"]
        except KeyError:
            raise LocalProtocolError("'http.response.start' lacks 'status'") from None
        trailers = message.get("trailers", False)
        self._engine.start_response(self._stream, status, message.get("headers", ()), bool(trailers))
        self.status = status

    async def _send_other(self, kind: str, message: Message) -> None:
        engine = self._engine
        if kind == "http.response.pathsend":
            await self._send_file(_required(message, "path"), 0, None, False)
        elif kind == "http.response.zerocopysend":
            more = bool(message.get("more_body", False))
            offset = message.get("offset")
            await self._send_file(_required(message, "file"), offset, message.get("count"), more)
        elif kind == "http.response.trailers":
            more = bool(message.get("more_trailers", False))
            complete = engine.send_trailers(self._stream, message.get("headers", ()), more)
            self._port.flush()
            if complete:
                self._complete()
        elif kind == "http.response.early_hint":
            links = [(b"link", bytes(link)) for link in _required(message, "links")]
            engine.send_informational(self._stream, 103, links)
            self._port.flush()
        elif kind == "http.response.debug":
            self._port.debug(message.get("info"))
        else:
            raise LocalProtocolError(f"{kind!r} is not a message that an HTTP application may send")

    async def _send_file(self, file: Any, offset: int | None, count: int | None, more: bool) -> None:
        """Send a path (text) or an open file without copying it through Python where the driver can."""
        engine, port = self._engine, self._port
        sending = port.open_file(file, offset, count)
        try:
            wanted = engine.reserve_body(self._stream, sending.size, more)
            port.flush()
            if wanted:
                await port.send_file(sending)
        finally:
            sending.close()
        complete = engine.end_reserved(self._stream)
        port.flush()
        if complete:
            self._complete()

    def _complete(self) -> None:
        """The response is queued to its end: let go of the connection."""
        self._answered = True
        if self._wakeup is not None:
            self._wakeup.set()
        self._port.response_complete(self)

    async def _drained(self) -> None:
        while not self._port.writable and not self._lost:
            await self.wait()
        if self._lost:
            raise ClientDisconnected("the client has closed the connection")

    async def wait(self) -> None:
        """Wait until `wake`."""
        wakeup = self._wakeup
        if wakeup is None:
            wakeup = self._wakeup = self._port.wakeup()
        await wakeup.wait()

    # --- the end -------------------------------------------------------------------------------------

    def _failed(self, error: Exception | None) -> None:
        """The application raised, or returned too early (`error` is ``None``)."""
        if error is not None and not (self._gone and _is_disconnect(error)):
            self._port.app_failed(self, error)
        elif error is None and not self._told and not self._lost:
            self._port.app_failed(
                self, LocalProtocolError("the application returned before its response was complete")
            )
        self._abandon()

    def _abandon(self) -> None:
        """Give the peer an honest end: a 500, or a response that is visibly cut."""
        if self._answered:
            return
        self._answered = True
        self.wake()
        if self._lost:
            return
        if self._told:
            self._engine.abandon(self._stream)
        else:
            self.status = self._engine.fail_response(self._stream)
        self._port.flush()
        self._port.response_complete(self)


def _required(message: Message, key: str) -> Any:
    try:
        return message[key]
    except KeyError:
        raise LocalProtocolError(f"{message['type']!r} lacks {key!r}") from None


def _as_bytes(body: Any) -> bytes:
    if isinstance(body, (bytearray, memoryview, bytes)):
        return bytes(body)
    raise LocalProtocolError(f"'body' of 'http.response.body' must be bytes, not {type(body).__name__}")


def _is_disconnect(error: BaseException) -> bool:
    """Whether `error` says nothing but that the client left: ours, a framework's, or groups of them."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_disconnect(inner) for inner in error.exceptions)
    return isinstance(error, ClientDisconnected) or type(error).__name__ in _FRAMEWORKS_SAY


_FRAMEWORKS_SAY = frozenset({"ClientDisconnect", "ClientDisconnected"})
"""Starlette answers ours, or ``http.disconnect``, with its own, and Werkzeug has one; known by name."""
