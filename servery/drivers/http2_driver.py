"""A connection of HTTP/2 on an asyncio transport: octets to the engine, events to the cycles of many
requests, output to the transport.

Knows transports, time and which request is whose; the protocol is the engine's business, and what a single
request needs stands in `servery.drivers.http2_stream`. Data flows one way: `data_received` -> engine ->
`_dispatch` -> cycle -> engine -> `flush`.
"""

from __future__ import annotations

from time import monotonic

from ..asgi.websocket_cycle import WebSocketCycle
from ..engine import StreamsEngine
from ..events import BodyReceived, ConnectionFailed, Event, RequestReceived, StreamFailed
from .http2_stream import StreamPort, begin
from .names import ConnectionNames
from .service import Service, error_log
from .transported import TransportedConnection

NEWER_VERSION = b"sec-websocket-version: 13\r\n"
"""What a 426 says besides (RFC 6455 section 4.2.2)."""


class Http2Connection(TransportedConnection):
    """One connection. It is the clock's `Timed`. `waiting` holds the ports that wait for the peer."""

    __slots__ = ("_http", "_ports", "waiting")

    def __init__(self, service: Service, names: ConnectionNames | None = None) -> None:
        assert service.make_http2 is not None
        self._http: StreamsEngine = service.make_http2(monotonic())
        super().__init__(service, self._http, names)
        self._ports: dict[int, StreamPort] = {}
        self.waiting: set[StreamPort] = set()

    @property
    def service(self) -> Service:
        """What all connections share."""
        return self._service

    @property
    def client(self) -> tuple[str, int] | None:
        """Who is at the other end, for the logs."""
        return self._info.client

    # --- from the transport --------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed, by whom and for what reason ever: let go of everything."""
        super().connection_lost(exc)
        self._http.forget()

    # --- from the clock and the server -----------------------------------------------------------------

    def on_deadline(self, now: float) -> None:
        """The time has come that the clock was armed for; it may have moved on since."""
        if self._watch_deadline(now):
            return
        if self._http.deadline <= now:
            self._dispatch(self._http.expire(now), now)
        self.settle()

    def stop(self, now: float, patient: bool = False) -> None:
        """Finish what is in progress, then close; close at once if nothing is, unless `patient`."""
        for port in list(self._ports.values()):
            port.stop(now)
        self._http.stop(now, patient)
        self.settle()

    def told_to_end(self) -> None:
        """The stream grace is over: ``receive()`` of all requests in progress says ``http.disconnect``."""
        for port in list(self._ports.values()):
            port.cycle.disconnected(lost=False)

    # --- from the ports ------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make frames and write them, until the peer, its windows or the transport take no more; the clock is
        told what is due sooner.
        """
        http = self._http
        more = True
        while more and not self._lost:
            http.held = not self.writable
            more = http.pump(monotonic())
            super().flush()
        if self.waiting and self.writable:
            for port in list(self.waiting):
                if not port.look_again():
                    self.waiting.discard(port)
        if http.deadline < self.armed and not self._lost:
            self._service.clock.arm(self, http.deadline)

    def release(self, port: StreamPort) -> None:
        """The application call is over, and nothing else speaks on the stream."""
        if self._ports.pop(port.number, None) is None:
            return
        self.waiting.discard(port)
        del port.cycle  # they hold each other
        self._http.released(port.number, monotonic())
        if not self._lost:
            self.settle()

    def log(self, port: StreamPort, aborted: bool) -> None:
        """One access line for a request, whatever became of it; only the first call writes it."""
        if port.logged:
            return
        port.logged = True
        cycle = port.cycle
        if isinstance(cycle, WebSocketCycle) and cycle.websocket is not None:
            self._service.log_websocket(cycle, self.client)
        else:
            sent = self._http.content_sent(port.number)
            self._service.log_request(cycle, self.client, sent, aborted)

    # --- inside --------------------------------------------------------------------------------------

    def _dispatch(self, events: list[Event], now: float) -> None:
        begun: list[StreamPort] = []
        for event in events:
            if type(event) is RequestReceived:
                begun.append(self._begin(event, now))
            elif type(event) is BodyReceived:
                port = self._ports.get(event.stream)
                if port is not None and not port.ended:
                    port.body_received(event)
            elif type(event) is StreamFailed:
                self._failed(event)
            elif type(event) is ConnectionFailed:
                error_log.debug("%s: %s", self.client, event.error)
                self._lose_cycle()
            else:  # the peer sends no more: `PeerClosed`
                self.told_to_end()
        for port in begun:  # an eager task runs at once: it shall know what the engine knows
            self._start(port)

    def _begin(self, request: RequestReceived, now: float) -> StreamPort:
        port = self._ports[request.stream] = begin(self, self._http, self._info, request, now)
        return port

    def _start(self, port: StreamPort) -> None:
        """Run the application. What was read behind the head may have failed the request already."""
        service = self._service
        fault, port.fault = port.fault, None
        if port.ended:
            self.release(port)
        elif fault is not None:
            self._refuse(port, fault.status, fault.reason, NEWER_VERSION if fault.status == 426 else b"")
        elif service.concurrency is not None and service.full:
            self._refuse(port, 503, "Service Unavailable", b"retry-after: 1\r\n")
        else:
            service.start(port.cycle)

    def _refuse(self, port: StreamPort, status: int, text: str, extra: bytes) -> None:
        """A request that the application is not asked for: a faulty handshake, or one too many."""
        port.cycle.status = status
        self._http.answer(port.number, status, text, extra)
        self.log(port, aborted=False)
        port.ended = True
        self.release(port)

    def _failed(self, event: StreamFailed) -> None:
        """One request is over; the others go on."""
        if event.error is not None:
            error_log.debug("%s: %s", self.client, event.error)
        port = self._ports.get(event.stream)
        if port is None:
            if event.error is not None:
                self._service.log_refusal(self.client, event.request_line, event.replied)
            return
        port.cycle.status = event.replied or port.cycle.status
        self._fail(port)

    def _fail(self, port: StreamPort) -> None:
        was_open = port.websocket is not None
        port.fail()
        self.log(port, aborted=True)
        if was_open and port.cycle.task is None:
            self.release(port)

    def _lose_cycle(self) -> None:
        for port in list(self._ports.values()):
            if not port.ended:
                self._fail(port)

    def settle(self) -> None:
        """Write what there is; make the transport what the engine says."""
        self.flush()
        if self._engine.half_closed or self._engine.closing:
            self._wind_up()
