"""Every case of the corpus on an engine alone, cut in many ways: one outcome, and the right one."""

from __future__ import annotations

import pytest
from corpus.http1_cases import CASES, Accepted, Case
from tracing import ANSWER, BYTEWISE, Seen, Trace, Tracer, cuttings, make_engine, pieces, trace

from servery.engine import NEVER
from servery.limits import DEFAULTS

GOOD = b"GET /good HTTP/1.1\r\nHost: a.test\r\n\r\n"
IDS = [case.id for case in CASES]

every_case = pytest.mark.parametrize("case", CASES, ids=IDS)


def check(case: Case, seen: Trace) -> None:
    """Whether `seen` is an outcome that `case` allows."""
    assert not {request.event.target for request in seen.requests} & set(case.never)
    for request in seen.requests:
        check_parts(request)
    is_served = bool(seen.requests) and all(request.complete for request in seen.requests)
    if case.accept is not None and (case.reject is None or is_served):
        check_accepted(case.accept, seen)
    else:
        assert case.reject is not None
        check_refused(case, case.reject, seen)


def check_parts(request: Seen) -> None:
    """The parts of a target are its octets, and the flags of the request fit together."""
    event = request.event
    if event.target.startswith(b"/"):
        assert event.authority is None
        mark = b"?" if b"?" in event.target else b""
        assert event.raw_path + mark + event.query == event.target
    assert event.raw_path.startswith(b"/") or event.raw_path == event.target == b"*"
    assert not (event.complete and event.expects_continue)


def check_accepted(expected: Accepted, seen: Trace) -> None:
    first = seen.requests[0]
    event = first.event
    assert (event.method, event.target, event.version) == (expected.method, expected.target, expected.version)
    assert event.headers in (expected.headers, expected.headers_alt or expected.headers)
    assert first.body == expected.body
    if expected.trailers is not None:
        assert first.trailers == expected.trailers
    if expected.authority is not None:
        assert (event.authority or dict(event.headers)[b"host"]) == expected.authority
    assert len(seen.requests) == expected.requests
    assert all(request.complete for request in seen.requests)
    if expected.all is not None:
        every = [(request.event.method, request.event.target, request.body) for request in seen.requests]
        assert every == expected.all
    answers = seen.output
    if expected.then_reject is None:
        assert seen.failures == []
        is_kept = seen.state == (True, False, False, False, DEFAULTS.keep_alive_timeout)
        assert is_kept is expected.keep_alive
        is_announced = b"connection: close\r\n" not in answers.rpartition(ANSWER)[2]
        assert is_announced is expected.keep_alive
    else:
        [(_, status, _, stream, _, replied)] = seen.failures
        assert status in expected.then_reject
        assert (stream, replied) == (0, status)
        answers, _, refusal = answers.rpartition(b"HTTP/1.1 %d " % status)
        check_refusal_text(refusal, seen)
    assert answers.count(ANSWER) == answers.count(b"HTTP/1.1 ") == expected.requests
    assert_ended(seen)


def check_refused(case: Case, expected: set[int], seen: Trace) -> None:
    if case.stage == "head":
        assert seen.requests == []
    assert not any(request.complete for request in seen.requests)
    assert ANSWER not in seen.output
    if case.may_close_silently and not seen.failures:
        assert seen.output == b""
        assert seen.ended[2]
        return
    [(_, status, reason, stream, _, replied)] = seen.failures
    assert status in expected
    assert reason.isprintable()
    assert (stream, replied) == (len(seen.requests), status)
    assert seen.output.startswith(b"HTTP/1.1 %d " % status)
    check_refusal_text(seen.output, seen)
    assert_ended(seen)


def check_refusal_text(refusal: bytes, seen: Trace) -> None:
    """A refusal is one whole response, says what is wrong, and ends the connection."""
    head, _, body = refusal.partition(b"\r\n\r\n")
    assert b"\r\nconnection: close" in head
    assert b"\r\ncontent-length: %d\r\n" % len(body) in head
    assert body == seen.failures[-1][2].encode() + b"\n"


def assert_ended(seen: Trace) -> None:
    """After the end of what the engine takes: FIN and a lingering close, or the close itself."""
    _, half_closed, closing, reset, deadline = seen.ended
    assert not reset
    if closing:
        assert deadline == NEVER
    elif half_closed:
        assert deadline == DEFAULTS.linger_timeout


@every_case
@pytest.mark.parametrize("late", [False, True], ids=["answered at once", "answered late"])
def test_case_has_one_right_outcome_however_it_is_cut(case: Case, late: bool, engine_name: str) -> None:
    whole = trace(engine_name, case.data, late=late, eof=case.eof)
    check(case, whole)
    bytewise = 1000 if late else BYTEWISE
    for name, cuts in cuttings(case.data, case.id, bytewise).items():
        assert trace(engine_name, case.data, cuts, late=late, eof=case.eof) == whole, name


@every_case
def test_case_has_the_same_outcome_behind_a_good_request(case: Case, engine_name: str) -> None:
    alone = trace(engine_name, case.data, eof=case.eof)
    for late in (False, True):
        for name, cuts in cuttings(GOOD + case.data, case.id).items():
            behind = trace(engine_name, GOOD + case.data, cuts, late=late, eof=case.eof)
            first = behind.requests.pop(0)
            assert (first.event.target, first.complete) == (b"/good", True)
            for request in behind.requests:
                request.event.stream -= 1
            assert behind.requests == alone.requests, name
            assert behind.output == ANSWER + b"\r\nok" + alone.output, name
            assert [(*f[:3], *f[4:]) for f in behind.failures] == [(*f[:3], *f[4:]) for f in alone.failures]
            if not (late and case.eof):  # which has no need of a FIN: the peer's own came first
                assert behind.ended == alone.ended, name


@every_case
def test_nothing_is_taken_after_the_last_answer(case: Case, engine_name: str) -> None:
    tracer = Tracer(make_engine(engine_name))
    tracer.feed([case.data])
    if not tracer.engine.half_closed:
        tracer.feed([GOOD, b""])
        assert tracer.engine.closing or tracer.engine.half_closed
    before = len(tracer.trace.requests), tracer.trace.output
    tracer.feed([GOOD, b"\x00" * 100_000, GOOD])
    assert (len(tracer.trace.requests), tracer.trace.output) == before
    assert tracer.engine.wants_read
    tracer.feed([b""])
    assert tracer.engine.closing
    assert tracer.engine.deadline == NEVER


def test_ids_are_unique() -> None:
    assert len(set(IDS)) == len(CASES)


def test_every_case_states_one_outcome_or_two() -> None:
    for case in CASES:
        assert case.accept or case.reject, case.id
        assert case.level in ("must", "policy", "interop"), case.id
        assert case.stage in (("head", "body") if case.reject else (None,)), case.id


def test_pieces_are_the_whole_and_never_empty() -> None:
    assert pieces(b"abcdef", [2, 2, 4]) == [b"ab", b"cd", b"ef"]
    assert pieces(b"ab", [0, 1, 2, 3]) == [b"a", b"b"]
    for cuts in cuttings(b"GET / HTTP/1.1\r\n\r\n", "seed").values():
        assert b"".join(pieces(b"GET / HTTP/1.1\r\n\r\n", cuts)) == b"GET / HTTP/1.1\r\n\r\n"
