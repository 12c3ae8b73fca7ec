"""WebSockets over HTTP/2 (RFC 8441): messages, closing, windows, what is refused. On real sockets."""

from __future__ import annotations

import asyncio
import threading

import pytest
from h2_peer import connect
from harness import WAIT, eventually
from sample_apps import ok

OPEN = (
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "http"),
    (":path", "/chat"),
    (":authority", "a"),
    ("sec-websocket-version", "13"),
)


def masked(opcode: int, content: bytes, last: bool = True) -> bytes:
    """A frame as clients send it, with a mask of zeros."""
    size = len(content)
    if size < 126:
        length = bytes((0x80 | size,))
    elif size < 65_536:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    return bytes((opcode | (0x80 if last else 0),)) + length + bytes(4) + content


async def echo(scope, receive, send):
    if scope["type"] == "http":
        return await ok(scope, receive, send)
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept", "subprotocol": next(iter(scope["subprotocols"]), None)})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})


def test_it_is_advertised(serve):
    with serve(echo, h2c=True) as server, connect(server) as peer:
        peer.until(lambda: peer.settings)
        assert peer.settings[8] == 1


def test_every_request_of_a_connection_has_an_id_of_its_own(serve):
    ids = []

    async def app(scope, receive, send):
        ids.append(scope["extensions"]["servery"]["request_id"])
        await echo(scope, receive, send)

    with serve(app, h2c=True) as server, connect(server) as peer:
        for stream in range(1, 17, 4):
            peer.headers(stream, OPEN, end=False)
            peer.until(lambda stream=stream: stream in peer.responses)
            assert peer.get(stream + 2).content == b"ok"
        assert len(set(ids)) == len(ids) == 8
        assert server.call(server.server.snapshot)["requests"] == 8


def test_messages_both_ways_and_the_close(serve):
    scopes = []

    async def app(scope, receive, send):
        scopes.append(scope)
        await echo(scope, receive, send)

    with serve(app, h2c=True) as server, connect(server) as peer:
        peer.headers(1, OPEN, end=False, more=[("sec-websocket-protocol", "one, two")])
        peer.until(lambda: 1 in peer.responses)
        got = peer.responses[1]
        assert (got.status, got.fields["sec-websocket-protocol"], got.ended) == ("200", "one", False)
        assert "sec-websocket-accept" not in got.fields
        peer.data(1, masked(1, b"hello"))
        peer.until(lambda: len(got.content) >= 7)
        assert got.content == b"\x81\x05hello"
        big = masked(2, bytes(50_000), False)
        peer.data(1, big + masked(0, b"end"))
        peer.until(lambda: len(got.content) >= 7 + 4 + 50_003)
        assert peer.get(3).content == b"ok"  # others go on
        peer.data(1, masked(8, b"\x03\xe8bye"))
        peer.response(1)
        assert got.content.endswith(b"\x88\x02\x03\xe8")
        assert (got.ended, peer.goaway) == (True, [])
        scope = scopes[0]
        assert (scope["type"], scope["http_version"], scope["scheme"]) == ("websocket", "2", "ws")
        assert (scope["path"], scope["subprotocols"]) == ("/chat", ["one", "two"])
        assert (b"host", b"a") in scope["headers"]
        lines = server.access.wait(2)
        assert any('"CONNECT /chat HTTP/2" 200' in line for line in lines), lines


def test_compression_is_agreed_on(serve):
    with serve(echo, h2c=True) as server, connect(server) as peer:
        peer.headers(1, OPEN, end=False, more=[("sec-websocket-extensions", "permessage-deflate")])
        peer.until(lambda: 1 in peer.responses)
        assert "permessage-deflate" in peer.responses[1].fields["sec-websocket-extensions"]


@pytest.mark.parametrize(
    ("more", "end", "status"),
    [
        ([("sec-websocket-version", "8")], False, "400"),
        ([("sec-websocket-protocol", "a b")], False, "400"),
        ([], True, "400"),
    ],
)
def test_faulty_handshakes_are_answered(serve, more, end, status):
    with serve(echo, h2c=True) as server, connect(server) as peer:
        peer.headers(1, OPEN, end=end, more=more)
        assert peer.response(1).status == status
        peer.headers(3, [*OPEN[:5], ("sec-websocket-version", "8")], end=False)
        got = peer.response(3)
        assert (got.status, got.fields["sec-websocket-version"]) == ("426", "13")
        assert peer.get(5).content == b"ok"


def test_denials(serve):
    async def app(scope, receive, send):
        if scope["path"] == "/chat":
            await receive()
            await send({"type": "websocket.close"})
        else:
            await send({"type": "websocket.http.response.start", "status": 401, "headers": []})
            await send({"type": "websocket.http.response.body", "body": b"no"})

    with serve(app, h2c=True) as server, connect(server) as peer:
        peer.headers(1, OPEN, end=False)
        assert peer.response(1).status == "403"
        peer.headers(3, [*OPEN[:3], (":path", "/other"), *OPEN[4:]], end=False)
        got = peer.response(3)
        assert (got.status, got.content) == ("401", b"no")
        lines = server.access.wait(2)
        assert ['" 403' in lines[0], '" 401' in lines[1]] == [True, True]


@pytest.mark.parametrize("how", ["reset", "end", "lost"])
def test_a_client_that_leaves(serve, how):
    told, opened = [], threading.Event()

    async def app(scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        opened.set()
        told.append(await receive())

    with serve(app, h2c=True) as server, connect(server) as peer:
        peer.headers(1, OPEN, end=False)
        assert opened.wait(WAIT)
        if how == "reset":
            peer.reset(1)
        elif how == "end":
            peer.data(1, b"", end=True)
        else:
            peer.sock.close()
        eventually(lambda: told)
        assert (told[0]["type"], told[0]["code"]) == ("websocket.disconnect", 1006)
        assert len(server.access.wait(1)) == 1


def test_the_application_closes(serve):
    async def app(scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "bye"})
        await send({"type": "websocket.close", "code": 4000, "reason": "over"})

    with serve(app, h2c=True) as server, connect(server) as peer:
        peer.headers(1, OPEN, end=False)
        peer.until(lambda: 1 in peer.responses and b"over" in peer.responses[1].content)
        assert peer.responses[1].content == b"\x81\x03bye\x88\x06\x0f\xa0over"
        assert not peer.responses[1].ended
        peer.data(1, masked(8, b"\x0f\xa0"))
        assert peer.response(1).ended
        peer.synced()
        assert peer.goaway == []


def test_a_fault_of_the_client_costs_its_websocket_alone(serve):
    with serve(echo, h2c=True) as server, connect(server) as peer:
        peer.headers(1, OPEN, end=False)
        peer.until(lambda: 1 in peer.responses)
        peer.data(1, b"\x81\x05hello")  # not masked
        got = peer.response(1)
        assert got.content[:4] == b"\x88" + got.content[1:2] + b"\x03\xea"
        assert peer.get(3).content == b"ok"


def test_an_application_that_does_not_read_shuts_the_window(serve):
    gate, opened = asyncio.Event(), threading.Event()

    async def app(scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        opened.set()
        await gate.wait()
        total = 0
        while (message := await receive())["type"] == "websocket.receive":
            total += len(message["bytes"])
            await send({"type": "websocket.send", "text": str(total)})

    with serve(app, h2c=True) as server, connect(server) as peer:
        peer.headers(1, OPEN, end=False)
        assert opened.wait(WAIT)
        for _ in range(3):
            peer.data(1, masked(2, bytes(20_000)))
        peer.data(1, masked(2, bytes(5_000)))
        peer.synced()
        windows = [
            frame for frame in peer.frames if type(frame).__name__ == "WindowUpdateFrame" and frame.stream_id
        ]
        before = sum(frame.window_increment for frame in windows)
        assert before <= 65_536
        server.call(gate.set)
        peer.until(lambda: b"65000" in peer.responses[1].content)
        peer.data(1, masked(2, bytes(1_000)))
        peer.until(lambda: b"66000" in peer.responses[1].content)


def test_pings_and_a_silent_client(serve):
    with serve(echo, h2c=True, ws_ping_interval=0.2, ws_ping_timeout=0.2) as server, connect(server) as peer:
        peer.headers(1, OPEN, end=False)
        got = peer.response(1)
        assert got.content[:2] == b"\x89\x08"
        assert b"\x03\xf3" in got.content  # 1011
        assert got.ended


def test_the_stop_closes_with_1012(serve):
    opened = threading.Event()

    async def app(scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        opened.set()
        await receive()

    with serve(app, h2c=True) as server, connect(server) as peer:
        peer.headers(1, OPEN, end=False)
        assert opened.wait(WAIT)
        server.server.should_exit = True
        peer.until(lambda: 1 in peer.responses and b"\x03\xf4" in peer.responses[1].content)
        peer.data(1, masked(8, b"\x03\xf4"))
        assert peer.response(1).ended
        peer.until(lambda: peer.closed)
