"""TLS from the command line: what is said, what is refused, self-signed certificates, the redirect."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from harness import WAIT, read_to_end, statuses
from process import ServerProcess
from sample_apps import ok
from tls_material import Material, wrapped

from servery import ConfigError, StartupError
from servery.cli import main
from servery.config import Config
from servery.server import Server
from servery.sources import load
from servery.tls import self_signed as module
from servery.tls.watch import watch

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture
def material(tmp_path):
    return Material(tmp_path)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Where self-signed certificates are kept, for this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "servery"


def test_the_start_up_line_says_what_runs(way, tmp_path, material):
    pem = material.issue("localhost")
    with ServerProcess(tmp_path, "app = ok", "--tls-cert", pem) as process:
        port = process.wait_for(
            rf"io={way.io} loop={way.loop} tls=ssl http=1.1 .* https://127.0.0.1:(\d+)\n"
        )[1]
        sock = wrapped(socket_to(int(port)), material.client())
        with sock:
            sock.sendall(GET)
            assert statuses(read_to_end(sock)) == [b"200"]
        assert process.stop() == 0
    assert "Traceback" not in process.said


def socket_to(port):
    return socket.create_connection(("127.0.0.1", port), WAIT)


def test_with_reload(way, tmp_path, material):
    pem = material.issue("localhost")
    with ServerProcess(tmp_path, "app = ok", "--tls-cert", pem, "--reload") as process:
        port = process.wait_for(r"tls=ssl .* https://127.0.0.1:(\d+)\n")[1]
        with wrapped(socket_to(int(port)), material.client()) as sock:
            sock.sendall(GET)
            assert statuses(read_to_end(sock)) == [b"200"]
        assert process.stop() == 0


# --- self-signed -------------------------------------------------------------------------------------


def test_a_self_signed_certificate_is_made_once_and_kept(serve, cache):
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    shown = set()
    for _ in range(2):
        with serve(ok, tls_self_signed=True) as server, wrapped(server.connect(), client) as sock:
            shown.add(sock.getpeercert(binary_form=True))
    assert len(shown) == 1
    (kept,) = cache.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    client = ssl.create_default_context(cafile=str(kept))
    with serve(ok, tls_self_signed=True) as server, wrapped(server.connect(), client, "127.0.0.1") as sock:
        assert sock.version() == "TLSv1.3"
    Server(Config(app=ok, tls_self_signed=True, host="dev.example", port=0))
    with serve(ok, tls_self_signed=True, bind=("127.0.0.1:0", "localhost:0")):
        assert len(list(cache.iterdir())) == 1  # for the same names


def test_an_old_or_broken_one_is_made_again(cache, monkeypatch):
    path = Path(module.self_signed(["127.0.0.1"]))
    first = path.read_text()
    path.write_text(first[:100])
    assert module.self_signed(["127.0.0.1"]) == str(path)
    second = path.read_text()
    assert second != first
    monkeypatch.setattr(module, "RENEW", 366 * 86_400)
    module.self_signed(["127.0.0.1"])
    assert path.read_text() != second


def test_without_the_package_that_makes_them(cache, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("async def app(scope, receive, send): ...")
    assert main(["app:app", "--tls-self-signed", "--check-config"]) == 2
    assert "install it with `python -m pip install cryptography`" in capsys.readouterr().err


def test_where_nothing_can_be_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(StartupError, match="set XDG_CACHE_HOME"):
        check(tls_self_signed=True)


# --- refusals ----------------------------------------------------------------------------------------


def check(**settings):
    assert watch(Config(app="m:a", **settings)) is not None


@pytest.fixture
def files(material, tmp_path):
    """Paths of parts of certificates, by name."""
    issued = [material.authority.issue_cert("localhost") for _ in range(2)]
    texts = {
        "chain": b"".join(part.bytes() for part in issued[0].cert_chain_pems),
        "key": issued[0].private_key_pem.bytes(),
        "other_key": issued[1].private_key_pem.bytes(),
        "junk": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "text": b"hello",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.pem").write_bytes(text)
    make = ["openssl", "pkey", "-aes256", "-in", tmp_path / "key.pem", "-passout", "pass:right"]
    subprocess.run([*make, "-out", tmp_path / "locked.pem"], check=True, capture_output=True)
    (tmp_path / "empty").mkdir()
    return {path.stem: str(path) for path in tmp_path.iterdir()} | {"missing": str(tmp_path / "missing")}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tls_cert": ("missing",)}, "tls_cert '{missing}': cannot be read: No such file"),
        ({"tls_cert": ("chain",), "tls_key": "missing"}, "tls_key '{missing}': cannot be read: No such file"),
        ({"tls_cert": ("chain",)}, "there is no key in it: give tls_key, or write {chain},KEY"),
        (
            {"tls_cert": ("chain",), "tls_key": "other_key"},
            "this is not the key of the certificate in '{chain}'",
        ),
        ({"tls_cert": ("chain",), "tls_key": "locked"}, "the key is encrypted: give tls_key_password"),
        (
            {"tls_cert": ("chain",), "tls_key": "locked", "tls_key_password": "env:WRONG"},
            "tls_key_password does not open it",
        ),
        ({"tls_cert": ("text",)}, "both must be PEM|there is no key in it"),
        ({"tls_cert": ("junk",), "tls_key": "key"}, "both must be PEM"),
        ({"tls_cert": ("chain",), "tls_key": "text"}, "both must be PEM"),
        ({"tls_cert": ("empty",)}, "no certificate in this directory"),
        (
            {"tls_cert": ("chain",), "tls_key": "key", "tls_ca": "text", "tls_client_cert": "required"},
            "tls_ca '{text}': OpenSSL finds no certificate there",
        ),
        (
            {"tls_cert": ("chain",), "tls_key": "key", "tls_ca": "missing", "tls_client_cert": "optional"},
            "tls_ca '{missing}': cannot be read",
        ),
    ],
)
def test_files_that_cannot_be_used(files, monkeypatch, settings, text):
    monkeypatch.setenv("WRONG", "wrong")
    names = {
        name: tuple(files[part] for part in value) if isinstance(value, tuple) else files.get(value, value)
        for name, value in settings.items()
    }
    with pytest.raises(StartupError) as caught:
        check(**names)
    expected = [part.format(**files) for part in text.split("|")]
    assert any(part in str(caught.value) for part in expected), caught.value


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tls_ciphers": "NO-SUCH-CIPHER"}, "tls_ciphers: 'NO-SUCH-CIPHER' names no cipher"),
        ({"tls_key_password": "env:NO_SUCH_VARIABLE"}, "there is no variable NO_SUCH_VARIABLE"),
        ({"tls_key_password": "file:/no/such/file"}, "'/no/such/file' cannot be read"),
    ],
)
def test_settings_that_cannot_work(files, settings, text):
    with pytest.raises(ConfigError, match=text):
        check(tls_cert=(files["chain"],), tls_key=files["key"], **settings)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tls_cert": ("c",), "tls_self_signed": True}, "drop tls_self_signed"),
        ({"tls_key": "k"}, "tls_key does nothing without TLS: add tls_cert, or drop tls_key"),
        ({"tls_min_version": "1.3"}, "tls_min_version does nothing without TLS"),
        ({"tls_redirect": ("a:1",)}, "tls_redirect does nothing without TLS"),
        ({"tls_cert": ("c",), "tls_client_cert": "optional"}, "tls_client_cert and tls_ca need each other"),
        ({"tls_cert": ("c",), "tls_ca": "a"}, "tls_client_cert and tls_ca need each other"),
        ({"tls_cert": ("c",), "tls_redirect_port": 1}, "tls_redirect_port does nothing without tls_redirect"),
        ({"tls_cert": ("c",), "tls_ciphers": "x", "tls_min_version": "1.3"}, "drop tls_ciphers"),
        ({"tls_cert": ("c", "c")}, "tls_cert names 'c' twice"),
        ({"tls_cert": ("host=",)}, "write PATH, PATH,KEY"),
        ({"tls_cert": ("c,",)}, "write PATH, PATH,KEY"),
        ({"tls_cert": ("c",), "tls_key_password": "secret"}, "write env:NAME or file:PATH"),
        ({"tls_cert": ("c",), "tls_key_password": "env:"}, "write env:NAME or file:PATH"),
        ({"tls_cert": ("c",), "tls_redirect": ("80",)}, "write HOST:PORT"),
    ],
)
def test_contradictions(settings, text):
    with pytest.raises(ConfigError) as caught:
        Config(**settings)
    assert text in str(caught.value)


def test_exit_codes(tmp_path, monkeypatch, capsys, files):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("async def app(scope, receive, send): ...")
    assert main(["app:app", "--check-config", "--tls-cert", f"{files['chain']},{files['key']}"]) == 0
    assert main(["app:app", "--tls-cert", files["missing"]]) == 3
    assert main(["app:app", "--check-config", "--tls-cert", files["missing"]]) == 3
    assert main(["app:app", "--tls-ciphers", "x"]) == 2
    capsys.readouterr()


def test_several_certificates_in_a_variable(monkeypatch):
    config = load({}, {"SERVERY_TLS_CERT": "a.example=/a.pem,/a.key; /b.pem"}).config
    assert config.tls_cert == ("a.example=/a.pem,/a.key", "/b.pem")


# --- the redirect ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_line", "host", "location"),
    [
        (b"GET /a%20b?c=d&e HTTP/1.1", b"a.example", b"https://a.example:%d/a%%20b?c=d&e"),
        (b"POST / HTTP/1.1", b"a.example:80", b"https://a.example:%d/"),
        (b"GET /? HTTP/1.1", b"[::1]:80", b"https://[::1]:%d/"),
        (b"GET / HTTP/1.1", b"[::1]", b"https://[::1]:%d/"),
        (b"OPTIONS * HTTP/1.1", b"a", b"https://a:%d/"),
        (b"GET http://b.example/x HTTP/1.1", b"a", b"https://b.example:%d/x"),
    ],
)
def test_requests_without_tls_are_sent_to_https(serve, material, request_line, host, location):
    pem = material.issue("localhost")
    data = request_line + b"\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"
    with serve(ok, tls_cert=(pem,), tls_redirect=("127.0.0.1:0",), limit_concurrency=1) as server:
        answer = redirected(server, data)
        assert statuses(answer) == [b"308"]
        assert b"\r\nlocation: " + location % server.port + b"\r\n" in answer
        assert server.server.urls == [f"https://127.0.0.1:{server.port}"]


def redirected(server, data):
    address = server.server.redirects[0].sock.getsockname()
    with socket_to(address[1]) as sock:
        sock.sendall(data)
        return read_to_end(sock)


def test_the_redirect_of_other_requests(serve, material):
    pem = material.issue("localhost")
    settings = {"tls_cert": (pem,), "tls_redirect": ("127.0.0.1:0",), "tls_redirect_port": 443}
    upgrade = (
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    with serve(ok, root_path="/api", **settings) as server:
        answer = redirected(server, b"GET / HTTP/1.0\r\n\r\n")
        assert statuses(answer) == [b"400"]
        assert answer.endswith(b"a request without Host says not where\n")
        head = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade, close\r\n"
        answer = redirected(server, head + upgrade + b"\r\n")
        assert b"\r\nlocation: https://a/ws\r\n" in answer
        ids = [record.getMessage() for record in server.access.records]
        assert len(ids) == 2
        server.stop()
        with pytest.raises(OSError):
            redirected(server, GET)


def test_an_old_redirect_connection_does_not_hold_up_the_stop(serve, material):
    pem = material.issue("localhost")
    with serve(ok, tls_cert=(pem,), tls_redirect=("127.0.0.1:0",)) as server:
        address = server.server.redirects[0].sock.getsockname()
        with socket_to(address[1]) as sock:
            sock.sendall(GET.replace(b"Connection: close\r\n", b""))
            assert statuses(sock.recv(65536)) == [b"308"]
            server.server.should_exit = True
            assert read_to_end(sock) == b""


def test_the_cache_is_private(cache):
    module.self_signed(["localhost"])
    assert stat.S_IMODE(os.stat(cache).st_mode) == 0o700
