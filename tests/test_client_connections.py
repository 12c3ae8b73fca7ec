"""One client's connections: as many as `--limit-client-connections` says, however they come and go."""

from __future__ import annotations

import asyncio
import socket

import pytest
from harness import WAIT, eventually, read_response, read_to_end, reset
from sample_apps import ok, respond
from tls_material import Material, secured

from servery.addresses import client_of
from servery.drivers.clients import UNCOUNTED, Clients
from servery.metrics.counting import Metrics
from servery.proxies.trust import Trust

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
SETTINGS = {"limit_client_connections": 2, "timeout_keep_alive": 60.0, "timeout_first_byte": 60.0}


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """An authority for the whole module."""
    return Material(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def pem(material):
    """A certificate for localhost and its address."""
    return material.issue("localhost", "127.0.0.1")


def is_served(sock) -> bool:
    """Whether a request over `sock` is answered; else the connection was closed."""
    try:
        sock.sendall(GET)
        return read_response(sock)[0].startswith(b"HTTP/1.1 200")
    except (OSError, AssertionError):
        return False


def is_refused(address) -> bool:
    """Whether one more connection is closed and hears nothing, not even that it should speak TLS."""
    try:
        with socket.create_connection(address, WAIT) as sock:
            sock.sendall(GET)
            return sock.recv(1) == b""
    except (ConnectionResetError, BrokenPipeError):
        return True


def counted(server) -> dict:
    """The connections that each client has now, as they are counted."""
    return server.call(lambda: dict(server.service.clients._open))


def gone(server) -> int:
    """How many connections the server has seen come and go."""
    return server.call(lambda: server.service.closed)


# --- the limit ---------------------------------------------------------------------------------------------


def test_a_client_may_have_as_many_as_the_limit_and_not_one_more(serve):
    with serve(ok, **SETTINGS) as server:
        for _ in range(2):  # a place that was given back is a place
            two = [server.connect() for _ in range(2)]
            assert all(is_served(sock) for sock in two)
            assert is_refused(server.address)
            assert all(is_served(sock) for sock in two)
            assert counted(server) == {"127.0.0.1": 2}
            for sock in two:
                sock.close()
            eventually(lambda: counted(server) == {})
    (line,) = [line for line in server.errors.lines() if "limit-client-connections" in line]
    assert "refused a connection of 127.0.0.1, which has 2 open" in line


def test_it_counts_before_the_handshake_of_tls(serve, material, pem):
    with serve(ok, tls_cert=(pem,), **SETTINGS) as server:
        silent = server.connect()  # no handshake yet
        with secured(server, material.client()) as sock:
            assert is_served(sock)
            assert is_refused(server.address)
            assert counted(server) == {"127.0.0.1": 2}
            assert is_served(sock)
        silent.close()
        eventually(lambda: counted(server) == {})


def test_it_counts_connections_of_http2_once(serve):
    with serve(ok, h2c=True, **SETTINGS) as server:
        for opening in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", GET):
            with server.connect() as one, server.connect() as two:
                for sock in (one, two):
                    sock.sendall(opening)
                    assert sock.recv(9)
                assert is_refused(server.address)
                assert counted(server) == {"127.0.0.1": 2}
            eventually(lambda: counted(server) == {})


def test_trusted_proxies_and_unix_sockets_have_no_limit(serve, tmp_path):
    path = str(tmp_path / "s")
    settings = {**SETTINGS, "limit_client_connections": 1, "trusted_proxy": ("127.0.0.1",)}
    settings |= {"proxy_protocol": "v1", "bind": ("127.0.0.1:0", f"unix:{path}")}
    with serve(ok, **settings) as server:
        others = []
        for _ in range(3):
            sock = server.connect()
            sock.sendall(b"PROXY TCP4 10.1.2.3 127.0.0.1 1000 80\r\n")
            others.append(sock)
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(path)
            others.append(sock)
        assert all(is_served(sock) for sock in others)
        assert counted(server) == {}
        for sock in others:
            sock.close()


def test_who_is_not_trusted_counts_behind_the_preamble(serve):
    settings = {"trusted_proxy": ("10.0.0.1",), "proxy_protocol": "v1"}
    with serve(ok, **SETTINGS, **settings) as server:
        with server.connect() as one, server.connect() as two:
            assert is_served(one)
            assert is_served(two)
            assert is_refused(server.address)
            assert counted(server) == {"127.0.0.1": 2}
        eventually(lambda: counted(server) == {})


def test_a_redirect_counts_too(serve, pem):
    settings = {
        **SETTINGS,
        "limit_client_connections": 1,
        "tls_cert": (pem,),
        "tls_redirect": ("127.0.0.1:0",),
    }
    with serve(ok, **settings) as server:
        address = server.server.redirects[0].sock.getsockname()
        with socket.create_connection(address) as one:
            one.sendall(GET)
            assert read_response(one)[0].startswith(b"HTTP/1.1 308")
            assert is_refused(address)
        eventually(lambda: counted(server) == {})


# --- every way to end --------------------------------------------------------------------------------------


async def websocket_or_http(scope, receive, send):
    if scope["type"] == "http":
        await respond(send)
        return
    await receive()
    await send({"type": "websocket.accept"})
    await asyncio.sleep(0)
    await send({"type": "websocket.close"})


WEBSOCKET = (
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_however_a_connection_ends_its_place_is_free_again(serve, material, pem):
    settings = {"timeout_linger": 0.1, "timeout_first_byte": 0.5, "timeout_tls_handshake": 1.0}
    for more in ({}, {"tls_cert": (pem,)}):
        with serve(websocket_or_http, limit_client_connections=1, **settings, **more) as server:

            def opened(more=more, server=server):
                return secured(server, material.client()) if more else server.connect()

            for data in (
                b"",
                GET,
                b"BAD\r\n\r\n",
                GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
            ):
                for end in (reset, socket.socket.close):
                    before = gone(server)
                    sock = opened()
                    sock.sendall(data)
                    end(sock)
                    eventually(lambda server=server, before=before: gone(server) > before)
                    assert counted(server) == {}
            with opened() as sock:
                sock.sendall(WEBSOCKET + b"\x88\x80\0\0\0\0")
                read_to_end(sock)
            eventually(lambda server=server: counted(server) == {})
            with server.connect() as sock:  # says nothing: a time-out
                assert sock.recv(1) == b""
            with server.connect() as sock:  # with TLS: no TLS
                sock.sendall(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                read_to_end(sock)
            eventually(lambda server=server: counted(server) == {})
            assert server.call(lambda server=server: server.service.clients._owners) == {}


def test_a_flood_is_refused_with_a_line_and_a_count(serve):
    settings = {**SETTINGS, "admin": "127.0.0.1:0"}
    with serve(ok, **settings) as server:
        two = [server.connect() for _ in range(2)]
        assert all(is_served(sock) for sock in two)
        for _ in range(100):
            assert is_refused(server.address)
        rejected = server.call(lambda: server.service.metrics.snapshot()["servery_rejected_total"])
        assert rejected["values"] == {'reason="client_connections"': 100}
        assert all(is_served(sock) for sock in two)
        for sock in two:
            sock.close()
    assert len([line for line in server.errors.lines() if "limit-client-connections" in line]) == 1


def test_the_stop_is_as_ever(serve):
    with serve(ok, **{**SETTINGS, "limit_client_connections": 1}) as server:
        with server.connect() as one:
            assert is_served(one)
            assert is_refused(server.address)
            server.stop()


# --- who a client is ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "client"),
    (
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("::1", "::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("a host: none", "a host: none"),
    ),
)
def test_a_client_is_an_address_or_a_network_of_ipv6(host, client):
    assert client_of(host) == client


def test_a_network_of_ipv6_shares_its_limit():
    metrics = Metrics()
    clients = Clients(2, Trust(()), metrics)
    assert clients.admit(("2001:db8::1", 1, 0, 0)) == clients.admit(("2001:db8::2", 2, 0, 0)) != UNCOUNTED
    assert clients.admit(("2001:db8::3", 3, 0, 0)) is None
    assert clients.admit(("2001:db8:0:1::3", 3, 0, 0)) == "2001:db8:0:1::/64"
    assert clients.admit("") == clients.admit(None) == UNCOUNTED


def test_a_connection_that_could_not_be_made_has_left():
    clients = Clients(1, Trust(()), None)

    def fail():
        raise OSError("no")

    for _ in range(2):
        client = clients.admit(("192.0.2.1", 1))
        with pytest.raises(OSError, match="no"):
            clients.open(client, fail)
