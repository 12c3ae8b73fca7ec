"""The numbers of one worker. Counts events where they happen; what is now is asked for when somebody looks.

A snapshot is made of dicts, lists, texts and numbers only, so that a worker can send it as JSON, and `merge`
adds up those of all workers. Labels are few and bounded: whatever a peer may make up is counted as ``other``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .tally import DURATIONS, SIZES, RequestTally, Tally

Snapshot = dict[str, dict[str, Any]]
"""name -> ``{"type", "values"}``: a counter or gauge has label text -> number; a histogram has ``bounds``,
``counts`` (one more than bounds), ``sum``, and no labels. A label text is as Prometheus writes it."""

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


RESTARTS = (
    *("died", "failed_start", "stuck", "terminated", "reload", "upgrade"),
    *("requests", "age", "memory"),
)
"""Why a worker was replaced: it died, or never served; its event loop did not turn; somebody told it to stop;
there was something newer; it had served, lived or used enough."""


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
        return histogram(self.bounds, self.counts, self.sum)


class Metrics:
    """What one worker has counted since it began.

    `tally` counts the requests; its `ended` is `request` here.
    """

    __slots__ = ("_rejected", "_websockets", "lag", "request", "tally", "waits")

    def __init__(self, tally: RequestTally | None = None) -> None:
        self.tally = tally or Tally()
        self.request = self.tally.ended
        self._websockets: Counter[int] = Counter()
        self._rejected: Counter[int] = Counter()
        self.waits = Histogram(DURATIONS)
        self.lag = Histogram(DURATIONS)

    def websocket(self, method: bytes, status: int, code: int) -> None:
        """A WebSocket has ended with this close code."""
        self.tally.switched(method, status)
        self._websockets[code if code in CLOSE_CODES else 0] += 1

    def rejected(self, status: int) -> None:
        """Octets were refused that were no request, or a request was cut for what came behind its head."""
        self._rejected[status if status in REASONS else 0] += 1

    def snapshot(self) -> Snapshot:
        """The counts so far."""
        counts = self.tally.counts()
        requests = {
            f'method="{method.decode()}",status="{_status(status)}"': count
            for (method, status), count in sorted(counts.requests.items())
        }
        websockets = {f'code="{code or "other"}"': count for code, count in sorted(self._websockets.items())}
        rejected = {
            f'reason="{REASONS.get(status, "other")}"': count
            for status, count in sorted(self._rejected.items())
        }
        return {
            "servery_requests_total": counter(requests),
            "servery_request_duration_seconds": histogram(DURATIONS, counts.durations, counts.seconds),
            "servery_response_size_bytes": histogram(SIZES, counts.sizes, counts.octets),
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


def histogram(bounds: Sequence[float], counts: Sequence[int], total: float) -> dict[str, Any]:
    """Counts of values up to each of `bounds` and above the last; `total` is the sum of those values."""
    return {
        "type": "histogram",
        "values": {"bounds": list(bounds), "counts": list(counts), "sum": total},
    }


class WorkerNumbers(NamedTuple):
    """What one worker process has now."""

    slot: int
    """Its place among the workers, which its successor gets."""
    memory: int
    """Octets."""
    connections: int
    requests: int
    """In progress."""
    age: float
    """Seconds since it has said so."""


def by_worker(workers: Iterable[WorkerNumbers]) -> Snapshot:
    """Gauges of each worker by its slot; of one that is replaced and its successor, the sum."""
    memory: Counter[str] = Counter()
    connections: Counter[str] = Counter()
    requests: Counter[str] = Counter()
    ages: dict[str, float] = {}
    for worker in sorted(workers):
        label = f'worker="{worker.slot}"'
        memory[label] += worker.memory
        connections[label] += worker.connections
        requests[label] += worker.requests
        ages[label] = max(ages.get(label, 0.0), worker.age)
    return {
        "servery_worker_memory_bytes": gauge(memory),
        "servery_worker_connections": gauge(connections),
        "servery_worker_requests_in_flight": gauge(requests),
        "servery_worker_report_age_seconds": gauge(ages),
    }


def crew_numbers(serving: int, wanted: int, restarts: Mapping[str, int]) -> Snapshot:
    """How many workers there are, and how many were replaced, by the reasons in `RESTARTS`."""
    replaced = {f'reason="{reason}"': restarts.get(reason, 0) for reason in RESTARTS}
    return {
        "servery_workers": gauge({"": serving}),
        "servery_workers_wanted": gauge({"": wanted}),
        "servery_worker_restarts_total": counter(replaced),
    }


def lasting(snapshot: Snapshot) -> Snapshot:
    """What stays true when the worker is gone: all but gauges."""
    return {name: one for name, one in snapshot.items() if one["type"] != "gauge"}


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """The sum of several workers' snapshots, of which none is changed.

    Histograms cannot be added up whose bounds differ, as another version's may: the first ones count.
    """
    total: Snapshot = {}
    for snapshot in snapshots:
        for name, one in snapshot.items():
            values = one["values"]
            if name not in total:
                copied = {key: list(v) if isinstance(v, list) else v for key, v in values.items()}
                total[name] = {"type": one["type"], "values": copied}
            elif one["type"] == "histogram":
                into = total[name]["values"]
                if into["bounds"] == values["bounds"]:
                    into["counts"] = [a + b for a, b in zip(into["counts"], values["counts"], strict=True)]
                    into["sum"] += values["sum"]
            else:
                into = total[name]["values"]
                for labels, value in values.items():
                    into[labels] = into.get(labels, 0) + value
    return total
