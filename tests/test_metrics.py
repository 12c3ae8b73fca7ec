"""Counting, merging, and the text that Prometheus reads."""

from __future__ import annotations

import json
import re

import pytest

from servery.metrics.counting import (
    DURATIONS,
    METHODS,
    SIZES,
    STATUSES,
    Histogram,
    Metrics,
    counter,
    gauge,
    merge,
)
from servery.metrics.prometheus import HELP, exposition


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


def test_labels_are_bounded_whatever_peers_and_applications_make_up():
    metrics = Metrics()
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
