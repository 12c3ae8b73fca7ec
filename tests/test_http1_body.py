"""Request bodies: both framings, each limit and one octet beyond it, and what breaks a chunked body."""

from __future__ import annotations

from typing import Any

import pytest
from tracing import make_engine, refused, served, sure_trace

from servery.errors import LimitExceeded, RemoteProtocolError
from servery.events import BodyReceived

CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
GET = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"


def sized(length: int) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % length


def chunked(name: str, coded: bytes, **limits: Any) -> Any:
    """The request with this chunked body; the one behind it must not have suffered."""
    request, following = served(name, CHUNKED + coded + GET, **limits)
    assert following.event.target == b"/next"
    return request


def test_length_is_kept_to_the_octet(engine_name: str) -> None:
    request, following = served(engine_name, sized(5) + b"hello" + GET)
    assert (request.body, request.trailers) == (b"hello", [])
    assert following.event.target == b"/next"


def test_parts_are_handed_on_as_they_come(engine_name: str) -> None:
    engine = make_engine(engine_name)
    assert engine.receive(sized(5) + b"he", 0.0)[1:] == [BodyReceived(1, b"he", True, [])]
    assert engine.receive(b"ll", 0.0) == [BodyReceived(1, b"ll", True, [])]
    assert engine.receive(b"o", 0.0) == [BodyReceived(1, b"o", False, [])]


def test_chunk_data_is_handed_on_before_its_end(engine_name: str) -> None:
    engine = make_engine(engine_name)
    assert engine.receive(CHUNKED + b"5\r\nhe", 0.0)[1:] == [BodyReceived(1, b"he", True, [])]
    assert engine.receive(b"llo\r\n2\r", 0.0) == [BodyReceived(1, b"llo", True, [])]
    assert engine.receive(b"\n", 0.0) == []
    assert engine.receive(b"ab\r\n0\r\n\r\n", 0.0) == [BodyReceived(1, b"ab", False, [])]


@pytest.mark.parametrize(
    ("coded", "body"),
    [
        (b"0\r\n\r\n", b""),
        (b"000\r\n\r\n", b""),
        (b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n", b"ab"),
        (b"A\r\n0123456789\r\n00b\r\n01234567890\r\n0\r\n\r\n", b"012345678901234567890"),
        (b"2\r\n\r\n\r\n0\r\n\r\n", b"\r\n"),
        (b'1;a;b=c;d="e \\" f";g="\xe9"\r\nx\r\n0;z\r\n\r\n', b"x"),
        (b"1 ;\ta = b\r\nx\r\n0\r\n\r\n", b"x"),
    ],
)
def test_chunked_body(coded: bytes, body: bytes, engine_name: str) -> None:
    assert chunked(engine_name, coded).body == body


@pytest.mark.parametrize(
    "coded",
    [
        *(
            b"\r\n",
            b"g\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b"0x1\r\n",
            b"1_0\r\n",
            b" 1\r\n",
            b"1 \r\n",
            b"1\n",
            b"1\r\r\n",
        ),
        *(b"1;\r\n", b"1;=a\r\n", b"1;a=\r\n", b'1;a="\r\n', b'1;a="b"c\r\n', b"1;a=b c\r\n", b"1;\x00\r\n"),
        *(b"1\r\nab\r\n", b"1\r\na\n0\r\n\r\n", b"1\r\na\r0\r\n\r\n", b"1\r\na0\r\n\r\n"),
        *(b"0" * 17 + b"\r\n", b"1" * 17 + b"\r\n"),
    ],
)
def test_broken_chunk(coded: bytes, engine_name: str) -> None:
    assert refused(engine_name, CHUNKED + coded) == (RemoteProtocolError, 400, "malformed chunk")


def test_content_before_a_fault_is_handed_on_whatever_the_cuts(engine_name: str) -> None:
    whole = sure_trace(engine_name, CHUNKED + b"5\r\nhello\r\n5\r\nworld!!")
    assert whole.requests[0].body == b"helloworld"
    assert whole.failures[0][3] == 1


# --- limits ------------------------------------------------------------------------------------------------


def test_body_size_at_its_limit_and_beyond_with_a_length(engine_name: str) -> None:
    assert served(engine_name, sized(5) + b"hello", body_size=5)[0].body == b"hello"
    error = refused(engine_name, sized(6) + b"hello!", body_size=5)
    assert error == (LimitExceeded, 413, "request body too large")


def test_body_size_at_its_limit_and_beyond_in_chunks(engine_name: str) -> None:
    assert chunked(engine_name, b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", body_size=5).body == b"hello"
    error = refused(engine_name, CHUNKED + b"3\r\nhel\r\n3\r\nlo!\r\n0\r\n\r\n", body_size=5)
    assert error == (LimitExceeded, 413, "request body too large")


def test_no_body_at_all_is_a_limit_too(engine_name: str) -> None:
    assert served(engine_name, sized(0), body_size=0)
    assert chunked(engine_name, b"0\r\n\r\n", body_size=0).body == b""
    assert refused(engine_name, sized(1) + b"x", body_size=0)[1] == 413


def test_largest_chunk_that_can_be_counted_and_beyond(engine_name: str) -> None:
    engine = make_engine(engine_name)
    assert len(engine.receive(CHUNKED + b"7fffffffffffffff\r\n", 0.0)) == 1
    assert not engine.half_closed
    assert refused(engine_name, CHUNKED + b"8000000000000000\r\n")[1] == 413
    assert refused(engine_name, CHUNKED + b"1\r\na\r\n7fffffffffffffff\r\n")[1] == 413


def test_chunk_line_at_its_limit_and_beyond(engine_name: str) -> None:
    line = b"1;a=" + b"b" * 10
    assert chunked(engine_name, line + b"\r\nx\r\n0\r\n\r\n", chunk_line=14).body == b"x"
    error = refused(engine_name, CHUNKED + line + b"\r\nx\r\n0\r\n\r\n", chunk_line=13)
    assert error == (LimitExceeded, 400, "chunk-size line too long")


def test_chunk_line_without_end_is_refused_at_the_first_octet_beyond(engine_name: str) -> None:
    assert refused(engine_name, CHUNKED + b"1;aaaa", chunk_line=5)[0] is LimitExceeded
    whole = sure_trace(engine_name, CHUNKED + b"1;aaa\r", chunk_line=5)
    assert whole.failures == []


def test_chunk_extensions_at_their_limit_and_beyond(engine_name: str) -> None:
    coded = b"1;aa\r\nx\r\n1;bb\r\ny\r\n0;cc\r\n\r\n"
    assert chunked(engine_name, coded, chunk_extensions=9).body == b"xy"
    error = refused(engine_name, CHUNKED + coded, chunk_extensions=8)
    assert error == (LimitExceeded, 400, "chunk extensions too large")


def test_trailer_size_at_its_limit_and_beyond(engine_name: str) -> None:
    """Counted like a head, without the empty line."""
    coded = b"0\r\na: 1\r\nb: 2\r\n\r\n"
    assert chunked(engine_name, coded, trailer_size=12).trailers == [(b"a", b"1"), (b"b", b"2")]
    error = refused(engine_name, CHUNKED + coded, trailer_size=11)
    assert error == (LimitExceeded, 431, "header fields too large")


def test_trailer_count_at_its_limit_and_beyond(engine_name: str) -> None:
    coded = b"0\r\na: 1\r\nb: 2\r\n"
    assert len(chunked(engine_name, coded + b"\r\n", field_count=2).trailers) == 2
    [request] = served(engine_name, CHUNKED + coded + b"\r\n", field_count=2)
    assert request.complete
    error = refused(engine_name, CHUNKED + coded + b"c: 3\r\n\r\n", field_count=2)
    assert error == (LimitExceeded, 431, "too many header fields")


def test_trailer_field_size_at_its_limit_and_beyond(engine_name: str) -> None:
    coded = b"0\r\na: " + b"v" * 60 + b"\r\n\r\n"
    assert chunked(engine_name, coded, field_size=63).trailers == [(b"a", b"v" * 60)]
    assert refused(engine_name, CHUNKED + coded, field_size=62)[1] == 431


# --- trailers --------------------------------------------------------------------------------------------


def test_trailers_come_with_the_last_event(engine_name: str) -> None:
    engine = make_engine(engine_name)
    engine.receive(CHUNKED + b"1\r\nx\r\n0\r\nA: 1\r\n", 0.0)
    assert engine.receive(b"\r\n", 0.0) == [BodyReceived(1, b"", False, [(b"a", b"1")])]


@pytest.mark.parametrize(
    "name", [b"Content-Length", b"TRANSFER-ENCODING", b"host", b"authorization", b"trailer"]
)
def test_fields_that_have_no_business_in_trailers(name: bytes, engine_name: str) -> None:
    error = refused(engine_name, CHUNKED + b"0\r\n" + name + b": 1\r\n\r\n")
    assert error == (RemoteProtocolError, 400, "field not allowed in trailers")


@pytest.mark.parametrize("line", [b"a", b" a: 1", b"a : 1", b"a: \x00", b"a: 1\n"])
def test_broken_trailer(line: bytes, engine_name: str) -> None:
    assert refused(engine_name, CHUNKED + b"0\r\n" + line + b"\r\n\r\n")[1] == 400
