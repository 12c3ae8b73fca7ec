"""Cases of the corpus, broken at random: nothing is raised, and the outcome does not depend on the cuts.

The profile is bounded and derandomised, so that a failure is the same everywhere. To look for new ones, run
`HYPOTHESIS_PROFILE=search` and add what it finds to the corpus.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from corpus.http1_cases import CASES
from fuzz.mutation import ODD, SEEDS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tracing import Tracer, make_engine, trace

from servery.engine import NEVER
from servery.limits import DEFAULTS

settings.register_profile(
    "suite",
    max_examples=400,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "search", parent=settings.get_profile("suite"), max_examples=20_000, derandomize=False
)
PROFILE = settings.get_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

LIMITS = replace(
    DEFAULTS,
    request_line=60,
    field_count=5,
    field_size=80,
    head_size=200,
    trailer_size=40,
    chunk_line=20,
    chunk_extensions=30,
    body_size=100,
    empty_lines=2,
)
"""So small that the cases meet them."""


@st.composite
def broken_requests(draw: st.DrawFn) -> bytes:
    """One case, or two spliced, with some octets changed, put in or left out."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    if draw(st.booleans()):
        other = draw(st.sampled_from(SEEDS))
        data[draw(st.integers(0, len(data))) :] = other[draw(st.integers(0, len(other))) :]
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "insert", "delete", "repeat"])):
            case "flip":
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "insert":
                data[at:at] = draw(st.sampled_from(ODD) | st.binary(min_size=1, max_size=3))
            case "delete":
                del data[at : at + draw(st.integers(1, 20))]
            case "repeat":
                data[at:at] = data[at : at + draw(st.integers(1, 40))] * draw(st.integers(1, 3))
    return bytes(data) or b"\r"


def cuts(count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, count), max_size=8).map(sorted) | st.just(list(range(count)))


@pytest.mark.parametrize("limits", [DEFAULTS, LIMITS], ids=["default limits", "small limits"])
@settings(PROFILE)
@given(data=st.data(), late=st.booleans(), eof=st.booleans())
def test_outcome_does_not_depend_on_the_cuts(
    engine_name: str, limits: object, data: st.DataObject, late: bool, eof: bool
) -> None:
    octets = data.draw(broken_requests())
    whole = trace(engine_name, octets, late=late, eof=eof, limits=limits)
    places = data.draw(cuts(len(octets)))
    assert trace(engine_name, octets, places, late=late, eof=eof, limits=limits) == whole


@settings(PROFILE)
@given(octets=broken_requests(), steps=st.lists(st.integers(0, 3), max_size=20), data=st.data())
def test_nothing_is_raised_whatever_the_order(
    engine_name: str, octets: bytes, steps: list[int], data: st.DataObject
) -> None:
    """Octets, time, the stop, EOF and the application's answers in any order, as a driver may meet them."""
    tracer = Tracer(make_engine(engine_name, LIMITS), late=True)
    engine, now = tracer.engine, 0.0
    for step in [*steps, 0]:
        size = data.draw(st.integers(1, len(octets)))
        if step == 0 and octets[:size]:
            tracer.take(engine.receive(octets[:size], now))
            octets = octets[size:] or b"\r\n"
        elif step == 1 and engine.deadline != NEVER:
            now = max(now, engine.deadline)
            tracer.take(engine.expire(now))
        elif step == 2:
            engine.stop(now)
        elif not engine.half_closed and not engine.closing:
            tracer.answer()
        engine.take_output()
        if engine.closing:
            assert engine.deadline == NEVER
            return
    tracer.take(engine.receive(b"", now))
    assert not engine.reset


def test_seeds_are_most_of_the_corpus() -> None:
    assert len(SEEDS) > 0.9 * len(CASES)
