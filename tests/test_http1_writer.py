"""Responses to the octet: fields and their faults, framing, interim responses, trailers, own answers."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from tracing import make_engine
from under_test import ENGINES

from servery.errors import LocalProtocolError
from servery.limits import DEFAULTS

OK = b"HTTP/1.1 200 OK\r\n"


def asked(name: str, method: bytes = b"GET", version: bytes = b"1.1", fields: bytes = b"") -> Any:
    """An engine with one request without a body in progress."""
    engine = make_engine(name)
    engine.receive(b"%b / HTTP/%b\r\nHost: a\r\n%b\r\n" % (method, version, fields), 0.0)
    return engine


def written(engine: Any) -> bytes:
    return b"".join(engine.take_output())


def respond(
    engine: Any, *parts: bytes, status: int = 200, headers: Any = (), trailers: bool = False
) -> bytes:
    """Send a response with this content; returns what was written."""
    engine.start_response(1, status, headers, trailers)
    for part in parts[:-1]:
        assert engine.send_body(1, part, True) is False
    assert engine.send_body(1, parts[-1], False) is not trailers
    return written(engine)


# --- framing ---------------------------------------------------------------------------------------------


def test_content_that_comes_at_once_is_given_its_length(engine_name: str) -> None:
    engine = asked(engine_name)
    assert respond(engine, b"hello") == OK + b"content-length: 5\r\n\r\nhello"
    assert engine.content_sent == 5


def test_no_content_is_a_length_too(engine_name: str) -> None:
    assert respond(asked(engine_name), b"") == OK + b"content-length: 0\r\n\r\n"


def test_given_length_is_sent_in_its_own_line(engine_name: str) -> None:
    headers = [(b"A", b"1"), (b"Content-Length", b"5"), (b"b", b"2")]
    output = respond(asked(engine_name), b"he", b"", b"llo", headers=headers)
    assert output == OK + b"A: 1\r\nb: 2\r\ncontent-length: 5\r\n\r\nhello"


def test_large_content_is_not_copied(engine_name: str) -> None:
    content = b"x" * 100_000
    engine = asked(engine_name)
    engine.start_response(1, 200, [(b"content-length", b"200000")], False)
    engine.send_body(1, content, True)
    engine.send_body(1, content, False)
    output = engine.take_output()
    assert sum(part is content for part in output) == 2
    assert b"".join(output) == OK + b"content-length: 200000\r\n\r\n" + content * 2


def test_content_of_unknown_length_goes_out_in_chunks(engine_name: str) -> None:
    engine = asked(engine_name)
    output = respond(engine, b"hello", b"", b"x" * 17, b"")
    coded = b"5\r\nhello\r\n11\r\n" + b"x" * 17 + b"\r\n0\r\n\r\n"
    assert output == OK + b"transfer-encoding: chunked\r\n\r\n" + coded
    assert engine.content_sent == 22


def test_head_leaves_with_an_empty_first_part(engine_name: str) -> None:
    engine = asked(engine_name)
    engine.start_response(1, 200, [], False)
    assert written(engine) == b""
    engine.send_body(1, b"", True)
    assert written(engine) == OK + b"transfer-encoding: chunked\r\n\r\n"
    assert engine.send_body(1, b"x", False)
    assert written(engine) == b"1\r\nx\r\n0\r\n\r\n"


def test_1_0_gets_content_of_unknown_length_until_the_connection_ends(engine_name: str) -> None:
    engine = asked(engine_name, version=b"1.0", fields=b"Connection: keep-alive\r\n")
    assert respond(engine, b"he", b"llo") == OK + b"connection: close\r\n\r\nhello"
    engine.advance(0.0)
    assert engine.half_closed


def test_1_0_keeps_the_connection_only_with_a_length_and_is_told(engine_name: str) -> None:
    engine = asked(engine_name, version=b"1.0", fields=b"Connection: keep-alive\r\n")
    assert respond(engine, b"a") == OK + b"content-length: 1\r\nconnection: keep-alive\r\n\r\na"
    engine.advance(0.0)
    assert not engine.half_closed
    assert respond(asked(engine_name, version=b"1.0"), b"a") == (
        OK + b"content-length: 1\r\nconnection: close\r\n\r\na"
    )


@pytest.mark.parametrize("status", [204, 304])
def test_status_that_has_no_content(status: int, engine_name: str) -> None:
    for parts in ((b"",), (b"hello",), (b"hel", b"lo")):
        engine = asked(engine_name)
        assert b"hello" not in (output := respond(engine, *parts, status=status))
        assert output.endswith(b"\r\n\r\n")
        assert output.count(b"\r\n\r\n") == 1
        assert b"chunked" not in output
        assert engine.content_sent == 0
        assert engine.advance(0.0) == []
        assert not engine.half_closed


def test_no_content_has_no_length_and_not_modified_may(engine_name: str) -> None:
    length = [(b"content-length", b"9")]
    no_content = b"HTTP/1.1 204 No Content\r\n\r\n"
    assert respond(asked(engine_name), b"", status=204, headers=length) == no_content
    assert respond(asked(engine_name), b"", status=204) == no_content
    not_modified = b"HTTP/1.1 304 Not Modified\r\n"
    assert respond(asked(engine_name), b"", status=304) == not_modified + b"\r\n"
    assert respond(asked(engine_name), b"", status=304, headers=length) == (
        not_modified + b"content-length: 9\r\n\r\n"
    )


def test_head_gets_the_length_and_no_content(engine_name: str) -> None:
    assert respond(asked(engine_name, b"HEAD"), b"hello") == OK + b"content-length: 5\r\n\r\n"
    assert respond(asked(engine_name, b"HEAD"), b"") == OK + b"\r\n"
    assert respond(asked(engine_name, b"HEAD"), b"he", b"llo") == OK + b"\r\n"
    given = respond(asked(engine_name, b"HEAD"), b"", headers=[(b"content-length", b"7")])
    assert given == OK + b"content-length: 7\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "kind"),
    [((b"abcdef",), "more"), ((b"abcd", b"ef"), "more"), ((b"abcd",), "less"), ((b"a", b"bc"), "less")],
)
def test_content_must_have_the_length_that_was_given(
    parts: tuple[bytes, ...], kind: str, engine_name: str
) -> None:
    engine = asked(engine_name)
    engine.start_response(1, 200, [(b"content-length", b"5")], False)
    for part in parts[:-1]:
        engine.send_body(1, part, True)
    before = written(engine)
    with pytest.raises(LocalProtocolError, match=f"the response body is {kind} than its content-length"):
        engine.send_body(1, parts[-1], False)
    assert written(engine) == b""
    assert before == b"" or before.endswith(parts[0])


def test_too_much_content_is_found_before_the_last_part(engine_name: str) -> None:
    engine = asked(engine_name)
    engine.start_response(1, 200, [(b"content-length", b"1")], False)
    with pytest.raises(LocalProtocolError, match="more"):
        engine.send_body(1, b"ab", True)


# --- content that the driver writes ----------------------------------------------------------------------


def test_reserved_content_with_a_length(engine_name: str) -> None:
    engine = asked(engine_name)
    engine.start_response(1, 200, [(b"content-length", b"5")], False)
    assert engine.reserve_body(1, 5, False) is True
    assert written(engine) == OK + b"content-length: 5\r\n\r\n"
    assert engine.end_reserved(1) is True
    assert written(engine) == b""
    assert engine.content_sent == 5


def test_reserved_content_in_chunks(engine_name: str) -> None:
    engine = asked(engine_name)
    engine.start_response(1, 200, [], False)
    assert engine.reserve_body(1, 16, True) is True
    assert written(engine) == OK + b"transfer-encoding: chunked\r\n\r\n10\r\n"
    assert engine.end_reserved(1) is False
    assert written(engine) == b"\r\n"
    assert engine.reserve_body(1, 0, False) is True
    assert engine.end_reserved(1) is True
    assert written(engine) == b"0\r\n\r\n"


def test_reserved_content_of_known_size_is_given_its_length(engine_name: str) -> None:
    engine = asked(engine_name)
    engine.start_response(1, 200, [], False)
    assert engine.reserve_body(1, 3, False)
    assert written(engine) == OK + b"content-length: 3\r\n\r\n"


def test_nothing_is_reserved_for_head(engine_name: str) -> None:
    engine = asked(engine_name, b"HEAD")
    engine.start_response(1, 200, [], False)
    assert engine.reserve_body(1, 5, False) is False
    assert engine.end_reserved(1) is True
    assert written(engine) == OK + b"content-length: 5\r\n\r\n"


def test_reserved_content_must_have_the_length_that_was_given(engine_name: str) -> None:
    engine = asked(engine_name)
    engine.start_response(1, 200, [(b"content-length", b"4")], False)
    with pytest.raises(LocalProtocolError, match="more"):
        engine.reserve_body(1, 5, False)
    with pytest.raises(LocalProtocolError, match="not allowed now"):
        engine.end_reserved(1)


# --- trailers --------------------------------------------------------------------------------------------


def test_trailers_for_a_peer_that_takes_them(engine_name: str) -> None:
    engine = asked(engine_name, fields=b"TE: trailers\r\n")
    output = respond(engine, b"hello", headers=[(b"content-length", b"5")], trailers=True)
    assert output == OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
    assert engine.send_trailers(1, [(b"A", b"1")], True) is False
    assert written(engine) == b""
    assert engine.send_trailers(1, [(b"B", b"2")], False) is True
    assert written(engine) == b"0\r\nA: 1\r\nB: 2\r\n\r\n"
    engine.advance(0.0)
    assert not engine.half_closed


def test_trailers_for_a_peer_that_does_not_take_them(engine_name: str) -> None:
    engine = asked(engine_name)
    assert respond(engine, b"hi", trailers=True) == OK + b"transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n"
    assert engine.send_trailers(1, [(b"A", b"1")], False) is True
    assert written(engine) == b"0\r\n\r\n"


def test_trailers_behind_content_with_a_length_are_dropped(engine_name: str) -> None:
    engine = asked(engine_name)
    output = respond(engine, b"hi", headers=[(b"content-length", b"2")], trailers=True)
    assert output == OK + b"content-length: 2\r\n\r\nhi"
    assert engine.send_trailers(1, [(b"A", b"1")], False) is True
    assert written(engine) == b""


def test_trailers_are_checked_like_headers(engine_name: str) -> None:
    engine = asked(engine_name, fields=b"TE: trailers\r\n")
    respond(engine, b"hi", trailers=True)
    with pytest.raises(LocalProtocolError, match="control character"):
        engine.send_trailers(1, [(b"a", b"1\r\nb: 2")], False)


def test_trailers_need_to_be_announced(engine_name: str) -> None:
    engine = asked(engine_name)
    engine.start_response(1, 200, [], False)
    engine.send_body(1, b"x", True)
    with pytest.raises(LocalProtocolError, match="under way"):
        engine.send_trailers(1, [], False)


def test_no_content_follows_trailers(engine_name: str) -> None:
    engine = asked(engine_name)
    respond(engine, b"hi", trailers=True)
    with pytest.raises(LocalProtocolError, match="waiting for its trailers"):
        engine.send_body(1, b"", False)


# --- interim responses -----------------------------------------------------------------------------------


def test_early_hints_before_and_after_the_start(engine_name: str) -> None:
    engine = asked(engine_name)
    hint = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    engine.send_informational(1, 103, [(b"link", b"</a>")])
    assert written(engine) == hint
    engine.start_response(1, 200, [], False)
    engine.send_informational(1, 103, [(b"link", b"</a>")])
    assert written(engine) == hint
    engine.send_body(1, b"", True)
    with pytest.raises(LocalProtocolError, match="under way"):
        engine.send_informational(1, 103, [])


def test_early_hints_are_not_for_1_0(engine_name: str) -> None:
    engine = asked(engine_name, version=b"1.0")
    engine.send_informational(1, 103, [(b"link", b"</a>")])
    assert written(engine) == b""
    with pytest.raises(LocalProtocolError, match="control character"):
        engine.send_informational(1, 103, [(b"link", b"\x00")])


@pytest.mark.parametrize("status", [99, 100, 101, 200])
def test_status_of_an_interim_response(status: int, engine_name: str) -> None:
    with pytest.raises(LocalProtocolError, match=f"{status} is not the status of an interim response"):
        asked(engine_name).send_informational(1, status, [])


# --- fields ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([(b"a", b"1\r\nb: 2")], "control character"),
        ([(b"a", b"\n")], "control character"),
        ([(b"a", b"x\x00")], "control character"),
        ([(b"a", b"\x7f")], "control character"),
        ([(b"vary", b"\r")], "control character"),
        ([(b"date", b"\r")], "control character"),
        ([(b"a", b" 1")], "whitespace at the start or end"),
        ([(b"a", b"1\t")], "whitespace at the start or end"),
        ([(b"", b"1")], "invalid response field name"),
        ([(b"a b", b"1")], "invalid response field name"),
        ([(b"a:", b"1")], "invalid response field name"),
        ([(b"a\r\n", b"1")], "invalid response field name"),
        ([(b"\xe9", b"1")], "invalid response field name"),
        ([("a", b"1")], "pairs of bytes"),
        ([(b"a", "1")], "pairs of bytes"),
        ([(b"vary", "1")], "pairs of bytes"),
        ([(b"content-length", "1")], "pairs of bytes"),
        ([(b"content-length", 1)], "pairs of bytes"),
        ([("content-length", "1")], "pairs of bytes"),
        ([(b"a", None)], "pairs of bytes"),
        ([(b"a",)], "pairs of bytes"),
        ([(b"a", b"1", b"2")], "pairs of bytes"),
        ([b"a"], "pairs of bytes"),
        ([1], "pairs of bytes"),
        (1, "pairs of bytes"),
        (None, "pairs of bytes"),
        ([(b"content-length", b"")], "invalid content-length"),
        ([(b"content-length", b"-1")], "invalid content-length"),
        ([(b"content-length", b"+1")], "invalid content-length"),
        ([(b"content-length", b"1_0")], "invalid content-length"),
        ([(b"content-length", b" 1")], "invalid content-length"),
        ([(b"content-length", b"\xb2")], "invalid content-length"),
        ([(b"content-length", b"1" * 20)], "invalid content-length"),
        ([(b"content-length", b"1"), (b"Content-Length", b"2")], "two different content-length"),
        ([(b"content-length", b"0"), (b"Content-Length", b"2")], "two different content-length"),
    ],
)
def test_fields_that_must_not_go_out(headers: Any, message: str, engine_name: str) -> None:
    for _ in range(2):  # what was seen once must not be taken for good
        engine = asked(engine_name)
        with pytest.raises(LocalProtocolError, match=message):
            engine.start_response(1, 200, headers, False)
        assert written(engine) == b""
        assert respond(engine, b"") == OK + b"content-length: 0\r\n\r\n"


def test_values_are_sent_as_they_are(engine_name: str) -> None:
    headers = [(b"A", b""), (b"a", b"x\ty  z"), (b"b", b"\x80\xff"), (b"c", b"a:  b"), (b"Set-Cookie", b"1")]
    lines = b"A: \r\na: x\ty  z\r\nb: \x80\xff\r\nc: a:  b\r\nSet-Cookie: 1\r\n"
    assert respond(asked(engine_name), b"", headers=headers) == OK + lines + b"content-length: 0\r\n\r\n"


def test_pairs_may_be_lists_and_come_from_an_iterator(engine_name: str) -> None:
    def headers() -> Iterator[Any]:
        yield [b"vary", b"x"]
        yield (b"vary", b"y")

    for _ in range(2):
        output = respond(asked(engine_name), b"", headers=headers())
        assert output == OK + b"vary: x\r\nvary: y\r\ncontent-length: 0\r\n\r\n"


def test_equal_lengths_are_one(engine_name: str) -> None:
    headers = [(b"content-length", b"1"), (b"Content-Length", b"1")]
    assert respond(asked(engine_name), b"x", headers=headers) == OK + b"content-length: 1\r\n\r\nx"


def test_framing_is_the_servers_own(engine_name: str) -> None:
    headers = [(b"Transfer-Encoding", b"gzip"), (b"Connection", b"keep-alive, x"), (b"a", b"1")]
    assert respond(asked(engine_name), b"", headers=headers) == OK + b"a: 1\r\ncontent-length: 0\r\n\r\n"


def test_application_may_ask_for_the_end_of_the_connection(engine_name: str) -> None:
    engine = asked(engine_name)
    output = respond(engine, b"", headers=[(b"connection", b"x, Close")])
    assert output == OK + b"content-length: 0\r\nconnection: close\r\n\r\n"
    engine.advance(0.0)
    assert engine.half_closed


def test_thousands_of_different_fields_are_all_sent_right(engine_name: str) -> None:
    """More than any table of known names, lines and lengths keeps, and a line longer than it keeps."""
    for number in range(1100):
        name, size = b"X-%d" % number, number % 7
        headers = [(name, b"1"), (b"vary", name), (b"content-length", b"%05d" % number)]
        engine = asked(engine_name, b"HEAD")
        output = respond(engine, b"x" * size, headers=headers)
        lines = b"%b: 1\r\nvary: %b\r\ncontent-length: %05d\r\n\r\n" % (name, name, number)
        assert output == OK + lines
    long = [(b"vary", b"x" * 300)]
    for _ in range(2):
        assert b"vary: " + b"x" * 300 + b"\r\n" in respond(asked(engine_name), b"", headers=long)


@pytest.mark.parametrize("status", [199, 1000, 0, -200, "200", 200.0, None, b"200"])
def test_status_that_is_none(status: Any, engine_name: str) -> None:
    with pytest.raises(LocalProtocolError, match="must be an integer from 200 to 999"):
        asked(engine_name).start_response(1, status, [], False)


@pytest.mark.parametrize(
    ("status", "line"), [(200, OK), (299, b"HTTP/1.1 299 \r\n"), (999, b"HTTP/1.1 999 \r\n")]
)
def test_status_line(status: int, line: bytes, engine_name: str) -> None:
    assert respond(asked(engine_name), b"", status=status).startswith(line)


# --- the stamp, and the server's own answers -------------------------------------------------------------


def stamp(has: int) -> bytes:
    """Shows what the engine says that the application has set."""
    return b"stamp: %d\r\n" % has


def stamped(name: str, method: bytes = b"GET") -> Any:
    engine = importlib.import_module(ENGINES[name]).Http1Engine(DEFAULTS, stamp, 0.0)
    engine.receive(method + b" / HTTP/1.1\r\nHost: a\r\n\r\n", 0.0)
    return engine


@pytest.mark.parametrize(
    ("headers", "has"),
    [
        ([], 0),
        ([(b"Date", b"x")], 1),
        ([(b"server", b"x")], 2),
        ([(b"SERVER", b"x"), (b"date", b"x")], 3),
    ],
)
def test_stamp_is_told_which_fields_the_application_has_set(headers: Any, has: int, engine_name: str) -> None:
    lines = b"".join(b"%b: %b\r\n" % field for field in headers)
    output = respond(stamped(engine_name), b"", headers=headers)
    assert output == OK + lines + b"content-length: 0\r\nstamp: %d\r\n\r\n" % has


def test_answer_of_the_server_itself(engine_name: str) -> None:
    engine = stamped(engine_name)
    engine.answer(1, 503, "Service Unavailable", b"retry-after: 1\r\n")
    expected = (
        b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n"
        b"content-length: 20\r\nretry-after: 1\r\nstamp: 0\r\n\r\n"
    )
    assert written(engine) == expected + b"Service Unavailable\n"
    assert engine.content_sent == 20
    engine = stamped(engine_name, b"HEAD")
    engine.answer(1, 503, "Service Unavailable", b"retry-after: 1\r\n")
    assert written(engine) == expected
    assert engine.content_sent == 0


def test_refusal_of_the_server_itself(engine_name: str) -> None:
    engine = importlib.import_module(ENGINES[engine_name]).Http1Engine(DEFAULTS, stamp, 0.0)
    engine.receive(b"GET / HTTP/1.1\r\n\r\n", 0.0)
    assert written(engine) == (
        b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 19\r\n"
        b"connection: close\r\nstamp: 0\r\n\r\nHost field missing\n"
    )


def test_refusal_of_head_has_no_content(engine_name: str) -> None:
    engine = make_engine(engine_name)
    engine.receive(b"HEAD / HTTP/1.1\r\n\r\n", 0.0)
    output = written(engine)
    assert output.endswith(b"content-length: 19\r\nconnection: close\r\n\r\n")
    assert engine.content_sent == 0
