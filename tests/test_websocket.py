"""WebSockets on real connections: what the peer sees, what the application is told, what the log says."""

from __future__ import annotations

import asyncio
import json
import queue
import re
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress

import pytest
from harness import WAIT, eventually, read_response, read_to_end, reset, statuses
from holdings import connections, memory
from sample_apps import lifespan, respond
from wire_frames import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    KEY,
    PING,
    PONG,
    TEXT,
    Client,
    Frame,
    close,
    frame,
    handshake,
    text,
)

from servery.errors import ClientDisconnected, LocalProtocolError

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


async def accept(receive, send, **options):
    assert await receive() == {"type": "websocket.connect"}
    await send({"type": "websocket.accept", **options})


async def say(send, text):
    await send({"type": "websocket.send", "text": text})


class Echo:
    """Sends every message back; a request gets ``ok``. `told` is what `receive` said at the end of each
    call."""

    def __init__(self):
        self.told = queue.Queue()
        self.scopes = []

    async def __call__(self, scope, receive, send):
        self.scopes.append(scope)
        if scope["type"] == "http":
            await respond(send)
            return
        await accept(receive, send)
        while (message := await receive())["type"] == "websocket.receive":
            assert len(message) == 2
            await send({**message, "type": "websocket.send"})
        self.told.put(message)


@contextmanager
def connected(server, *fields, more=b"", **options):
    """An open WebSocket."""
    with server.connect() as sock:
        client = Client(sock)
        assert client.open(*fields, more=more, **options).startswith(b"HTTP/1.1 101 ")
        yield client


def told(app):
    """The code and the reason of the disconnect that the application was told of."""
    message = app.told.get(timeout=WAIT)
    assert message.pop("type") == "websocket.disconnect"
    return message["code"], message["reason"]


# --- there and back --------------------------------------------------------------------------------------


def test_messages_go_both_ways(serve):
    app = Echo()
    with serve(app) as server, connected(server) as client:
        assert b"\r\nsec-websocket-accept: " + ACCEPT in client.head
        assert b"\r\ncontent-length" not in client.head
        contents = [b"", b"a", b"x" * 126, b"\x00\xff" * 40_000, b"z" * 300_000]
        for content in contents:
            client.send(frame(BINARY, content))
            assert client.read() == Frame(BINARY, content)
        client.send(
            text("grüße"),
            text(""),
            frame(TEXT, b"a", final=False),
            frame(PING, b"p"),
            frame(CONTINUATION, b"b"),
        )
        found = [client.read() for _ in range(4)]
        assert [one for one in found if one.opcode == TEXT] == [
            Frame(TEXT, "grüße".encode()),
            Frame(TEXT, b""),
            Frame(TEXT, b"ab"),
        ]
        assert Frame(PONG, b"p") in found
        client.send(close(1000, b"bye"))
        assert client.read_to_close() == [Frame(CLOSE, b"\x03\xe8")]
        assert told(app) == (1000, "bye")
    assert server.errors.lines(30) == []


def test_frames_in_the_packet_of_the_handshake_are_read(serve):
    with serve(Echo()) as server, connected(server, more=text("early") + frame(PING, b"p")) as client:
        assert {client.read().payload, client.read().payload} == {b"early", b"p"}


def test_octets_may_come_one_by_one(serve):
    data = handshake() + text("hello") + close(1001)
    with serve(Echo()) as server, server.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for octet in data[:-2]:
            sock.sendall(bytes([octet]))
        client = Client(sock)
        client.read_head()
        assert client.read() == Frame(TEXT, b"hello")
        sock.sendall(data[-2:])
        assert client.read_to_close() == [Frame(CLOSE, b"\x03\xe9")]


def test_requests_come_before_it_on_the_same_connection(serve):
    app = Echo()
    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET)
        assert read_response(sock)[1] == b"ok"
        sock.sendall(GET + GET + handshake() + text("x"))
        head, body, rest = read_response(sock)
        assert (head[:15], body) == (b"HTTP/1.1 200 OK", b"ok")
        rest = read_response(sock, rest)[2]
        client = Client(sock, _rest=rest)
        assert client.read_head().startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        assert client.read() == Frame(TEXT, b"x")
    assert [scope["type"] for scope in app.scopes] == ["http"] * 3 + ["websocket"]


def test_the_scope(serve):
    app = Echo()
    fields = (b"Sec-WebSocket-Protocol: a, b", b"Sec-WebSocket-Protocol: c", b"X-A: 1")
    with serve(app, root_path="/base") as server:
        with connected(server, *fields, target=b"/p%20a?q=%31") as client:
            host, port = client.sock.getsockname()[:2]
            address = list(server.address[:2])
        [scope] = app.scopes
        runs = str(server.server.selection)
    extensions = scope.pop("extensions")
    assert set(extensions) == {"websocket.http.response", "servery.websocket.ping", "servery"}
    assert extensions["servery"]["runs"].startswith(runs)
    headers = scope.pop("headers")
    assert (b"x-a", b"1") in headers
    assert headers[0] == (b"host", b"a")
    assert scope == {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.5"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": "/base/p a",
        "raw_path": b"/base/p%20a",
        "query_string": b"q=%31",
        "root_path": "/base",
        "client": (host, port),
        "server": tuple(address),
        "subprotocols": ["a", "b", "c"],
    }


def test_every_request_has_an_id_of_its_own(serve):
    app = Echo()
    with serve(app) as server:
        for _ in range(3):
            with server.connect() as sock:
                sock.sendall(GET + handshake() + close())
                read_to_end(sock)
    ids = [scope["extensions"]["servery"]["request_id"] for scope in app.scopes]
    assert len(set(ids)) == 6
    assert [number.rpartition("-")[2] for number in ids] == list("123456")


def test_state_of_the_lifespan_is_copied_into_each_scope(serve):
    seen = queue.Queue()

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            scope["state"]["pool"] = "here"
            await lifespan(receive, send)
            return
        seen.put(scope["state"])
        await accept(receive, send)

    with serve(app, lifespan="on") as server:
        for _ in range(2):
            with connected(server, more=close()) as client:
                client.read_to_close()
    first, second = seen.get(timeout=WAIT), seen.get(timeout=WAIT)
    assert first == second == {"pool": "here"}
    assert first is not second


def test_subprotocol_and_headers_are_answered(serve):
    async def app(scope, receive, send):
        await accept(receive, send, subprotocol="b", headers=[(b"set-cookie", b"a=b")])

    with serve(app) as server, connected(server, b"Sec-WebSocket-Protocol: a, b") as client:
        assert client.head.count(b"\r\nsec-websocket-protocol: b") == 1
        assert b"\r\nset-cookie: a=b" in client.head


def test_no_subprotocol_no_line(serve):
    with serve(Echo()) as server, connected(server, b"Sec-WebSocket-Protocol: a") as client:
        assert b"sec-websocket-protocol" not in client.head.lower()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Connection: Upgrade", b"Connection: keep-alive, Upgrade"),
        (b"Connection: Upgrade", b"Connection: keep-alive\r\nCONNECTION:UPGRADE"),
        (b"Upgrade: websocket", b"Upgrade: h2c, WebSocket"),
        (b"Upgrade: websocket", b"Upgrade: h2c\r\nupgrade: ,websocket,"),
        (KEY, KEY + b" \t "),
    ],
)
def test_a_handshake_may_be_written_in_many_ways(serve, old, new):
    with serve(Echo()) as server, server.connect() as sock:
        sock.sendall(handshake().replace(old, new, 1) + text("x"))
        client = Client(sock)
        assert b"\r\nsec-websocket-accept: " + ACCEPT in client.read_head()
        assert client.read() == Frame(TEXT, b"x")


def test_nothing_is_shared_with_the_scope_of_a_request_before(serve):
    app = Echo()

    async def marking(scope, receive, send):
        marks = (scope.get("state"), scope["asgi"], scope["extensions"], scope["extensions"]["servery"])
        assert not any("x" in marked for marked in (scope, *marks))
        assert (b"x", b"y") not in scope["headers"]
        for marked in (scope, *marks):
            marked["x"] = 1
        scope["headers"].append((b"x", b"y"))
        await app(scope, receive, send)

    async def both(scope, receive, send):
        await (lifespan(receive, send) if scope["type"] == "lifespan" else marking(scope, receive, send))

    with serve(both, lifespan="on") as server, server.connect() as sock:
        sock.sendall(GET + GET + handshake() + text("x"))
        rest = read_response(sock)[2]
        client = Client(sock, _rest=read_response(sock, rest)[2])
        assert client.read_head().startswith(b"HTTP/1.1 101 ")
        assert client.read() == Frame(TEXT, b"x")
    assert server.errors.lines(30) == []


def test_the_servers_own_fields_are_in_the_answer(serve):
    with serve(Echo(), header=("x-own: 1",)) as server, connected(server) as client:
        for name in (b"date", b"server", b"x-own"):
            assert client.head.count(b"\r\n%b: " % name) == 1


def test_a_unix_socket_carries_it_too(serve, tmp_path):
    app = Echo()
    with serve(app, uds=str(tmp_path / "s")) as server, connected(server, more=text("x")) as client:
        assert client.read() == Frame(TEXT, b"x")
    assert app.scopes[0]["client"] is None


def test_both_kinds_of_applications_are_served(serve):
    def app(scope):
        async def instance(receive, send):
            await accept(receive, send)
            await say(send, "two")

        return instance

    with serve(app, interface="asgi2") as server, connected(server) as client:
        assert client.read() == Frame(TEXT, b"two")


# --- no WebSocket ----------------------------------------------------------------------------------------


def denied(server, data=None):
    """(head, content) of the answer to a handshake, behind which the connection must serve a request."""
    with server.connect() as sock:
        sock.sendall((data or handshake()) + LAST)
        head, body, rest = read_response(sock)
        rest += read_to_end(sock)
        assert rest.startswith(b"HTTP/1.1 200 OK\r\n")
        assert rest.endswith(b"ok")
        return head, body


def denying(how):
    async def app(scope, receive, send):
        if scope["type"] == "http":
            await respond(send)
        else:
            await how(scope, receive, send)

    return app


def test_a_close_before_it_was_accepted_is_403(serve):
    codes = queue.Queue()

    async def how(scope, receive, send):
        await receive()
        await send({"type": "websocket.close", "code": 4001})
        codes.put(await receive())
        with pytest.raises(LocalProtocolError, match="closed or denied"):
            await send({"type": "websocket.accept"})
        codes.put("end")

    with serve(denying(how)) as server:
        head, body = denied(server)
        assert codes.get(timeout=WAIT) == {"type": "websocket.disconnect", "code": 1006, "reason": ""}
        assert codes.get(timeout=WAIT) == "end"
        [line, _] = server.access.wait(2)
    assert head.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert (body, b"\r\ncontent-length: 0" in head) == (b"", True)
    assert b"sec-websocket" not in head
    assert '"GET / HTTP/1.1" 403 0 ' in line
    assert "closed" not in line


@pytest.mark.parametrize("parts", [[b"no entry"], [b"no ", b"", b"entry"]])
def test_a_denial_is_a_whole_response(serve, parts):
    async def how(scope, receive, send):
        await receive()
        headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Basic")]
        await send({"type": "websocket.http.response.start", "status": 401, "headers": headers})
        for part in parts:
            await send(
                {"type": "websocket.http.response.body", "body": part, "more_body": part is not parts[-1]}
            )

    with serve(denying(how)) as server:
        head, body = denied(server)
    assert head.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
    assert b"\r\nwww-authenticate: Basic" in head
    assert not any(name in head.lower() for name in (b"upgrade", b"sec-websocket"))
    assert re.sub(rb"[0-9a-f]+\r\n|\r\n", b"", body) == b"no entry"


def test_a_denial_may_have_no_content(serve):
    async def how(scope, receive, send):
        await send({"type": "websocket.http.response.start", "status": 204})
        await send({"type": "websocket.http.response.body"})

    with serve(denying(how)) as server:
        head, body = denied(server)
    assert (head[:23], body) == (b"HTTP/1.1 204 No Content", b"")


def test_a_denial_that_breaks_off_is_visibly_cut(serve):
    async def how(scope, receive, send):
        await send({"type": "websocket.http.response.start", "status": 401})
        await send({"type": "websocket.http.response.body", "body": b"part", "more_body": True})
        raise ZeroDivisionError

    with serve(denying(how)) as server:
        received = server.raw(handshake())
    assert received.endswith(b"part\r\n")


def test_an_exception_before_it_was_accepted_is_500(serve):
    async def how(scope, receive, send):
        raise ZeroDivisionError

    with serve(denying(how)) as server:
        head, _ = denied(server)
        [line] = server.errors.wait(1)
    assert head.startswith(b"HTTP/1.1 500 ")
    assert "Exception in the application, answering GET /" in line


def test_a_call_that_returns_without_an_answer_is_403_and_an_error(serve):
    async def how(scope, receive, send):
        await receive()

    with serve(denying(how)) as server:
        head, _ = denied(server)
        [line] = server.errors.wait(1)
    assert head.startswith(b"HTTP/1.1 403 ")
    assert "returned before it answered the handshake" in line


@pytest.mark.parametrize("subprotocol", ["zzz", "A"])
def test_a_subprotocol_that_was_not_offered_is_an_error(serve, subprotocol):
    async def how(scope, receive, send):
        await accept(receive, send, subprotocol=subprotocol)

    with serve(denying(how)) as server:
        head, _ = denied(server, handshake(b"Sec-WebSocket-Protocol: a, b"))
        assert "was not offered" in str(server.errors.records[0].exc_info[1])
    assert head.startswith(b"HTTP/1.1 500 ")


@pytest.mark.parametrize(
    "message",
    [
        {"type": "websocket.send", "text": "x"},
        {"type": "websocket.http.response.body", "body": b""},
        {"type": "websocket.http.response.start"},
        {"type": "websocket.http.response.start", "status": 99},
        {"type": "websocket.http.response.start", "status": 401, "headers": [(b"a", b"b\r\nc: d")]},
        {"type": "websocket.http.response.start", "status": 401, "headers": [(b"a\n", b"b")]},
        {"type": "http.response.start", "status": 200},
        {"type": "servery.websocket.ping"},
        {"type": "websocket.accept", "headers": [(b"sec-websocket-accept", b"x")]},
        {"type": "websocket.accept", "headers": [(b"a", b"b\r\nc: d")]},
        *({"type": "websocket.accept", "headers": [(b"a", value)]} for value in (b"b\nc", b"b\rc", b"b\0c")),
        {"type": "nonsense"},
        {},
        None,
    ],
)
def test_a_message_that_is_no_answer_to_a_handshake_is_an_error(serve, message):
    raised = queue.Queue()

    async def how(scope, receive, send):
        try:
            await send(message)
        except Exception as error:
            raised.put(error)
        await accept(receive, send)
        await say(send, "accepted after all")

    with serve(denying(how)) as server, connected(server) as client:
        assert isinstance(raised.get(timeout=WAIT), LocalProtocolError)
        assert client.read() == Frame(TEXT, b"accepted after all")


FAULTS = [
    (handshake(version=b"12"), b"426"),
    (handshake(version=None), b"426"),
    (handshake(key=None), b"400"),
    (handshake(key=b""), b"400"),
    (handshake(key=b"x"), b"400"),
    (handshake(b"Sec-WebSocket-Version: 13"), b"400"),
    (handshake(b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="), b"400"),
    (handshake(b"Sec-WebSocket-Protocol: a b"), b"400"),
    (handshake(b"Sec-WebSocket-Extensions: ;"), b"400"),
]


@pytest.mark.parametrize(("data", "status"), FAULTS)
def test_a_faulty_handshake_is_refused_without_the_application(serve, data, status):
    app = Echo()
    with serve(app) as server:
        head, body = denied(server, data)
        lines = server.access.wait(2)
    assert head.split(b" ")[1] == status
    assert body.endswith(b"\n")
    if status == b"426":
        assert b"\r\nsec-websocket-version: 13" in head
        assert b"\r\nupgrade: websocket" in head
    assert f'"GET / HTTP/1.1" {status.decode()} ' in lines[0]
    assert [scope["type"] for scope in app.scopes] == ["http"]
    assert server.errors.lines(30) == []


def test_a_handshake_with_a_body_is_refused_and_the_body_is_no_request(serve):
    data = handshake(b"Content-Length: %d" % len(GET)) + GET
    app = Echo()
    with serve(app) as server:
        head, _ = denied(server, data)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert [scope["type"] for scope in app.scopes] == ["http"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Upgrade: websocket", b"Upgrade: h2c"),
        (b"Connection: Upgrade", b"Connection: notupgrade"),
        (b"GET / HTTP/1.1", b"GET / HTTP/1.0"),
        (b"GET", b"POST"),
    ],
)
def test_what_asks_for_no_websocket_is_a_request(serve, old, new):
    app = Echo()
    with serve(app) as server:
        with server.connect() as sock:
            sock.sendall(handshake().replace(old, new, 1))
            assert read_response(sock)[1] == b"ok"
            if b"1.0" not in new:
                sock.sendall(handshake() + text("x"))
                client = Client(sock)
                client.read_head()
                assert client.read() == Frame(TEXT, b"x")
    assert app.scopes[0]["type"] == "http"


def test_a_request_that_asked_for_another_protocol_is_served_to_its_end(serve):
    async def app(scope, receive, send):
        body = b""
        more = True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": body[:5], "more_body": True})
        await send({"type": "http.response.body", "body": body[5:]})

    data = (
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: foo\r\nContent-Length: 200000\r\n\r\n"
    )
    with serve(app) as server, server.connect() as sock:
        for _ in range(3):
            sock.sendall(data + b"x" * 200_000)
            content = read_response(sock)[1]
            assert content.count(b"x") == 200_000


def test_more_than_may_run_at_a_time_get_503(serve):
    with serve(Echo(), limit_concurrency=1) as server, connected(server) as client:
        with server.connect() as sock:
            sock.sendall(handshake())
            assert read_response(sock)[0].startswith(b"HTTP/1.1 503 ")
        client.send(close())
        assert client.read_to_close() == [Frame(CLOSE, b"\x03\xe8")]
        server.access.wait(2)
        with connected(server, more=text("x")) as other:
            assert other.read() == Frame(TEXT, b"x")


# --- closing: by the peer --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "answer", "seen"),
    [
        (close(1000, b"bye"), b"\x03\xe8", (1000, "bye")),
        (close(None), b"", (1005, "")),
        (close(4001, "é".encode() * 41), b"\x0f\xa1", (4001, "é" * 41)),
        (close(3000), b"\x0b\xb8", (3000, "")),
    ],
)
def test_a_close_of_the_peer_is_answered_and_told(serve, data, answer, seen):
    app = Echo()
    with serve(app) as server, connected(server) as client:
        client.send(data)
        assert client.read_to_close() == [Frame(CLOSE, answer)]
        assert told(app) == seen
        [line] = server.access.wait(1)
    assert f" closed {seen[0]} in 0/0 out 0/0" in line
    assert "aborted" not in line


FAILURES = [
    (frame(TEXT, b"x", mask=None), 1002),
    (frame(3), 1002),
    (frame(TEXT, b"x", rsv=4), 1002),
    (frame(CONTINUATION), 1002),
    (frame(PING, b"x" * 126), 1002),
    (close(1005), 1002),
    (close(1006), 1002),
    (close(999), 1002),
    (frame(CLOSE, b"x"), 1002),
    (close(1000, b"x" * 124), 1002),
    (close(1000, b"\xff"), 1007),
    (frame(TEXT, b"\xff"), 1007),
    (frame(BINARY, size=1 << 62), 1009),
    (frame(BINARY, b"x" * 1001), 1009),
]


@pytest.mark.parametrize(("data", "code"), FAILURES)
def test_a_fault_of_the_peer_is_told_to_both(serve, data, code):
    app = Echo()
    with serve(app, ws_max_size=1000) as server, connected(server) as client:
        client.send(data)
        assert [one.code for one in client.read_to_close()] == [code]
        client.sock.close()
        assert told(app)[0] == code
        [line] = server.access.wait(1)
    assert f" closed {code} in " in line
    assert server.errors.lines(30) == []


def test_last_words_reach_a_peer_that_goes_on_sending(serve):
    with serve(Echo(), ws_max_size=1000) as server, connected(server) as client:
        client.send(frame(BINARY, b"x" * 1001), *[b"x" * 65536] * 20)
        assert [one.code for one in client.read_to_close()] == [1009]


@pytest.mark.parametrize("how", ["reset", "fin"])
def test_a_peer_that_leaves_is_1006(serve, how):
    app = Echo()
    with serve(app) as server:
        with connected(server) as client:
            client.send(text("x"))
            assert client.read() == Frame(TEXT, b"x")
            if how == "reset":
                reset(client.sock)
            else:
                client.sock.shutdown(socket.SHUT_WR)
                assert client.read_to_close() == []
            assert told(app) == (1006, "")
            [line] = server.access.wait(1)
    assert line.endswith(" closed 1006 in 1/1 out 1/1 aborted")
    assert server.errors.lines(30) == []


def test_messages_before_the_end_are_received_before_it_is_told(serve):
    go = threading.Event()
    seen = queue.Queue()

    async def app(scope, receive, send):
        await accept(receive, send)
        await asyncio.to_thread(go.wait, WAIT)
        while (message := await receive())["type"] != "websocket.disconnect":
            seen.put(message["text"])
        seen.put(message["code"])
        seen.put((await receive())["code"])

    with serve(app) as server, connected(server, more=text("a") + text("b") + close(1001)) as client:
        assert client.read_to_close() == [Frame(CLOSE, b"\x03\xe9")]
        go.set()
        assert [seen.get(timeout=WAIT) for _ in range(4)] == ["a", "b", 1001, 1001]


@pytest.mark.parametrize("data", [close(1000), frame(3), b""])
def test_sending_to_a_peer_that_has_left_raises(serve, data):
    raised = queue.Queue()

    async def app(scope, receive, send):
        await accept(receive, send)
        await receive()
        for message in ({"type": "websocket.send", "text": "x"}, {"type": "websocket.close"}):
            try:
                await send(message)
            except OSError as error:
                raised.put(error)
        await say(send, "x")

    with serve(app, timeout_linger=0.2) as server:
        with connected(server) as client:
            if data:
                client.send(data)
            else:
                reset(client.sock)
            assert isinstance(raised.get(timeout=WAIT), ClientDisconnected)
            assert isinstance(raised.get(timeout=WAIT), ClientDisconnected)
            server.access.wait(1)
    assert server.errors.lines(30) == []


def test_an_application_may_let_a_disconnect_pass_under_another_name(serve):
    class WebSocketDisconnect(Exception):
        """As frameworks have it."""

    async def app(scope, receive, send):
        await accept(receive, send)
        await receive()
        raise WebSocketDisconnect

    with serve(app) as server:
        with connected(server) as client:
            client.send(close())
            client.read_to_close()
            server.access.wait(1)
    assert server.errors.lines(20) == []


def test_a_client_that_leaves_during_the_handshake_is_told_at_once(serve):
    seen = queue.Queue()
    entered = threading.Semaphore(0)

    async def app(scope, receive, send):
        await receive()
        entered.release()
        seen.put(await receive())
        with pytest.raises(ClientDisconnected):
            await send({"type": "websocket.accept"})
        seen.put("end")

    with serve(app) as server:
        assert server.raw(handshake(), shut=True) == b""
        entered.acquire(timeout=WAIT)
        assert seen.get(timeout=WAIT) == {"type": "websocket.disconnect", "code": 1006, "reason": ""}
        assert seen.get(timeout=WAIT) == "end"
        with server.connect() as sock:
            sock.sendall(handshake())
            entered.acquire(timeout=WAIT)
            reset(sock)
        assert seen.get(timeout=WAIT)["code"] == 1006
    assert server.errors.lines(30) == []


# --- closing: by the application -------------------------------------------------------------------------


def test_the_application_closes_and_hears_the_answer(serve):
    seen = queue.Queue()

    async def app(scope, receive, send):
        await accept(receive, send)
        await send({"type": "websocket.close", "code": 4001, "reason": "enough"})
        with pytest.raises(LocalProtocolError, match="closed or denied"):
            await send({"type": "websocket.close"})
        seen.put(await receive())

    with serve(app) as server, connected(server) as client:
        assert client.read() == Frame(CLOSE, b"\x0f\xa1enough")
        client.send(text("late"), close(4001, b"fine"))
        assert client.read_to_close() == []
        message = seen.get(timeout=WAIT)
    assert message == {"type": "websocket.disconnect", "code": 4001, "reason": "fine"}
    assert server.errors.lines(30) == []


@pytest.mark.parametrize(
    ("message", "payload"),
    [
        ({}, b"\x03\xe8"),
        ({"code": None, "reason": None}, b"\x03\xe8"),
        ({"code": 1001, "reason": "x" * 123}, b"\x03\xe9" + b"x" * 123),
    ],
)
def test_code_and_reason_have_defaults(serve, message, payload):
    async def app(scope, receive, send):
        await accept(receive, send)
        await send({"type": "websocket.close", **message})

    with serve(app) as server, connected(server) as client:
        assert client.read() == Frame(CLOSE, payload)


@pytest.mark.parametrize(
    "message", [{"code": code} for code in (1005, 1006, 1015, 999, 70000)] + [{"reason": "x" * 124}]
)
def test_a_close_that_must_not_be_sent_is_an_error_and_1011_on_the_wire(serve, message):
    async def app(scope, receive, send):
        await accept(receive, send)
        await send({"type": "websocket.close", **message})

    with serve(app) as server, connected(server) as client:
        assert client.read() == Frame(CLOSE, b"\x03\xf3")
        [record] = eventually(lambda: server.errors.records)
        assert isinstance(record.exc_info[1], LocalProtocolError)


def test_an_exception_is_1011_and_in_the_log(serve):
    async def app(scope, receive, send):
        await accept(receive, send)
        raise ZeroDivisionError

    with serve(app) as server, connected(server) as client:
        assert client.read() == Frame(CLOSE, b"\x03\xf3")
        client.send(close(1011))
        assert client.read_to_close() == []
        [line] = server.errors.wait(1)
    assert "Exception in the application" in line


def test_a_call_that_returns_closes_with_1000(serve):
    async def app(scope, receive, send):
        await accept(receive, send)
        await say(send, "bye")

    with serve(app) as server, connected(server) as client:
        assert [client.read(), client.read()] == [Frame(TEXT, b"bye"), Frame(CLOSE, b"\x03\xe8")]
        client.send(close())
        assert client.read_to_close() == []
        [line] = server.access.wait(1)
    assert " closed 1000 in 0/0 out 1/3" in line
    assert server.errors.lines(20) == []


def test_a_peer_that_does_not_answer_a_close_is_left(serve):
    async def app(scope, receive, send):
        await accept(receive, send)

    with serve(app, ws_close_timeout=0.2) as server, connected(server) as client:
        assert client.read_to_close() == [Frame(CLOSE, b"\x03\xe8")]
        [line] = server.access.wait(1)
    assert " closed 1006 " in line


@pytest.mark.parametrize(
    "message",
    [
        {"type": "websocket.accept"},
        {"type": "websocket.send"},
        {"type": "websocket.send", "text": None, "bytes": None},
        {"type": "websocket.send", "text": "a", "bytes": b"a"},
        {"type": "websocket.send", "text": b"a"},
        {"type": "websocket.send", "bytes": "a"},
        {"type": "websocket.send", "text": "\ud800"},
        {"type": "websocket.close", "code": 1006},
        {"type": "websocket.close", "reason": "x" * 124},
        {"type": "websocket.http.response.start", "status": 200},
        {"type": "http.response.body"},
    ],
)
def test_a_message_that_is_none_is_an_error_and_nothing_is_sent(serve, message):
    async def app(scope, receive, send):
        await accept(receive, send)
        with pytest.raises(LocalProtocolError):
            await send(message)
        await say(send, "still open")

    with serve(app) as server, connected(server) as client:
        assert client.read() == Frame(TEXT, b"still open")
    assert server.errors.lines(30) == []


@pytest.mark.parametrize(
    "message", [{"text": None, "bytes": b"a"}, {"bytes": bytearray(b"a")}, {"bytes": memoryview(b"a")}]
)
def test_octets_are_octets(serve, message):
    async def app(scope, receive, send):
        await accept(receive, send)
        await send({"type": "websocket.send", **message})

    with serve(app) as server, connected(server) as client:
        assert client.read() == Frame(BINARY, b"a")


# --- how much, how fast ----------------------------------------------------------------------------------


def test_an_application_waits_for_a_peer_that_does_not_read(serve):
    sent = []
    block = b"x" * 65536

    async def app(scope, receive, send):
        await accept(receive, send)
        for number in range(400):
            await send({"type": "websocket.send", "bytes": block})
            sent.append(number)

    with serve(app) as server, connected(server) as client:
        eventually(lambda: sent and server.call(lambda: len(sent)) == server.call(lambda: len(sent)) > 3)
        assert len(sent) < 400
        for _ in range(400):
            assert client.read() == Frame(BINARY, block)
        assert client.read() == Frame(CLOSE, b"\x03\xe8")


def test_a_peer_that_takes_nothing_is_reset(serve):
    ended = queue.Queue()

    async def app(scope, receive, send):
        await accept(receive, send)
        try:
            while True:
                await send({"type": "websocket.send", "bytes": b"x" * 65536})
        except OSError as error:
            ended.put(error)
            raise

    with serve(app, timeout_write=0.3) as server, connected(server):
        assert isinstance(ended.get(timeout=WAIT), ClientDisconnected)
    assert server.errors.lines(30) == []


def test_a_member_that_does_not_read_delays_nobody_and_is_cut(serve):
    members, tasks, size = set(), set(), 200_000

    async def sending(send, text):
        try:
            await say(send, text)
        except ClientDisconnected:
            members.discard(send)

    async def app(scope, receive, send):
        await accept(receive, send)
        members.add(send)
        while (message := await receive())["type"] == "websocket.receive":
            for member in list(members):
                tasks.add(task := asyncio.ensure_future(sending(member, message["text"] * size)))
                task.add_done_callback(tasks.discard)

    with serve(app, timeout_write=0.3) as server, ExitStack() as stack:
        slow, *others = (stack.enter_context(connected(server)) for _ in range(6))
        rounds = 0
        while len(members) == 6 or rounds < 20:
            others[0].send(text("x"))
            for other in others:
                assert other.read() == Frame(TEXT, b"x" * size)
            rounds += 1
            assert rounds < 20_000
        with pytest.raises(ConnectionResetError):
            while slow.read() is not None:
                pass
    assert server.errors.lines(30) == []


def test_a_peer_is_held_back_by_an_application_that_does_not_receive(serve):
    go = threading.Event()
    count = 80
    content = b"y" * 100_000

    async def app(scope, receive, send):
        await accept(receive, send)
        await asyncio.to_thread(go.wait, WAIT)
        for number in range(count):
            message = await receive()
            assert message["bytes"] == b"%d " % number + content
        await say(send, "all")

    with serve(app) as server, connected(server) as client:
        sender = threading.Thread(
            target=lambda: [client.send(frame(BINARY, b"%d " % number + content)) for number in range(count)]
        )
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        sender.start()
        sender.join(0.5)
        assert sender.is_alive()
        go.set()
        assert client.read() == Frame(TEXT, b"all")
        sender.join(WAIT)
    assert server.errors.lines(30) == []


def test_pings_of_a_peer_that_does_not_read_pile_up_nowhere(serve):
    with serve(Echo()) as server, connected(server) as client:
        data = frame(PING, b"x" * 125) * 500
        before = memory()
        client.sock.settimeout(0.5)
        try:
            for _ in range(500):
                client.send(data)
        except TimeoutError:  # or the server reads no more, which is right as well
            pass
        assert memory() - before < 8 << 20
        client.sock.close()
        server.access.wait(1)
    assert server.errors.lines(30) == []


def test_messages_of_one_turn_leave_together_and_in_order(serve):
    async def app(scope, receive, send):
        await accept(receive, send)
        for number in range(1000):
            await say(send, str(number))

    with serve(app) as server, connected(server) as client:
        assert [client.read() for _ in range(1000)] == [Frame(TEXT, b"%d" % number) for number in range(1000)]


def test_several_tasks_may_send_and_receive_at_the_same_time(serve):
    async def app(scope, receive, send):
        await accept(receive, send)

        async def talk(name):
            for _ in range(50):
                await say(send, name * 3000)

        async def listen():
            return (await receive())["text"]

        heard, *_ = await asyncio.gather(listen(), talk("a"), talk("b"))
        await say(send, heard)

    with serve(app) as server, connected(server, more=text("hello")) as client:
        found = [client.read().payload for _ in range(101)]
    assert found.count(b"a" * 3000) == found.count(b"b" * 3000) == 50
    assert found[-1] == b"hello"


# --- pings -----------------------------------------------------------------------------------------------


def test_a_silent_peer_is_pinged_and_then_closed_with_1011(serve):
    app = Echo()
    with serve(app, ws_ping_interval=0.2, ws_ping_timeout=0.2) as server, connected(server) as client:
        assert [one.opcode for one in client.read_to_close()] == [PING, CLOSE]
        assert told(app) == (1011, "no answer to a ping in time")
    assert server.errors.lines(30) == []


def test_a_peer_that_answers_stays(serve):
    app = Echo()
    with serve(app, ws_ping_interval=0.2, ws_ping_timeout=0.3) as server, connected(server) as client:
        for _ in range(4):
            ping = client.read()
            assert ping.opcode == PING
            client.send(frame(PONG, ping.payload))
        client.send(text("x"))
        assert client.read() == Frame(TEXT, b"x")


def test_a_peer_that_sends_one_long_message_slowly_stays(serve):
    with serve(Echo(), ws_ping_interval=1.0, ws_ping_timeout=0.2) as server, connected(server) as client:
        data = frame(BINARY, b"x" * 20)
        pause = threading.Event()
        for octet in data:
            client.sock.sendall(bytes([octet]))
            pause.wait(0.06)
        assert client.read() == Frame(BINARY, b"x" * 20)


def test_a_peer_that_is_behind_with_reading_is_not_taken_for_silent(serve):
    content = b"x" * (20 << 20)

    async def app(scope, receive, send):
        await accept(receive, send)
        await send({"type": "websocket.send", "bytes": content})
        assert (await receive())["text"] == "all"

    with serve(app, ws_ping_interval=0.4, ws_ping_timeout=0.8) as server, connected(server) as client:
        threading.Event().wait(2.0)
        client.drop(10 + len(content))
        client.send(text("all"))
        while (one := client.read()).opcode == PING:
            pass
        assert one == Frame(CLOSE, b"\x03\xe8")
    assert server.errors.lines(30) == []


def test_no_interval_no_pings(serve):
    with serve(Echo(), ws_ping_interval=None, ws_ping_timeout=20.0) as server, connected(server) as client:
        client.sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.read()


def test_no_timeout_only_pings(serve):
    with serve(Echo(), ws_ping_interval=0.1, ws_ping_timeout=None) as server, connected(server) as client:
        assert [client.read().opcode for _ in range(4)] == [PING] * 4
        client.send(text("x"))
        while (one := client.read()).opcode == PING:
            pass
        assert one == Frame(TEXT, b"x")


def test_pongs_that_nobody_asked_for_are_ignored(serve):
    app = Echo()
    with serve(app) as server, connected(server, more=frame(PONG, b"a") * 100 + frame(PONG)) as client:
        client.send(text("x"))
        assert client.read() == Frame(TEXT, b"x")
        client.send(close())
        assert client.read_to_close() == [Frame(CLOSE, b"\x03\xe8")]
        assert told(app) == (1000, "")


def test_the_application_may_measure_the_round_trip(serve):
    seen = queue.Queue()

    async def app(scope, receive, send):
        assert scope["extensions"]["servery.websocket.ping"] == {}
        await accept(receive, send)
        await send({"type": "servery.websocket.ping"})
        seen.put(await receive())
        seen.put(await receive())

    with serve(app) as server, connected(server) as client:
        ping = client.read()
        client.send(frame(PONG, b"other"), frame(PONG, ping.payload), text("x"))
        message = seen.get(timeout=WAIT)
        assert message.pop("type") == "servery.websocket.pong"
        assert 0 <= message.pop("round_trip") < WAIT
        assert message == {}
        assert seen.get(timeout=WAIT) == {"type": "websocket.receive", "text": "x"}


# --- the stop --------------------------------------------------------------------------------------------


def test_the_stop_closes_with_1012_and_tells_the_application(serve):
    app = Echo()
    with serve(app, ws_close_timeout=0.3) as server, connected(server) as client, connected(server) as dead:
        server.server.should_exit = True
        assert client.read() == Frame(CLOSE, b"\x03\xf4")
        assert told(app) == (1012, "")
        client.send(close(1012))
        assert client.read_to_close() == []
        assert dead.read_to_close() == [Frame(CLOSE, b"\x03\xf4")]
        server.stop()
    assert server.errors.lines(30) == []


def test_a_handshake_that_is_accepted_during_the_stop_is_closed_at_once(serve):
    go = threading.Event()
    entered = threading.Event()

    async def app(scope, receive, send):
        await receive()
        entered.set()
        await asyncio.to_thread(go.wait, WAIT)
        await send({"type": "websocket.accept"})
        assert (await receive())["code"] == 1012

    with serve(app) as server, server.connect() as sock:
        sock.sendall(handshake())
        entered.wait(WAIT)
        address = server.address
        server.server.should_exit = True
        with pytest.raises(ConnectionRefusedError):
            while True:
                with suppress(ConnectionResetError):  # accepted by the kernel, and then there was no listener
                    socket.create_connection(address).close()
        go.set()
        client = Client(sock)
        assert client.read_head().startswith(b"HTTP/1.1 101 ")
        assert client.read() == Frame(CLOSE, b"\x03\xf4")
        client.send(close(1012))
        assert client.read_to_close() == []
    assert server.errors.lines(30) == []


def test_an_application_that_has_not_answered_is_told_after_the_grace(serve):
    entered = threading.Event()
    seen = queue.Queue()

    async def app(scope, receive, send):
        await receive()
        entered.set()
        seen.put(await receive())

    with serve(app, timeout_stream_grace=0.2) as server, server.connect() as sock:
        sock.sendall(handshake())
        entered.wait(WAIT)
        server.server.should_exit = True
        assert seen.get(timeout=WAIT) == {"type": "websocket.disconnect", "code": 1006, "reason": ""}
        assert read_to_end(sock) == b""
    assert server.errors.lines(30) == []


def test_an_open_websocket_is_told_once(serve):
    seen = queue.Queue()

    async def app(scope, receive, send):
        await accept(receive, send)
        seen.put((await receive())["code"])
        await asyncio.sleep(0.5)  # beyond the grace

    with serve(app, timeout_stream_grace=0.1) as server, connected(server) as client:
        server.server.should_exit = True
        assert client.read() == Frame(CLOSE, b"\x03\xf4")
        client.send(close(1012))
        assert client.read_to_close() == []
        server.stop()
    assert seen.get(timeout=WAIT) == 1012
    assert seen.empty()
    assert server.errors.lines(30) == []


def test_an_application_that_does_not_end_is_cancelled(serve):
    async def app(scope, receive, send):
        await accept(receive, send)
        await asyncio.Event().wait()

    with (
        serve(app, timeout_graceful_shutdown=0.3, ws_close_timeout=0.2) as server,
        connected(server) as client,
    ):
        server.server.should_exit = True
        assert client.read_to_close() == [Frame(CLOSE, b"\x03\xf4")]
        server.stop()
        assert any("cancelling" in line for line in server.errors.lines(30))


# --- logs and leftovers ----------------------------------------------------------------------------------


def test_the_log_has_one_line_with_what_was_carried(serve):
    with serve(Echo(), access_log_format="json") as server, connected(server, target=b"/ws?a") as client:
        client.send(text("é"), frame(BINARY, b"abc"), close(1001))
        client.read_to_close()
        [line] = server.access.wait(1)
    facts = json.loads(line)
    assert (facts["status"], facts["scheme"], facts["target"], facts["aborted"]) == (
        101,
        "ws",
        "/ws?a",
        False,
    )
    assert (facts["close_code"], facts["messages_received"], facts["bytes_received"]) == (1001, 2, 5)


def test_nothing_outlives_its_connection(serve, no_collector):
    app = Echo()
    with serve(app) as server:
        tasks = server.call(lambda: len(asyncio.all_tasks()))
        ends = (close(), frame(3), text("x") + close(None), b"", frame(TEXT, b"x", final=False))
        for number, data in enumerate(ends, 1):
            with connected(server) as client:
                client.send(data)
            server.access.wait(number)
        with server.connect() as sock:
            sock.sendall(handshake(version=b"1"))
            read_response(sock)
        app.scopes.clear()
        eventually(lambda: connections(server) == 0, "connections are freed")
        assert server.call(lambda: len(asyncio.all_tasks())) == tasks


def test_statuses_of_what_is_pipelined_behind_denials(serve):
    async def how(scope, receive, send):
        await send({"type": "websocket.close"})

    with serve(denying(how)) as server:
        received = server.raw(handshake() * 5 + GET + handshake(key=None) + LAST)
    assert statuses(received) == [b"403"] * 5 + [b"200", b"400", b"200"]
