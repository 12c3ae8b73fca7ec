"""What a peer may send: the limits hold on partial data, whatever the cuts, and for one octet more only."""

from __future__ import annotations

import pytest
from harness import read_response, read_to_end, send_pieces, statuses
from sample_apps import Echo, Gone, read_body, respond, seen

REST = b"Host: a\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    (
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a:\r\n" * 20_000 + b"\r\n", b"431"),
        (b"GET /" + b"a" * 1_000_000, b"414"),
        (b"A" * 1_000_000, b"414"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 1_000_000, b"431"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"x: %b\r\n" % (b"a" * 16_000) * 5 + b"\r\n", b"431"),
        (b"\r\n" * 100_000, b"400"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1" + b"0" * 20 + b"\r\n\r\n", b"413"),
    ),
    ids=("fields", "target", "method", "field", "head", "empty lines", "length"),
)
def test_a_head_without_end_is_refused(serve, data, status):
    echo = Echo()
    with serve(echo, timeout_linger=1) as server:
        assert statuses(server.raw(data)) == [status]
    assert echo.started == []


def line(size):
    """A request line of `size` octets without CRLF."""
    return b"GET /".ljust(size - 9, b"a") + b" HTTP/1.1"


@pytest.mark.parametrize("cuts", ("whole", "last octet apart", "octet by octet"))
def test_the_limits_do_not_depend_on_how_octets_are_cut(serve, cuts):
    def cut(data):
        return {
            "whole": [],
            "last octet apart": [len(data) - 1],
            "octet by octet": list(range(1, len(data))),
        }[cuts]

    settings = {
        "limit_request_line": 100,
        "limit_request_fields": 4,
        "limit_request_field_size": 50,
        "limit_head_size": 200,
    }
    field = b"x: ".ljust(50, b"a")
    good = {
        "line": line(100) + b"\r\n" + REST,
        "field": line(30) + b"\r\n" + field + b"\r\n" + REST,
        "fields": line(30) + b"\r\na:\r\nb:\r\n" + REST,
    }
    bad = {
        "line": (line(101) + b"\r\n" + REST, b"414"),
        "field": (line(30) + b"\r\n" + field + b"b\r\n" + REST, b"431"),
        "fields": (line(30) + b"\r\na:\r\nb:\r\nc:\r\n" + REST, b"431"),
        "head": (line(100) + b"\r\n" + field + b"\r\n" + field + b"\r\n" + REST, b"431"),
    }
    with serve(Echo(), **settings) as server:
        for name, data in good.items():
            assert statuses(server.raw(data, cuts=cut(data))) == [b"200"], name
        for name, (data, status) in bad.items():
            assert statuses(server.raw(data, cuts=cut(data))) == [status], name


@pytest.mark.parametrize("size", (8000, 65_534, 65_535, 65_536, 65_537, 131_073))
def test_a_long_query_arrives_whole(serve, size):
    with (
        serve(Echo(), limit_request_line=200_000, limit_head_size=300_000) as server,
        server.connect() as sock,
    ):
        sock.sendall(b"GET /p?q=%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"a" * size))
        facts = seen(read_response(sock)[1])
    assert facts["raw_path"] == b"/p"
    assert facts["query_string"] == b"q=" + b"a" * size


@pytest.mark.parametrize("piece", (b"X-A: " + b"b" * 1000 + b"\r\n", b"b" * 1000, b"a:\r\n" * 200))
def test_trailers_without_end_are_refused(serve, piece):
    echo = Echo()
    with serve(echo) as server, server.connect() as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        send_pieces(sock, piece * 100, list(range(0, 100 * len(piece), len(piece))))
        assert statuses(read_to_end(sock)) in ([b"431"], [b"400"])
    assert echo.finished == []


@pytest.mark.parametrize(
    "piece", (b"1;" + b"a" * 900 + b"\r\nx\r\n", b"1" + b"0" * 2000, b"1;" + b"a" * 2000)
)
def test_chunk_extensions_without_end_are_refused(serve, piece):
    with serve(Echo()) as server, server.connect() as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        send_pieces(sock, piece * 40, list(range(0, 40 * len(piece), len(piece))))
        assert statuses(read_to_end(sock)) == [b"400"]


@pytest.mark.parametrize(
    "framing", (b"Content-Length: 11\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n6\r\nhello \r\n5\r\n")
)
def test_a_body_over_its_limit_is_refused(serve, framing):
    gone = []

    async def app(scope, receive, send):
        try:
            await respond(send, await read_body(receive))
        except Gone as error:
            gone.append(error)

    data = b"POST / HTTP/1.1\r\nHost: a\r\n" + framing
    with serve(app, limit_body_size=10) as server:
        assert statuses(server.raw(data + b"hello world")) == [b"413"]
        assert server.raw(
            b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 10\r\n\r\n0123456789"
        ).endswith(b"0123456789")
    assert server.errors.lines(30) == []
