"""What the connections of one worker share: the application, the limits, the clock, the logs and the counts.

Made by the server, read by drivers. One place counts connections and requests, on every way out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..asgi.calls import App
from ..asgi.websocket_cycle import LOST, WebSocketCycle
from ..limits import Limits
from ..logs import AccessLog, AccessRecord, WebSocketTraffic, escape
from ..metrics.counting import Metrics
from .clients import Clients
from .clock import Clock
from .contracts import Certificates, Connection, Corked, Cycle, EngineFactory, HandshakeReader, StreamsFactory
from .front import Front
from .lag import watch_lag
from .room import Places
from .slow import SlowRequests

if TYPE_CHECKING:
    from .preamble import PreambleRules

error_log = logging.getLogger("servery.error")


def numbered(prefix: str) -> tuple[Callable[[], str], Callable[[], int]]:
    """A function that gives request ids, which no other worker or restart gives again, and their count."""
    count = 0

    def next_id() -> str:
        nonlocal count
        count += 1
        return f"{prefix}-{count:x}"

    return next_id, lambda: count


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a worker does only where the configuration asks for it; else it costs nothing."""

    front: Front | None = None
    preamble: PreambleRules | None = None
    room: Places | None = None
    clients: Clients | None = None
    metrics: Metrics | None = None
    make_http2: StreamsFactory | None = None
    h2c: bool = False
    """Whether clients without TLS may begin with HTTP/2."""
    slow_after: float | None = None
    """Seconds after which a request counts as slow."""


NO_OPTIONS = Options()


class Service:
    """The shared part of a worker. Attributes are set once, before the first connection.

    `next_request_id` and `count_requests` may be replaced by a compiled counter: there is one for all
    connections.
    """

    __slots__ = (
        *("_corked", "access", "app", "clients", "clock", "closed", "concurrency", "connections", "context"),
        *("count_requests", "cycles", "front", "h2c", "handshakes", "id_prefix", "idle", "limits", "loop"),
        *("logged", "make_engine", "make_http2", "metrics", "next_request_id", "observed", "preamble"),
        *("room", "root_path"),
        *("runs", "slow", "state", "stopping", "tls"),
    )

    def __init__(
        self,
        *,
        app: App,
        limits: Limits,
        make_engine: EngineFactory,
        handshakes: HandshakeReader,
        loop: asyncio.AbstractEventLoop,
        context: Context,
        access: AccessLog | None,
        root_path: str,
        concurrency: int | None,
        state: dict[str, Any] | None,
        runs: str,
        tls: Certificates | None = None,
        options: Options = NO_OPTIONS,
    ) -> None:
        self.app = app
        self.limits = limits
        self.make_engine = make_engine
        self.handshakes = handshakes
        self.loop = loop
        self.context = context
        self.access = access if access is not None and access.enabled else None
        self.root_path = root_path
        self.concurrency = concurrency
        self.state = state
        self.runs = runs
        self.tls = tls
        self.clock = Clock(loop, context)
        self.connections: set[Connection] = set()
        self.cycles: set[Cycle] = set()
        self.idle = asyncio.Event()
        self.idle.set()
        self._corked: list[Corked] = []
        self.stopping = False
        self.id_prefix = os.urandom(6).hex()
        self.next_request_id, self.count_requests = numbered(self.id_prefix)
        self._take(options)

    def _take(self, options: Options) -> None:
        self.closed = 0  # connections that are gone
        self.front = options.front
        self.preamble = options.preamble
        self.room = options.room
        self.clients = options.clients
        self.metrics = options.metrics
        self.make_http2, self.h2c = options.make_http2, options.h2c
        self.slow: SlowRequests | None = None
        if options.slow_after is not None:
            self.slow = SlowRequests(options.slow_after, self.cycles, self.clock, time.monotonic())
        if self.metrics is not None:
            watch_lag(self, self.metrics.lag)
        # whether anybody wants to be told of the end of requests, and whether others do than those who count
        self.logged = any(it is not None for it in (self.access, self.front, self.slow))
        self.observed = self.logged or self.metrics is not None

    def beside(self, app: App) -> Service:
        """A service for another application, without TLS and WebSockets, on the same connections, clock and
        stop.
        """
        return _Beside(self, app)

    def flush_later(self, connection: Corked) -> None:
        """Call `end_of_turn` of `connection` before the loop waits: one callback serves all connections."""
        if not self._corked:
            self.loop.call_soon(self._end_turn, context=self.context)
        self._corked.append(connection)

    def _end_turn(self) -> None:
        corked, self._corked = self._corked, []
        for connection in corked:
            connection.end_of_turn()

    def connected(self, connection: Connection) -> None:
        """A connection was accepted."""
        self.connections.add(connection)
        self.idle.clear()
        if self.clients is not None:
            self.clients.entered(connection)

    def replaced(self, connection: Connection, begin: Callable[[], Any]) -> None:
        """`begin` makes the connection that goes on in its place: that one calls `connected`."""
        if self.clients is not None:
            self.clients.replaced(connection, begin)
        else:
            begin()
        self.connections.discard(connection)  # after the other one is in: the worker has not been idle

    def disconnected(self, connection: Connection) -> None:
        """A connection is gone, for whatever reason."""
        self.connections.discard(connection)
        self.closed += 1
        if self.room is not None:
            self.room.give()
        if self.clients is not None:
            self.clients.left(connection)
        self._check_idle()

    def start(self, cycle: Cycle) -> None:
        """Run the application for a request that it is asked for."""
        self.cycles.add(cycle)
        task = self.loop.create_task(
            cycle.begin(self.app), name=cycle.request_id, context=self.context.copy()
        )
        if not task.done():
            cycle.task = task

    def finished(self, cycle: Cycle) -> None:
        """An application call has ended."""
        self.cycles.discard(cycle)
        if not self.connections:
            self._check_idle()

    def app_failed(self, cycle: Cycle, error: Exception) -> None:
        """The application raised `error`, or returned too early: the operator gets it, once, with
        traceback.
        """
        what = f"{escape(cycle.request.method)} {escape(cycle.request.target)} ({cycle.request_id})"
        if error.__traceback__ is None:
            error_log.error("%s, answering %s", error, what)
        elif cycle.told:  # frameworks have an exception of their own for this: it is news, not a fault
            error_log.info("%r in the application, answering %s: the client has left", error, what)
        else:
            error_log.error("Exception in the application, answering %s", what, exc_info=error)

    @property
    def full(self) -> bool:
        """Whether as many requests as `concurrency` allows are in progress.

        One that is answered is not: the one before on the same connection may be about to return.
        """
        limit = self.concurrency
        if limit is None or len(self.cycles) < limit:
            return False
        return sum(not cycle.answered for cycle in self.cycles) >= limit

    def in_flight(self, most: int) -> list[str]:
        """The requests in progress, oldest first, as ``GET /path (id, 1.5 s)``; `most` of them at most."""
        now = time.monotonic()
        cycles = sorted(self.cycles, key=lambda cycle: cycle.started)
        return [
            f"{escape(cycle.request.method)} {escape(cycle.request.target)} "
            f"({cycle.request_id}, {now - cycle.started:.1f} s)"
            for cycle in cycles[:most]
        ]

    def _check_idle(self) -> None:
        if not self.connections and not self.cycles:
            self.idle.set()

    def log_request(self, cycle: Cycle, client: tuple[str, int] | None, sent: int, aborted: bool) -> None:
        """One access line for a request: a connection calls it when it lets go of the cycle, only then."""
        if self.metrics is not None:
            seconds = time.monotonic() - cycle.started
            self.metrics.request(cycle.request.method, cycle.status, seconds, sent)
        if self.logged:
            self._ended(cycle)
        if self.access is not None:
            self.access.log(self._record(cycle, client, sent, aborted))

    def log_websocket(self, cycle: WebSocketCycle, client: tuple[str, int] | None) -> None:
        """One access line for a WebSocket, when its connection has ended."""
        if self.metrics is not None:
            self.metrics.websocket(cycle.request.method, cycle.status, cycle.close_code)
        if self.access is not None:
            websocket = cycle.websocket
            assert websocket is not None
            record = self._record(cycle, client, websocket.octets_sent, cycle.close_code == LOST)
            record.scheme = "wss" if record.scheme == "https" else "ws"
            record.websocket = WebSocketTraffic(
                close_code=cycle.close_code,
                messages_received=websocket.messages_received,
                bytes_received=websocket.octets_received,
                messages_sent=websocket.messages_sent,
                bytes_sent=websocket.octets_sent,
            )
            self.access.log(record)

    def log_refusal(
        self, client: tuple[str, int] | None, line: tuple[bytes, bytes, bytes] | None, status: int
    ) -> None:
        """One access line for octets that were no request."""
        if self.metrics is not None and status:
            self.metrics.rejected(status)
        if self.access is not None:
            method, target, version = line or (b"-", b"-", b"-")
            record = AccessRecord(client, method, target, version, status, 0, 0.0, time.time(), [])
            record.scheme = self.scheme
            self.access.log(record)

    @property
    def scheme(self) -> str:
        """``http``, or ``https`` with TLS."""
        return "http" if self.tls is None else "https"

    def _ended(self, cycle: Cycle) -> None:
        """Tell whoever wants to know that a request is over."""
        if self.front is not None:
            self.front.ended(cycle)
        if self.slow is not None:
            self.slow.ended(cycle, time.monotonic())

    def _record(self, cycle: Cycle, client: tuple[str, int] | None, sent: int, aborted: bool) -> AccessRecord:
        request = cycle.request
        duration = time.monotonic() - cycle.started
        scheme = self.scheme
        if cycle.origin is not None:
            client, scheme = cycle.origin
        return AccessRecord(
            client=client,
            method=request.method,
            target=request.target,
            version=request.version,
            status=cycle.status,
            body_bytes_sent=sent,
            duration=duration,
            started_at=time.time() - duration,
            headers=request.headers,
            request_id=cycle.request_id,
            aborted=aborted,
            scheme=scheme,
        )


class _Beside(Service):
    """See `Service.beside`: a copy, but for what changes while it serves."""

    __slots__ = ("_main",)

    def __init__(self, main: Service, app: App) -> None:
        for name in Service.__slots__:
            if name != "stopping":
                setattr(self, name, getattr(main, name))
        self._main = main
        self.id_prefix = f"{main.id_prefix}-r"
        self.next_request_id, self.count_requests = numbered(self.id_prefix)
        self._corked = []
        self.app = app
        self.tls = self.make_http2 = None
        self.h2c = False
        self.root_path = ""
        self.concurrency = None
        self.handshakes = lambda request: None

    def disconnected(self, connection: Connection) -> None:
        """There is one count of connections."""
        self._main.disconnected(connection)

    @property
    def stopping(self) -> bool:  # type: ignore[override]
        """As of the service beside which it is."""
        return self._main.stopping
