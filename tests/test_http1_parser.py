"""Request heads, good and bad, at each limit and one octet beyond it; each cut in every way."""

from __future__ import annotations

from typing import Any

import pytest
from tracing import Tracer, make_engine, refused, served

from servery.errors import LimitExceeded, RemoteProtocolError
from servery.limits import Limits

CONTROL = "control character or bare line end in the head"


def head(line: bytes = b"GET / HTTP/1.1", *fields: bytes, host: bool = True) -> bytes:
    """A request head of these lines."""
    return b"\r\n".join((line, *((b"Host: a",) if host else ()), *fields, b"", b""))


def get(name: str, *fields: bytes, **limits: Any) -> Any:
    """The event of a GET with these fields."""
    return served(name, head(b"GET / HTTP/1.1", *fields), **limits)[0].event


# --- limits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [b"GET /%b HTTP/1.1", b"GET http://a/%b HTTP/1.1"])
def test_request_line_at_its_limit_and_beyond(form: bytes, engine_name: str) -> None:
    line = form % b"aaa"
    assert len(served(engine_name, head(line), request_line=len(line))) == 1
    error = refused(engine_name, head(line), request_line=len(line) - 1)
    assert error == (LimitExceeded, 414, "request line too long")


def test_request_line_without_end_is_refused_at_the_first_octet_beyond(engine_name: str) -> None:
    engine = make_engine(engine_name, Limits(request_line=20))
    assert engine.receive(b"GET /aaaaaa HTTP/1.1\r", 0.0) == []
    [failure] = make_engine(engine_name, Limits(request_line=20)).receive(b"G" * 21, 0.0)
    assert failure.error.status == 414


def test_control_octet_counts_before_the_length_only_within_the_limit(engine_name: str) -> None:
    line = b"GET /aaaaaa\x00HTTP/1.1"
    assert refused(engine_name, head(line), request_line=12) == (RemoteProtocolError, 400, CONTROL)
    assert refused(engine_name, head(line), request_line=10)[1] == 414


def test_field_count_at_its_limit_and_beyond(engine_name: str) -> None:
    assert len(get(engine_name, b"a: 1", b"b: 2", field_count=3).headers) == 3
    error = refused(engine_name, head(b"GET / HTTP/1.1", b"a: 1", b"b: 2"), field_count=2)
    assert error == (LimitExceeded, 431, "too many header fields")


def test_first_octet_of_one_field_too_many_is_refused(engine_name: str) -> None:
    engine = make_engine(engine_name, Limits(field_count=1))
    assert engine.receive(head()[:-2], 0.0) == []
    [failure] = engine.receive(b"a", 0.0)
    assert failure.error.status == 431


def test_field_size_at_its_limit_and_beyond(engine_name: str) -> None:
    line = b"x: " + b"v" * 30
    assert get(engine_name, line, field_size=33).headers[1] == (b"x", b"v" * 30)
    error = refused(engine_name, head(b"GET / HTTP/1.1", line), field_size=32)
    assert error == (LimitExceeded, 431, "header fields too large")


def test_field_without_end_is_refused_at_the_first_octet_beyond(engine_name: str) -> None:
    engine = make_engine(engine_name, Limits(field_size=10))
    assert engine.receive(head()[:-2] + b"x" * 10 + b"\r", 0.0) == []
    engine = make_engine(engine_name, Limits(field_size=10))
    [failure] = engine.receive(head()[:-2] + b"x" * 11, 0.0)
    assert failure.error.status == 431


def test_control_octet_in_a_field_counts_before_its_length_only_within_the_limit(engine_name: str) -> None:
    data = head(b"GET / HTTP/1.1", b"x: " + b"v" * 17 + b"\x01vvv")
    assert refused(engine_name, data, field_size=21) == (RemoteProtocolError, 400, CONTROL)
    assert refused(engine_name, data, field_size=19)[1] == 431


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1", b"GET http://a/ HTTP/1.1"])
def test_head_size_at_its_limit_and_beyond(line: bytes, engine_name: str) -> None:
    """Counted without the empty line."""
    data = head(line, b"x: 1", b"y: 2")
    size = len(data) - 2
    assert len(served(engine_name, b"\r\n" + data, head_size=size)) == 1
    error = refused(engine_name, data, head_size=size - 1)
    assert error == (LimitExceeded, 431, "header fields too large")


def test_request_line_counts_for_the_head(engine_name: str) -> None:
    data = head(b"GET /aaaaaaaaaa HTTP/1.1")
    assert refused(engine_name, data, head_size=20)[1] == 431


def test_empty_lines_at_their_limit_and_beyond(engine_name: str) -> None:
    assert len(served(engine_name, b"\r\n" * 2 + head(), empty_lines=2)) == 1
    error = refused(engine_name, b"\r\n" * 3 + head(), empty_lines=2)
    assert error == (LimitExceeded, 400, "too many empty lines before the request line")


def test_empty_lines_are_counted_anew_for_each_request(engine_name: str) -> None:
    data = b"\r\n\r\n" + head()
    assert len(served(engine_name, data * 3, empty_lines=2)) == 3


def test_thousands_of_different_lines_are_all_read_right(engine_name: str) -> None:
    """More than any table of known lines keeps, and a line longer than it keeps."""
    tracer = Tracer(make_engine(engine_name))
    for number in range(1100):
        tracer.feed([b"GET / HTTP/1.1\r\nHost: h%d\r\nUser-Agent: u%d\r\n\r\n" % (number, number)])
    for number, request in enumerate(tracer.trace.requests):
        assert request.event.headers == [(b"host", b"h%d" % number), (b"user-agent", b"u%d" % number)]
    assert len(tracer.trace.requests) == 1100
    assert get(engine_name, b"User-Agent: " + b"u" * 300).headers[1] == (b"user-agent", b"u" * 300)
    assert get(engine_name, b"User-Agent: " + b"u" * 300).headers[1] == (b"user-agent", b"u" * 300)


def test_known_line_counts_like_a_new_one(engine_name: str) -> None:
    for _ in range(2):
        assert refused(engine_name, head(b"GET / HTTP/1.1", b"Accept: */*"), field_size=10)[1] == 431
        assert get(engine_name, b"Accept: */*").headers[1] == (b"accept", b"*/*")


# --- request line --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET / HTTP/2.0", 505),
        (b"GET / HTTP/0.9", 505),
        (b"GET / HTTP/1.10", 400),
        (b"GET / http/1.1", 400),
        (b"GET /", 400),
        (b"GET  / HTTP/1.1", 400),
        (b"GET / HTTP/1.1 ", 400),
        (b"G(T / HTTP/1.1", 400),
        (b"GET /a#b HTTP/1.1", 400),
        (b"GET /\xe9 HTTP/1.1", 400),
        (b"GET * HTTP/1.1", 400),
        (b"GET a HTTP/1.1", 400),
        (b"GET ftp://a/ HTTP/1.1", 400),
        (b"GET http:///x HTTP/1.1", 400),
        (b"GET http://u@a/ HTTP/1.1", 400),
        (b"CONNECT /a HTTP/1.1", 400),
        (b"CONNECT a HTTP/1.1", 400),
        (b"CONNECT a:b HTTP/1.1", 400),
        (b"CONNECT a:443 HTTP/1.1", 501),
        (b"CONNECT [::1]:443 HTTP/1.1", 501),
    ],
)
def test_bad_request_line(line: bytes, status: int, engine_name: str) -> None:
    assert refused(engine_name, head(line))[:2] == (RemoteProtocolError, status)


@pytest.mark.parametrize(
    ("target", "raw_path", "query", "authority"),
    [
        (b"/", b"/", b"", None),
        (b"/a?", b"/a", b"", None),
        (b"/a?b?c", b"/a", b"b?c", None),
        (b"//a/b", b"//a/b", b"", None),
        (b"http://h", b"/", b"", b"h"),
        (b"HTTPS://h:8/a/b?c?d", b"/a/b", b"c?d", b"h:8"),
        (b"http://h?q", b"/", b"q", b"h"),
        (b"http://[::1]:80/", b"/", b"", b"[::1]:80"),
    ],
)
def test_parts_of_a_target(
    target: bytes, raw_path: bytes, query: bytes, authority: bytes | None, engine_name: str
) -> None:
    event = served(engine_name, head(b"GET %b HTTP/1.1" % target))[0].event
    assert event.target == target
    assert (event.raw_path, event.query, event.authority) == (raw_path, query, authority)


def test_absolute_target_leaves_nothing_behind_for_the_next_request(engine_name: str) -> None:
    data = head(b"GET http://h/a?b HTTP/1.1", b"Connection: upgrade", b"Upgrade: x") + head()
    second = served(engine_name, data)[1].event
    assert (second.authority, second.query, second.upgrade, second.raw_path) == (None, b"", None, b"/")


def test_asterisk_is_for_options(engine_name: str) -> None:
    event = served(engine_name, head(b"OPTIONS * HTTP/1.1"))[0].event
    assert (event.raw_path, event.query, event.authority) == (b"*", b"", None)


def test_higher_minor_version_is_read_as_1_1(engine_name: str) -> None:
    assert served(engine_name, head(b"GET / HTTP/1.7"))[0].event.version == b"1.1"
    assert refused(engine_name, head(b"GET / HTTP/1.7", host=False))[1] == 400


def test_refused_request_line_is_not_reported_and_a_good_one_is(engine_name: str) -> None:
    [failure] = make_engine(engine_name).receive(head(b"GET /\x00 HTTP/1.1"), 0.0)
    assert failure.request_line is None
    [failure] = make_engine(engine_name).receive(head(b"PUT /x HTTP/1.0", b"no colon"), 0.0)
    assert failure.request_line == (b"PUT", b"/x", b"1.0")


# --- fields ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (b"a", "malformed field line"),
        (b"a : 1", "malformed field line"),
        (b": 1", "malformed field line"),
        (b" a: 1", "malformed field line"),
        (b"\xe9: 1", "malformed field line"),
        (b"a: \x00", CONTROL),
        (b"a: \x7f", CONTROL),
        (b"a: \n", CONTROL),
        (b"a: \r", CONTROL),
    ],
)
def test_bad_field(field: bytes, reason: str, engine_name: str) -> None:
    error = refused(engine_name, head(b"GET / HTTP/1.1", field))
    assert error == (RemoteProtocolError, 400, reason)


def test_unfinished_lines_are_judged_by_their_octets(engine_name: str) -> None:
    for start in (b"GET /\x00", b"GET / HTTP/1.1\r\nHost: \x01"):
        [failure] = make_engine(engine_name).receive(start, 0.0)
        assert failure.error.reason == CONTROL


def test_values_lose_whitespace_around_them_and_nothing_else(engine_name: str) -> None:
    event = get(engine_name, b"A:1", b"a: \t2 3\t ", b"B:", b"c: \x85\xa0")
    assert event.headers[1:] == [(b"a", b"1"), (b"a", b"2 3"), (b"b", b""), (b"c", b"\x85\xa0")]


@pytest.mark.parametrize(
    "host",
    [b"a", b"a:", b"a:80", b"A-b_c.%41", b"1.2.3.4:5", b"[::1]", b"[::1]:65535", b"[v1.a:b]", b"!$&'()*+;="],
)
def test_good_host(host: bytes, engine_name: str) -> None:
    for _ in range(2):  # the second time it may be known
        assert served(engine_name, head(b"GET / HTTP/1.1", b"Host: " + host, host=False))


@pytest.mark.parametrize(
    "host",
    [
        b"",
        b":80",
        b"a b",
        b"a,b",
        b"a/b",
        b"u@a",
        b"[::1",
        b"::1",
        b"a:b",
        b"a:123456",
        b"%zz",
        b"%4",
        b"\xe9",
        b"a:1:2",
    ],
)
def test_bad_host(host: bytes, engine_name: str) -> None:
    for version in (b"1.0", b"1.1"):
        data = head(b"GET / HTTP/" + version, b"Host: " + host, host=False)
        assert refused(engine_name, data) == (RemoteProtocolError, 400, "invalid Host field")


def test_host_is_asked_for_once(engine_name: str) -> None:
    assert refused(engine_name, head(host=False))[2] == "Host field missing"
    assert refused(engine_name, head(b"GET / HTTP/1.1", b"Host: a"))[2] == "more than one Host field"
    assert refused(engine_name, head(b"GET / HTTP/1.0", b"Host: a"))[2] == "more than one Host field"
    assert served(engine_name, head(b"GET / HTTP/1.0", host=False))


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ((b"Content-Length: 1", b"Content-Length: 1"), 400),
        ((b"Content-Length: 1, 1",), 400),
        ((b"Content-Length:",), 400),
        ((b"Content-Length: +1",), 400),
        ((b"Content-Length: 1_0",), 400),
        ((b"Content-Length: \xb2",), 400),
        ((b"Content-Length: 0", b"Transfer-Encoding: chunked"), 400),
        ((b"Transfer-Encoding:",), 400),
        ((b"Transfer-Encoding: gzip",), 400),
        ((b"Transfer-Encoding: chunked, chunked",), 400),
        ((b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip"), 400),
        ((b"Transfer-Encoding: chunked, gzip, chunked",), 400),
        ((b"Transfer-Encoding: gzip, chunked",), 501),
        ((b"Transfer-Encoding: chunked;q=1",), 400),
        ((b"Expect: tea",), 417),
        ((b"Expect: 100-continue, tea",), 417),
        ((b"Expect:",), 417),
    ],
)
def test_bad_framing_or_expectation(fields: tuple[bytes, ...], status: int, engine_name: str) -> None:
    assert refused(engine_name, head(b"POST / HTTP/1.1", *fields))[1] == status


def test_transfer_encoding_is_not_for_1_0(engine_name: str) -> None:
    data = head(b"POST / HTTP/1.0", b"Transfer-Encoding: chunked")
    assert refused(engine_name, data)[2] == "Transfer-Encoding in HTTP/1.0"


@pytest.mark.parametrize("length", [2**63 - 1, 0])
def test_longest_and_shortest_body(length: int, engine_name: str) -> None:
    data = head(b"POST / HTTP/1.1", b"Content-Length: 000%d" % length)
    [event] = make_engine(engine_name).receive(data, 0.0)
    assert event.complete is (length == 0)


@pytest.mark.parametrize("length", [2**63, 2**64, 10**19, 10**300])
def test_body_longer_than_can_be_counted(length: int, engine_name: str) -> None:
    data = head(b"POST / HTTP/1.1", b"Content-Length: %d" % length)
    assert refused(engine_name, data) == (LimitExceeded, 413, "request body too large")


@pytest.mark.parametrize(
    ("fields", "upgrade"),
    [
        ((b"Connection: Upgrade", b"Upgrade: a"), b"a"),
        ((b"Connection: keep-alive, upgrade", b"Upgrade: a", b"Upgrade: b/2"), b"a, b/2"),
        ((b"Upgrade: a",), None),
        ((b"Connection: upgrade",), None),
        ((b"Connection: close", b"Upgrade: a"), None),
    ],
)
def test_upgrade_is_told_only_when_connection_names_it(
    fields: tuple[bytes, ...], upgrade: bytes | None, engine_name: str
) -> None:
    assert make_engine(engine_name).receive(head(b"GET / HTTP/1.1", *fields), 0.0)[0].upgrade == upgrade


def test_upgrade_is_not_for_1_0(engine_name: str) -> None:
    data = head(b"GET / HTTP/1.0", b"Connection: upgrade", b"Upgrade: a")
    assert served(engine_name, data)[0].event.upgrade is None


@pytest.mark.parametrize(
    ("version", "fields", "keeps"),
    [
        (b"1.1", (), True),
        (b"1.1", (b"Connection: foo, CLOSE",), False),
        (b"1.1", (b"Connection: keep-alive", b"Connection: close"), False),
        (b"1.1", (b"Connection: , ,foo",), True),
        (b"1.0", (), False),
        (b"1.0", (b"Connection: Keep-Alive",), True),
        (b"1.0", (b"Connection: keep-alive, close",), False),
    ],
)
def test_whether_the_connection_is_kept(
    version: bytes, fields: tuple[bytes, ...], keeps: bool, engine_name: str
) -> None:
    tracer = Tracer(make_engine(engine_name))
    tracer.feed([head(b"GET / HTTP/" + version, *fields)])
    assert tracer.engine.half_closed is not keeps
    assert (b"connection: close" not in tracer.trace.output) is keeps
    assert (b"connection: keep-alive" in tracer.trace.output) is (keeps and version == b"1.0")


@pytest.mark.parametrize(
    ("version", "fields", "takes"),
    [
        (b"1.1", (b"TE: trailers",), True),
        (b"1.1", (b"TE: gzip;q=0.5", b"TE: , Trailers"), True),
        (b"1.1", (b"TE: gzip",), False),
        (b"1.1", (), False),
        (b"1.0", (b"TE: trailers",), False),
    ],
)
def test_whether_trailers_are_taken(
    version: bytes, fields: tuple[bytes, ...], takes: bool, engine_name: str
) -> None:
    engine = make_engine(engine_name)
    engine.receive(head(b"GET / HTTP/" + version, *fields), 0.0)
    assert engine.takes_trailers is takes


@pytest.mark.parametrize(
    ("version", "length", "expects"), [(b"1.1", 5, True), (b"1.1", 0, False), (b"1.0", 5, False)]
)
def test_whether_the_peer_waits_for_100(version: bytes, length: int, expects: bool, engine_name: str) -> None:
    fields = (b"Expect: 100-Continue", b"Content-Length: %d" % length)
    [event] = make_engine(engine_name).receive(head(b"POST / HTTP/" + version, *fields), 0.0)
    assert event.expects_continue is expects


def test_unknown_expectation_of_1_0_is_ignored(engine_name: str) -> None:
    assert served(engine_name, head(b"GET / HTTP/1.0", b"Expect: tea"))
