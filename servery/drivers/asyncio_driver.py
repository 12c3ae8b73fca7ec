"""A connection on an asyncio transport (asyncio's own or uvloop's): octets to the engine, events to cycles,
output to the transport.

Knows transports, flow control and time; the protocol is the engine's business, the application the cycle's.
Data flows one way: `data_received` -> engine -> `_dispatch` -> cycle -> engine -> `flush`. After every turn
`settle` makes the transport what the engine's flags say: paused, half-closed, closed; it keeps no counters,
so no wake-up can get lost.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from ..asgi.http_cycle import HttpCycle
from ..asgi.scope import http_scope, websocket_scope
from ..asgi.websocket_cycle import WebSocketCycle
from ..engine import HttpEngine, RawHeaders, WebSocketEngine, WebSocketHandshake
from ..errors import RemoteProtocolError
from ..events import BodyReceived, ConnectionFailed, Event, PeerClosed, RequestReceived, WebSocketFailed
from .contracts import Cycle
from .names import ConnectionNames
from .service import Service, error_log
from .transported import TransportedConnection

NEWER_VERSION = b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
"""What a 426 says besides (RFC 6455 section 4.2.2, RFC 9110 section 15.5.22)."""


class AsyncioConnection(TransportedConnection):
    """One connection. It is the cycle's `WebSocketPort` and the clock's `Timed`."""

    __slots__ = ("_advance_due", "_fault", "_http", "_paused", "_settling", "_websocket")

    def __init__(self, service: Service, names: ConnectionNames | None = None) -> None:
        self._http: HttpEngine = service.make_engine(monotonic())
        super().__init__(service, self._http, names)
        self._websocket: WebSocketEngine | None = None  # speaks instead, once it is open
        self._paused = False
        self._advance_due = self._settling = False
        self._fault: RemoteProtocolError | None = None  # of a handshake that is about to be refused

    # --- from the clock and the server -----------------------------------------------------------------

    def on_deadline(self, now: float) -> None:
        """The time has come that the clock was armed for; it may have moved on since."""
        if self._watch_deadline(now):
            return
        if self._websocket is not None and not self.writable:
            self._websocket.unsent(now)
        if self._engine.deadline <= now:
            self._dispatch(self._engine.expire(now), now)
        self.settle()

    def stop(self, now: float, patient: bool = False) -> None:
        """Finish what is in progress, then close; close at once if nothing is, unless `patient`."""
        if self._websocket is not None:
            self._dispatch(self._websocket.stop(now), now)
        else:
            self._http.stop(now, patient)
        self.settle()

    def told_to_end(self) -> None:
        """The stream grace is over: ``receive()`` of the request in progress says ``http.disconnect``."""
        if self._cycle is not None:
            self._cycle.disconnected(lost=False)

    # --- from the cycle ------------------------------------------------------------------------------

    def consumed(self) -> None:
        """The application took request body octets, or a message."""
        if self._paused:
            self.settle()

    def now(self) -> float:
        """Monotonic seconds."""
        return monotonic()

    def open_websocket(
        self, cycle: Any, handshake: WebSocketHandshake, subprotocol: str | None, headers: RawHeaders
    ) -> None:
        """Accept the handshake: the WebSocket's engine speaks from now on."""
        now = monotonic()
        front = self._service.front
        if front is not None:
            headers = front.switching_fields(cycle, headers)
        websocket = handshake.accept(subprotocol, headers, now)
        ahead = self._http.hand_over()
        self._engine = self._websocket = websocket
        cycle.opened(websocket)
        if ahead:
            self._dispatch(websocket.receive(ahead, now), now)
        if self._service.stopping:
            self._dispatch(websocket.stop(now), now)
        self.settle()

    def response_complete(self, cycle: HttpCycle | WebSocketCycle) -> None:
        """The response is queued to its end: log it, and go on with what the peer has sent since."""
        if self._cycle is cycle:
            self._cycle = None
            service = self._service
            if service.logged or (service.observed and type(cycle) is not HttpCycle):
                self._log(cycle, aborted=self._engine.closing)
            elif service.metrics is not None:  # the short way for those who count, and nobody else
                spent = monotonic() - cycle.started
                service.metrics.request(cycle.request.method, cycle.status, spent, self._http.content_sent)
            self._advance_due = True
            if not self._settling:  # an eager task answers while its request is being dispatched
                self.settle()

    def app_failed(self, cycle: HttpCycle | WebSocketCycle, error: Exception) -> None:
        """The application raised `error`, or returned too early."""
        self._service.app_failed(cycle, error)

    def finished(self, cycle: HttpCycle | WebSocketCycle) -> None:
        """The application call has ended."""
        cycle.task = None
        self._service.finished(cycle)

    def debug(self, info: Any) -> None:
        """The application sent ``http.response.debug``."""
        error_log.debug("http.response.debug: %r", info)

    # --- inside --------------------------------------------------------------------------------------

    def _dispatch(self, events: list[Event], now: float) -> None:
        begun = None
        for event in events:
            if type(event) is RequestReceived:
                begun = self._cycle = self._begin(event, now)
            elif type(event) is BodyReceived:
                if isinstance(self._cycle, HttpCycle):
                    self._cycle.body_received(event.data, event.more, event.trailers)
            elif type(event) is ConnectionFailed:
                self._failed(event)
            elif type(event) is not PeerClosed:
                self._hear(event)
            elif self._cycle is not None:
                self._cycle.disconnected(lost=False)
        if begun is not None:  # an eager task runs at once: it shall know what the engine knows
            self._start(begun)

    def _hear(self, event: Event) -> None:
        """An event of the WebSocket."""
        if type(event) is WebSocketFailed:
            error_log.debug("%s: %s", self._info.client, event.error)
        if isinstance(self._cycle, WebSocketCycle):
            self._cycle.heard(event)

    def _begin(self, request: RequestReceived, now: float) -> HttpCycle | WebSocketCycle:
        engine, info, front = self._http, self._info, self._service.front
        request_id = self._service.next_request_id()
        cycle: HttpCycle | WebSocketCycle
        handshake = self._read_handshake(request) if request.upgrade is not None else None
        if handshake is None:
            scope = http_scope(request, info, request_id, engine.takes_trailers)
            cycle = HttpCycle(scope, request, engine, self, now, request_id)
        else:
            scope = websocket_scope(request, info, request_id, handshake.subprotocols)
            cycle = WebSocketCycle(scope, request, handshake, engine, self, now, request_id)
        if front is not None:
            front(cycle, scope)
        return cycle

    def _read_handshake(self, request: RequestReceived) -> WebSocketHandshake | None:
        """That of a WebSocket, if it is one and in order."""
        try:
            return self._service.handshakes(request)
        except RemoteProtocolError as error:
            self._fault = error.with_traceback(None)
            return None

    def _start(self, cycle: HttpCycle | WebSocketCycle) -> None:
        """Run the application. What was read behind the head may have failed the request already."""
        service = self._service
        fault, self._fault = self._fault, None
        if fault is not None:
            error_log.debug("%s: %s", self._info.client, fault)
            extra = NEWER_VERSION if fault.status == 426 else b""
            self._refuse(cycle, fault.status, fault.reason, extra)
            return
        if service.concurrency is not None and service.full:
            self._refuse(cycle, 503, "Service Unavailable", b"retry-after: 1\r\n")
            return
        service.start(cycle)

    def _refuse(self, cycle: HttpCycle | WebSocketCycle, status: int, text: str, extra: bytes) -> None:
        """A request that the application is not asked for: a faulty handshake, or one too many."""
        if self._cycle is not cycle:
            return  # it has failed already, and that was answered
        self._cycle = None
        cycle.status = status
        self._http.answer(cycle.request.stream, status, text, extra)
        self.flush()
        self._log(cycle, aborted=False)
        self._advance_due = True

    def _failed(self, event: ConnectionFailed) -> None:
        client = self._info.client
        cycle = self._cycle
        error_log.debug("%s: %s", client, event.error)
        if cycle is None:
            self._service.log_refusal(client, event.request_line, event.replied)
            return
        self._cycle = None
        cycle.status = event.replied or cycle.status
        self._log(cycle, aborted=True)
        cycle.disconnected(lost=True)

    def _lose_cycle(self) -> None:
        cycle = self._cycle
        if cycle is not None:
            self._cycle = None
            cycle.disconnected(lost=True)
            self._log(cycle, aborted=True)

    def _log(self, cycle: Cycle, aborted: bool) -> None:
        client = self._info.client
        if isinstance(cycle, WebSocketCycle) and cycle.websocket is not None:
            self._service.log_websocket(cycle, client)
        else:
            self._service.log_request(cycle, client, self._http.content_sent, aborted)

    def settle(self) -> None:
        """Go on as far as possible; make the transport what engine and cycle say; tell the clock what is due
        sooner.
        """
        if self._advance_due:
            self._settling = True
            while self._advance_due and (self.writable or self._http.closing):
                self._advance_due = False  # not before: the peer shall first read what it has asked for
                now = monotonic()
                events = self._http.advance(now)
                if events:
                    self._dispatch(events, now)
            self._settling = False
        engine = self._engine  # now: an eager task may have opened a WebSocket just above
        cycle = self._cycle
        full = cycle is not None and cycle.buffered > self._service.limits.body_buffer
        if self._paused is (engine.wants_read and not full):
            self._switch_reading()
        if self._websocket is not None and self.writable:
            self.flush()  # pings are answered, unless the peer takes nothing
        if engine.half_closed or engine.closing:
            self._wind_up()
        if engine.deadline < self.armed and not self._lost:
            self._service.clock.arm(self, engine.deadline)

    def _switch_reading(self) -> None:
        self._paused = not self._paused
        transport = self._transport
        if not transport.is_closing():
            switch = transport.pause_reading if self._paused else transport.resume_reading
            # outside of the application's context: a callback made here must not keep a request's variables
            self._service.context.run(switch)
        if self._websocket is None:
            self._http.body_paused(self._paused, monotonic())
