"""Request ids: made, or taken from a trusted peer; in the scope, in the logs, in responses."""

from __future__ import annotations

import re

import pytest
from harness import read_response
from sample_apps import respond

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n%b\r\n"
LAST = b"GET /%b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%b\r\n"
HERE = ("127.0.0.1",)
MADE = re.compile(r"[0-9a-f]{12}-[0-9a-f]+")


class Telling:
    """Keeps the ids that it is told; fails at /fail, streams at /stream."""

    def __init__(self):
        self.ids = []

    async def __call__(self, scope, receive, send):
        self.ids.append(scope["extensions"]["servery"]["request_id"])
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept", "headers": [(b"x-own", b"1")]})
            await send({"type": "websocket.close"})
        elif scope["path"] == "/fail":
            raise RuntimeError("no")
        else:
            await respond(send)


def replied(received: bytes) -> list[str]:
    """The ids in responses."""
    return [value.decode() for value in re.findall(rb"\r\nx-request-id: ([^\r]*)\r\n", received)]


def logged(server, count: int) -> list[str | None]:
    server.access.wait(count)
    return [record.access.request_id for record in server.access.records]


def test_a_trusted_peer_names_its_requests(serve):
    app = Telling()
    with serve(app, trusted_proxy=HERE, request_id_header="X-Request-Id") as server:
        received = server.raw(GET % (b"", b"X-Request-ID: abc-1\r\n") + LAST % (b"", b""))
        assert replied(received) == []
        assert logged(server, 2) == app.ids
    assert app.ids[0] == "abc-1"
    assert MADE.fullmatch(app.ids[1])


@pytest.mark.parametrize(
    "field",
    [
        b"X-Request-Id: \r\n",
        b"X-Request-Id: a b\r\n",
        b'X-Request-Id: a"b\r\n',
        b"X-Request-Id: \xff\r\n",
        b"X-Request-Id: a\r\nX-Request-Id: b\r\n",
        b"X-Request-Id: " + b"a" * 129 + b"\r\n",
    ],
)
def test_a_name_that_is_none_is_not_taken(serve, field):
    app = Telling()
    with serve(app, trusted_proxy=HERE, request_id_header="x-request-id") as server:
        server.raw(LAST % (b"", field))
    assert MADE.fullmatch(app.ids[0])


def test_the_longest_name(serve):
    app = Telling()
    with serve(app, trusted_proxy=HERE, request_id_header="x-request-id") as server:
        server.raw(LAST % (b"", b"X-Request-Id: " + b"a" * 128 + b"\r\n"))
    assert app.ids == ["a" * 128]


@pytest.mark.parametrize("trusted", [(), ("10.0.0.1",), ("unix",)])
def test_nobody_else_does(serve, trusted):
    app = Telling()
    with serve(app, trusted_proxy=trusted, request_id_header="x-request-id", request_id_reply=True) as server:
        received = server.raw(LAST % (b"", b"X-Request-Id: forged\r\n"))
    assert MADE.fullmatch(app.ids[0])
    assert replied(received) == app.ids


def test_every_response_has_the_id_of_its_request(serve):
    """The server's own answers, too, and none that belongs to no request."""
    app = Telling()
    with serve(app, request_id_header="x-request-id", request_id_reply=True) as server:
        received = server.raw(GET % (b"", b"") * 20 + GET % (b"fail", b"") + b"BROKEN\r\n\r\n")
        assert received.count(b"HTTP/1.1 ") == 22
        assert received.count(b"HTTP/1.1 400 ") == 1
        assert replied(received) == app.ids
        assert replied(received[received.index(b"HTTP/1.1 400 ") :]) == []
        assert logged(server, 22)[:21] == app.ids
        (line,) = server.errors.lines(40)
        assert app.ids[-1] in line


def test_refusals_for_load_have_it(serve):
    with serve(
        Telling(), limit_client_concurrency=1, request_id_header="x-rid", request_id_reply=True
    ) as server:
        received = server.raw(LAST % (b"", b""))
    assert re.search(rb"\r\nx-rid: [0-9a-f-]+\r\n", received)


def test_the_response_that_opens_a_websocket_has_it(serve):
    app = Telling()
    fields = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Request-Id: from-proxy\r\n"
    )
    settings = {"trusted_proxy": HERE, "request_id_header": "x-request-id", "request_id_reply": True}
    with serve(app, **settings) as server, server.connect() as sock:
        sock.sendall(GET % (b"", fields))
        head, _, _ = read_response(sock, head_only=True)
        assert head.startswith(b"HTTP/1.1 101")
        assert replied(head + b"\r\n\r\n") == ["from-proxy"]
        assert b"x-own: 1" in head
        sock.sendall(b"\x88\x80\0\0\0\0")
        assert logged(server, 1) == ["from-proxy"]
