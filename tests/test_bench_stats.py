"""What is made of figures: medians, intervals, verdicts, marks, comparisons; and the order of the turns."""

from __future__ import annotations

import copy
import random
import statistics
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.analysis import CPU, P99, RATE, ranking, rows
from benchmarks.compare import compare
from benchmarks.machine import processors, read_set
from benchmarks.rotation import order
from benchmarks.stats import (
    FEWEST,
    bootstrap_interval,
    compare_paired,
    compare_runs,
    median_absolute_deviation,
)


def test_the_deviation_is_that_of_the_median() -> None:
    assert median_absolute_deviation([1, 2, 3, 4, 100]) == 1
    assert median_absolute_deviation([7]) == 0


def test_an_interval_needs_trials_and_is_the_same_each_time() -> None:
    values = [random.Random(1).gauss(10, 1) for _ in range(FEWEST)]
    assert bootstrap_interval(values[:-1]) is None
    low, high = bootstrap_interval(values)
    assert min(values) <= low <= statistics.median(values) <= high <= max(values)
    assert bootstrap_interval(values) == (low, high)


@pytest.mark.parametrize("sample", ["gauss", "lognormal", "uniform"])
def test_intervals_cover_the_median_of_known_distributions(sample) -> None:
    """Of 40 samples of ten about 95 % should; 85 % are asked for, which chance alone rarely misses."""
    draw = random.Random(sample)
    made = {
        "gauss": (lambda: draw.gauss(1, 0.05), 1.0),
        "lognormal": (lambda: draw.lognormvariate(0, 0.1), 1.0),
        "uniform": (lambda: draw.uniform(0, 2), 1.0),
    }
    value, median = made[sample]
    covered = 0
    for _ in range(40):
        low, high = bootstrap_interval([value() for _ in range(10)])
        covered += low <= median <= high
    assert covered >= 34


def test_ratios_are_those_within_a_trial() -> None:
    """A machine that doubles its cost in some trials changes nothing about the ratio."""
    drift = {trial: 1 + trial % 2 for trial in range(10)}
    found = compare_paired({t: 80 * d for t, d in drift.items()}, {t: 100 * d for t, d in drift.items()})
    assert (found.trials, found.median, found.mad, found.interval) == (10, 0.8, 0, (0.8, 0.8))
    assert found.verdict == "20.0 % less"


def test_only_trials_of_both_sides_count() -> None:
    assert compare_paired({0: 2.0, 1: 3.0}, {1: 1.0, 2: 1.0}).median == 3
    assert compare_paired({0: 2.0}, {1: 1.0}) is None
    assert compare_paired({0: 2.0}, {0: 0.0}) is None


def test_two_of_the_same_show_no_difference() -> None:
    draw = random.Random(5)
    sides = [{trial: draw.gauss(20, 1) for trial in range(10)} for _ in range(2)]
    assert compare_paired(*sides).verdict == "no difference shown"
    assert compare_paired({0: 1.0}, {0: 1.1}).verdict == f"too few trials for an interval: 1 of {FEWEST}"


def test_two_runs_are_compared_by_their_medians() -> None:
    draw = random.Random(6)
    old = [draw.gauss(100, 2) for _ in range(10)]
    assert compare_runs([value * 0.9 for value in old], old).verdict == "10.0 % less"
    assert compare_runs([draw.gauss(100, 2) for _ in range(10)], old).verdict == "no difference shown"
    assert compare_runs([], old) is None


@pytest.mark.parametrize("count", range(1, 6))
def test_each_item_stands_equally_often_in_each_place(count) -> None:
    items = "ABCDE"[:count]
    orders = [order(items, trial) for trial in range(2 * count)]
    assert all(sorted(turn) == list(items) for turn in orders)
    places = Counter((item, turn.index(item)) for turn in orders for item in items)
    assert set(places.values()) == {2}


def test_the_order_is_the_same_on_every_machine() -> None:
    assert ["".join(order("AB", trial)) for trial in range(5)] == ["AB", "BA", "BA", "AB", "AB"]
    assert ["".join(order("ABC", trial)) for trial in range(4)] == ["ABC", "BCA", "CAB", "CBA"]
    assert order("", 3) == []


def test_sets_of_processors() -> None:
    assert read_set("0-2,5") == (0, 1, 2, 5)
    chosen = processors()
    assert chosen.for_workers(1) == chosen.server[:1]
    for text in ("x", "3-", "999"):
        with pytest.raises(ValueError, match=r"\S"):
            processors(server=text)
    one = str(chosen.client[0])
    assert processors(one, one).server == processors(one, one).client


def trial(subject: str, number: int, **figures: object) -> dict[str, object]:
    base = {
        "cpu_us": 20.0,
        "rate": 1000.0,
        "p99_us": 5.0,
        "client_share": 0.4,
        "client_bound": False,
        "faults": [],
    }
    return {"subject": subject, "trial": number, "position": 0, **base, **figures}


def cell(*trials: dict[str, object], **excluded: dict[str, str]) -> dict[str, object]:
    return {"name": "c", "scenario": {"kind": "http"}, "trials": list(trials), "excluded": excluded}


def test_a_client_that_was_the_bottleneck_keeps_only_cpu_per_request() -> None:
    bound = {"client_bound": True, "client_share": 0.97, "rate": 9000.0}
    made = rows(
        cell(*(trial("a", t) for t in range(6)), *(trial("b", t, cpu_us=10.0, **bound) for t in range(6))),
        "a",
    )
    row = made[1]
    assert row.median(RATE) is row.median(P99) is None
    assert row.comparisons[CPU.key].median == 0.5
    assert "client-bound in 6 of 6 trials" in row.marks[0]
    assert ranking(made) == ["a"]


def test_trials_with_faults_are_not_used_and_their_faults_are_told() -> None:
    faulty = trial("a", 1, faults=["3 × reset"], rate=5000.0)
    (row,) = rows(cell(trial("a", 0), faulty), "a")
    assert row.median(RATE) == 1000
    assert row.marks == ("not used, 1 of 2 trials: 3 × reset",)


def test_a_client_that_waited_for_a_processor_is_told_of() -> None:
    (row,) = rows(cell(trial("a", 0, client_delay=0.11)), "a")
    assert row.marks[0].startswith("the client waited for a processor 11 % of the time")
    assert rows(cell(trial("a", 0, client_delay=0.1)), "a")[0].marks == ()


def test_what_was_refused_is_not_reported() -> None:
    made = rows(cell(trial("a", 0), trial("b", 0), b={"kind": "refused", "reason": "why"}), "a")
    assert [row.subject for row in made] == ["a"]


def record(cost: float) -> dict[str, object]:
    draw = random.Random(cost)
    trials = [trial("a", number, cpu_us=draw.gauss(cost, cost / 100)) for number in range(10)]
    return {
        "host": {"processor": "p", "processors": 2, "kernel": "k"},
        "hashes": {"harness": "h", "fixtures": "f", "product": str(cost)},
        "settings": {"warmup": 1, "duration": 5, "client_processes": 1},
        "processors": {"server": [0], "client": [1]},
        "subjects": {"a": {"flags": ["--parser", "python"], "python": "3.11", "gil": True}},
        "cells": [cell(*trials)],
    }


def test_results_of_two_times_are_compared() -> None:
    lines, refused = compare(record(10), record(20))
    assert refused == []
    assert "100" in lines[0] or "99" in lines[0]
    assert "more" in lines[0]


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        (("subjects", "a", "flags"), ["--parser", "native"], "flags"),
        (("subjects", "a", "python"), "3.12", "python"),
        (("hashes", "harness"), "x", "harness"),
        (("hashes", "fixtures"), "x", "fixtures"),
        (("host", "processor"), "x", "host"),
        (("settings", "duration"), 1, "settings"),
        (("processors", "server"), [0, 1], "processors"),
    ],
)
def test_a_comparison_with_something_changed_is_refused_unless_it_is_allowed(path, value, word) -> None:
    old, new = record(10), copy.deepcopy(record(10))
    place = new
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    lines, refused = compare(old, new)
    assert (lines, len(refused)) == ([], 1)
    assert compare(old, new, [word])[1] == []
