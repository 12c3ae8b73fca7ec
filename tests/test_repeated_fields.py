"""A peer that sends the same fields with each request: engines may remember them, and nobody can tell."""

from __future__ import annotations

import sys

import pytest
from tracing import make_engine

from servery.engine import NEVER
from servery.errors import RemoteProtocolError

FIELDS = (
    b"Host: a.test\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: text/html,*/*;q=0.8\r\n"
    b"Accept-Language: en-US,en;q=0.9\r\nCookie: session=%b\r\nReferer: http://a.test/one/page\r\n"
)
SECRET = b"0123456789abcdef0123456789abcdef"


def request(target: bytes = b"/", secret: bytes = SECRET, more: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\n" % target + FIELDS % secret + more + b"\r\n"


class Peer:
    """Sends octets to its engine; the response to what came before is complete by then."""

    def __init__(self, engine):
        self.engine = engine

    def __call__(self, data):
        if self.engine.stream and not self.engine.closing:
            answer(self.engine)
        return self.engine.receive(data, 1.0)


def answer(engine):
    engine.start_response(engine.stream, 200, [], False)
    engine.send_body(engine.stream, b"ok", False)
    engine.advance(1.0)


@pytest.fixture
def ask(engine_name):
    return Peer(make_engine(engine_name))


def test_each_request_has_a_list_of_its_own(ask):
    seen = []
    for number in range(6):
        [event] = ask(request(b"/%d" % number))
        assert event.target == b"/%d" % number
        assert event.headers[4] == (b"cookie", b"session=" + SECRET)
        assert len(event.headers) == 6
        event.headers.clear()  # as an application may
        seen.append(event.headers)
    assert len({id(headers) for headers in seen}) == 6


@pytest.mark.parametrize("at", range(1, 60, 7))
def test_a_change_of_one_octet_is_seen(ask, at):
    for _ in range(4):
        ask(request())
    other = SECRET[: at % 32] + b"Z" + SECRET[at % 32 + 1 :]
    for secret in (other, SECRET, other):
        [event] = ask(request(secret=secret))
        assert event.headers[4][1] == b"session=" + secret


def test_what_follows_the_same_fields_is_seen(ask):
    for _ in range(4):
        ask(request())
    [event] = ask(request(more=b"Connection: close\r\n"))
    assert event.headers[-1] == (b"connection", b"close")


def test_a_body_comes_with_its_own_length(ask):
    for number in range(5):
        head, body = ask(request(more=b"Content-Length: 3\r\n").replace(b"GET", b"PUT") + b"%03d" % number)
        assert (head.complete, body.data, body.more) == (False, b"%03d" % number, False)


def test_limits_hold_for_repeated_fields_too(ask):
    for _ in range(4):
        ask(request())
    [event] = ask(request(b"/" + b"a" * 9000))
    assert isinstance(event.error, RemoteProtocolError)
    assert event.replied == 414


def test_fields_in_pieces(ask):
    for _ in range(4):
        ask(request())
    data = request(b"/pieces")
    for cut in (1, 16, 30, len(data) // 2, len(data) - 1):
        assert ask(data[:cut]) == []
        [event] = ask.engine.receive(data[cut:], 1.0)
        assert event.target == b"/pieces"


def test_nothing_is_remembered_of_a_connection_that_is_gone(engine_name):
    engine = make_engine(engine_name)
    values = []
    for _ in range(4):
        [event] = engine.receive(request(secret=SECRET[::-1]), 1.0)
        values.append(event.headers[4][1])
        answer(engine)
    assert engine.deadline != NEVER
    value = values[-1]
    values.clear()
    del event
    del engine
    assert sys.getrefcount(value) == 2  # `value`, and the argument
