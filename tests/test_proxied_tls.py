"""Behind proxies with TLS: what stands before the handshake, and what the fields in it say."""

from __future__ import annotations

import json
import socket
import ssl

import pytest
from harness import eventually, read_response, read_to_end, statuses
from test_admin import ask, metrics
from test_proxied import HERE, LAST, X_FORWARDED, Looking
from test_proxy_preamble import V1, v2
from tls_material import Material, secured, wrapped


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return Material(tmp_path_factory.mktemp("proxied"))


@pytest.fixture(scope="module")
def pem(material):
    return material.issue("localhost")


@pytest.mark.parametrize("preamble", [V1, v2()])
def test_the_preamble_comes_before_the_handshake(serve, material, pem, preamble):
    app = Looking()
    settings = {"trusted_proxy": HERE, "proxy_protocol": "any", "tls_cert": (pem,)}
    with serve(app, **settings) as server:
        sock = server.connect()
        sock.sendall(preamble)
        with wrapped(sock, material.client()) as secure:
            secure.sendall(LAST % b"")
            assert statuses(read_to_end(secure)) == [b"200"]
        (line,) = server.access.wait(1)
        record = server.access.records[0].access
    (scope,) = app.scopes
    assert (scope["client"], scope["server"]) == (("1.2.3.4", 1000), ("5.6.7.8", 443))
    assert scope["scheme"] == "https"
    assert "tls" in scope["extensions"]
    assert line.startswith("1.2.3.4:1000 ")
    assert record.scheme == "https"


def test_a_hello_in_the_same_packet_is_not_lost(serve, material, pem):
    app = Looking()
    settings = {"trusted_proxy": HERE, "proxy_protocol": "any", "tls_cert": (pem,)}
    with serve(app, **settings) as server, server.connect() as sock:
        hello = client_hello(material.client())
        sock.sendall(V1 + hello)
        assert sock.recv(1) == b"\x16"


def client_hello(context) -> bytes:
    """The first octets of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


def test_without_a_preamble_no_handshake_begins(serve, material, pem):
    settings = {"trusted_proxy": HERE, "proxy_protocol": "any", "tls_cert": (pem,)}
    with serve(Looking(), **settings) as server:
        with server.connect() as sock:
            sock.sendall(client_hello(material.client()))
            with pytest.raises(ConnectionResetError):
                sock.recv(1)


def test_an_inner_proxy_may_say_that_the_client_had_no_tls(serve, material, pem):
    app = Looking()
    fields = b"X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: http\r\nX-Request-Id: from-proxy\r\n"
    settings = {"trusted_proxy": HERE, "forwarded_field": X_FORWARDED, "tls_cert": (pem,)}
    settings |= {"request_id_header": "x-request-id", "request_id_reply": True}
    with serve(app, **settings) as server, secured(server, material.client()) as sock:
        sock.sendall(LAST.replace(b"Connection: close\r\n", b"") % fields + LAST % b"")
        received = read_to_end(sock)
        assert b"x-request-id: from-proxy" in received
        server.access.wait(2)
        assert [record.access.scheme for record in server.access.records] == ["http", "https"]
    assert [scope["scheme"] for scope in app.scopes] == ["http", "https"]
    assert app.clients[0] == ("1.2.3.4", 0)


def test_handshakes_take_one_place_each_and_are_counted_once(serve, material, pem):
    with serve(Looking(), tls_cert=(pem,), limit_connections=2, admin="127.0.0.1:0") as server:
        for _ in range(5):
            with secured(server, material.client()) as sock:
                sock.sendall(LAST % b"")
                read_to_end(sock)
        with server.connect() as sock:  # no handshake at all
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert read_response(sock)[0].startswith(b"HTTP/1.1 400")
        eventually(lambda: server.call(lambda: not server.service.connections))
        assert server.call(lambda: server.service.room.left) == 2
        assert metrics(server)["servery_connections_accepted_total"] == 6
        assert json.loads(ask(server, "/state")[2])["listening"] == [server.server.urls[0]]


def test_the_port_that_redirects_shares_the_limit(serve, material, pem):
    settings = {"tls_cert": (pem,), "tls_redirect": ("127.0.0.1:0",), "limit_connections": 1}
    with serve(Looking(), **settings) as server:
        port = server.server.redirects[0].sock.getsockname()[1]
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), 10) as sock:
                sock.sendall(LAST % b"")
                assert read_to_end(sock).startswith(b"HTTP/1.1 308")
            with secured(server, material.client()) as secure:
                secure.sendall(LAST % b"")
                assert statuses(read_to_end(secure)) == [b"200"]
        eventually(lambda: server.call(lambda: server.service.room.left) == 1)
