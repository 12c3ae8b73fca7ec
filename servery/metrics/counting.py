"""The numbers of one worker. Counts events where they happen; what is now is asked for when somebody looks.

A snapshot is made of dicts, lists, texts and numbers only, so that a worker can send it as JSON, and `merge`
adds up those of all workers. Labels are few and bounded: whatever a peer may make up is counted as ``other``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

Snapshot = dict[str, dict[str, Any]]
"""name -> ``{"type", "values"}``: a counter or gauge has label text -> number; a histogram has ``bounds``,
``counts`` (one more than bounds), ``sum``, and no labels. A label text is as Prometheus writes it."""

DURATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds in seconds: of requests, waits, and delays of the event loop."""

SIZES = (0.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 10485760.0, 104857600.0)
"""Upper bounds of response contents in octets."""

METHODS = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"QUERY"))
STATUSES = frozenset(status.value for status in HTTPStatus)
CLOSE_CODES = frozenset((*range(1000, 1004), *range(1005, 1016)))

REASONS = {
    400: "malformed",
    408: "timeout",
    413: "body_too_large",
    414: "request_line_too_long",
    431: "head_too_large",
    501: "not_implemented",
    505: "version",
    -1: "proxy_protocol",
    -2: "client_connections",
}
"""Why input was rejected, by the status that said so; less than 0 where none could."""


class Histogram:
    """Counts of values up to each of `bounds`, and above the last."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def snapshot(self) -> dict[str, Any]:
        """As `Snapshot` has it."""
        return {
            "type": "histogram",
            "values": {"bounds": list(self.bounds), "counts": list(self.counts), "sum": self.sum},
        }


class Metrics:
    """What one worker has counted since it began."""

    __slots__ = ("_rejected", "_requests", "_websockets", "durations", "lag", "sizes", "waits")

    def __init__(self) -> None:
        self._requests: Counter[tuple[bytes, int]] = Counter()
        self._websockets: Counter[int] = Counter()
        self._rejected: Counter[int] = Counter()
        self.durations = Histogram(DURATIONS)
        self.sizes = Histogram(SIZES)
        self.waits = Histogram(DURATIONS)
        self.lag = Histogram(DURATIONS)

    def request(self, method: bytes, status: int, seconds: float, octets: int) -> None:
        """A request has ended. `status` 0 means that the peer got no answer."""
        self._count(method, status)
        self.durations.observe(seconds)
        self.sizes.observe(octets)

    def websocket(self, method: bytes, status: int, code: int) -> None:
        """A WebSocket has ended with this close code."""
        self._count(method, status)
        self._websockets[code if code in CLOSE_CODES else 0] += 1

    def rejected(self, status: int) -> None:
        """Octets were refused that were no request, or a request was cut for what came behind its head."""
        self._rejected[status if status in REASONS else 0] += 1

    def _count(self, method: bytes, status: int) -> None:
        known = status if status in STATUSES or not status else -1
        self._requests[method if method in METHODS else b"other", known] += 1

    def snapshot(self) -> Snapshot:
        """The counts so far."""
        requests = {
            f'method="{method.decode()}",status="{_status(status)}"': count
            for (method, status), count in sorted(self._requests.items())
        }
        websockets = {f'code="{code or "other"}"': count for code, count in sorted(self._websockets.items())}
        rejected = {
            f'reason="{REASONS.get(status, "other")}"': count
            for status, count in sorted(self._rejected.items())
        }
        return {
            "servery_requests_total": counter(requests),
            "servery_request_duration_seconds": self.durations.snapshot(),
            "servery_response_size_bytes": self.sizes.snapshot(),
            "servery_queue_wait_seconds": self.waits.snapshot(),
            "servery_loop_lag_seconds": self.lag.snapshot(),
            "servery_websockets_total": counter(websockets),
            "servery_rejected_total": counter(rejected),
        }


def _status(status: int) -> str:
    return {0: "none", -1: "other"}.get(status) or str(status)


def counter(values: Mapping[str, float]) -> dict[str, Any]:
    """A counter by label text; ``""`` for one without labels."""
    return {"type": "counter", "values": dict(values)}


def gauge(values: Mapping[str, float]) -> dict[str, Any]:
    """A value that is so now, by label text."""
    return {"type": "gauge", "values": dict(values)}


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """The sum of several workers' snapshots, of which none is changed. Histograms have the same bounds."""
    total: Snapshot = {}
    for snapshot in snapshots:
        for name, one in snapshot.items():
            values = one["values"]
            if name not in total:
                copied = {key: list(v) if isinstance(v, list) else v for key, v in values.items()}
                total[name] = {"type": one["type"], "values": copied}
            elif one["type"] == "histogram":
                into = total[name]["values"]
                into["counts"] = [a + b for a, b in zip(into["counts"], values["counts"], strict=True)]
                into["sum"] += values["sum"]
            else:
                into = total[name]["values"]
                for labels, value in values.items():
                    into[labels] = into.get(labels, 0) + value
    return total
