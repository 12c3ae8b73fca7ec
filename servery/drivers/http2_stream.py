"""What one request on a connection of HTTP/2 has of its own: its way out, its back-pressure, its WebSocket.

Knows the engine's streams and its connection; what messages mean is the cycle's business.
"""

from __future__ import annotations

from time import monotonic
from typing import Any, Protocol

from ..asgi.http_cycle import HttpCycle
from ..asgi.scope import ConnectionInfo, http_scope, websocket_scope
from ..asgi.websocket_cycle import WebSocketCycle
from ..engine import NEVER, FileSending, RawHeaders, StreamsEngine, WebSocketEngine, WebSocketHandshake
from ..errors import ClientDisconnected, LocalProtocolError, RemoteProtocolError
from ..events import BodyReceived, Event, RequestReceived, WebSocketFailed
from .sendfile import FileToSend, read_block
from .service import Service, error_log
from .wakeup import AsyncioWakeup

FILE_BLOCK = 65_536
"""Octets of a file that are read at once: more would only wait for the peer's window."""

CREDIT = 13
"""Octets of a WINDOW_UPDATE frame, which is worth a write at the end of the turn."""


class Owner(Protocol):
    """The connection of a `StreamPort`: see `servery.drivers.http2_driver.Http2Connection`."""

    waiting: set[StreamPort]
    """Those that wait for the peer."""

    @property
    def service(self) -> Service:
        """What all connections share."""
        ...

    @property
    def client(self) -> tuple[str, int] | None:
        """Who is at the other end, for the logs."""
        ...

    @property
    def writable(self) -> bool:
        """False while more than the high-water mark waits for the peer."""
        ...

    def flush(self) -> None:
        """Make frames and write them."""
        ...

    def flush_soon(self, size: int) -> None:
        """Do so at the end of the turn."""
        ...

    def release(self, port: StreamPort) -> None:
        """The application call is over."""
        ...

    def log(self, port: StreamPort, aborted: bool) -> None:
        """One access line for the request."""
        ...


class StreamPort:
    """One stream: the cycle's `WebSocketPort`, and the clock's `Timed` while a WebSocket speaks on it."""

    __slots__ = (
        *("_connection", "_engine", "_full", "_held_back", "_held_end", "_unread", "_websocket", "armed"),
        *("cycle", "ended", "fault", "logged", "number"),
    )

    def __init__(self, connection: Owner, engine: StreamsEngine, number: int) -> None:
        self._connection = connection
        self._engine = engine
        self.number = number
        self.cycle: HttpCycle | WebSocketCycle
        self.armed = NEVER
        self.ended = False  # nothing more can reach the peer
        self.fault: RemoteProtocolError | None = None  # of a handshake that is about to be refused
        self.logged = False
        self._full = False  # more than the high-water mark waits, and not yet less than the low one
        self._unread = 0  # octets of content that the application has not taken
        self._websocket: WebSocketEngine | None = None
        self._held_back: list[bytes] = []  # what came before the WebSocket was accepted
        self._held_end = False

    # --- from the connection -------------------------------------------------------------------------

    def body_received(self, event: BodyReceived) -> None:
        """Content of the request, or octets of the WebSocket."""
        self._unread += len(event.data)
        cycle = self.cycle
        if isinstance(cycle, HttpCycle):
            cycle.body_received(event.data, event.more, event.trailers)
        elif self._websocket is None:
            self._held_back.append(event.data)
            self._held_end = not event.more
            if self._held_end:
                cycle.disconnected(lost=False)
        else:
            self._hear(event.data, not event.more, monotonic())
            self.settle()

    def fail(self) -> None:
        """The stream is over before its end, or the connection is lost."""
        self.ended = True
        self._full = False
        self._held_back.clear()
        self._connection.service.clock.disarm(self)
        self.cycle.disconnected(lost=True)

    def stop(self, now: float) -> None:
        """The server stops: a WebSocket is closed, a request goes on."""
        if self._websocket is not None and not self.ended:
            self._dispatch(self._websocket.stop(now))
            self.settle()

    def look_again(self) -> bool:
        """Something was sent: the application goes on if enough of it was. Whether it waits still."""
        low = self._connection.service.limits.write_buffer // 4
        if self._full and self._engine.waiting(self.number) <= low:
            self._full = False
            self.cycle.wake()
        return self._full

    @property
    def websocket(self) -> WebSocketEngine | None:
        """The WebSocket, once it is open."""
        return self._websocket

    # --- from the cycle ------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """False while more than the high-water mark waits for the peer's window, or for the transport."""
        if not self._full:
            high = self._connection.service.limits.write_buffer
            self._full = not self._connection.writable or self._engine.waiting(self.number) > high
            if self._full:
                self._connection.waiting.add(self)
        return not self._full

    def wakeup(self) -> AsyncioWakeup:
        """A fresh wake-up."""
        return AsyncioWakeup(self._connection.service.loop)

    def flush(self) -> None:
        """Write what the engine has queued."""
        if self._websocket is not None:
            self._take_frames()
        self._connection.flush()

    def flush_soon(self, size: int) -> None:
        """Write it at the end of the turn."""
        if self._websocket is not None:
            self._take_frames()
        self._connection.flush_soon(size)

    def consumed(self) -> None:
        """The application took content, or a message of the WebSocket."""
        websocket = self._websocket
        if self._unread and (websocket is None or websocket.wants_read):
            size, self._unread = self._unread, 0
            self._engine.consumed(self.number, size, monotonic())
            self._connection.flush_soon(CREDIT)

    def open_file(self, file: Any, offset: int | None, count: int | None) -> FileToSend:
        """Open a path, or take an open file or descriptor."""
        return FileToSend(file, offset, count)

    async def send_file(self, sending: FileSending) -> None:
        """Queue an open file, no faster than the peer takes it. Raises `ClientDisconnected`."""
        assert isinstance(sending, FileToSend)
        loop = self._connection.service.loop
        at, end = sending.offset, sending.offset + sending.size
        while at < end:
            block = await loop.run_in_executor(None, read_block, sending.fd, min(FILE_BLOCK, end - at), at)
            self._check()
            if not block:
                raise LocalProtocolError("the file became shorter while it was sent")
            at += len(block)
            self._engine.send_reserved(self.number, block)
            self._connection.flush()
            while not (self.writable or self.ended):
                await self.cycle.wait()
            self._check()

    def _check(self) -> None:
        if self.ended:
            raise ClientDisconnected("the client has closed the connection")

    def response_complete(self, cycle: Any) -> None:
        """The response is queued to its end."""
        self._connection.log(self, aborted=False)

    def app_failed(self, cycle: Any, error: Exception) -> None:
        """The application raised `error`, or returned too early."""
        self._connection.service.app_failed(cycle, error)

    def finished(self, cycle: Any) -> None:
        """The application call has ended."""
        cycle.task = None
        self._connection.service.finished(cycle)
        if self._websocket is None or self.ended:
            self._connection.release(self)

    def debug(self, info: Any) -> None:
        """The application sent ``http.response.debug``."""
        error_log.debug("http.response.debug: %r", info)

    def now(self) -> float:
        """Monotonic seconds."""
        return monotonic()

    # --- WebSockets ----------------------------------------------------------------------------------

    def open_websocket(
        self, cycle: Any, handshake: WebSocketHandshake, subprotocol: str | None, headers: RawHeaders
    ) -> None:
        """Accept the handshake (RFC 8441 section 5): its engine speaks on the stream from now on."""
        now = monotonic()
        websocket, fields = handshake.agree(subprotocol, headers, now)
        self._engine.open_tunnel(self.number, fields)
        self._websocket = websocket
        cycle.opened(websocket)
        held, self._held_back = b"".join(self._held_back), []
        if held or self._held_end:
            self._hear(held, self._held_end, now)
        if self._connection.service.stopping:
            self._dispatch(websocket.stop(now))
        self.settle()

    def _hear(self, data: bytes, ends: bool, now: float) -> None:
        websocket = self._websocket
        assert websocket is not None
        if data:
            self._dispatch(websocket.receive(data, now))
        if ends:
            self._dispatch(websocket.receive(b"", now))

    def _dispatch(self, events: list[Event]) -> None:
        cycle = self.cycle
        for event in events:
            if type(event) is WebSocketFailed:
                error_log.debug("%s: %s", self._connection.client, event.error)
            if isinstance(cycle, WebSocketCycle):
                cycle.heard(event)

    def _take_frames(self) -> None:
        assert self._websocket is not None
        for part in self._websocket.take_output():
            if not self.ended:
                self._engine.send_body(self.number, part, True)

    def settle(self) -> None:
        """Write what the WebSocket has queued, let its peer send on, and end the stream once it is over."""
        websocket = self._websocket
        if websocket is None or self.ended:
            return
        self._take_frames()
        self.consumed()
        if websocket.closing or websocket.half_closed:
            self._end()
        elif websocket.deadline < self.armed:
            self._connection.service.clock.arm(self, websocket.deadline)
        self._connection.flush()

    def _end(self) -> None:
        """The stream's end is what the connection's end is for a WebSocket of HTTP/1."""
        self._engine.send_body(self.number, b"", False)
        self.fail()
        self._connection.log(self, aborted=True)
        if self.cycle.task is None:
            self._connection.release(self)

    def on_deadline(self, now: float) -> None:
        """The time has come that the clock was armed for; it may have moved on since."""
        websocket = self._websocket
        if websocket is None or self.ended:
            return
        if not self.writable:
            websocket.unsent(now)
        if websocket.deadline <= now:
            self._dispatch(websocket.expire(now))
        self.settle()


def begin(
    connection: Owner, http: StreamsEngine, info: ConnectionInfo, request: RequestReceived, now: float
) -> StreamPort:
    """The port of a new request, with the cycle that is about to run; `fault` says what is wrong with it."""
    port = StreamPort(connection, http, request.stream)
    service = connection.service
    request_id = service.next_request_id()
    handshake = None
    if request.upgrade is not None:
        try:
            handshake = service.handshakes(request)
        except RemoteProtocolError as error:
            error_log.debug("%s: %s", connection.client, error)
            port.fault = error.with_traceback(None)
    if handshake is None:
        scope = http_scope(request, info, request_id, http.takes_trailers(request.stream))
        port.cycle = HttpCycle(scope, request, http, port, now, request_id)
    else:
        scope = websocket_scope(request, info, request_id, handshake.subprotocols)
        port.cycle = WebSocketCycle(scope, request, handshake, http, port, now, request_id)
    if service.front is not None:
        service.front(port.cycle, scope)
        http.adopt_stamp(request.stream)
    return port
