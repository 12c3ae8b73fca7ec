"""From trials to figures: what of a record may be used, its medians, and the comparison with the baseline."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from .stats import Comparison, compare_paired, median_absolute_deviation

STARVED = 0.1
"""Part of the interval that a client may wait for a processor before that is told."""


@dataclasses.dataclass(frozen=True)
class Metric:
    """One figure of a trial.

    `scale` brings it to `unit`; a client that was the bottleneck spoils it if `needs_client`.
    """

    key: str
    label: str
    unit: str
    scale: float = 1.0
    higher_is_better: bool = False
    needs_client: bool = False
    digits: int = 2

    def text(self, value: float) -> str:
        """In `unit`, for a table."""
        return f"{value * self.scale:,.{self.digits}f}"


CPU = Metric("cpu_us", "server CPU per request", "µs")
RATE = Metric("rate", "requests per second", "1/s", higher_is_better=True, needs_client=True, digits=0)
P50 = Metric("p50_us", "latency, median", "ms", 1e-3, needs_client=True, digits=3)
P90 = Metric("p90_us", "latency, 90 %", "ms", 1e-3, needs_client=True, digits=3)
P99 = Metric("p99_us", "latency, 99 %", "ms", 1e-3, needs_client=True, digits=3)
P999 = Metric("p99_9_us", "latency, 99.9 %", "ms", 1e-3, needs_client=True, digits=3)
PSS = Metric("pss_peak", "peak PSS", "MiB", 2.0**-20, digits=1)
STARTED = Metric("started_ms", "start-up", "ms", digits=0)
IDLE_PSS = Metric("pss_idle", "PSS when started", "MiB", 2.0**-20, digits=1)
PER_CONNECTION = Metric("kib_per_connection", "memory per connection", "KiB")
ANSWER = Metric("answer_or_close_ms", "SIGTERM to answer or close", "ms", digits=0)
EXIT = Metric("exit_ms", "SIGTERM to the end", "ms", digits=0)

METRICS = {
    "startup": (STARTED, IDLE_PSS),
    "stop": (ANSWER, EXIT),
    "timeouts": (),
    "hold": (PER_CONNECTION, PSS),
}
"""By kind of scenario; all others have those of load."""
LOAD_METRICS = (CPU, RATE, P50, P90, P99, P999, PSS, STARTED)


def metrics_of(cell: Mapping[str, Any]) -> Sequence[Metric]:
    """What is told of a cell."""
    return METRICS.get(cell["scenario"]["kind"], LOAD_METRICS)


@dataclasses.dataclass(frozen=True)
class Row:
    """One server in one cell.

    `values` are by metric's key, then by trial; `marks` say why figures are missing.
    """

    subject: str
    trials: int
    values: Mapping[str, Mapping[int, float]]
    comparisons: Mapping[str, Comparison]
    marks: tuple[str, ...]
    client_share: float | None

    def median(self, metric: Metric) -> float | None:
        """Over the trials that may be used for it."""
        values = self.values.get(metric.key)
        return statistics.median(values.values()) if values else None

    def spread(self, metric: Metric) -> float | None:
        """Median absolute deviation as a part of the median."""
        values = self.values.get(metric.key)
        middle = self.median(metric)
        return median_absolute_deviation(list(values.values())) / middle if values and middle else None


def usable(trial: Mapping[str, Any], metric: Metric) -> bool:
    """May this trial's figure be used?"""
    if trial["faults"] or trial.get(metric.key) is None:
        return False
    return not (metric.needs_client and trial.get("client_bound"))


def values_of(cell: Mapping[str, Any], subject: str, metric: Metric) -> dict[int, float]:
    """By trial, those that may be used."""
    return {
        trial["trial"]: float(trial[metric.key])
        for trial in cell["trials"]
        if trial["subject"] == subject and usable(trial, metric)
    }


def marks_of(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why figures of these trials are missing."""
    marks = []
    bound = [trial for trial in trials if trial.get("client_bound") and not trial["faults"]]
    if bound:
        marks.append(
            f"client-bound in {len(bound)} of {len(trials)} trials: no rate, no latency, no rank from these"
        )
    faulty = [trial for trial in trials if trial["faults"]]
    if faulty:
        faults = "; ".join(dict.fromkeys(fault for trial in faulty for fault in trial["faults"][:3]))
        marks.append(f"not used, {len(faulty)} of {len(trials)} trials: {faults[:300]}")
    delays = [trial.get("client_delay") or 0 for trial in trials]
    if delays and statistics.median(delays) > STARVED:
        marks.append(
            f"the client waited for a processor {statistics.median(delays) * 100:.0f} % of the time: "
            "other work on the machine lowers these rates"
        )
    return marks


def rows(cell: Mapping[str, Any], baseline: str) -> list[Row]:
    """One for each server that was measured, in the order of the record."""
    measured = dict.fromkeys(trial["subject"] for trial in cell["trials"])
    names = [name for name in measured if name not in cell["excluded"]]
    metrics = metrics_of(cell)
    base = {metric.key: values_of(cell, baseline, metric) for metric in metrics}
    made = []
    for name in names:
        trials = [trial for trial in cell["trials"] if trial["subject"] == name]
        values = {metric.key: values_of(cell, name, metric) for metric in metrics}
        compared = {key: compare_paired(values[key], base[key]) for key in values} if name != baseline else {}
        shares = [trial["client_share"] for trial in trials if "client_share" in trial]
        made.append(
            Row(
                name,
                len(trials),
                {key: value for key, value in values.items() if value},
                {key: value for key, value in compared.items() if value is not None},
                tuple(marks_of(trials)),
                statistics.median(shares) if shares else None,
            )
        )
    return made


def ranking(made: Sequence[Row]) -> list[str]:
    """Servers by rate, the fastest first, without those whose rate cannot be told."""
    rated = [(row.median(RATE), row.subject) for row in made]
    return [name for rate, name in sorted(((r, n) for r, n in rated if r is not None), reverse=True)]


def curve(cell: Mapping[str, Any], subject: str) -> list[tuple[float, float]]:
    """The latency curve: quantile and the median of its milliseconds over the trials that may be used."""
    points: dict[float, list[float]] = {}
    for trial in cell["trials"]:
        if trial["subject"] == subject and usable(trial, P50):
            for quantile, latency in trial["load"]["latency"]["curve"]:
                points.setdefault(quantile, []).append(latency / 1e3)
    return [(quantile, statistics.median(values)) for quantile, values in sorted(points.items())]
