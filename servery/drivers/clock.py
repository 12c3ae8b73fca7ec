"""One clock for all connections of a worker: deadlines in buckets, one timer for the nearest bucket.

Knows when somebody is to be called; does not know why. A busy connection costs nothing: its deadline moves on
without the clock being told, and is looked at again when its bucket comes up. Only monotonic time.
"""

from __future__ import annotations

import asyncio
import heapq
from contextvars import Context
from typing import Protocol

from ..engine import NEVER

TICK = 0.1
"""Width of a bucket in seconds: how late a deadline may be noticed."""


class Timed(Protocol):
    """What the clock calls."""

    armed: float
    """When the clock will call, in monotonic seconds; `NEVER` if it will not. Set by the clock alone."""

    def on_deadline(self, now: float) -> None:
        """The time it was armed for has come."""
        ...


class Clock:
    """Calls `Timed.on_deadline` within `TICK` seconds after the time it was armed for."""

    __slots__ = ("_buckets", "_context", "_handle", "_loop", "_next", "_order")

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self._loop = loop
        self._context = context
        self._buckets: dict[int, set[Timed]] = {}
        self._order: list[int] = []
        self._handle: asyncio.TimerHandle | None = None
        self._next = 0

    def arm(self, timed: Timed, when: float) -> None:
        """Call `timed` at `when`, instead of any other time it was armed for."""
        if timed.armed != NEVER:
            self.disarm(timed)
        timed.armed = when
        index = int(when / TICK) + 1
        bucket = self._buckets.get(index)
        if bucket is None:
            bucket = self._buckets[index] = set()
            heapq.heappush(self._order, index)
            self._schedule()
        bucket.add(timed)

    def disarm(self, timed: Timed) -> None:
        """Do not call `timed`."""
        if timed.armed == NEVER:
            return
        index = int(timed.armed / TICK) + 1
        timed.armed = NEVER
        bucket = self._buckets.get(index)
        if bucket is not None:
            bucket.discard(timed)

    def close(self) -> None:
        """Stop for good."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._buckets.clear()
        self._order.clear()

    def _schedule(self) -> None:
        first = self._order[0]
        if self._handle is not None:
            if first == self._next:
                return
            self._handle.cancel()
        self._next = first
        # the server's own context: a timer made while a request runs must not keep the request's variables
        self._handle = self._loop.call_at(first * TICK, self._ring, context=self._context)

    def _ring(self) -> None:
        self._handle = None
        now = self._loop.time()
        while self._order and self._order[0] * TICK <= now:
            for timed in self._buckets.pop(heapq.heappop(self._order)):
                timed.armed = NEVER
                timed.on_deadline(now)
        if self._order:
            self._schedule()
