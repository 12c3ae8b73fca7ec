"""When a worker is started again, and when it is replaced: rules without any process, time as an argument."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..config import Config

STEADY = 5.0
"""Seconds without a death after which a slot counts as healthy again."""
FIRST_DELAY = 0.5
"""Seconds before the second start in a row; it doubles with each further one. The first is made at once."""
LONGEST_DELAY = 30.0
"""Seconds between two starts at most: a database that comes back shall not be waited for longer."""
LAST_FAILURE = 5
"""Starts in a row that fail while no worker serves, after which the server gives up."""


class Due(NamedTuple):
    """Why a worker is to be replaced."""

    reason: str
    """As the metrics name it: see `servery.metrics.counting.RESTARTS`."""
    text: str


class BackOff:
    """How long to wait before the next start in a slot whose workers die."""

    __slots__ = ("_failures", "until")

    def __init__(self) -> None:
        self._failures = 0
        self.until = 0.0
        """Monotonic seconds before which nothing is to be started."""

    def died(self, now: float) -> float:
        """A worker has died; returns the seconds to wait."""
        if now - self.until >= STEADY:
            self._failures = 0
        delay = 0.0
        if self._failures:
            delay = min(LONGEST_DELAY, FIRST_DELAY * 2 ** (self._failures - 1))
        self._failures += 1
        self.until = now + delay
        return delay


@dataclass(frozen=True, slots=True)
class Lifetime:
    """What a worker may use before it is replaced; None is no limit."""

    requests: int | None
    age: float | None
    memory: int | None

    @classmethod
    def drawn(cls, config: Config) -> Lifetime:
        """The lifetime of one worker, with its own share of the jitter."""
        limit, jitter = config.limit_max_requests, config.limit_max_requests_jitter
        if limit is not None:
            limit += random.randint(0, limit // 10 if jitter is None else jitter)
        return cls(limit, config.worker_max_age, config.worker_max_memory)

    def exceeded(self, counts: Mapping[str, int], age: float) -> Due | None:
        """Why a worker with these `counts` is to be replaced; None if it is not."""
        if self.requests is not None and counts.get("requests", 0) >= self.requests:
            return Due("requests", f"it has served {counts['requests']} requests (--limit-max-requests)")
        if self.age is not None and age >= self.age:
            return Due("age", f"it is {age:.0f} s old (--worker-max-age)")
        if self.memory is not None and counts.get("memory", 0) >= self.memory:
            return Due("memory", f"it uses {counts['memory'] / 2**20:.0f} MiB (--worker-max-memory)")
        return None
