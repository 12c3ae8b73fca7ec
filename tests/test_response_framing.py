"""Responses without content, or with another length than announced; one framing, once, on the wire."""

from __future__ import annotations

import pytest
from harness import read_response, statuses
from sample_apps import body, respond, start

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def fields(head: bytes) -> list[tuple[bytes, bytes]]:
    """The field lines of a head, names in lower case."""
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:] if line)
    return [(name.lower(), value.strip()) for name, _, value in lines]


def framing(head: bytes) -> list[tuple[bytes, bytes]]:
    return [field for field in fields(head) if field[0] in (b"content-length", b"transfer-encoding")]


def answering(status=200, headers=(), parts=(b"",)):
    """An application that sends this, and ``last`` for /last; it keeps the errors of send() in `errors`."""

    async def app(scope, receive, send):
        if scope["path"] == "/last":
            await respond(send, b"last")
            return
        try:
            await start(send, status, headers)
            for at, part in enumerate(parts):
                await body(send, part, at < len(parts) - 1)
        except Exception as error:
            app.errors.append(error)
            raise

    app.errors = []
    return app


@pytest.mark.parametrize("status", (204, 304))
@pytest.mark.parametrize("parts", ((b"null",), (b"nu", b"ll"), (b"",)), ids=("whole", "parts", "none"))
@pytest.mark.parametrize("given", (True, False), ids=("with length", "without length"))
def test_a_status_without_content_keeps_the_connection_in_step(serve, status, parts, given):
    headers = [(b"content-length", b"4")] if given else []
    with serve(answering(status, headers, parts)) as server:
        first, second, last = server.raw(GET + GET + LAST).split(b"HTTP/1.1 ")[1:]
    assert b"last" in last
    for response in (first, second):
        assert response.endswith(b"\r\n\r\n")
        length = [(b"content-length", b"4")]
        if status == 304 and (given or parts == (b"null",)):  # what a 200 would have (RFC 9110 section 8.6)
            assert framing(response) == length
        else:
            assert framing(response) == []
    assert server.errors.lines(30) == []


@pytest.mark.parametrize(
    ("headers", "expected"),
    (
        ([(b"content-length", b"6")], [(b"content-length", b"6")]),
        ([], []),  # what only the content would tell may be left out (RFC 9110 section 9.3.2)
    ),
    ids=("length", "chunks"),
)
def test_head_has_the_fields_of_get_and_no_content(serve, headers, expected):
    with serve(answering(200, headers, (b"ab", b"cd", b"ef"))) as server, server.connect() as sock:
        sock.sendall(GET.replace(b"GET", b"HEAD") + GET)
        head, _, rest = read_response(sock, head_only=True)
        again, content, rest = read_response(sock, rest)
        assert framing(head) == expected
        assert framing(again) == (expected or [(b"transfer-encoding", b"chunked")])
        assert content == (b"abcdef" if headers else b"2\r\nab\r\n2\r\ncd\r\n2\r\nef\r\n")
        assert rest == b""
    head_line, get_line = server.access.records
    assert (head_line.access.body_bytes_sent, get_line.access.body_bytes_sent) == (0, 6)


def test_the_content_of_one_message_needs_no_chunks(serve):
    with serve(answering(200, [], (b"abc",))) as server, server.connect() as sock:
        sock.sendall(GET)
        head, content, _ = read_response(sock)
    assert framing(head) == [(b"content-length", b"3")]
    assert content == b"abc"


@pytest.mark.parametrize("coding", (b"chunked", b"gzip", b"Chunked"))
@pytest.mark.parametrize("length", (True, False))
def test_a_transfer_coding_of_the_application_is_ignored(serve, coding, length):
    headers = [(b"Transfer-Encoding", coding)] + [(b"Content-Length", b"3")] * length
    with serve(answering(200, headers, (b"a", b"bc"))) as server, server.connect() as sock:
        sock.sendall(GET)
        head, content, rest = read_response(sock)
    if length:
        assert (framing(head), content) == ([(b"content-length", b"3")], b"abc")
    else:
        assert framing(head) == [(b"transfer-encoding", b"chunked")]
        assert content == b"1\r\na\r\n2\r\nbc\r\n"
    assert rest == b""


def test_no_chunks_for_http_1_0(serve):
    with serve(answering(200, [], (b"ab", b"cd"))) as server:
        head, _, content = server.raw(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").partition(
            b"\r\n\r\n"
        )
    assert framing(head) == []
    assert (b"connection", b"close") in fields(head)
    assert content == b"abcd"


@pytest.mark.parametrize(
    ("parts", "sent"), (((b"abcd",), b""), ((b"ab", b"cd"), b"ab")), ids=("at once", "in the second part")
)
def test_more_content_than_announced_is_an_error_of_the_application(serve, parts, sent):
    app = answering(200, [(b"content-length", b"3")], parts)
    with serve(app) as server:
        received = server.raw(LAST.replace(b"/last", b"/"))
    assert "more than its content-length" in str(app.errors[0])
    assert b"abcd" not in received
    assert statuses(received) == ([b"200"] if sent else [b"500"])
    assert len(server.errors.lines(40)) == 1


def test_less_content_than_announced_is_visible(serve):
    app = answering(200, [(b"content-length", b"10")], (b"abc", b"def"))
    with serve(app) as server:
        head, _, content = server.raw(GET).partition(b"\r\n\r\n")
    assert framing(head) == [(b"content-length", b"10")]
    assert content == b"abc"
    assert "less than its content-length" in str(app.errors[0])
    assert len(server.errors.lines(40)) == 1


BAD_VALUES = (b"a\r\nx: y", b"a\nb", b"a\rb", b"a\0b", b"a\x7f", b" a", b"a ", b"\ta", "text", None, 5)
BAD_NAMES = (b"a b", b"", b"a:b", b"a\r\nb", b"\xe4", "text")


@pytest.mark.parametrize(
    "field", [(b"x-a", value) for value in BAD_VALUES] + [(name, b"v") for name in BAD_NAMES]
)
def test_fields_that_could_split_a_response_never_reach_the_wire(serve, field):
    app = answering(200, [(b"x-good", b"1"), field], (b"abc",))
    with serve(app) as server:
        received = server.raw(LAST.replace(b"/last", b"/"))
    assert statuses(received) == [b"500"]
    assert b"x-" not in received.partition(b"\r\n\r\n")[0]
    assert len(app.errors) == 1
    assert len(server.errors.lines(40)) == 1


@pytest.mark.parametrize("value", (b"a\tb", b"a:  b", b"\xe4\xff", b"", b"a, b"))
def test_unusual_values_are_fine(serve, value):
    with serve(answering(200, [(b"x-a", value)], (b"abc",))) as server, server.connect() as sock:
        sock.sendall(GET)
        assert (b"x-a", value) in fields(read_response(sock)[0])


@pytest.mark.parametrize("status", (99, 100, 101, 199, 1000, -1, "200", None, 200.0))
def test_a_status_that_cannot_be_is_an_error(serve, status):
    app = answering(status, [], (b"abc",))
    with serve(app) as server:
        assert statuses(server.raw(LAST.replace(b"/last", b"/"))) == [b"500"]
    assert "200 to 999" in str(app.errors[0])


@pytest.mark.parametrize("status", (200, 299, 418, 599, 799, 999))
def test_any_final_status_goes_out_and_is_logged(serve, status):
    with serve(answering(status, [], (b"abc",))) as server:
        received = server.raw(LAST.replace(b"/last", b"/"))
        (line,) = server.access.wait(1)
    assert statuses(received) == [b"%d" % status]
    assert f'" {status} 3 ' in line


MISTAKES = {
    "body first": [{"type": "http.response.body", "body": b"x"}],
    "two starts": [{"type": "http.response.start", "status": 200}] * 2,
    "no status": [{"type": "http.response.start"}],
    "no type": [{"status": 200}],
    "no dict": [None],
    "unknown type": [{"type": "http.response.nonsense"}],
    "text": [{"type": "http.response.start", "status": 200}, {"type": "http.response.body", "body": "x"}],
    "websocket": [{"type": "websocket.accept"}],
}


@pytest.mark.parametrize("messages", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_wrong_message_raises_a_clear_error_and_the_client_gets_a_500(serve, messages):
    async def app(scope, receive, send):
        for message in messages:
            await send(message)

    with serve(app) as server:
        assert statuses(server.raw(LAST.replace(b"/last", b"/"))) == [b"500"]
    (record,) = [record for record in server.errors.records if record.levelno >= 40]
    assert type(record.exc_info[1]).__name__ == "LocalProtocolError"


def test_headers_may_be_any_iterable_and_may_be_missing(serve):
    async def app(scope, receive, send):
        message = {"type": "http.response.start", "status": 200}
        if scope["path"] == "/pairs":
            message["headers"] = (pair for pair in ([b"X-A", b"1"], (b"x-b", b"2")))
        await send(message)
        await send({"type": "http.response.body"})

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET.replace(b"/ ", b"/pairs "))
        found = fields(read_response(sock)[0])
        assert (b"x-a", b"1") in found
        assert (b"x-b", b"2") in found
        sock.sendall(GET)
        head, content, _ = read_response(sock)
        assert framing(head) == [(b"content-length", b"0")]
        assert content == b""


def test_content_may_be_any_octets(serve):
    parts = (b"ab", bytearray(b"cd"), memoryview(b"ef"))
    with serve(answering(200, [(b"content-length", b"6")], parts)) as server, server.connect() as sock:
        sock.sendall(GET)
        assert read_response(sock)[1] == b"abcdef"


def test_what_is_sent_after_the_end_never_reaches_the_next_response(serve):
    """A late send of one request must not touch another one that is in progress on the same connection."""
    late = []

    async def app(scope, receive, send):
        await respond(send, scope["path"].encode())
        late.append(send)
        for sender in late:
            with pytest.raises(Exception, match="after the response was complete"):
                await body(sender, b"late")

    with serve(app) as server:
        received = server.raw(GET + GET + LAST)
    assert statuses(received) == [b"200"] * 3
    assert b"late" not in received
    assert server.errors.lines(30) == []
