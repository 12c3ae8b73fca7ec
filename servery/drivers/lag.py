"""How late the event loop is: a timer that looks at the clock when it is called."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Protocol

from ..metrics.counting import Histogram

INTERVAL = 0.5
"""Seconds between two looks: often enough to meet a loop that is busy, and nothing to one that is not."""


class Worker(Protocol):
    """Whose loop it is."""

    loop: asyncio.AbstractEventLoop
    context: Context
    stopping: bool


def watch_lag(worker: Worker, lag: Histogram) -> None:
    """Count in `lag` how many seconds late a timer was called, again and again, until the worker stops."""
    loop = worker.loop

    def look(due: float) -> None:
        now = loop.time()
        lag.observe(max(now - due, 0.0))
        if not worker.stopping:
            loop.call_at(now + INTERVAL, look, now + INTERVAL, context=worker.context)

    first = loop.time() + INTERVAL
    loop.call_at(first, look, first, context=worker.context)
