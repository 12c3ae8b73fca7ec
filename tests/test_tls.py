"""TLS as clients and applications meet it, with real handshakes on real sockets."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest
from harness import WAIT, eventually, read_response, read_to_end, reset, statuses
from holdings import at_rest, connections, holdings, objects
from sample_apps import body, ok, read_body, respond, start
from tls_material import Material, secured, shown, wrapped
from websockets.sync.client import connect as open_websocket

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
INSIDE = (
    "servery.drivers.tls_handshake.Handshake",
    "servery.drivers.tls_transport.TlsTransport",
    "servery._speedups.records.Records",
    "servery.tls.session.Session",
)


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return Material(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def pem(material):
    """Chain and key of a certificate for localhost."""
    return material.issue("localhost", "127.0.0.1")


async def facts(scope, receive, send):
    """What the scope says of the connection."""
    told = {name: scope["extensions"].get(name) for name in ("tls", "servery.tls")}
    await respond(send, repr({"scheme": scope["scheme"], "type": scope["type"], **told}).encode())


def ask(sock, data=GET):
    """The facts, by way of one request."""
    sock.sendall(data)
    return ast.literal_eval(read_response(sock)[1].decode())


# --- requests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_the_scope_tells_of_tls(serve, material, pem, version):
    client = material.client(maximum_version=ssl.TLSVersion[version])
    client.set_alpn_protocols(["spdy/3", "http/1.1"])
    with serve(facts, tls_cert=(pem,)) as server, secured(server, client) as sock:
        told = ask(sock)
        assert (told["scheme"], sock.selected_alpn_protocol()) == ("https", "http/1.1")
        tls, more = told["tls"], told["servery.tls"]
        assert ssl.PEM_cert_to_DER_cert(tls["server_cert"]) == sock.getpeercert(binary_form=True)
        assert tls["tls_version"] == {"TLSv1_2": 0x0303, "TLSv1_3": 0x0304}[version]
        numbers = {cipher["name"]: cipher["id"] & 0xFFFF for cipher in client.get_ciphers()}
        assert tls["cipher_suite"] == numbers[sock.cipher()[0]]
        assert (tls["client_cert_chain"], tls["client_cert_name"], tls["client_cert_error"]) == (
            [],
            None,
            None,
        )
        assert more == {
            "server_name": "localhost",
            "alpn_protocol": "http/1.1",
            "version": sock.version(),
            "cipher": sock.cipher()[0],
        }
    with serve(facts) as server, server.connect() as sock:
        assert ask(sock) == {"scheme": "http", "type": "http", "tls": None, "servery.tls": None}


def test_what_an_application_does_to_its_scope_stays_there(serve, material, pem):
    async def app(scope, receive, send):
        tls = scope["extensions"]["tls"]
        before = repr(tls).encode()
        tls["client_cert_chain"].append("x")
        tls["server_cert"] = scope["extensions"]["servery.tls"]["cipher"] = "y"
        await respond(send, before)

    with serve(app, tls_cert=(pem,)) as server, secured(server, material.client()) as sock:
        answers = []
        for _ in range(2):
            sock.sendall(GET)
            answers.append(read_response(sock)[1])
    assert answers[0] == answers[1]


def test_bodies_both_ways_keep_alive_and_pipelines(serve, material, pem):
    async def echo(scope, receive, send):
        await respond(send, await read_body(receive))

    content = os.urandom(1_500_000)
    post = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(content)
    with serve(echo, tls_cert=(pem,)) as server, secured(server, material.client()) as sock:
        for _ in range(2):
            sock.sendall(post + content)
            assert read_response(sock)[1] == content
        sock.sendall(GET * 5 + LAST)
        assert statuses(read_to_end(sock)) == [b"200"] * 6


def test_parts_of_any_size_arrive_in_order_and_a_slow_client_holds_the_application(serve, material, pem):
    sizes = [1, 16_384, 16_385, 70_000, 5, 1_000_000, 3]
    sent = []

    async def app(scope, receive, send):
        await start(send)
        for number in range(8):
            for size in sizes:
                await body(send, bytes((number,)) * size, True)
            sent.append(number)
        await body(send)

    with serve(app, tls_cert=(pem,), limit_write_buffer=1000) as server, server.connect() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        with wrapped(plain, material.client()) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            eventually(lambda: sent, "the application has begun")
            time.sleep(0.3)  # nothing tells that it waits
            assert len(sent) < 7
            content = read_to_end(sock).partition(b"\r\n\r\n")[2]
    assert content == b"".join(bytes((number,)) * sum(sizes) for number in range(8))


def test_files_are_sent(serve, material, pem, tmp_path):
    content = os.urandom(700_000)
    (tmp_path / "file").write_bytes(content)

    async def app(scope, receive, send):
        await start(send, headers=[(b"content-length", b"700000")])
        await send({"type": "http.response.pathsend", "path": str(tmp_path / "file")})

    with serve(app, tls_cert=(pem,)) as server, secured(server, material.client()) as sock:
        for _ in range(2):
            sock.sendall(GET)
            assert read_response(sock)[1] == content


def test_a_long_file_waits_for_a_slow_client(serve, material, pem, tmp_path):
    content, waited = os.urandom(65_536) * 60, []
    (tmp_path / "file").write_bytes(content)

    async def app(scope, receive, send):
        await start(send, headers=[(b"content-length", b"%d" % len(content))])
        await send({"type": "http.response.pathsend", "path": str(tmp_path / "file")})
        waited.append(scope["path"])

    with serve(app, tls_cert=(pem,), limit_write_buffer=65_536) as server, server.connect() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        with wrapped(plain, material.client()) as sock:
            sock.sendall(GET * 2)
            _, received, rest = read_response(sock)
            assert received == content
            assert read_response(sock, rest)[1] == content
        eventually(lambda: len(waited) == 2)
        with secured(server, material.client()) as sock:
            sock.sendall(GET)
            sock.recv(1)
            reset(sock)
        eventually(lambda: not connections(server))
        assert len(waited) in (2, 3)
        assert server.errors.lines(30) == []


def test_what_is_answered_is_the_same_with_and_without_tls(serve, material, pem):
    async def app(scope, receive, send):
        content = await read_body(receive)
        await start(send)
        for part in (scope["method"].encode(), b"", content[:10], b"x" * 20_000):
            await body(send, part, True)
        await body(send)

    chunks = b"Transfer-Encoding: chunked\r\n\r\n"
    asked = [
        GET + LAST,
        GET * 30 + LAST,
        LAST.replace(b"GET", b"HEAD"),
        GET.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc") + LAST,
        b"POST / HTTP/1.1\r\nHost: a\r\n" + chunks + b"5\r\nabcde\r\n0\r\nx: y\r\n\r\n" + LAST,
        b"POST / HTTP/1.1\r\nHost: a\r\n" + chunks + b"z\r\n",
        GET + b"BAD\r\n\r\n" + GET,
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET /" + b"a" * 100_000,
        b"\r\n",
    ]
    settings = {"timeout_head": 0.3, "timeout_first_byte": 0.3, "timeout_linger": 0.3}
    with serve(app, tls_cert=(pem,), **settings) as one, serve(app, **settings) as other:
        for data in asked:
            with secured(one, material.client()) as sock:
                sock.sendall(data)
                received = read_to_end(sock)
            assert without_date(received) == without_date(other.raw(data)), data[:100]


def without_date(received):
    return re.sub(rb"\r\ndate: [^\r]*", b"", received)


class SClient:
    """``openssl s_client``, which can do what Python's clients cannot."""

    def __init__(self, server, material, folder, *flags):
        self.said, self.noted = folder / "said", folder / "noted"
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-CAfile", material.ca]
        command += ["-servername", "localhost", *flags]
        with self.said.open("wb") as said, self.noted.open("wb") as noted:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=noted)

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def until(self, what, times=1):
        """What it has printed, once `what` is in it so many times."""
        return eventually(lambda: (said := self.said.read_bytes()).count(what) >= times and said, f"{what!r}")

    def update_keys(self, how):
        """``K`` asks the server for the same, ``k`` does not."""
        count = self.noted.read_bytes().count(b"KEYUPDATE")
        self.write(how + b"\n")
        eventually(lambda: self.noted.read_bytes().count(b"KEYUPDATE") > count)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


def test_keys_are_updated_in_both_directions(serve, material, pem, tmp_path):
    with (
        serve(ok, tls_cert=(pem,)) as server,
        SClient(server, material, tmp_path, "-tls1_3", "-msg") as client,
    ):
        client.until(b"read R BLOCK")
        for number, (how, asked, answers) in enumerate(((b"K", GET, 1), (b"k", GET, 1), (b"K", LAST, 2)), 1):
            client.update_keys(how)
            client.write(asked)  # OpenSSL sends the update with what is written next
            said = client.until(b"\r\n\r\nok", number)
            assert said.count(b"<<< TLS 1.3, Handshake [length 0005], KeyUpdate") == answers
        client.until(b"closed")


def test_keys_are_updated_while_a_file_is_on_its_way(serve, material, pem, tmp_path):
    content = os.urandom(65_536) * 500
    (tmp_path / "file").write_bytes(content)

    async def app(scope, receive, send):
        await start(send, headers=[(b"content-length", b"%d" % len(content))])
        await send({"type": "http.response.pathsend", "path": str(tmp_path / "file")})

    flags = ("-tls1_3", "-quiet", "-no_ign_eof")
    with serve(app, tls_cert=(pem,)) as server, SClient(server, material, tmp_path, *flags) as client:
        client.write(GET)
        client.until(b"\r\n\r\n")
        client.process.send_signal(signal.SIGSTOP)  # so that the network is full, and some of the file waits
        client.write(b"K\n")
        client.process.send_signal(signal.SIGCONT)
        eventually(lambda: b"KEYUPDATE" in client.noted.read_bytes())
        client.write(LAST)
        client.process.wait(WAIT)
        assert client.said.read_bytes().count(b"\r\n\r\n" + content) == 2


def test_a_client_that_wants_small_records(serve, material, pem, tmp_path):
    async def app(scope, receive, send):
        await respond(send, b"0123456789" * 10_000)

    flags = ("-tls1_2", "-maxfraglen", "512", "-msg", "-msgfile", str(tmp_path / "messages"))
    with serve(app, tls_cert=(pem,)) as server, SClient(server, material, tmp_path, *flags) as client:
        client.until(b"Verify return code")
        client.write(LAST)
        assert b"0123456789" * 10_000 in client.until(b"closed")
    assert (tmp_path / "messages").read_bytes().count(b"<<< TLS 1.2, RecordHeader") > 100_000 // 512


def test_requests_in_small_pieces(serve, material, pem):
    with serve(ok, tls_cert=(pem,)) as server, secured(server, material.client()) as sock:
        for octet in GET:  # one record for each
            sock.sendall(bytes((octet,)))
        assert read_response(sock)[1] == b"ok"


def test_records_in_small_pieces(serve, material, pem):
    """Octet by octet below TLS, the handshake too."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = material.client().wrap_bio(incoming, outgoing, server_hostname="localhost")

    def exchange(step):
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                result = None
            for octet in outgoing.read():
                sock.send(bytes((octet,)))
            if result is not None:
                return result
            incoming.write(sock.recv(65536))

    with serve(ok, tls_cert=(pem,)) as server, server.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        exchange(lambda: client.do_handshake() or True)
        exchange(lambda: client.write(GET))
        assert exchange(lambda: client.read(1000)).startswith(b"HTTP/1.1 200")


def test_curl_and_httpx(serve, material, pem):
    with serve(ok, tls_cert=(pem,)) as server:
        url = f"https://localhost:{server.port}/"
        command = ["curl", "--silent", "--show-error", "--cacert", material.ca, url, url]
        assert subprocess.run(command, capture_output=True, check=True, timeout=WAIT).stdout == b"okok"
        with httpx.Client(verify=material.client(), trust_env=False) as client:
            assert [client.get(url).text for _ in range(3)] == ["ok"] * 3


def test_a_websocket(serve, material, pem):
    async def app(scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": f"{scope['scheme']} {sorted(scope['extensions'])}"})
        message = await receive()
        await send({"type": "websocket.send", "bytes": message["bytes"]})
        await receive()

    content = os.urandom(300_000)
    with serve(app, tls_cert=(pem,)) as server:
        url = f"wss://localhost:{server.port}/"
        with open_websocket(url, ssl=material.client(), proxy=None) as websocket:
            told = websocket.recv(WAIT)
            assert told.startswith("wss ")
            assert "'tls'" in told
            websocket.send(content)
            assert websocket.recv(WAIT) == content
        assert '"GET / HTTP/1.1" 101' in server.access.wait(1)[0]


def test_the_access_log_tells_the_scheme(serve, material, pem):
    with serve(ok, tls_cert=(pem,), access_log_format="json") as server:
        secured_and_served(server, material.client())
        assert json.loads(server.access.wait(1)[0])["scheme"] == "https"


def test_a_unix_socket(serve, material, pem, tmp_path):
    path = str(tmp_path / "s")
    with serve(facts, tls_cert=(pem,), uds=path) as server, secured(server, material.client()) as sock:
        assert ask(sock)["scheme"] == "https"


def test_sessions_are_resumed(serve, material, pem):
    client = material.client(maximum_version=ssl.TLSVersion.TLSv1_2)
    with serve(ok, tls_cert=(pem,)) as server:
        with secured(server, client) as sock:
            session = sock.session
        with client.wrap_socket(server.connect(), server_hostname="localhost", session=session) as sock:
            assert sock.session_reused
            sock.sendall(GET)
            assert read_response(sock)[1] == b"ok"


# --- what is agreed on -------------------------------------------------------------------------------


def refused(server, client, name="localhost"):
    """Why no connection comes about; with TLS 1.3 the client learns it after its own handshake."""
    with pytest.raises(ssl.SSLError) as caught, secured(server, client, name) as sock:
        sock.sendall(GET)
        sock.recv(1)
    return caught.value.reason


def test_the_oldest_version(serve, material, pem):
    old = material.client(maximum_version=ssl.TLSVersion.TLSv1_2)
    with serve(ok, tls_cert=(pem,), tls_min_version="1.3") as server:
        assert refused(server, old) == "TLSV1_ALERT_PROTOCOL_VERSION"
        assert secured_and_served(server, material.client()) == "TLSv1.3"
        assert server.errors.lines(20) == []
    with serve(ok, tls_cert=(pem,)) as server:
        assert secured_and_served(server, old) == "TLSv1.2"
        versions = {"minimum_version": ssl.TLSVersion.TLSv1, "maximum_version": ssl.TLSVersion.TLSv1_1}
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            ancient = material.client(**versions)
        ancient.set_ciphers("ALL:@SECLEVEL=0")
        assert "PROTOCOL_VERSION" in refused(server, ancient)


def secured_and_served(server, client):
    with secured(server, client) as sock:
        sock.sendall(GET)
        assert read_response(sock)[1] == b"ok"
        return sock.version()


def test_the_ciphers(serve, material, pem):
    name = "ECDHE-ECDSA-CHACHA20-POLY1305"
    client = material.client(maximum_version=ssl.TLSVersion.TLSv1_2)
    with serve(ok, tls_cert=(pem,), tls_ciphers=name) as server:
        with secured(server, client) as sock:
            assert sock.cipher()[0] == name
        client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        assert refused(server, client) == "SSLV3_ALERT_HANDSHAKE_FAILURE"
    with serve(ok, tls_cert=(pem,)) as server:
        client.set_ciphers("ECDHE-ECDSA-AES128-SHA256")  # no authenticated encryption
        assert refused(server, client) == "SSLV3_ALERT_HANDSHAKE_FAILURE"


def test_clients_that_must_show_a_certificate(serve, material, pem, tmp_path):
    own = material.issue("alice@example.org", to="alice", organization_name="Alice, Inc", common_name="alice")
    foreign = Material(tmp_path).issue("mallory", to="mallory")
    with serve(facts, tls_cert=(pem,), tls_ca=material.ca, tls_client_cert="required") as server:
        with secured(server, material.client(own)) as sock:
            told = ask(sock)["tls"]
        assert told["client_cert_name"].startswith("CN=alice,OU=")
        assert told["client_cert_name"].endswith(",O=Alice\\, Inc")
        assert told["client_cert_error"] is None
        assert told["client_cert_chain"][0] in Path(own).read_text()
        assert refused(server, material.client()) == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
        assert refused(server, material.client(foreign)) == "TLSV1_ALERT_UNKNOWN_CA"
        assert server.errors.lines(20) == []
    with serve(facts, tls_cert=(pem,), tls_ca=material.ca, tls_client_cert="optional") as server:
        for client, chain in ((material.client(), 0), (material.client(own), 1)):
            with secured(server, client) as sock:
                assert len(ask(sock)["tls"]["client_cert_chain"]) >= chain
                assert bool(ask(sock)["tls"]["client_cert_name"]) is bool(chain)
        assert refused(server, material.client(foreign)) == "TLSV1_ALERT_UNKNOWN_CA"


# --- several certificates ----------------------------------------------------------------------------


def test_the_certificate_is_chosen_by_name(serve, material, pem):
    one, many = material.issue("one.example", to="one"), material.issue("*.many.example", to="many")
    named = material.issue("named.example", to="named")
    client = material.client(check_hostname=False)
    expected = {
        "one.example": {"one.example"},
        "ONE.example": {"one.example"},
        "a.many.example": {"*.many.example"},
        "a.b.many.example": {"localhost"},
        "many.example": {"localhost"},
        "other.example": {"named.example"},
        "x.wild.example": {"named.example"},
        "unknown.example": {"localhost"},
    }
    places = (pem, one, many, f"other.example={named}", f"*.wild.example={named},{named}")
    with serve(facts, tls_cert=places) as server:
        for name, names in expected.items():
            with secured(server, client, name) as sock:
                assert shown(sock) == names, name
                told = ask(sock)
                assert told["servery.tls"]["server_name"] == name.lower()
                assert ssl.PEM_cert_to_DER_cert(told["tls"]["server_cert"]) == sock.getpeercert(True)
        with wrapped(server.connect(), client, None) as sock:
            assert shown(sock) == {"localhost"}
            assert ask(sock)["servery.tls"]["server_name"] is None


def test_a_directory_of_certificates(serve, material, tmp_path):
    for name in ("a.example", "b.example"):
        issued = material.authority.issue_cert(name)
        (tmp_path / f"{name}.crt").write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        (tmp_path / f"{name}.key").write_bytes(issued.private_key_pem.bytes())
    Material.write(material.authority.issue_cert("c.example"), tmp_path / "c.pem")
    (tmp_path / "live").mkdir()
    issued = material.authority.issue_cert("d.example")
    (tmp_path / "live" / "fullchain.pem").write_bytes(b"".join(it.bytes() for it in issued.cert_chain_pems))
    (tmp_path / "live" / "privkey.pem").write_bytes(issued.private_key_pem.bytes())
    (tmp_path / "README").write_text("nothing")
    with serve(ok, tls_cert=(str(tmp_path),)) as server:
        for name in ("a.example", "b.example", "c.example", "d.example"):
            with secured(server, material.client(), name) as sock:
                assert shown(sock) == {name}


@pytest.mark.parametrize("kind", ["env", "file"])
def test_an_encrypted_key(serve, material, tmp_path, monkeypatch, kind):
    issued = material.authority.issue_cert("localhost")
    (tmp_path / "cert.pem").write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    (tmp_path / "plain.pem").write_bytes(issued.private_key_pem.bytes())
    key, plain = str(tmp_path / "key.pem"), str(tmp_path / "plain.pem")
    make = ["openssl", "pkey", "-aes256", "-in", plain, "-out", key, "-passout", "pass:s3cret"]
    subprocess.run(make, check=True, capture_output=True)
    monkeypatch.setenv("TLS_PASSWORD", "s3cret")
    (tmp_path / "password").write_text("s3cret\nand a second line\n")
    where = {"env": "env:TLS_PASSWORD", "file": f"file:{tmp_path / 'password'}"}[kind]
    settings = {"tls_cert": (str(tmp_path / "cert.pem"),), "tls_key": key, "tls_key_password": where}
    with serve(ok, **settings) as server:
        secured_and_served(server, material.client())


# --- no TLS where it is spoken, and the other way round ----------------------------------------------


def test_a_request_without_tls_is_told_so(serve, pem):
    with serve(ok, tls_cert=(pem,)) as server:
        for data in (
            GET,
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000,
            b"P",
        ):
            answer = server.raw(data, shut=True)
            assert statuses(answer) == [b"400"]
            assert answer.endswith(b"\r\n\r\nthis port speaks HTTPS: the address begins with https://\n")
        assert all('"- - HTTP/-" 400' in line for line in server.access.wait(3))
        assert server.errors.lines(20) == []


@pytest.mark.parametrize("data", [b"\x80\x2e\x01", b"\x00" * 500, b"\xff" * 70_000, b"\r\n\r\n"])
def test_what_is_no_protocol_at_all_is_closed_without_a_word(serve, pem, data):
    with serve(ok, tls_cert=(pem,)) as server, server.connect() as sock:
        sock.sendall(data)
        try:
            assert read_to_end(sock) == b""
        except ConnectionResetError:  # it has not read all
            pass
        assert server.errors.lines(20) == []


def test_a_broken_hello_gets_its_alert(serve, pem):
    with serve(ok, tls_cert=(pem,)) as server:
        for data in (b"\x16\x03\x01\x00\x05" + b"\xff" * 5, b"\x16\x03\x01\x00\x04\x01\x00\x00\x00"):
            answer = server.raw(data)
            assert (answer[:1], len(answer)) == (b"\x15", 7), answer
        assert server.errors.lines(20) == []


def test_tls_on_the_port_without_it(serve, material):
    with serve(ok) as server, server.connect() as sock:
        hello = ssl.MemoryBIO()
        client = material.client().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        sock.sendall(hello.read())
        answer = read_to_end(sock)
        assert statuses(answer) == [b"400"]
        assert answer.endswith(b"this port speaks HTTP without TLS: the address begins with http://\n")


# --- handshakes that do not come to an end ------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_a_stalled_handshake_is_given_up_in_time(serve, pem, data):
    with serve(ok, tls_cert=(pem,), timeout_tls_handshake=0.3) as server, server.connect() as sock:
        sock.sendall(data)
        assert read_or_reset(sock) == b""
        assert server.errors.lines(20) == []


def read_or_reset(sock):
    try:
        return read_to_end(sock)
    except ConnectionResetError:
        return b""


def test_octets_do_not_renew_the_time(serve, pem):
    with serve(ok, tls_cert=(pem,), timeout_tls_handshake=0.3) as server, server.connect() as sock:
        sock.sendall(b"\x16\x03\x01\x10\x00\x01\x00\x0f\xfc")
        begun = time.monotonic()
        try:
            while time.monotonic() - begun < WAIT:
                sock.send(b"x")
                time.sleep(0.02)
        except OSError:
            pass
        assert time.monotonic() - begun < WAIT / 2


def test_the_oldest_handshake_gives_way_beyond_the_limit(serve, material, pem):
    with serve(ok, tls_cert=(pem,), limit_tls_handshakes=3) as server:
        waiting = [server.connect() for _ in range(3)]
        try:
            for sock in waiting:
                sock.sendall(b"\x16")
            eventually(lambda: len(server.call(lambda: objects(INSIDE[0]))) == 3)
            time.sleep(0.1)
            waiting[0].setblocking(False)
            with pytest.raises(BlockingIOError):  # at the limit everybody may stay
                waiting[0].recv(1)
            waiting[0].settimeout(WAIT)
            secured_and_served(server, material.client())
            assert read_or_reset(waiting[0]) == b""
            for sock in waiting[1:]:
                sock.setblocking(False)
                with pytest.raises(BlockingIOError):
                    sock.recv(1)
        finally:
            for sock in waiting:
                sock.close()


def test_five_hundred_stalled_handshakes_delay_nobody(serve, material, pem):
    with serve(ok, tls_cert=(pem,)) as server:
        stalled = [server.connect() for _ in range(500)]
        try:
            for sock in stalled:
                sock.sendall(b"\x16\x03\x01")
            begun = time.monotonic()
            for _ in range(5):
                secured_and_served(server, material.client())
            assert time.monotonic() - begun < WAIT / 2
        finally:
            for sock in stalled:
                sock.close()
        eventually(lambda: not server.call(lambda: objects(INSIDE[0])))
        assert server.errors.lines(20) == []


# --- the end of connections --------------------------------------------------------------------------


def test_the_end_is_said_in_tls(serve, material, pem):
    client = material.client()
    with serve(ok, tls_cert=(pem,), timeout_keep_alive=0.2) as server:
        for data in (LAST, GET):  # closed because of the request, and when it is idle
            with client.wrap_socket(
                server.connect(), server_hostname="localhost", suppress_ragged_eofs=False
            ) as sock:
                sock.sendall(data)
                assert statuses(read_to_end(sock)) == [b"200"]


def test_a_client_that_says_its_end_still_gets_the_answer(serve, material, pem):
    asked = threading.Event()

    async def app(scope, receive, send):
        await asyncio.get_running_loop().run_in_executor(None, asked.wait, WAIT)
        await respond(send, b"late")

    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = material.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with serve(app, tls_cert=(pem,)) as server, server.connect() as sock:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))
        client.write(GET)
        with pytest.raises(ssl.SSLError):
            client.unwrap()
        sock.sendall(outgoing.read())
        asked.set()
        content = b""
        while b"late" not in content:
            data = sock.recv(65536)
            assert data, content
            incoming.write(data)
            while incoming.pending:
                try:
                    content += client.read(65536)
                except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                    break


def test_a_body_that_is_cut_without_a_word_is_cut_for_the_application(serve, material, pem):
    seen = []

    async def app(scope, receive, send):
        while (message := await receive())["type"] != "http.disconnect":
            seen.append(message["more_body"])
        seen.append("disconnect")

    with serve(app, tls_cert=(pem,)) as server:
        with secured(server, material.client()) as sock:
            sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
            eventually(lambda: seen == [True])
        eventually(lambda: seen == [True, "disconnect"])
        assert server.errors.lines(30) == []


def test_broken_records_end_the_connection(serve, material, pem):
    seen = []

    async def app(scope, receive, send):
        for _ in range(2):
            seen.append((await receive())["type"])

    with serve(app, tls_cert=(pem,)) as server, secured(server, material.client()) as sock:
        sock.sendall(GET)
        eventually(lambda: seen == ["http.request"])
        plain = socket.socket(fileno=os.dup(sock.fileno()))
        with plain:
            plain.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
            with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
                sock.recv(1)
        eventually(lambda: seen == ["http.request", "http.disconnect"])
        assert server.errors.lines(30) == []


@pytest.mark.parametrize("kind", ["silent", "gone", "flood"])
def test_closing_waits_for_nobody(serve, material, pem, kind):
    with serve(ok, tls_cert=(pem,), timeout_linger=0.3) as server:
        with secured(server, material.client()) as sock:
            sock.sendall(LAST)
            if kind == "silent":
                eventually(lambda: not connections(server))
            elif kind == "flood":
                with pytest.raises(OSError):
                    while True:
                        sock.sendall(b"x" * 65536)
        eventually(lambda: not connections(server))
        assert server.errors.lines(20) == []


def test_a_stop_closes_handshakes_and_answers_requests(serve, material, pem):
    entered = threading.Event()

    async def app(scope, receive, send):
        entered.set()
        await asyncio.sleep(0.3)
        await respond(send)

    with serve(app, tls_cert=(pem,)) as server:
        with server.connect() as stalled, secured(server, material.client()) as sock:
            stalled.sendall(b"\x16")
            sock.sendall(GET)
            assert entered.wait(WAIT)
            server.server.should_exit = True
            assert read_or_reset(stalled) == b""
            answer = read_to_end(sock)
            assert statuses(answer) == [b"200"]
            assert b"connection: close" in answer


def test_nothing_of_a_connection_stays(serve, material, pem, no_collector):
    client = material.client()
    with serve(ok, tls_cert=(pem,), timeout_tls_handshake=1.0, timeout_linger=0.2) as server:
        before = at_rest(server)
        for leave in (socket.socket.close, reset):
            for data in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", os.urandom(500)):
                sock = server.connect()
                sock.sendall(data)
                leave(sock)
            for data in (
                GET,
                LAST,
                GET[:9],
                b"BAD\r\n\r\n",
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
            ):
                sock = secured(server, client)
                sock.sendall(data)
                if data in (GET, LAST):
                    sock.recv(65536)
                leave(sock)
        with pytest.raises(ssl.SSLError):
            secured(server, client, "another.example")  # the client refuses the certificate
        eventually(lambda: not server.call(lambda: objects(*INSIDE)), "all of TLS is gone")
        eventually(lambda: holdings(server) == before, f"{holdings(server)} {before}")
        assert server.errors.lines(20) == []
