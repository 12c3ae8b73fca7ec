"""Workers that accept from one socket leave connections to those who have fewer.

Without that, whoever wakes up first takes a whole crowd: a proxy opens its connections at once, and keeps
them. What each worker has stands in memory that all of them share; it is a hint, and nothing depends on it
but who accepts.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import NamedTuple

from .room import Holding, Places

TURN = 0.001
"""Seconds for which a worker that has more leaves the socket to the others."""

PATIENCE = 0.005
"""Seconds for which they are not waited for again if they have taken none in their turn: they are busy."""

TOLERATED = 8
"""One connection in so many may be more than what another worker has, and one besides."""


class Loads(NamedTuple):
    """What the workers in all slots have; `slot` is our own, from 1.

    The first of the numbers is how many slots there are. In those stands the number of a worker's connections
    plus one, or 0 for nobody.
    """

    counts: memoryview[int]
    slot: int


class Balance(Places):
    """Counts the connections of one worker, for itself and for others. From the loop's thread only."""

    __slots__ = ("_acceptors", "_began", "_loads", "_loop", "_mine", "_seen", "_timer")

    def __init__(self, loads: Loads, loop: asyncio.AbstractEventLoop) -> None:
        self._loads = loads
        self._loop = loop
        self._acceptors: list[Holding] = []
        self._mine = 0
        self._seen = -1
        self._began = -PATIENCE
        self._timer: asyncio.TimerHandle | None = None
        loads.counts[loads.slot] = 1

    def join(self, acceptor: Holding) -> None:
        """See `Places`."""
        self._acceptors.append(acceptor)

    def take(self) -> None:
        """See `Places`."""
        self._count(1)
        if self._timer is None and self._acceptors and self._has_too_many():
            self._timer = self._loop.call_later(TURN, self._go_on)
            for acceptor in self._acceptors:
                acceptor.hold()

    def give(self) -> None:
        """See `Places`."""
        self._count(-1)

    def close(self) -> None:
        """See `Places`: nobody waits for this worker any more."""
        self._loads.counts[self._loads.slot] = 0
        if self._timer is not None:
            self._timer.cancel()
            self._go_on()
        self._acceptors.clear()

    def _count(self, change: int) -> None:
        self._mine += change
        if self._acceptors:
            self._loads.counts[self._loads.slot] = self._mine + 1

    def _has_too_many(self) -> bool:
        counts, slot = self._loads
        others = counts[1 : 1 + counts[0]].tolist()
        del others[slot - 1]
        fewest = min(filter(None, others), default=self._mine + 1) - 1
        if self._mine <= fewest + 1 + fewest // TOLERATED:
            return False
        now = monotonic()
        if fewest == self._seen and now - self._began < PATIENCE:
            return False
        self._seen, self._began = fewest, now
        return True

    def _go_on(self) -> None:
        self._timer = None
        for acceptor in self._acceptors:
            acceptor.release()
