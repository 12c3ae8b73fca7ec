"""The order of things on one HTTP/1.1 connection: times, limits, faults, ends. Time is an argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tracing import make_engine

from servery.engine import NEVER
from servery.errors import LocalProtocolError, RemoteProtocolError
from servery.events import BodyReceived, ConnectionFailed, PeerClosed, RequestReceived
from servery.limits import DEFAULTS, Limits

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def post(length: int, fields: bytes = b"") -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n" % (length, fields)


def fed(name: str, data: bytes, now: float = 0.0, **limits: Any) -> Any:
    """An engine, made at time 0, that has taken `data`."""
    engine = make_engine(name, Limits(**limits))
    engine.receive(data, now)
    return engine


def written(engine: Any) -> bytes:
    return b"".join(engine.take_output())


def respond(engine: Any, stream: int = 1, content: bytes = b"ok") -> bytes:
    """Answer the request in progress, whole; returns what was written."""
    engine.start_response(stream, 200, [], False)
    assert engine.send_body(stream, content, False)
    return written(engine)


def failure(events: list[Any]) -> tuple[int, str, int, int]:
    """(status, reason, stream, replied) of the only event."""
    [event] = events
    assert isinstance(event, ConnectionFailed)
    return event.error.status, event.error.reason, event.stream, event.replied


def lingers(engine: Any, now: float) -> bool:
    """Whether the engine asks for FIN, and for more octets to drop until the linger time is over."""
    is_lingering = engine.half_closed and engine.wants_read and not engine.closing
    return bool(is_lingering and engine.deadline == now + DEFAULTS.linger_timeout)


def is_closed(engine: Any) -> bool:
    return bool(engine.closing and engine.deadline == NEVER)


# --- times: before and between requests ------------------------------------------------------------------


def test_silent_peer_is_closed_silently(engine_name: str) -> None:
    engine = make_engine(engine_name, Limits(first_byte_timeout=10), 5.0)
    assert engine.deadline == 15.0
    assert engine.expire(15.0) == []
    assert (is_closed(engine), written(engine)) == (True, b"")


def test_head_has_its_time_in_total_and_no_octet_renews_it(engine_name: str) -> None:
    engine = make_engine(engine_name, Limits(head_timeout=20), 0.0)
    for number, octet in enumerate(b"\r\n" + GET[:-1]):
        assert engine.receive(bytes([octet]), 3.0 + number / 100) == []
        assert engine.deadline == 23.0, number
    assert failure(engine.expire(23.0)) == (408, "request head not complete in time", 0, 408)
    assert written(engine).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert lingers(engine, 23.0)


def test_head_that_is_complete_stops_the_clock(engine_name: str) -> None:
    engine = fed(engine_name, GET[:-1])
    [event] = engine.receive(GET[-1:], 1.0)
    assert isinstance(event, RequestReceived)
    assert engine.deadline == NEVER


def test_empty_line_alone_is_no_request(engine_name: str) -> None:
    engine = fed(engine_name, b"\r\n", 1.0)
    assert engine.expire(engine.deadline) == []
    assert (is_closed(engine), written(engine)) == (True, b"")


def test_head_that_begins_behind_another_request_has_its_own_time(engine_name: str) -> None:
    engine = fed(engine_name, GET + b"GE")
    respond(engine)
    assert engine.advance(100.0) == []
    assert engine.deadline == 100.0 + DEFAULTS.head_timeout


def test_idle_connection_is_closed_silently(engine_name: str) -> None:
    engine = fed(engine_name, GET, keep_alive_timeout=5)
    respond(engine)
    assert engine.advance(7.0) == []
    assert engine.deadline == 12.0
    assert engine.expire(12.0) == []
    assert (is_closed(engine), written(engine)) == (True, b"")


def test_first_octet_of_the_next_head_ends_the_idle_time(engine_name: str) -> None:
    engine = fed(engine_name, GET)
    respond(engine)
    engine.advance(7.0)
    engine.receive(b"G", 11.0)
    assert engine.deadline == 11.0 + DEFAULTS.head_timeout


def test_lingering_ends_with_its_time_or_with_the_peer(engine_name: str) -> None:
    engine = fed(engine_name, b"\x00", 1.0, linger_timeout=2)
    assert (engine.half_closed, engine.deadline) == (True, 3.0)
    assert engine.receive(GET * 1000, 2.0) == []
    assert engine.deadline == 3.0
    assert engine.expire(3.0) == []
    assert is_closed(engine)
    engine = fed(engine_name, b"\x00", 1.0)
    assert engine.receive(b"", 2.0) == []
    assert is_closed(engine)
    assert engine.receive(GET, 2.0) == []


# --- times: bodies ---------------------------------------------------------------------------------------


def test_body_may_stall_for_its_time(engine_name: str) -> None:
    engine = fed(engine_name, post(10), 1.0, body_timeout=20)
    assert engine.deadline == 21.0
    assert failure(engine.expire(21.0)) == (408, "request body came too slowly", 1, 408)
    assert written(engine).startswith(b"HTTP/1.1 408 ")
    assert lingers(engine, 21.0)


def test_body_must_reach_its_rate_after_the_grace(engine_name: str) -> None:
    """At 10 octets a second, each octet earns a tenth of a second, counted from the end of the grace."""
    engine = fed(engine_name, post(1000), 0.0, body_timeout=20, body_min_rate=10)
    engine.receive(b"x", 19.0)
    assert engine.deadline == 20.1
    engine.receive(b"x" * 9, 20.0)
    assert engine.deadline == 21.0
    assert engine.receive(b"", 20.5)[0].error.status == 400


def test_fast_body_still_may_not_stall_for_longer(engine_name: str) -> None:
    engine = fed(engine_name, post(10**6), 0.0, body_timeout=20, body_min_rate=10)
    engine.receive(b"x" * 10_000, 5.0)
    assert engine.deadline == 25.0


def test_no_rate_is_asked_for_when_it_is_off(engine_name: str) -> None:
    engine = fed(engine_name, post(1000), 0.0, body_timeout=20, body_min_rate=0)
    engine.receive(b"x", 19.0)
    assert engine.deadline == 39.0


def test_octets_of_the_coding_do_not_renew_the_time(engine_name: str) -> None:
    engine = fed(engine_name, CHUNKED, 0.0, body_timeout=20)
    engine.receive(b"5;a=", 19.0)
    assert engine.deadline == 20.0


def test_body_that_is_complete_stops_the_clock(engine_name: str) -> None:
    engine = fed(engine_name, post(2), 1.0)
    engine.receive(b"ab", 2.0)
    assert engine.deadline == NEVER


def test_time_stands_still_while_reading_is_paused(engine_name: str) -> None:
    engine = fed(engine_name, post(1000), 0.0, body_timeout=20, body_min_rate=10)
    engine.receive(b"x" * 10, 5.0)
    assert engine.deadline == 21.0
    engine.body_paused(True, 6.0)
    assert engine.deadline == NEVER
    engine.body_paused(False, 106.0)
    assert engine.deadline == 126.0
    engine.receive(b"x", 110.0)
    assert engine.deadline == pytest.approx(121.1)


def test_pause_outside_of_a_body_changes_nothing(engine_name: str) -> None:
    engine = fed(engine_name, GET)
    for paused in (True, False):
        engine.body_paused(paused, 1.0)
        assert engine.deadline == NEVER
    engine = fed(engine_name, post(10))
    respond(engine)
    engine.advance(1.0)
    engine.body_paused(True, 1.0)
    assert engine.deadline == 1.0 + DEFAULTS.linger_timeout


def test_resumption_without_a_pause_in_this_body_earns_nothing(engine_name: str) -> None:
    """The pause may have begun with a request before, which had read too far ahead."""
    engine = fed(engine_name, post(1000), 50.0, body_timeout=20, body_min_rate=10)
    engine.body_paused(False, 50.0)
    engine.receive(b"x", 60.0)
    assert engine.deadline == 70.1


# --- the peer's end --------------------------------------------------------------------------------------


def test_eof_before_anything_closes_silently(engine_name: str) -> None:
    for data in (b"", b"\r\n"):
        engine = make_engine(engine_name)
        if data:
            engine.receive(data, 0.0)
        assert engine.receive(b"", 0.0) == []
        assert (is_closed(engine), engine.half_closed, written(engine)) == (True, False, b"")


@pytest.mark.parametrize("data", [b"G", GET[:-1], GET[:20], b"\r\n\r"])
def test_eof_inside_of_a_head_is_refused(data: bytes, engine_name: str) -> None:
    engine = fed(engine_name, data)
    reason = "connection closed inside of a request head"
    assert failure(engine.receive(b"", 0.0)) == (400, reason, 0, 400)
    assert is_closed(engine)
    assert written(engine).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("data", [post(5), post(5) + b"hell", CHUNKED + b"0\r\n"])
def test_eof_inside_of_a_body_is_refused(data: bytes, engine_name: str) -> None:
    engine = fed(engine_name, data)
    reason = "connection closed inside of a request body"
    assert failure(engine.receive(b"", 0.0)) == (400, reason, 1, 400)
    assert is_closed(engine)


def test_eof_behind_a_request_leaves_the_response_its_way(engine_name: str) -> None:
    engine = fed(engine_name, GET)
    assert engine.receive(b"", 0.0) == [PeerClosed()]
    assert not engine.closing
    assert respond(engine) == OK + b"content-length: 2\r\n\r\nok"
    assert engine.advance(0.0) == []
    assert is_closed(engine)


def test_each_request_before_an_eof_is_answered_and_hears_of_it(engine_name: str) -> None:
    engine = fed(engine_name, GET + NEXT)
    assert engine.receive(b"", 0.0) == [PeerClosed()]
    respond(engine)
    request, closed = engine.advance(0.0)
    assert (request.target, closed) == (b"/next", PeerClosed())
    respond(engine, 2)
    assert engine.advance(0.0) == []
    assert is_closed(engine)


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"GE", "connection closed inside of a request head"),
        (post(5), "connection closed inside of a request body"),
    ],
)
def test_what_an_eof_cut_behind_a_request_is_refused_in_its_turn(
    tail: bytes, reason: str, engine_name: str
) -> None:
    engine = fed(engine_name, GET + tail)
    engine.receive(b"", 0.0)
    respond(engine)
    assert engine.advance(0.0)[-1].error.reason == reason
    assert is_closed(engine)
    assert written(engine).startswith(b"HTTP/1.1 400 ")


def test_what_is_wrong_behind_a_request_and_cut_is_refused_once(engine_name: str) -> None:
    engine = fed(engine_name, GET + b"\x00\r\n")
    engine.receive(b"", 0.0)
    respond(engine)
    assert failure(engine.advance(0.0))[0] == 400
    assert is_closed(engine)


def test_eof_while_a_body_is_dropped_is_nobodys_business(engine_name: str) -> None:
    engine = fed(engine_name, post(5))
    respond(engine)
    engine.advance(0.0)
    assert engine.receive(b"", 0.0) == []
    assert is_closed(engine)
    assert written(engine) == b""


# --- a fault in the body, by the state of the response ---------------------------------------------------


def test_fault_before_the_response_is_answered(engine_name: str) -> None:
    engine = fed(engine_name, CHUNKED)
    engine.start_response(1, 200, [], False)
    assert failure(engine.receive(b"x\r\n", 1.0)) == (400, "malformed chunk", 1, 400)
    assert written(engine).startswith(b"HTTP/1.1 400 ")
    assert engine.content_sent == len("malformed chunk\n")
    assert lingers(engine, 1.0)
    with pytest.raises(LocalProtocolError):
        engine.send_body(1, b"late", False)
    assert written(engine) == b""


def test_fault_inside_of_the_response_cuts_it(engine_name: str) -> None:
    engine = fed(engine_name, CHUNKED)
    engine.start_response(1, 200, [], False)
    engine.send_body(1, b"x", True)
    written(engine)
    assert failure(engine.receive(b"x\r\n", 1.0)) == (400, "malformed chunk", 1, 0)
    assert written(engine) == b""
    assert lingers(engine, 1.0)


def test_fault_after_the_response_only_ends_the_connection(engine_name: str) -> None:
    engine = fed(engine_name, CHUNKED)
    respond(engine)
    engine.advance(0.0)
    assert engine.receive(b"2\r\nab\r\nx\r\n", 1.0) == []
    assert written(engine) == b""
    assert lingers(engine, 1.0)


def test_content_before_a_fault_is_handed_on(engine_name: str) -> None:
    body, end = fed(engine_name, CHUNKED).receive(b"1\r\na\r\nx\r\n", 0.0)
    assert body == BodyReceived(1, b"a", True, [])
    assert isinstance(end.error, RemoteProtocolError)


def test_refused_request_is_told_by_its_line(engine_name: str) -> None:
    [event] = make_engine(engine_name).receive(b"PUT /x HTTP/1.1\r\n\r\n", 0.0)
    assert (event.request_line, event.stream, event.replied) == ((b"PUT", b"/x", b"1.1"), 0, 400)


# --- reading ahead ---------------------------------------------------------------------------------------


def test_read_ahead_at_its_limit_and_beyond(engine_name: str) -> None:
    engine = fed(engine_name, GET, read_ahead=10)
    engine.receive(b"x" * 10, 0.0)
    assert engine.wants_read
    engine.receive(b"x", 0.0)
    assert not engine.wants_read


def test_read_ahead_counts_what_came_with_the_request(engine_name: str) -> None:
    for data in (GET, post(2) + b"ab"):
        assert fed(engine_name, data + b"x" * 10, read_ahead=10).wants_read
        assert not fed(engine_name, data + b"x" * 11, read_ahead=10).wants_read


def test_reading_goes_on_with_the_next_request(engine_name: str) -> None:
    engine = fed(engine_name, GET + NEXT, read_ahead=10)
    assert not engine.wants_read
    respond(engine)
    [event] = engine.advance(0.0)
    assert (event.stream, event.target) == (2, b"/next")
    assert engine.wants_read


def test_pipelined_requests_come_one_at_a_time(engine_name: str) -> None:
    engine = make_engine(engine_name)
    events = engine.receive(GET * 3, 0.0)
    for stream in (1, 2, 3):
        assert [event.stream for event in events] == [stream]
        respond(engine, stream)
        events = engine.advance(0.0)
    assert events == []
    assert engine.deadline == DEFAULTS.keep_alive_timeout


# --- bodies that nobody reads ----------------------------------------------------------------------------


def test_drain_size_at_its_limit_and_beyond_with_a_length(engine_name: str) -> None:
    engine = fed(engine_name, post(12) + b"ab", drain_size=10)
    assert b"connection: close" not in respond(engine)
    assert engine.advance(3.0) == []
    assert engine.deadline == 3.0 + DEFAULTS.linger_timeout
    assert engine.receive(b"x" * 9, 4.0) == []
    [event] = engine.receive(b"x" + NEXT, 4.0)
    assert (event.stream, event.target) == (2, b"/next")

    engine = fed(engine_name, post(13) + b"ab", drain_size=10)
    assert b"connection: close\r\n" in respond(engine)
    assert engine.advance(3.0) == []
    assert lingers(engine, 3.0)
    assert engine.receive(b"x" * 11 + NEXT, 4.0) == []


def test_drain_size_at_its_limit_and_beyond_in_chunks(engine_name: str) -> None:
    engine = fed(engine_name, CHUNKED + b"5\r\nhello\r\n", drain_size=10)
    assert b"connection: close" not in respond(engine)
    engine.advance(3.0)
    assert engine.receive(b"a\r\n" + b"x" * 10, 4.0) == []
    assert not engine.half_closed
    assert engine.receive(b"\r\n1\r\nx", 5.0) == []
    assert lingers(engine, 5.0)

    engine = fed(engine_name, CHUNKED, drain_size=10)
    respond(engine)
    engine.advance(3.0)
    [event] = engine.receive(b"a\r\n" + b"x" * 10 + b"\r\n0\r\n\r\n" + NEXT, 4.0)
    assert event.target == b"/next"


def test_drained_connection_becomes_idle(engine_name: str) -> None:
    engine = fed(engine_name, post(5))
    respond(engine)
    engine.advance(0.0)
    assert engine.receive(b"hello", 1.0) == []
    assert engine.deadline == 1.0 + DEFAULTS.keep_alive_timeout


def test_body_that_is_dropped_has_the_linger_time_and_no_more(engine_name: str) -> None:
    engine = fed(engine_name, post(5))
    respond(engine)
    engine.advance(3.0)
    assert engine.receive(b"h", 4.0) == []
    assert engine.deadline == 3.0 + DEFAULTS.linger_timeout
    assert engine.expire(5.0) == []
    assert (written(engine), lingers(engine, 5.0)) == (b"", True)


@pytest.mark.parametrize(("data", "body"), [(post(5), b"hello"), (CHUNKED, b"5\r\nhello\r\n0\r\n\r\n")])
def test_answered_request_keeps_its_place_until_the_driver_moves_on(
    data: bytes, body: bytes, engine_name: str
) -> None:
    """The driver waits while the peer does not read; meanwhile nothing may begin."""
    engine = fed(engine_name, data)
    respond(engine)
    assert engine.receive(body + NEXT, 0.0) == []
    [event] = engine.advance(1.0)
    assert (event.stream, event.target) == (2, b"/next")
    assert engine.deadline == NEVER


def test_drain_size_counts_from_when_the_driver_moves_on(engine_name: str) -> None:
    engine = fed(engine_name, post(30) + b"x" * 15, drain_size=15)
    respond(engine)
    assert engine.receive(b"x" * 14, 0.0) == []
    assert not engine.half_closed
    engine.advance(0.0)
    [event] = engine.receive(b"x" + NEXT, 0.0)
    assert event.target == b"/next"


def test_reading_pauses_behind_an_answer_that_waits(engine_name: str) -> None:
    engine = fed(engine_name, GET)
    respond(engine)
    assert engine.receive(b"x" * 100_000, 0.0) == []
    assert not engine.wants_read


# --- 100 (Continue) --------------------------------------------------------------------------------------

EXPECTS = b"Expect: 100-continue\r\n"


def test_continue_is_sent_once_when_the_body_is_asked_for(engine_name: str) -> None:
    engine = fed(engine_name, post(5, EXPECTS))
    assert written(engine) == b""
    engine.continue_body(1)
    engine.continue_body(1)
    assert written(engine) == CONTINUE
    engine.receive(b"hello", 0.0)
    assert b"connection: close" not in respond(engine)


@pytest.mark.parametrize(
    "data",
    [
        post(5),
        post(5, EXPECTS) + b"h",
        b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        GET,
    ],
)
def test_continue_is_not_sent_to_a_peer_that_does_not_wait(data: bytes, engine_name: str) -> None:
    engine = fed(engine_name, data)
    engine.continue_body(1)
    assert written(engine) == b""


def test_continue_is_not_sent_inside_of_a_response_or_for_another(engine_name: str) -> None:
    engine = fed(engine_name, post(5, EXPECTS))
    engine.continue_body(2)
    engine.continue_body(0)
    engine.start_response(1, 200, [], False)
    engine.continue_body(1)
    assert written(engine) == b""


def test_answer_without_continue_ends_the_connection(engine_name: str) -> None:
    """The peer may send the body, or not: nothing could be made of what comes next."""
    for respond_with in (respond, lambda engine: engine.answer(1, 401, "No") or written(engine)):
        engine = fed(engine_name, post(5, EXPECTS))
        assert b"connection: close\r\n" in respond_with(engine)
        engine.advance(1.0)
        assert lingers(engine, 1.0)


# --- the application's faults ----------------------------------------------------------------------------

CALLS: dict[str, Callable[[Any, int], Any]] = {
    "start_response": lambda engine, stream: engine.start_response(stream, 200, [], False),
    "send_body": lambda engine, stream: engine.send_body(stream, b"x", False),
    "reserve_body": lambda engine, stream: engine.reserve_body(stream, 1, False),
    "end_reserved": lambda engine, stream: engine.end_reserved(stream),
    "send_trailers": lambda engine, stream: engine.send_trailers(stream, [], False),
    "send_informational": lambda engine, stream: engine.send_informational(stream, 103, []),
    "answer": lambda engine, stream: engine.answer(stream, 500, "x"),
    "abandon": lambda engine, stream: engine.abandon(stream),
    "fail_response": lambda engine, stream: engine.fail_response(stream),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_answered_request_cannot_touch_what_follows(
    call: Callable[[Any, int], Any], engine_name: str
) -> None:
    engine = fed(engine_name, GET + NEXT)
    respond(engine)
    with pytest.raises(LocalProtocolError, match="complete"):
        call(engine, 1)
    engine.advance(0.0)
    with pytest.raises(LocalProtocolError, match="answered before"):
        call(engine, 1)
    assert (written(engine), engine.closing) == (b"", False)
    assert respond(engine, 2) == OK + b"content-length: 2\r\n\r\nok"


@pytest.mark.parametrize("name", ["send_body", "reserve_body", "end_reserved", "send_trailers"])
def test_content_needs_a_start(name: str, engine_name: str) -> None:
    engine = fed(engine_name, GET)
    with pytest.raises(LocalProtocolError, match="the response is not started"):
        CALLS[name](engine, 1)
    assert respond(engine)


def test_response_starts_once(engine_name: str) -> None:
    engine = fed(engine_name, GET)
    engine.start_response(1, 200, [], False)
    with pytest.raises(LocalProtocolError, match="started, with nothing queued yet"):
        engine.start_response(1, 200, [], False)
    engine.send_body(1, b"", True)
    with pytest.raises(LocalProtocolError, match="under way"):
        engine.start_response(1, 200, [], False)


def test_failure_before_the_response_is_a_500(engine_name: str) -> None:
    for start in (False, True):
        engine = fed(engine_name, GET)
        if start:
            engine.start_response(1, 200, [(b"a", b"1")], False)
        assert engine.fail_response(1) == 500
        assert written(engine) == (
            b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/plain; charset=utf-8\r\n"
            b"content-length: 22\r\n\r\nInternal Server Error\n"
        )
        assert engine.advance(0.0) == []
        assert (engine.closing, engine.half_closed) == (False, False)


@pytest.mark.parametrize(
    ("data", "headers", "trailers", "resets"),
    [
        (GET, [], False, False),
        (GET, [(b"content-length", b"9")], False, False),
        (GET, [], True, False),
        (b"GET / HTTP/1.0\r\n\r\n", [], False, True),
    ],
)
@pytest.mark.parametrize("end", ["fail_response", "abandon"])
def test_failure_inside_of_the_response_is_seen_as_a_cut(
    data: bytes, headers: Any, trailers: bool, resets: bool, end: str, engine_name: str
) -> None:
    engine = fed(engine_name, data)
    engine.start_response(1, 201, headers, trailers)
    engine.send_body(1, b"x", True)
    written(engine)
    assert CALLS[end](engine, 1) == (201 if end == "fail_response" else None)
    assert written(engine) == b""
    assert is_closed(engine)
    assert engine.reset is resets
    assert engine.advance(0.0) == []


def test_failure_before_the_trailers_is_seen_as_a_cut(engine_name: str) -> None:
    for end in ("fail_response", "abandon"):
        engine = fed(engine_name, GET)
        engine.start_response(1, 200, [], True)
        engine.send_body(1, b"x", False)
        assert not written(engine).endswith(b"0\r\n\r\n")
        CALLS[end](engine, 1)
        assert (written(engine), is_closed(engine), engine.reset) == (b"", True, False)


def test_abandoned_request_gets_no_answer(engine_name: str) -> None:
    for start in (False, True):
        engine = fed(engine_name, GET)
        engine.receive(b"", 0.0)
        if start:
            engine.start_response(1, 200, [], False)
        engine.abandon(1)
        assert (written(engine), is_closed(engine), engine.reset) == (b"", True, False)


def test_octets_sent_are_those_of_this_response(engine_name: str) -> None:
    engine = fed(engine_name, GET + post(5) + NEXT)
    respond(engine, 1, b"hello")
    assert engine.content_sent == 5
    engine.advance(0.0)
    assert engine.content_sent == 0
    engine.start_response(2, 200, [], False)
    engine.send_body(2, b"x", True)
    engine.send_body(2, b"yz", True)
    assert engine.content_sent == 3


# --- the stop --------------------------------------------------------------------------------------------


def test_stop_closes_an_idle_connection(engine_name: str) -> None:
    engine = fed(engine_name, GET)
    respond(engine)
    engine.advance(0.0)
    engine.stop(1.0)
    assert (is_closed(engine), written(engine)) == (True, b"")


def test_a_patient_stop_gives_an_idle_peer_a_short_time_for_one_more_request(engine_name: str) -> None:
    for late in (b"", GET):
        engine = fed(engine_name, GET)
        respond(engine)
        engine.advance(0.0)
        engine.stop(1.0, True)
        assert not engine.closing
        assert engine.deadline == 1.0 + DEFAULTS.linger_timeout
        if late:
            engine.receive(late, 2.0)
            assert respond(engine, 2) == OK + b"content-length: 2\r\nconnection: close\r\n\r\nok"
            engine.advance(3.0)
            assert lingers(engine, 3.0)
        else:
            assert engine.expire(engine.deadline) == []
            assert (is_closed(engine), written(engine)) == (True, b"")


def test_stop_gives_a_first_request_a_short_time_to_come(engine_name: str) -> None:
    engine = make_engine(engine_name)
    engine.stop(1.0)
    assert not engine.closing
    assert engine.deadline == 1.0 + DEFAULTS.linger_timeout
    engine.receive(GET[:5], 2.0)
    assert engine.deadline == 2.0 + DEFAULTS.linger_timeout
    engine.receive(GET[5:], 3.0)
    assert respond(engine) == OK + b"content-length: 2\r\nconnection: close\r\n\r\nok"
    engine.advance(4.0)
    assert lingers(engine, 4.0)


@pytest.mark.parametrize("tail", [b"G", GET[:-1]])
def test_stop_gives_a_head_a_short_time_to_end(tail: bytes, engine_name: str) -> None:
    engine = fed(engine_name, GET + tail)
    respond(engine)
    engine.advance(0.0)
    engine.stop(1.0)
    assert engine.deadline == 1.0 + DEFAULTS.linger_timeout
    assert failure(engine.expire(engine.deadline))[0] == 408


def test_stop_never_makes_time_longer(engine_name: str) -> None:
    engine = make_engine(engine_name, Limits(first_byte_timeout=10))
    engine.stop(9.0)
    assert engine.deadline == 10.0


def test_stop_lets_a_request_in_progress_be_answered(engine_name: str) -> None:
    for data in (GET + NEXT, post(2)):
        engine = fed(engine_name, data)
        engine.stop(0.0)
        assert not engine.closing
        if data == post(2):
            assert engine.receive(b"ab", 0.0) == [BodyReceived(1, b"ab", False, [])]
        assert b"connection: close\r\n" in respond(engine)
        assert engine.advance(1.0) == []
        assert lingers(engine, 1.0)


def test_stop_inside_of_a_response_ends_the_connection_after_it(engine_name: str) -> None:
    engine = fed(engine_name, GET + NEXT)
    engine.start_response(1, 200, [], False)
    engine.send_body(1, b"x", True)
    engine.stop(0.0)
    assert engine.send_body(1, b"", False)
    assert engine.advance(1.0) == []
    assert lingers(engine, 1.0)


def test_stop_while_a_body_is_dropped_or_after_the_end_changes_nothing(engine_name: str) -> None:
    engine = fed(engine_name, post(5))
    respond(engine)
    engine.advance(1.0)
    engine.stop(1.5)
    assert engine.receive(b"hello", 2.0) == []
    assert lingers(engine, 2.0)
    engine.stop(3.0)
    assert lingers(engine, 2.0)
    engine.receive(b"", 3.0)
    engine.stop(3.0)
    assert is_closed(engine)


# --- another protocol ------------------------------------------------------------------------------------


def test_connection_is_handed_over_with_what_was_read_ahead(engine_name: str) -> None:
    engine = make_engine(engine_name)
    data = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nahead"
    assert engine.receive(data, 0.0)[0].upgrade == b"x"
    assert engine.hand_over() == b"ahead"
    assert engine.deadline == NEVER
    assert engine.receive(b"more", 0.0) == []
    assert (engine.closing, written(engine)) == (False, b"")
    assert engine.hand_over() == b""
