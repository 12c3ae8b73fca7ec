"""Octets that two hops could read in two ways: one refusal, EOF, and nothing behind them is a request."""

from __future__ import annotations

import pytest
from harness import read_response, send_pieces, statuses
from sample_apps import Echo, seen

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
EVIL = b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n"

HEADS = {
    "bare LF ends a field": b"GET / HTTP/1.1\r\nHost: a\r\nX:\n\n" + EVIL,
    "bare LF ends the request line": b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    "bare LF everywhere": b"GET / HTTP/1.1\nHost: a\n\n",
    "bare CR in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n" + EVIL,
    "length and coding": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + EVIL,
    "coding and length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + EVIL,
    "empty member and length": HEAD
    + b"Transfer-Encoding: ,chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"
    + EVIL,
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + EVIL,
    "list of lengths": HEAD + b"Content-Length: 5, 5\r\n\r\nhello" + EVIL,
    "signed length": HEAD + b"Content-Length: +5\r\n\r\nhello" + EVIL,
    "chunked twice": HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + EVIL,
    "chunked is not the last coding": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n" + EVIL,
    "unknown coding": HEAD + b"Transfer-Encoding: identity\r\n\r\n" + EVIL,
    "coding in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + EVIL,
    "folded field": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n" + EVIL,
    "space before the colon": HEAD + b"Content-Length : 5\r\n\r\nhello" + EVIL,
    "version of the future": b"GET / HTTP/9.9\r\nHost: a\r\n\r\n" + EVIL,
    "no Host": b"GET / HTTP/1.1\r\n\r\n" + EVIL,
    "the same Host twice": b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n" + EVIL,
    "two Hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + EVIL,
    "Host with a space": b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n" + EVIL,
    "Host with a user": b"GET / HTTP/1.1\r\nHost: u@b\r\n\r\n" + EVIL,
    "Host with a path": b"GET / HTTP/1.1\r\nHost: a/x\r\n\r\n" + EVIL,
    "Host with half an address": b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n" + EVIL,
    "Host is empty": b"GET / HTTP/1.1\r\nHost:\r\n\r\n" + EVIL,
} | {
    f"octet {junk.hex()} around the coding": HEAD
    + b"Transfer-Encoding: %bchunked%b\r\n\r\n1\r\nZ\r\n0\r\n\r\n" % (junk, junk)
    + EVIL
    for junk in (b"\x0b", b"\x0c", b"\x1c", b"\x85", b"\xa0")
}
"""Heads that are refused before the application hears of them."""

BODIES = {
    "two octets instead of CRLF after a chunk": CHUNKED + b"5\r\nhelloXX0\r\n\r\n" + EVIL,
    "LF after a chunk": CHUNKED + b"5\r\nhello\n0\r\n\r\n" + EVIL,
    "no size": CHUNKED + b"ZZ\r\n" + EVIL,
    "signed size": CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n" + EVIL,
    "size with a prefix": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n" + EVIL,
    "size of more than 64 bits": CHUNKED + b"f0000000000000005\r\nhello\r\n0\r\n\r\n" + EVIL,
    "LF in an extension": CHUNKED + b"5;a\nb\r\nhello\r\n0\r\n\r\n" + EVIL,
    "LF ends the trailers": CHUNKED + b"0\r\n\n" + EVIL,
    "framing field in the trailers": CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n" + EVIL,
}
"""Bodies that are refused after the application was called: it never gets a complete one."""


@pytest.fixture(params=("whole", "in two", "octet by octet"))
def cut(request):
    """How octets are cut into sends."""
    return {
        "whole": lambda data: [],
        "in two": lambda data: [data.find(b"\r\n\r\n") + 3],
        "octet by octet": lambda data: list(range(1, len(data))),
    }[request.param]


def test_an_ambiguous_head_is_refused_and_nothing_behind_it_is_served(serve, cut):
    echo = Echo()
    with serve(echo) as server:
        for name, data in HEADS.items():
            assert statuses(server.raw(data, cuts=cut(data))) in ([b"400"], [b"501"], [b"505"]), name
    assert echo.started == []
    assert server.errors.lines(30) == []


def test_a_broken_body_is_refused_and_nothing_behind_it_is_served(serve, cut):
    echo = Echo()
    with serve(echo) as server:
        for name, data in BODIES.items():
            assert statuses(server.raw(data, cuts=cut(data))) == [b"400"], name
    assert "/evil" not in echo.started
    assert echo.finished == []
    assert server.errors.lines(30) == []


def test_what_follows_a_refusal_later_is_not_read_either(serve):
    echo = Echo()
    with serve(echo) as server, server.connect() as sock:
        sock.sendall(b"GET / HTTP/9.9\r\nHost: a\r\n\r\n")
        refusal = sock.recv(65536)
        send_pieces(sock, EVIL * 3, [len(EVIL), 2 * len(EVIL)])
        while data := sock.recv(65536):
            refusal += data
    assert statuses(refusal) == [b"505"]
    assert echo.started == []


def test_a_trailer_field_is_no_request(serve):
    echo = Echo()
    data = CHUNKED + b"0\r\nX:GET /evil HTTP/1.1\r\n\r\n"
    with serve(echo) as server, server.connect() as sock:
        sock.sendall(data + EVIL.replace(b"evil", b"next"))
        _, content, rest = read_response(sock)
        assert seen(content)["body"] == b""
        assert seen(read_response(sock, rest)[1])["path"] == "/next"
    assert echo.started == ["/", "/next"]


@pytest.mark.parametrize(
    "data",
    (
        CHUNKED + b"5\r\nhello\r\n0\r\n",
        CHUNKED + b"5\r\nhello\r\n",
        CHUNKED + b"5\r\nhel",
        HEAD + b"Content-Length: 6\r\n\r\nhello",
    ),
    ids=("before the last CRLF", "before the last chunk", "in a chunk", "before the length"),
)
def test_a_body_that_is_cut_off_is_never_complete(serve, data):
    echo = Echo()
    with serve(echo) as server:
        assert statuses(server.raw(data, shut=True)) in ([], [b"400"])
    assert echo.finished == []


@pytest.mark.parametrize("split", (False, True), ids=("at once", "body apart"))
def test_an_upgrade_that_nobody_wants_is_an_ordinary_request(serve, split):
    head = (
        HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
        b"Content-Length: 5\r\n\r\n"
    )
    data = head + b"hello" + b"GET /2 HTTP/1.1\r\nHost: a\r\n\r\n"
    with serve(Echo()) as server, server.connect() as sock:
        send_pieces(sock, data, [len(head)] if split else [])
        _, content, rest = read_response(sock)
        assert seen(content)["body"] == b"hello"
        assert seen(read_response(sock, rest)[1])["path"] == "/2"


def test_an_empty_member_of_the_codings_is_ignored(serve):
    data = HEAD + b"Transfer-Encoding: ,chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    with serve(Echo()) as server:
        received = server.raw(data)
    assert statuses(received) == [b"200"]
    assert seen(received.partition(b"\r\n\r\n")[2])["body"] == b"hello"


def test_the_authority_of_the_target_replaces_the_host_field(serve):
    with serve(Echo()) as server:
        received = server.raw(b"GET http://b/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    facts = seen(received.partition(b"\r\n\r\n")[2])
    assert facts["path"] == "/x"
    assert [value for name, value in facts["headers"] if name == b"host"] == [b"b"]
