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
from typing import Any, Protocol

from ..asgi.http_cycle import App, HttpCycle
from ..engine import HttpEngine
from ..limits import Limits
from ..logs import AccessLog, AccessRecord, escape
from .clock import Clock

EngineFactory = Callable[[float], HttpEngine]
"""Makes the engine of a connection accepted at `now`."""

error_log = logging.getLogger("servery.error")


class Connection(Protocol):
    """What the server asks of a connection that some driver runs."""

    def stop(self, now: float) -> None:
        """Finish what is in progress, then close; close at once if nothing is."""
        ...

    def told_to_end(self) -> None:
        """The stream grace is over: ``receive()`` of the request in progress says ``http.disconnect``."""
        ...

    def abort(self) -> None:
        """Reset the connection."""
        ...

    def end_of_turn(self) -> None:
        """Write what was kept back for the rest of a turn of the loop."""
        ...


class Service:
    """The shared part of a worker. Attributes are set once, before the first connection."""

    __slots__ = (
        *(
            "_corked",
            "id_prefix",
            "access",
            "app",
            "clock",
            "concurrency",
            "connections",
            "context",
            "cycles",
        ),
        *("idle", "limits", "loop", "make_engine", "request_count", "root_path", "runs", "state", "stopping"),
    )

    def __init__(
        self,
        *,
        app: App,
        limits: Limits,
        make_engine: EngineFactory,
        loop: asyncio.AbstractEventLoop,
        context: Context,
        access: AccessLog,
        root_path: str,
        concurrency: int | None,
        state: dict[str, Any] | None,
        runs: str,
    ) -> None:
        self.app = app
        self.limits = limits
        self.make_engine = make_engine
        self.loop = loop
        self.context = context
        self.access = access if access.enabled else None
        self.root_path = root_path
        self.concurrency = concurrency
        self.state = state
        self.runs = runs
        self.clock = Clock(loop, context)
        self.connections: set[Connection] = set()
        self.cycles: set[HttpCycle] = set()
        self.idle = asyncio.Event()
        self.idle.set()
        self.request_count = 0
        self._corked: list[Connection] = []
        self.stopping = False
        self.id_prefix = os.urandom(6).hex()

    def flush_later(self, connection: Connection) -> None:
        """Call `end_of_turn` of `connection` before the loop waits: one callback serves all connections."""
        if not self._corked:
            self.loop.call_soon(self._end_turn, context=self.context)
        self._corked.append(connection)

    def _end_turn(self) -> None:
        corked, self._corked = self._corked, []
        for connection in corked:
            connection.end_of_turn()

    def next_request_id(self) -> str:
        """A request id that no other worker or restart gives again."""
        self.request_count += 1
        return f"{self.id_prefix}-{self.request_count:x}"

    def connected(self, connection: Connection) -> None:
        """A connection was accepted."""
        self.connections.add(connection)
        self.idle.clear()

    def disconnected(self, connection: Connection) -> None:
        """A connection is gone, for whatever reason."""
        self.connections.discard(connection)
        self._check_idle()

    def finished(self, cycle: HttpCycle) -> None:
        """An application call has ended."""
        self.cycles.discard(cycle)
        if not self.connections:
            self._check_idle()

    def app_failed(self, cycle: HttpCycle, error: Exception) -> None:
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

    def _check_idle(self) -> None:
        if not self.connections and not self.cycles:
            self.idle.set()

    def log_request(self, cycle: HttpCycle, client: tuple[str, int] | None, sent: int, aborted: bool) -> None:
        """One access line for a request: a connection calls it when it lets go of the cycle, only then."""
        if self.access is not None:
            request = cycle.request
            line = (request.method, request.target, request.version)
            self._log(
                client, line, cycle.status, sent, cycle.request_id, cycle.started, request.headers, aborted
            )

    def log_refusal(
        self, client: tuple[str, int] | None, line: tuple[bytes, bytes, bytes] | None, status: int
    ) -> None:
        """One access line for octets that were no request."""
        if self.access is not None:
            self._log(client, line or (b"-", b"-", b"-"), status, 0, None, time.monotonic(), [], False)

    def _log(
        self,
        client: tuple[str, int] | None,
        line: tuple[bytes, bytes, bytes],
        status: int,
        sent: int,
        request_id: str | None,
        started: float,
        headers: list[tuple[bytes, bytes]],
        aborted: bool,
    ) -> None:
        assert self.access is not None
        duration = time.monotonic() - started
        self.access.log(
            AccessRecord(
                client=client,
                method=line[0],
                target=line[1],
                version=line[2],
                status=status,
                body_bytes_sent=sent,
                duration=duration,
                request_id=request_id,
                headers=headers,
                started_at=time.time() - duration,
                aborted=aborted,
                scheme="http",
            )
        )
