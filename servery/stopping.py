"""The stop of a worker, phase by phase: what has begun is finished, told, cancelled, and at last left behind.

Knows the order of the phases and what each may take; it decides neither when a stop begins nor what follows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from .drivers.acceptor import Acceptor
from .drivers.service import Service, error_log
from .sockets import Listener

UNWIND = 0.1
"""Seconds that cancelled tasks may take to unwind when the stop is to end at once."""

NAMED = 10
"""Requests that a line of the log names; of the others it gives the number."""


async def race(awaitable: Any, event: asyncio.Event, timeout: float | None) -> None:
    """Wait for `awaitable`, but not beyond `event`: a request to hurry. Raises `TimeoutError`."""
    first = asyncio.ensure_future(awaitable)
    second = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((first, second), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if first.done():
            first.result()
        elif not second.done():
            raise TimeoutError
    finally:
        first.cancel()
        second.cancel()


class Stop:
    """Ends the serving of `service` in bounded time; each phase is logged with what was still open.

    `hurried` cuts the waiting for requests short, `forced` that for cancelled tasks too. `leave_behind` is
    told of each task that ignored its cancellation. A `patient` stop gives idle peers a moment: see
    `drivers.service.Connection.stop`.
    """

    def __init__(
        self,
        service: Service,
        acceptors: Sequence[Acceptor],
        listeners: Sequence[Listener],
        *,
        hurried: asyncio.Event,
        forced: asyncio.Event,
        leave_behind: Callable[[asyncio.Task[Any]], None],
        patient: bool,
    ) -> None:
        self._service = service
        self._acceptors = acceptors
        self._listeners = listeners
        self._hurried = hurried
        self._forced = forced
        self._leave_behind = leave_behind
        self._patient = patient

    async def drain_delay(self, seconds: float) -> None:
        """Serve on for `seconds`, while load balancers learn that this server is not ready any more."""
        if seconds and not self._hurried.is_set():
            error_log.info("stop: serving on for %g s (--drain-delay): %s", seconds, self._open_work())
            try:
                await race(self._hurried.wait(), self._forced, seconds)
            except TimeoutError:
                pass

    async def run(self) -> None:
        """Accept no more; finish, tell, cancel, leave behind.

        Requests in progress are answered with ``Connection: close``, idle connections closed at once. After
        `Limits.stream_grace` the requests still running are told ``http.disconnect``, after
        `Limits.graceful_timeout` they are cancelled, and what ignores even that is left behind after
        `Limits.cancel_timeout`.
        """
        service, limits = self._service, self._service.limits
        service.stopping = True
        if service.room is not None:
            service.room.close()
        for acceptor in self._acceptors:
            await acceptor.stop()
        for listener in self._listeners:
            listener.close()
        now = time.monotonic()
        for connection in list(service.connections):
            connection.stop(now, self._patient)
        if service.cycles:
            error_log.info("stopping: %s", self._open_work())
        grace = min(limits.stream_grace, limits.graceful_timeout)
        if not await self._idle(grace):
            error_log.info("stop: after %g s telling the applications to end: %s", grace, self._open_work())
            for connection in list(service.connections):
                connection.told_to_end()
            if not await self._idle(limits.graceful_timeout - grace):
                await self._cancel()
        for connection in list(service.connections):
            connection.abort()
        service.clock.close()

    async def _cancel(self) -> None:
        service = self._service
        if service.cycles:
            when = "at once" if self._hurried.is_set() else "after the graceful time-out"
            error_log.warning("stop: cancelling %s: %s", when, self._open_work())
        tasks = [cycle.task for cycle in service.cycles if cycle.task is not None]
        for task in tasks:
            task.cancel()
        try:
            await race(service.idle.wait(), self._forced, service.limits.cancel_timeout)
        except TimeoutError:
            pass
        if self._forced.is_set() and tasks:
            await asyncio.wait(tasks, timeout=UNWIND)
        if service.cycles:
            error_log.error(
                "stop: left behind, still running after they were cancelled: %s", self._open_work()
            )
            for cycle in service.cycles:
                if cycle.task is not None:
                    self._leave_behind(cycle.task)

    async def _idle(self, timeout: float) -> bool:
        """Wait until no connection and no request is left; false after `timeout` seconds or when hurried."""
        try:
            await race(self._service.idle.wait(), self._hurried, timeout)
        except TimeoutError:
            return False
        return self._service.idle.is_set()

    def _open_work(self) -> str:
        service = self._service
        requests, connections = len(service.cycles), len(service.connections)
        text = f"{requests} requests in progress, {connections} connections open"
        named = ", ".join(service.in_flight(NAMED))
        more = f" and {requests - NAMED} more" if requests > NAMED else ""
        return f"{text}: {named}{more}" if named else text
