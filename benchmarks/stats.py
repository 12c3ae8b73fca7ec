"""The figures that are compared: ratios within trials, their median, spread and interval."""

from __future__ import annotations

import dataclasses
import functools
import random
import statistics
from collections.abc import Mapping, Sequence

RESAMPLES = 4000
"""Of the bootstrap: the ends of a 95 % interval then vary by less than the figures that are shown."""
CONFIDENCE = 0.95
FEWEST = 5
"""Trials without which there is no interval: of fewer, no resampling makes one."""


def median_absolute_deviation(values: Sequence[float]) -> float:
    """Median of the distances from the median. Raises statistics.StatisticsError of no values."""
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values)


def bootstrap_interval(values: Sequence[float], seed: int = 1) -> tuple[float, float] | None:
    """The percentile bootstrap interval of the median, or None of fewer than `FEWEST` values.

    Efron (1979): medians of samples drawn with replacement. The seed makes the same values give the same
    interval.
    """
    return _interval(tuple(values), seed) if len(values) >= FEWEST else None


@functools.cache
def _interval(values: tuple[float, ...], seed: int) -> tuple[float, float]:
    """A report asks for the same interval in every table and plot."""
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return medians[int(tail * RESAMPLES)], medians[int((1 - tail) * RESAMPLES) - 1]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Ratios of one server to the baseline. `interval` is None if there were too few trials."""

    trials: int
    median: float
    mad: float
    interval: tuple[float, float] | None

    @property
    def verdict(self) -> str:
        """In words; the ratio is that of a cost, or of a rate: which is better the reader knows."""
        if self.interval is None:
            return f"too few trials for an interval: {self.trials} of {FEWEST}"
        low, high = self.interval
        if low <= 1 <= high:
            return "no difference shown"
        change = abs(self.median - 1) * 100
        return f"{change:.1f} % {'less' if self.median < 1 else 'more'}"


def compare_paired(subject: Mapping[int, float], baseline: Mapping[int, float]) -> Comparison | None:
    """Ratio to the baseline within each trial that both have; None if there is none.

    The keys are numbers of trials. What disturbs a machine for minutes disturbs both sides of a trial, and
    cancels out.
    """
    shared = sorted(set(subject) & set(baseline))
    ratios = [subject[trial] / baseline[trial] for trial in shared if baseline[trial]]
    if not ratios:
        return None
    return Comparison(
        len(ratios), statistics.median(ratios), median_absolute_deviation(ratios), bootstrap_interval(ratios)
    )


def compare_runs(new: Sequence[float], old: Sequence[float], seed: int = 1) -> Comparison | None:
    """Ratio of the medians of two runs that were not made in turns: both are resampled apart.

    None of no values.
    """
    if not new or not old or not statistics.median(old):
        return None
    ratio = statistics.median(new) / statistics.median(old)
    spread = ratio * (_relative_mad(new) + _relative_mad(old))
    if min(len(new), len(old)) < FEWEST:
        return Comparison(min(len(new), len(old)), ratio, spread, None)
    draw = random.Random(seed)
    ratios = sorted(
        statistics.median(draw.choices(new, k=len(new))) / statistics.median(draw.choices(old, k=len(old)))
        for _ in range(RESAMPLES)
    )
    tail = (1 - CONFIDENCE) / 2
    interval = ratios[int(tail * RESAMPLES)], ratios[int((1 - tail) * RESAMPLES) - 1]
    return Comparison(min(len(new), len(old)), ratio, spread, interval)


def _relative_mad(values: Sequence[float]) -> float:
    return median_absolute_deviation(values) / statistics.median(values)
