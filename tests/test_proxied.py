"""Behind proxies: what an application and the access log are told, and by whom."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import psutil
import pytest
from harness import WAIT, eventually, read_response, read_to_end, reset, statuses
from sample_apps import ok, respond, start
from test_proxy_preamble import V1, tlv, v2

from servery.drivers.front import IdStamp
from servery.drivers.preamble import PreambleConnection
from servery.proxies.preamble import V2_SIGNATURE, Preamble

HERE = ("127.0.0.1",)
ELSEWHERE = ("10.0.0.0/8",)
X_FORWARDED = (
    *("x-forwarded-for", "X-Forwarded-Proto", "x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix"),
)
GET = b"GET /x?y HTTP/1.1\r\nHost: inner\r\n%b\r\n"
LAST = b"GET /x HTTP/1.1\r\nHost: inner\r\nConnection: close\r\n%b\r\n"


class Looking:
    """Answers, and keeps the scopes that it has seen."""

    def __init__(self):
        self.scopes = []

    async def __call__(self, scope, receive, send):
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            await start_websocket(receive, send)
        else:
            await respond(send)

    @property
    def clients(self):
        return [scope["client"] for scope in self.scopes]


async def start_websocket(receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close"})


def ask(server, *heads: bytes) -> bytes:
    """All that comes back for these heads, the last of which closes."""
    return server.raw(b"".join(heads))


SPOOFED = (
    b"X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.example\r\n"
    b"X-Forwarded-Port: 666\r\nX-Forwarded-Prefix: /evil\r\n"
    b"Forwarded: for=6.6.6.6;proto=https;host=evil.example\r\n"
    b"SCRIPT_NAME: /x\r\nX_Forwarded_For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n"
)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"trusted_proxy": HERE},
        {"trusted_proxy": ELSEWHERE, "forwarded_field": X_FORWARDED},
        {"trusted_proxy": ("unix",), "forwarded_field": ("forwarded",)},
        {"trusted_proxy": ELSEWHERE, "forwarded_field": X_FORWARDED, "untrusted_fields": "keep"},
    ],
)
def test_spoofed_fields_change_nothing(serve, settings):
    app = Looking()
    with serve(app, **settings) as server:
        assert statuses(ask(server, LAST % SPOOFED)) == [b"200"]
        (line,) = server.access.wait(1)
    (scope,) = app.scopes
    assert scope["client"][0] == "127.0.0.1"
    assert (scope["scheme"], scope["root_path"], scope["path"]) == ("http", "", "/x")
    assert scope["server"][0] == "127.0.0.1"
    names = [name for name, _ in scope["headers"]]
    assert (b"host", b"inner") in scope["headers"]
    kept = not settings.get("forwarded_field") or settings.get("untrusted_fields") == "keep"
    assert (b"x-forwarded-for" in names) is kept
    assert {b"script_name", b"x_forwarded_for", b"x-real-ip"} <= set(names)
    assert line.startswith("127.0.0.1:")


def test_a_trusted_peer_is_believed(serve):
    app = Looking()
    fields = (
        b"X-Forwarded-For: 6.6.6.6, 1.2.3.4:77\r\nX-Forwarded-Proto: https\r\n"
        b"X-Forwarded-Host: a.example\r\nX-Forwarded-Port: 8443\r\nX-Forwarded-Prefix: /api\r\n"
    )
    with serve(app, trusted_proxy=HERE, forwarded_field=X_FORWARDED, root_path="/old") as server:
        ask(server, GET % fields, LAST % b"")
        first, second = server.access.wait(2)
        records = [record.access for record in server.access.records]
    believed, plain = app.scopes
    assert believed["client"] == ("1.2.3.4", 77)
    assert believed["scheme"] == "https"
    assert believed["server"] == ("a.example", 8443)
    assert (b"host", b"a.example:8443") in believed["headers"]
    assert (believed["root_path"], believed["path"], believed["raw_path"]) == ("/api", "/api/x", b"/api/x")
    assert plain["client"][0] == "127.0.0.1"
    assert (plain["scheme"], plain["root_path"], plain["path"]) == ("http", "/old", "/old/x")
    assert first.startswith("1.2.3.4:77 ")
    assert '"GET /x?y HTTP/1.1" 200' in first  # what came, not what was made of it
    assert second.startswith("127.0.0.1:")
    assert [record.scheme for record in records] == ["https", "http"]


@pytest.mark.parametrize(
    ("value", "client"),
    [
        (b"6.6.6.6, 1.2.3.4, 127.0.0.1", ("1.2.3.4", 0)),
        (b"127.0.0.1", ("127.0.0.1", 0)),
        (b"", None),
        (b"1.2.3.4:1024", ("1.2.3.4", 1024)),
        (b"[::1]:8080", ("::1", 8080)),
        (b"::1", ("::1", 0)),
        (b"1.2.3.4:99999", ("1.2.3.4", 0)),
        *(
            (junk, None)
            for junk in (b"[::1", b"unknown", b"_hidden", b"evil\tx", b'1.2.3.4" GET /x', b"\xff")
        ),
    ],
)
def test_addresses_of_every_shape(serve, value, client):
    """None: that of the socket stays."""
    app = Looking()
    with serve(app, trusted_proxy=HERE, forwarded_field=("x-forwarded-for",)) as server:
        assert statuses(ask(server, LAST % b"X-Forwarded-For: %b\r\n" % value)) == [b"200"]
        (line,) = server.access.wait(1)
    (found,) = app.clients
    if client is None:
        assert found[0] == "127.0.0.1"
        assert found[1] != 0
    else:
        assert found == client
    assert "GET /x" in line
    assert line.count('"') == 2


def test_forwarded(serve):
    app = Looking()
    field = b'Forwarded: for=6.6.6.6, for="[fd00::1]:5";proto=https;host=a.example\r\n'
    with serve(app, trusted_proxy=HERE, forwarded_field=("forwarded",)) as server:
        ask(server, LAST % field)
    (scope,) = app.scopes
    assert (scope["client"], scope["scheme"], scope["server"]) == (
        ("fd00::1", 5),
        "https",
        ("a.example", 443),
    )


@pytest.mark.parametrize("trusted", [("unix",), HERE])
def test_peers_on_unix_sockets_have_an_entry_of_their_own(serve, tmp_path, trusted):
    app = Looking()
    path = str(tmp_path / "s")
    with serve(app, uds=path, trusted_proxy=trusted, forwarded_field=("x-forwarded-for",)) as server:
        with server.connect() as sock:
            sock.sendall(LAST % b"X-Forwarded-For: 1.2.3.4\r\n")
            assert statuses(read_to_end(sock)) == [b"200"]
        (line,) = server.access.wait(1)
    (scope,) = app.scopes
    assert scope["client"] == (("1.2.3.4", 0) if trusted == ("unix",) else None)
    assert scope["server"] == (path, None)
    assert line.startswith("1.2.3.4:0 " if trusted == ("unix",) else "- - - ")


def test_a_websocket_is_believed_as_well(serve):
    app = Looking()
    fields = (
        b"X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\n"
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    with serve(app, trusted_proxy=HERE, forwarded_field=X_FORWARDED) as server:
        with server.connect() as sock:
            sock.sendall(GET % fields)
            assert sock.recv(65536).startswith(b"HTTP/1.1 101")
            sock.sendall(b"\x88\x80\0\0\0\0")
            read_to_end(sock)
        server.access.wait(1)
        record = server.access.records[0].access
    (scope,) = app.scopes
    assert (scope["client"], scope["scheme"]) == (("1.2.3.4", 0), "wss")
    assert (record.client, record.scheme) == (("1.2.3.4", 0), "wss")


def test_refusals_and_lost_requests_are_logged_with_the_client(serve):
    entered, gone = threading.Event(), threading.Event()

    async def app(scope, receive, send):
        await start(send)
        entered.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    with serve(app, trusted_proxy=HERE, forwarded_field=X_FORWARDED) as server:
        with server.connect() as sock:
            sock.sendall(GET % b"X-Forwarded-For: 1.2.3.4\r\n")
            assert entered.wait(WAIT)
        assert gone.wait(WAIT)
        (line,) = server.access.wait(1)
        assert line.startswith("1.2.3.4:0 ")
        assert line.endswith(" aborted")


# --- the PROXY protocol ------------------------------------------------------------------------------------


def proxied(serve: Callable, app, versions: str = "any", **settings):
    settings = {"trusted_proxy": HERE, **settings}
    return serve(app, proxy_protocol=versions, **settings)


@pytest.mark.parametrize("versions", ["any", "v1", "v2"])
@pytest.mark.parametrize("cuts", [(), (3,), tuple(range(1, 60))])
def test_the_preamble_names_the_client(serve, versions, cuts):
    app = Looking()
    preamble = V1 if versions == "v1" else v2()
    with proxied(serve, app, versions) as server:
        received = server.raw(preamble + GET % b"" + LAST % b"", cuts=list(cuts))
        assert statuses(received) == [b"200", b"200"]
        lines = server.access.wait(2)
    for scope in app.scopes:
        assert (scope["client"], scope["server"]) == (("1.2.3.4", 1000), ("5.6.7.8", 443))
        assert scope["scheme"] == "http"
    assert all(line.startswith("1.2.3.4:1000 ") for line in lines)


def test_the_balancer_may_have_taken_off_tls(serve):
    app = Looking()
    preamble = v2(v2()[16:] + tlv(0x20, b"\x01\0\0\0\0"))
    with proxied(serve, app) as server:
        server.raw(preamble + LAST % b"")
        server.access.wait(1)
    assert app.scopes[0]["scheme"] == "https"


@pytest.mark.parametrize("preamble", [b"PROXY UNKNOWN\r\n", v2(b"", command=0x20, family=0)])
def test_the_balancer_may_speak_for_itself(serve, preamble):
    app = Looking()
    with proxied(serve, app) as server:
        assert statuses(server.raw(preamble + LAST % b"")) == [b"200"]
    assert app.clients[0][0] == "127.0.0.1"


def test_fields_count_if_the_peer_behind_the_balancer_is_trusted(serve):
    app = Looking()
    settings = {"trusted_proxy": (*HERE, "1.2.3.4"), "forwarded_field": ("x-forwarded-for",)}
    with proxied(serve, app, **settings) as server:
        server.raw(V1 + LAST % b"X-Forwarded-For: 9.9.9.9\r\n")
        server.raw(V1.replace(b"1.2.3.4", b"1.2.3.5") + LAST % b"X-Forwarded-For: 9.9.9.9\r\n")
    assert app.clients == [("9.9.9.9", 0), ("1.2.3.5", 1000)]


def test_untrusted_peers_cannot_send_one(serve):
    app = Looking()
    with proxied(serve, app, trusted_proxy=ELSEWHERE) as server:
        assert statuses(server.raw(LAST % b"")) == [b"200"]
        for preamble in (V1, v2()):
            assert statuses(server.raw(preamble + LAST % b"")) == [b"400"]
    assert [client[0] for client in app.clients] == ["127.0.0.1"]


def test_without_the_setting_it_is_a_broken_request(serve):
    app = Looking()
    with serve(app, trusted_proxy=HERE) as server:
        for preamble in (V1, v2()):
            assert statuses(server.raw(preamble + LAST % b"")) == [b"400"]
    assert app.scopes == []


@pytest.mark.parametrize(
    "data", [LAST % b"", b"PROXY TCP4 x\r\n", b"\r\n\r\nx", V2_SIGNATURE + b"\x21\x11\xff\xff"]
)
def test_a_trusted_peer_must_send_one(serve, data):
    """Nobody is answered who is not known: the connection is closed."""
    app = Looking()
    with proxied(serve, app) as server, server.connect() as sock:
        sock.sendall(data)
        try:
            assert sock.recv(100) == b""
        except ConnectionResetError:
            pass
        server.access.wait(1)
        assert server.access.records[0].access.status == 0
    assert app.scopes == []


def test_the_preamble_has_a_time_out(serve):
    with proxied(serve, Looking(), timeout_proxy_protocol=0.2, timeout_first_byte=60.0) as server:
        with server.connect() as sock:
            sock.sendall(V1[:-1])
            with pytest.raises(ConnectionResetError):
                sock.recv(100)
        (line,) = [line for line in server.errors.lines(30) if "PROXY" in line]
        assert "in time" in line


def test_the_preamble_has_a_size(serve):
    preamble = v2(v2()[16:] + tlv(4, b"x" * 100))
    with proxied(serve, Looking(), limit_proxy_protocol_size=len(preamble)) as server:
        assert statuses(server.raw(preamble + LAST % b"")) == [b"200"]
    with proxied(serve, Looking(), limit_proxy_protocol_size=len(preamble) - 1) as server:
        with server.connect() as sock, pytest.raises(ConnectionResetError):
            sock.sendall(preamble)
            sock.recv(100)


def test_who_leaves_before_the_end_of_the_preamble_leaves_nothing_behind(serve):
    with proxied(serve, Looking()) as server:
        assert server.raw(V1[:10], shut=True) == b""
        assert server.raw(b"", shut=True) == b""


def test_nothing_is_left_of_connections_that_end_in_their_preamble(serve):
    def close(sock):
        sock.close()

    with proxied(serve, Looking(), timeout_proxy_protocol=60.0) as server:
        server.raw(V1 + LAST % b"")
        before = psutil.Process().num_fds()
        for end in (reset, close) * 20:
            sock = server.connect()
            sock.sendall(V1[:20])
            eventually(lambda: server.call(lambda: server.service.connections))
            end(sock)
            eventually(lambda: server.call(lambda: not server.service.connections))
        eventually(lambda: psutil.Process().num_fds() <= before)


def test_no_object_outlives_its_preamble_or_request(serve, no_collector):
    """By reference counts alone."""
    settings = {
        "forwarded_field": ("x-forwarded-for",),
        "request_id_header": "x-rid",
        "request_id_reply": True,
    }
    with proxied(serve, ok, **settings) as server:
        for _ in range(5):
            assert (
                statuses(server.raw(V1 + GET % b"X-Forwarded-For: 9.9.9.9\r\n" + LAST % b"")) == [b"200"] * 2
            )
        eventually(lambda: server.call(lambda: not server.service.connections))
        kinds = (PreambleConnection, Preamble, IdStamp)
        eventually(lambda: not [item for item in gc.get_objects() if isinstance(item, kinds)])


def test_the_stop_waits_for_a_preamble_and_its_request_no_longer_than_for_a_head(serve):
    settings = {"timeout_proxy_protocol": 60.0, "timeout_graceful_shutdown": 60.0, "timeout_linger": 1.0}
    with proxied(serve, Looking(), **settings) as server:
        never, late, idle = (server.connect() for _ in range(3))
        for sock in (never, late):
            sock.sendall(V1[:10])
        idle.sendall(V1 + GET % b"")
        assert read_response(idle)[0].startswith(b"HTTP/1.1 200")
        server.server.should_exit = True
        eventually(lambda: server.service.stopping)
        late.sendall(V1[10:] + GET % b"")
        assert read_response(late)[0].startswith(b"HTTP/1.1 200")
        server.stop()
        assert never.recv(100) == b""
        for sock in (never, late, idle):
            sock.close()
    assert server.errors.lines(30) == []


def test_a_websocket_behind_a_balancer(serve):
    app = Looking()
    fields = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    with proxied(serve, app) as server, server.connect() as sock:
        sock.sendall(v2() + GET % fields)
        assert sock.recv(65536).startswith(b"HTTP/1.1 101")
        sock.sendall(b"\x88\x80\0\0\0\0")
        read_to_end(sock)
        server.access.wait(1)
    assert app.clients == [("1.2.3.4", 1000)]
