"""What a peer may do within an interval, before it counts as a flood.

Knows numbers and `now`; what is counted is the engine's business.
"""

from __future__ import annotations

from ..errors import Http2Error
from .frames import ENHANCE_YOUR_CALM


class Budget:
    """`limit` of something within `interval` seconds: what is spent comes back evenly."""

    __slots__ = ("_left", "_limit", "_rate", "_reason", "_since")

    def __init__(self, limit: int, interval: float, reason: str, now: float) -> None:
        self._limit = self._left = float(limit)
        self._rate = limit / interval
        self._reason = reason
        self._since = now

    def spend(self, now: float) -> None:
        """One more. Raises `Http2Error` if that is one too many."""
        self._left -= 1
        if self._left < 0:
            self._left = min(self._limit, self._left + (now - self._since) * self._rate)
            self._since = now
            if self._left < 0:
                raise Http2Error(ENHANCE_YOUR_CALM, self._reason)

    def earn(self, count: int) -> None:
        """The peer has done something that makes `count` more of it likely."""
        self._left = min(self._limit, self._left + count)
