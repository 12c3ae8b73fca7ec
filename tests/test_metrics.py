"""Counting, merging, and the text that Prometheus reads."""

from __future__ import annotations

import importlib
import json
import random
import re

import pytest

from servery.metrics.counting import (
    RESTARTS,
    Histogram,
    Metrics,
    WorkerNumbers,
    by_worker,
    counter,
    crew_numbers,
    gauge,
    lasting,
    merge,
)
from servery.metrics.prometheus import HELP, exposition
from servery.metrics.tally import DURATIONS, KINDS, METHODS, SIZES, STATUSES, Tally


@pytest.fixture
def make_tally(engine_name):
    """The class of tallies, the reference or its compiled twin."""
    if engine_name == "python":
        return Tally
    return importlib.import_module("servery._speedups.tally").Tally


def counted() -> Metrics:
    metrics = Metrics()
    metrics.request(b"GET", 200, 0.002, 100)
    metrics.request(b"GET", 200, 0.3, 0)
    metrics.request(b"POST", 0, 99.0, 1 << 40)
    metrics.websocket(b"GET", 101, 1000)
    metrics.rejected(400)
    return metrics


def test_values_are_counted_up_to_and_at_the_bounds():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.1):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.sum == pytest.approx(7.1)


@pytest.mark.parametrize("bounds", [DURATIONS, SIZES])
def test_bounds_rise(bounds):
    assert list(bounds) == sorted(set(bounds))


def test_requests_are_counted_in_any_number_of_kinds(make_tally):
    """More kinds than are kept apart, at the bounds of the histograms and beside them."""
    tally, chance = make_tally(), random.Random(3)
    methods, statuses = (*METHODS, b"BREW", b"GETS"), (0, 200, 404, 599, 600, 999, 299)
    durations = [edge + by for edge in DURATIONS for by in (-0.0001, 0, 0.0001)]
    sizes = [int(edge) + by for edge in SIZES for by in (0, 1)]
    requests: dict[tuple[bytes, int], int] = {}
    spent, sent = [], []
    for number in range(KINDS * 4):
        method, status = chance.choice(methods), chance.choice(statuses)
        seconds, octets = chance.choice(durations), chance.choice(sizes)
        labels = (
            method if method in METHODS else b"other",
            status if status in STATUSES or not status else -1,
        )
        requests[labels] = requests.get(labels, 0) + 1
        if number % 9:
            tally.ended(method, status, seconds, octets)
            spent.append(seconds)
            sent.append(octets)
        else:
            tally.switched(method, status)
    for _ in range(2):  # looking changes nothing
        counts = tally.counts()
        assert counts.requests == requests
        assert counts.durations == placed(DURATIONS, spent)
        assert counts.sizes == placed(SIZES, sent)
        assert counts.seconds == pytest.approx(sum(spent))
        assert counts.octets == sum(sent)


def placed(bounds, values):
    """How many of `values` are up to each of `bounds`, and above the last."""
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    return histogram.counts


def test_labels_are_bounded_whatever_peers_and_applications_make_up(make_tally):
    metrics = Metrics(make_tally())
    for number in range(1000):
        metrics.request(b"M%d" % number, number, 0.0, 0)
        metrics.websocket(b'G"E\nT', 101, 3000 + number)
        metrics.rejected(number)
    snapshot = metrics.snapshot()
    labels = snapshot["servery_requests_total"]["values"]
    assert len(labels) <= len(STATUSES) + 2
    assert {re.match('method="(.*?)"', label)[1] for label in labels} == {"other"}
    assert snapshot["servery_websockets_total"]["values"] == {'code="other"': 1000}
    assert len(snapshot["servery_rejected_total"]["values"]) <= 10
    assert len(METHODS) < 10


def test_a_snapshot_is_plain_values():
    snapshot = counted().snapshot()
    assert json.loads(json.dumps(snapshot)) == snapshot


def test_workers_are_added_up_and_left_as_they_were():
    one, two = counted().snapshot(), counted().snapshot()
    one["servery_connections"] = gauge({'state="idle"': 1})
    two["servery_connections"] = gauge({'state="idle"': 2, 'state="active"': 3})
    two["servery_worker_restarts_total"] = counter({"": 1})
    before = json.dumps([one, two])
    total = merge([one, two, {}])
    assert json.dumps([one, two]) == before
    assert total["servery_requests_total"]["values"]['method="GET",status="200"'] == 4
    assert total["servery_connections"]["values"] == {'state="idle"': 3, 'state="active"': 3}
    assert total["servery_worker_restarts_total"]["values"] == {"": 1}
    durations = total["servery_request_duration_seconds"]["values"]
    assert sum(durations["counts"]) == 6
    assert durations["sum"] == pytest.approx(2 * 99.302)
    assert merge([]) == {}


def test_histograms_that_cannot_be_added_up_are_left_out():
    """Those of another version, while a program is replaced by its successor."""
    one, two = counted().snapshot(), counted().snapshot()
    name = "servery_request_duration_seconds"
    two[name] = Histogram((1.0,)).snapshot()
    total = merge([one, two])
    assert total[name] == one[name]
    assert total["servery_requests_total"]["values"]['method="GET",status="200"'] == 4


def test_what_a_worker_leaves_behind_is_no_gauge():
    snapshot = counted().snapshot()
    assert lasting(snapshot | {"servery_connections": gauge({"": 1})}) == snapshot


def test_the_numbers_of_each_worker_are_known_by_its_slot():
    """Of a worker that is replaced and its successor they are added up; the older report tells its age."""
    numbers = [
        WorkerNumbers(1, 10, 1, 2, 0.5),
        WorkerNumbers(0, 20, 3, 4, 0.1),
        WorkerNumbers(1, 30, 5, 6, 0.2),
    ]
    found = {name: one["values"] for name, one in by_worker(numbers).items()}
    assert found == {
        "servery_worker_memory_bytes": {'worker="0"': 20, 'worker="1"': 40},
        "servery_worker_connections": {'worker="0"': 3, 'worker="1"': 6},
        "servery_worker_requests_in_flight": {'worker="0"': 4, 'worker="1"': 8},
        "servery_worker_report_age_seconds": {'worker="0"': 0.1, 'worker="1"': 0.5},
    }


def test_every_reason_of_a_restart_is_there_from_the_start():
    found = crew_numbers(1, 2, {"died": 3})
    assert len(found["servery_worker_restarts_total"]["values"]) == len(RESTARTS)
    assert found["servery_worker_restarts_total"]["values"]['reason="died"'] == 3
    assert found["servery_workers"]["values"] == {"": 1}
    assert found["servery_workers_wanted"]["values"] == {"": 2}


def test_the_text():
    lines = exposition(counted().snapshot()).splitlines()
    assert "# TYPE servery_requests_total counter" in lines
    assert 'servery_requests_total{method="GET",status="200"} 2' in lines
    assert 'servery_requests_total{method="POST",status="none"} 1' in lines
    assert 'servery_websockets_total{code="1000"} 1' in lines
    assert 'servery_rejected_total{reason="malformed"} 1' in lines
    assert 'servery_request_duration_seconds_bucket{le="0.0025"} 1' in lines
    assert 'servery_request_duration_seconds_bucket{le="60"} 2' in lines
    assert 'servery_request_duration_seconds_bucket{le="+Inf"} 3' in lines
    assert "servery_request_duration_seconds_count 3" in lines


def test_every_line_has_the_form_of_the_format():
    form = re.compile(r'[a-z_]+(\{[a-z]+="[^"\\\n]*"(,[a-z]+="[^"\\\n]*")*\})? [0-9.e+-]+')
    text = exposition(counted().snapshot())
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or form.fullmatch(line), line


def test_every_name_is_explained():
    assert counted().snapshot().keys() <= HELP.keys()
    assert all(text.endswith(".") for text in HELP.values())
