"""The counts that every request adds to, and the bounds of their labels; made to cost next to nothing.

The compiled core has a twin of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple, Protocol

DURATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds in seconds: of requests, waits, and delays of the event loop."""

SIZES = (0.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 10485760.0, 104857600.0)
"""Upper bounds of response contents in octets."""

METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"QUERY")
STATUSES = frozenset(status.value for status in HTTPStatus)

OTHER_METHOD, OTHER_STATUS = b"other", -1
"""What stands for whatever peers and applications make up."""

KINDS = 256
"""Requests that differ in method, status or size and are kept apart before they are summed up."""


class Counts(NamedTuple):
    """What has been counted. Lists have a place for each bound, and one for what is above the last."""

    requests: dict[tuple[bytes, int], int]
    """(method, status) -> requests; status 0: the peer got no answer. Both are bounded."""
    durations: list[int]
    seconds: float
    """The sum of all durations."""
    sizes: list[int]
    octets: int
    """The sum of all sizes."""


class RequestTally(Protocol):
    """Counts requests that have ended."""

    def ended(self, method: bytes, status: int, seconds: float, octets: int) -> None:
        """A request has ended, with content of so many octets. `status` 0: the peer got no answer."""
        ...

    def switched(self, method: bytes, status: int) -> None:
        """A request has become something else, which has ended: it has neither duration nor size."""
        ...

    def counts(self) -> Counts:
        """The counts so far."""
        ...


def known(method: bytes, status: int) -> tuple[bytes, int]:
    """The labels of a request, of which there are few."""
    return (
        method if method in METHODS else OTHER_METHOD,
        status if status in STATUSES or not status else OTHER_STATUS,
    )


class _Alike(dict[tuple[bytes, int, int], int]):
    """How many requests of the same method, status and size there were. `full` is called when they are many
    kinds, and has to clear it.
    """

    __slots__ = ("_full",)

    def __init__(self, full: Callable[[], None]) -> None:
        self._full = full

    def __missing__(self, _: object) -> int:
        if len(self) >= KINDS:
            self._full()
        return 0


class Tally:
    """See `RequestTally`. Most requests resemble one before in all but their duration: see `ended`."""

    __slots__ = ("_alike", "_durations", "_octets", "_requests", "_seconds", "_sizes")

    def __init__(self) -> None:
        self._alike = _Alike(self._sum_up)
        self._requests: defaultdict[tuple[bytes, int], int] = defaultdict(int)
        self._durations = [0] * (len(DURATIONS) + 1)
        self._seconds = 0.0
        self._sizes = [0] * (len(SIZES) + 1)
        self._octets = 0

    def ended(self, method: bytes, status: int, seconds: float, octets: int) -> None:
        """See `RequestTally`."""
        self._alike[method, status, octets] += 1
        self._durations[bisect_left(DURATIONS, seconds)] += 1
        self._seconds += seconds

    def switched(self, method: bytes, status: int) -> None:
        """See `RequestTally`."""
        self._requests[known(method, status)] += 1

    def counts(self) -> Counts:
        """See `RequestTally`."""
        self._sum_up()
        return Counts(
            dict(self._requests), list(self._durations), self._seconds, list(self._sizes), self._octets
        )

    def _sum_up(self) -> None:
        for (method, status, octets), count in self._alike.items():
            self._requests[known(method, status)] += count
            self._sizes[bisect_left(SIZES, octets)] += count
            self._octets += octets * count
        self._alike.clear()
