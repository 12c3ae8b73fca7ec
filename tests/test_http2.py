"""HTTP/2 as clients and applications meet it: requests, responses, windows, ends. On real sockets."""

from __future__ import annotations

import ast
import asyncio
import os
import threading

import pytest
from h2_peer import GET, POST, Peer, connect, raw
from harness import WAIT, eventually, read_response, reset
from holdings import objects
from sample_apps import Gone, body, ok, read_body, respond, start


async def describe(scope, receive, send):
    """What the scope says."""
    await respond(send, repr({name: value for name, value in scope.items() if name != "state"}).encode())


async def echo(scope, receive, send):
    await respond(send, await read_body(receive))


def test_a_request_and_its_scope(serve):
    with serve(describe, h2c=True) as server, connect(server) as peer:
        got = peer.get(1, ("x-a", "1"), ("cookie", "a=1"), ("x-b", "2"), ("cookie", "b=2"), path="/a%20b?c=d")
        assert got.status == "200"
        scope = ast.literal_eval(got.content.decode())
        assert (scope["http_version"], scope["scheme"], scope["method"]) == ("2", "http", "GET")
        assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b", b"/a%20b", b"c=d")
        assert scope["headers"] == [(b"host", b"a"), (b"x-a", b"1"), (b"cookie", b"a=1; b=2"), (b"x-b", b"2")]
        assert "http.response.trailers" not in scope["extensions"]
        assert {"http.response.early_hint", "http.response.pathsend"} <= scope["extensions"].keys()
        lines = server.access.wait(1)
        assert '"GET /a%20b?c=d HTTP/2" 200' in lines[0]


def test_http1_goes_on_beside_it_and_upgrades_are_ignored(serve):
    with serve(describe, h2c=True) as server, server.connect() as sock:
        for more in (
            b"",
            b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
        ):
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n" + more + b"\r\n")
            head, content, _ = read_response(sock)
            assert head.startswith(b"HTTP/1.1 200")
            assert ast.literal_eval(content.decode())["http_version"] == "1.1"


@pytest.mark.parametrize(
    "data", [b"P", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"]
)
def test_what_only_begins_like_the_preface_is_http1(serve, data):
    with serve(ok, h2c=True) as server:
        assert server.raw(data, shut=True).startswith(b"HTTP/1.1 ")


def test_a_listener_without_h2c_knows_only_http1(serve):
    with serve(ok) as server:
        assert server.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").startswith(b"HTTP/1.1 505")


def test_the_preface_may_come_in_pieces_and_late(serve):
    with serve(ok, h2c=True) as server, server.connect() as sock:
        from h2_peer import PREFACE

        sock.sendall(PREFACE[:1])
        sock.sendall(PREFACE[1:20])
        sock.sendall(PREFACE[20:] + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
        assert Peer(sock, hello=False).get(1).content == b"ok"


@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, 16_385, 65_535, 65_536, 1_000_000])
@pytest.mark.parametrize("window", [100, 65_535])
def test_contents_of_any_size_end_once(serve, size, window):
    content = os.urandom(size)

    async def app(scope, receive, send):
        if scope["path"] == "/length":
            await respond(send, content)
        else:
            await start(send)
            await body(send, content, True)
            await body(send)

    if window == 100 and size > 20_000:
        size, content = 20_000, content[:20_000]
    with serve(app, h2c=True) as server, connect(server, settings={4: window}) as peer:
        for stream, path in ((1, "/length"), (3, "/")):
            got = peer.get(stream, path=path)
            assert (got.content, got.ended, got.reset) == (content, True, None)
            assert ("content-length" in got.fields) is (path == "/length")


def test_bodies_arrive_once_and_windows_open_again(serve):
    content = os.urandom(700_000)
    with serve(echo, h2c=True) as server, connect(server) as peer:
        sender = threading.Thread(target=send_body, args=(peer, 1, content))
        # as much as the windows allow at once, then as they open
        peer.headers(1, POST, end=False, more=[("content-length", str(len(content)))])
        sender.start()
        got = peer.response(1)
        sender.join()
        assert got.content == content


def send_body(peer, stream, content):
    """Within the windows that the peer's frames tell of."""
    from hyperframe.frame import WindowUpdateFrame

    at, seen = 0, 0
    room = {0: 65_535, stream: 65_535}
    while at < len(content):
        for frame in peer.frames[seen:]:
            seen += 1
            if isinstance(frame, WindowUpdateFrame):
                room[frame.stream_id] = room.get(frame.stream_id, 0) + frame.window_increment
        size = min(16_000, room[0], room[stream], len(content) - at)
        if size > 0:
            peer.data(stream, content[at : at + size], end=at + size == len(content))
            room[0] -= size
            room[stream] -= size
            at += size
        else:
            eventually(lambda known=seen: len(peer.frames) > known, "a window opens")


@pytest.mark.parametrize("pad", [None, 0, 7, 255])
def test_ends_of_bodies(serve, pad):
    with serve(echo, h2c=True) as server, connect(server) as peer:
        peer.headers(1, POST)
        peer.headers(3, POST, end=False)
        peer.data(3, b"abc", pad=pad)
        peer.data(3, b"def", end=True, pad=pad)
        peer.headers(5, POST, end=False)
        peer.data(5, b"x", pad=pad)
        peer.data(5, b"", end=True)
        contents = [peer.response(stream).content for stream in (1, 3, 5)]
        assert contents == [b"", b"abcdef", b"x"]


def test_trailers_both_ways(serve):
    seen = []

    async def app(scope, receive, send):
        while True:
            message = await receive()
            if not message["more_body"]:
                seen.append(message.get("trailers"))
                break
        await start(send, trailers=True)
        await body(send, b"content")
        await send({"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")]})

    with serve(app, h2c=True) as server, connect(server) as peer:
        for stream, te in ((1, [("te", "trailers")]), (3, [])):
            peer.headers(stream, POST, end=False, more=te)
            peer.data(stream, b"body")
            peer.headers(stream, [("x-sum", "5")])
            got = peer.response(stream)
            assert (got.content, got.reset) == (b"content", None)
            assert got.heads[1:] == ([[("grpc-status", "0")]] if te else [])
        assert seen == [[(b"x-sum", b"5")]] * 2


def test_head_204_and_304_have_no_content(serve):
    async def app(scope, receive, send):
        await respond(send, b"content", int(scope["path"][1:]))

    with serve(app, h2c=True) as server, connect(server) as peer:
        head = [(name, {":method": "HEAD", ":path": "/200"}.get(name, value)) for name, value in GET]
        peer.headers(1, head)
        got = peer.response(1)
        assert (got.content, got.fields["content-length"], got.ended) == (b"", "7", True)
        assert len([frame for frame in peer.frames if frame.stream_id == 1]) == 1
        for stream, status in ((3, 204), (5, 304)):
            got = peer.get(stream, path=f"/{status}")
            assert (got.status, got.content, got.ended) == (str(status), b"", True)
        assert "content-length" not in peer.responses[3].fields


def test_early_hints_and_fields_of_http1_that_stay_behind(serve):
    async def app(scope, receive, send):
        await send({"type": "http.response.early_hint", "links": [b"</a.css>; rel=preload"]})
        names = (b"Connection", b"Keep-Alive", b"Transfer-Encoding", b"Upgrade", b"X-Own")
        await respond(send, b"ok", 200, [(name, b"chunked") for name in names])

    with serve(app, h2c=True) as server, connect(server) as peer:
        got = peer.get(1)
        assert got.heads[0] == [(":status", "103"), ("link", "</a.css>; rel=preload")]
        assert got.fields.keys() == {":status", "content-length", "x-own", "date", "server"}


def test_a_hundred_continue_comes_only_if_the_body_is_read(serve):
    async def app(scope, receive, send):
        await respond(send, await read_body(receive) if scope["path"] == "/" else b"unread")

    with serve(app, h2c=True) as server, connect(server) as peer:
        expects = [("expect", "100-continue"), ("content-length", "2")]
        peer.headers(1, POST, end=False, more=expects)
        peer.until(lambda: 1 in peer.responses)
        assert peer.responses[1].heads == [[(":status", "100")]]
        peer.data(1, b"hi", end=True)
        assert peer.response(1).content == b"hi"
        peer.headers(3, [*POST[:2], (":path", "/no"), POST[3]], end=False, more=expects)
        got = peer.response(3)
        assert (got.content, len(got.heads)) == (b"unread", 1)


def test_an_early_answer_tells_the_client_to_stop(serve):
    with serve(ok, h2c=True, timeout_linger=0.2) as server, connect(server) as peer:
        peer.headers(1, POST, end=False)
        peer.until(lambda: 1 in peer.responses and peer.responses[1].reset is not None)
        assert (peer.responses[1].content, peer.responses[1].ended, peer.responses[1].reset) == (
            b"ok",
            True,
            0,
        )
        for _ in range(30):
            peer.data(
                1, bytes(16_000)
            )  # on its way already: dropped, and the window of the others stays open
        assert peer.get(3).content == b"ok"
        assert peer.goaway == []


def test_uploads_beside_refusals(serve):
    """Ten at a time on one connection: five are answered unread, and hold up neither the others nor a GET."""

    async def app(scope, receive, send):
        if scope["path"] == "/refused":
            await respond(send, b"too much", 413)
        else:
            await respond(send, b"%d" % len(await read_body(receive)))

    with serve(app, h2c=True) as server, connect(server) as peer:
        refused, taken = range(1, 11, 2), range(11, 21, 2)
        for stream in refused:
            peer.headers(stream, [*POST[:2], (":path", "/refused"), POST[3]], end=False)
            peer.data(stream, bytes(60_000), end=stream == 1)
        for stream in taken:
            peer.headers(stream, POST, end=False)
        assert peer.get(21).content == b"0"
        for stream in taken:
            sender = threading.Thread(target=send_body, args=(peer, stream, bytes(300_000)))
            sender.start()
            assert peer.response(stream).content == b"300000"
            sender.join()
        assert {peer.response(stream).status for stream in refused} == {"413"}
        assert peer.goaway == []


def test_files_are_sent(serve, tmp_path):
    content = os.urandom(300_000)
    (tmp_path / "f").write_bytes(content)

    async def app(scope, receive, send):
        await start(send, 200, [(b"content-length", b"%d" % len(content))])
        await send({"type": "http.response.pathsend", "path": str(tmp_path / "f")})

    with serve(app, h2c=True) as server, connect(server) as peer:
        for stream in (1, 3):
            assert peer.get(stream).content == content


def test_a_client_that_resets_is_told_to_the_application(serve):
    told, entered = [], threading.Event()

    async def app(scope, receive, send):
        entered.set()
        try:
            await read_body(receive)
        except Gone:
            told.append(scope["path"])
            try:
                await respond(send)
            except OSError as error:
                told.append(type(error).__name__)
        else:
            await respond(send)

    with serve(app, h2c=True) as server, connect(server) as peer:
        peer.headers(1, POST, end=False)
        assert entered.wait(WAIT)
        peer.reset(1)
        eventually(lambda: len(told) == 2)
        assert told == ["/", "ClientDisconnected"]
        peer.headers(3, POST)
        assert peer.response(3).status == "200"
        peer.headers(5, POST)
        peer.reset(5)
        assert peer.get(7).status == "200"
        assert server.errors.lines(30) == []
        assert "HTTP/2" in server.access.wait(2)[0]


def test_failures_of_applications(serve):
    async def app(scope, receive, send):
        if scope["path"] == "/late":
            await start(send)
            await body(send, b"part", True)
        if scope["path"] != "/nothing":
            raise ValueError("of the application")

    with serve(app, h2c=True) as server, connect(server) as peer:
        assert peer.get(1).status == "500"
        got = peer.get(3, path="/late")
        assert (got.status, got.reset) == ("200", 2)
        assert peer.get(5, path="/nothing").status == "500"
        assert len(server.errors.lines(40)) == 3


@pytest.mark.parametrize(("length", "sent"), [(4, b"12345"), (6, b"12345")])
def test_content_must_fit_the_length_that_the_application_gave(serve, length, sent):
    async def app(scope, receive, send):
        await start(send, 200, [(b"content-length", b"%d" % length)])
        await body(send, sent)

    with serve(app, h2c=True) as server, connect(server) as peer:
        assert peer.get(1).status == "500"
        assert "content-length" in server.errors.lines(40)[0] or server.errors.records[0].exc_info


def test_many_requests_at_a_time(serve):
    gate = asyncio.Event()

    async def app(scope, receive, send):
        if scope["path"] == "/open":
            gate.set()
        await gate.wait()
        await respond(send, scope["path"].encode())

    with serve(app, h2c=True) as server, connect(server) as peer:
        for stream in range(1, 100, 2):
            peer.headers(stream, [*GET[:2], (":path", f"/{stream}"), GET[3]])
        peer.synced()
        assert peer.responses == {}
        assert peer.get(101, path="/open").content == b"/open"
        for stream in range(1, 100, 2):
            assert peer.response(stream).content == b"/%d" % stream


def test_a_client_that_takes_nothing_holds_its_application_alone(serve):
    sent = []

    async def app(scope, receive, send):
        if scope["path"] == "/":
            await respond(send)
            return
        await start(send)
        for number in range(100):
            await body(send, bytes(20_000), True)
            sent.append(number)
        await body(send)

    with serve(app, h2c=True) as server, connect(server, windows=False, settings={4: 1000}) as peer:
        peer.headers(1, [*GET[:2], (":path", "/slow"), GET[3]])
        peer.until(lambda: 1 in peer.responses and len(peer.responses[1].content) == 1000)
        assert peer.get(3).content == b"ok"
        assert len(sent) == 3
        peer.windows = True
        peer.window(2_000_000)
        peer.window(2_000_000, 1)
        assert len(peer.response(1).content) == 2_000_000


def test_an_application_that_does_not_read_holds_its_stream_alone(serve):
    release = threading.Event()

    async def app(scope, receive, send):
        if scope["path"] == "/":
            await respond(send, b"%d" % len(await read_body(receive)))
            return
        await asyncio.to_thread(release.wait, WAIT)
        await respond(send, b"%d" % len(await read_body(receive)))

    with serve(app, h2c=True) as server, connect(server) as peer:
        for stream in (1, 3, 5):
            peer.headers(stream, [*POST[:2], (":path", "/late"), POST[3]], end=False)
            peer.data(stream, bytes(60_000))
        peer.synced()
        windows = [frame.stream_id for frame in peer.frames if type(frame).__name__ == "WindowUpdateFrame"]
        assert set(windows) == {0}
        peer.headers(7, POST, end=False)
        peer.data(7, bytes(60_000), end=True)
        assert peer.response(7).content == b"60000"
        release.set()
        for stream in (1, 3, 5):
            peer.data(stream, b"", end=True)
            assert peer.response(stream).content == b"60000"


def test_the_stop_announces_itself_and_serves_what_is_in_progress(serve):
    entered, gate = threading.Event(), asyncio.Event()

    async def app(scope, receive, send):
        entered.set()
        await gate.wait()
        await respond(send, b"done")

    with serve(app, h2c=True) as server, connect(server) as peer, connect(server) as idle:
        idle.synced()
        peer.headers(1)
        assert entered.wait(WAIT)
        server.server.should_exit = True
        peer.until(lambda: len(peer.goaway) == 2)
        assert peer.goaway == [(2**31 - 1, 0), (1, 0)]
        idle.until(lambda: idle.closed)
        assert idle.goaway == [(0, 0)]
        peer.headers(3)
        assert peer.response(3).reset == 7
        server.call(gate.set)
        assert peer.response(1).content == b"done"
        peer.until(lambda: peer.closed)


def test_idle_is_without_streams_and_ends_with_goaway(serve):
    async def app(scope, receive, send):
        await asyncio.sleep(0.5)
        await respond(send)

    with serve(app, h2c=True, timeout_keep_alive=0.2) as server, connect(server) as peer:
        assert peer.get(1).content == b"ok"
        peer.until(lambda: peer.closed)
        assert peer.goaway == [(1, 0)]
        assert server.errors.lines(30) == []


def test_a_client_that_says_goaway_gets_what_it_has_asked_for(serve):
    async def app(scope, receive, send):
        await asyncio.sleep(0.1)
        await respond(send)

    with serve(app, h2c=True) as server, connect(server) as peer:
        peer.headers(1)
        peer.send_octets(raw(7, 0, 0, bytes(8)))
        assert peer.response(1).content == b"ok"
        peer.until(lambda: peer.closed)
        assert peer.goaway == [(1, 0)]


def test_half_closed_connections_are_answered(serve):
    with serve(echo, h2c=True) as server, connect(server) as peer:
        peer.headers(1, POST)
        peer.sock.shutdown(1)
        assert peer.response(1).status == "200"
        peer.until(lambda: peer.closed)


def test_limit_of_requests_in_flight(serve):
    gate = asyncio.Event()

    async def app(scope, receive, send):
        await gate.wait()
        await respond(send)

    with serve(app, h2c=True, limit_concurrency=2) as server, connect(server) as peer:
        peer.headers(1)
        peer.headers(3)
        got = peer.get(5)
        assert (got.status, got.fields["retry-after"]) == ("503", "1")
        server.call(gate.set)
        assert {peer.response(1).status, peer.response(3).status} == {"200"}


def test_every_limit_of_a_head_has_its_answer(serve):
    limits = {
        "limit_request_line": 100,
        "limit_request_fields": 5,
        "limit_request_field_size": 50,
        "limit_head_size": 400,
        "limit_body_size": 10,
    }
    at = [
        (("x-a", "x" * 45),),
        tuple((f"x-{number}", "1") for number in range(5)),
        (("content-length", "0"),),
    ]
    beyond = [
        ((("x-a", "x" * 46),), "431"),
        (tuple((f"x-{number}", "1") for number in range(6)), "431"),
        ((("content-length", "11"),), "413"),
        ((("expect", "something"),), "417"),
    ]
    with serve(ok, h2c=True, **limits) as server, connect(server) as peer:
        stream = 1
        for more in at:
            assert peer.get(stream, *more).status == "200", more
            stream += 2
        for more, status in beyond:
            assert peer.get(stream, *more).status == status, more
            stream += 2
        line = 100 - len("GET  HTTP/2.0")
        assert peer.get(stream, path="/" + "x" * (line - 1)).status == "200"
        assert peer.get(stream + 2, path="/" + "x" * line).status == "414"
        connect_ = [(":method", "CONNECT"), (":authority", "a:1")]
        peer.headers(stream + 4, connect_)
        assert peer.response(stream + 4).status == "501"
        assert peer.goaway == []
        assert peer.settings[6] == 400


INSIDE = (
    "servery.drivers.http2_driver.Http2Connection",
    "servery.drivers.http2_stream.StreamPort",
    "servery.drivers.negotiation.Negotiation",
    "servery.http2.engine.Http2Engine",
    "servery.http2.stream.Stream",
    "servery._speedups.http2.Http2Engine",
    "servery._speedups.http2.Stream",
    "servery._speedups.http2_connection.Http2Connection",
    "servery._speedups.http2_connection.StreamCycle",
    "servery._speedups.http2_connection.StreamFace",
    "servery.asgi.http_cycle.HttpCycle",
    "servery.asgi.websocket_cycle.WebSocketCycle",
    "servery.websocket.engine.WebSocketEngine",
)


def test_nothing_of_a_connection_stays(serve, no_collector):
    async def app(scope, receive, send):
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            while (await receive())["type"] == "websocket.receive":
                pass
        elif scope["path"] == "/fail":
            raise ValueError
        else:
            await respond(send, await read_body(receive))

    upgrade = [(":method", "CONNECT"), (":protocol", "websocket"), *GET[1:], ("sec-websocket-version", "13")]
    with serve(app, h2c=True, timeout_linger=0.2) as server:
        with server.connect() as sock:
            sock.sendall(b"PRI * HT")
        for leave in (lambda peer: peer.sock.close(), lambda peer: reset(peer.sock)):
            for last in (b"", raw(6, 0, 0, bytes(7)), raw(1, 5, 99, b"\xff\xff\x7f"), raw(0, 0, 3, b"part")):
                peer = connect(server)
                assert peer.get(1).status == "200"
                assert peer.get(5, path="/fail").status == "500"
                peer.headers(7, POST, end=False)
                peer.headers(9, upgrade, end=False)
                peer.until(lambda peer=peer: 9 in peer.responses)
                peer.headers(11, POST, end=False)
                peer.reset(11)
                peer.synced()
                peer.send_octets(last)
                leave(peer)
        eventually(
            lambda: not server.call(lambda: server.errors.records.clear() or objects(*INSIDE)), "all is gone"
        )


def test_names_of_requests_do_not_mix(serve):
    """Each response carries the id of its own request, in whatever order they are answered."""
    gate = asyncio.Event()

    async def app(scope, receive, send):
        if scope["path"] == "/first":
            await gate.wait()
        await respond(send, scope["extensions"]["servery"]["request_id"].encode())

    settings = {"request_id_header": "x-request-id", "request_id_reply": True}
    with serve(app, h2c=True, **settings) as server, connect(server) as peer:
        peer.headers(1, [*GET[:2], (":path", "/first"), GET[3]])
        other = peer.get(3)
        server.call(gate.set)
        for got in (other, peer.response(1)):
            assert got.fields["x-request-id"] == got.content.decode()
        assert other.content != peer.responses[1].content


def test_a_balancer_introduces_its_clients(serve):
    with serve(describe, h2c=True, proxy_protocol="v1", trusted_proxy=("127.0.0.1",)) as server:
        sock = server.connect()
        sock.sendall(b"PROXY TCP4 192.0.2.1 192.0.2.2 1000 2000\r\n")
        with Peer(sock) as peer:
            scope = ast.literal_eval(peer.get(1).content.decode())
        assert (scope["client"], scope["server"]) == (("192.0.2.1", 1000), ("192.0.2.2", 2000))
