"""``Expect: 100-continue``: the 100 comes when the application asks for the body, and only then."""

from __future__ import annotations

import pytest
from harness import read_response, read_to_end
from sample_apps import Echo, read_body, respond, seen

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ASK = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n"


@pytest.mark.parametrize("framing", (b"Content-Length: 5", b"Transfer-Encoding: chunked"))
def test_it_is_sent_once_when_the_application_waits_for_the_body(serve, framing):
    head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n%b\r\n\r\n" % framing
    with serve(Echo()) as server, server.connect() as sock:
        for _ in range(2):
            sock.sendall(head)
            assert sock.recv(len(CONTINUE) + 1) == CONTINUE
            if framing.endswith(b"chunked"):
                sock.sendall(b"5\r\nhello\r\n0\r\n\r\n")
            else:
                sock.sendall(b"he")
                sock.sendall(b"llo")
            _, content, rest = read_response(sock)
            assert (seen(content)["body"], rest) == (b"hello", b"")


@pytest.mark.parametrize("status", (200, 403))
def test_an_application_that_answers_first_gets_no_body(serve, status):
    async def app(scope, receive, send):
        await respond(send, status=status)

    with serve(app) as server, server.connect() as sock:
        sock.sendall(ASK + b"\r\n")
        head, content, rest = read_response(sock)
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert (content, rest) == (b"ok", b"")
        assert b"connection: close" in head.lower()
        assert read_to_end(sock) == b""


def test_receive_after_the_answer_asks_for_nothing(serve):
    told = []

    async def app(scope, receive, send):
        await respond(send)
        told.append(await receive())

    with serve(app) as server:
        received = server.raw(ASK + b"\r\n")
    assert received.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 100" not in received
    assert told == [{"type": "http.disconnect"}]


@pytest.mark.parametrize(
    "data",
    (
        ASK + b"Connection: close\r\n\r\nhello",
        b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
        ASK.replace(b"5", b"0") + b"Connection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
    ),
    ids=("the body is here", "HTTP/1.0", "length 0", "no body"),
)
def test_there_is_nothing_to_wait_for(serve, data):
    with serve(Echo()) as server:
        received = server.raw(data)
    assert received.startswith(b"HTTP/1.1 200")
    assert b" 100 " not in received


def test_no_hint_goes_to_http_1_0_while_it_waits_for_the_body(serve):
    async def app(scope, receive, send):
        await read_body(receive)
        await respond(send)

    with serve(app) as server, server.connect() as sock:
        sock.sendall(b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        sock.sendall(b"hello")
        assert read_to_end(sock).startswith(b"HTTP/1.1 200")


def test_an_expectation_that_nobody_knows_is_refused(serve):
    with serve(Echo()) as server:
        received = server.raw(b"GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 417 ")
