"""Requests that take long, in the error log: what they are, and where their application waits.

Looks at the requests in progress now and then; a request itself does nothing for it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from ..engine import NEVER
from ..leaving import where
from ..logs import escape
from .clock import Clock

log = logging.getLogger("servery.error")

LOOKS = 4
"""Looks in the time after which a request counts as slow: so much of that time may pass unseen."""

LEAST, MOST = 0.1, 1.0
"""Seconds between two looks."""


class SlowRequests:
    """Tells of each request, once, that has run `after` seconds and has not begun its response."""

    __slots__ = ("_after", "_clock", "_cycles", "_interval", "_looked", "_told", "armed")

    def __init__(self, after: float, cycles: Collection[Any], clock: Clock, now: float) -> None:
        self._after = after
        self._cycles = cycles
        self._clock = clock
        self._interval = min(max(after / LOOKS, LEAST), MOST)
        self._told: set[Any] = set()
        self._looked = now
        self.armed = NEVER
        clock.arm(self, now + self._interval)

    def on_deadline(self, now: float) -> None:
        """Look at what is in progress."""
        self._looked = now
        self._told.intersection_update(self._cycles)
        for cycle in list(self._cycles):
            if now - cycle.started >= self._after and not (cycle.status or cycle.answered):
                self._tell(cycle, now)
        self._clock.arm(self, now + self._interval)

    def ended(self, cycle: Any, now: float) -> None:
        """A request has ended. What nobody could look at meanwhile is told now."""
        if now - cycle.started >= self._after and self._looked < cycle.started + self._after:
            log.warning(
                "slow request: %s took %.3f s and held up the event loop, so that its stack is not known",
                _name(cycle),
                now - cycle.started,
            )

    def _tell(self, cycle: Any, now: float) -> None:
        if cycle in self._told:
            return
        self._told.add(cycle)
        stack = where(cycle.task.get_coro()) if cycle.task is not None else ""
        log.warning(
            "slow request: %s has run for %.3f s without a response\n%s",
            _name(cycle),
            now - cycle.started,
            stack.rstrip(),
        )


def _name(cycle: Any) -> str:
    request = cycle.request
    return f"{escape(request.method)} {escape(request.target)} ({cycle.request_id})"
