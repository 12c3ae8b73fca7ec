"""HTTP/2 with clients that others have written: curl, nghttp, h2load, httpx, Chromium, gRPC."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading

import httpx
import pytest
from harness import WAIT
from process import ServerProcess
from sample_apps import ok, read_body, respond, start
from tls_material import Material


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return Material(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def pem(material):
    return material.issue("localhost", "127.0.0.1")


def command(*words: str) -> str:
    """What a program prints; its absence is an error."""
    assert shutil.which(words[0]), f"{words[0]} is not installed: .ci/apt curl nghttp2-client"
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


async def version(scope, receive, send):
    """Which HTTP it is, and what came."""
    content = await read_body(receive)
    await respond(send, f"{scope['http_version']} {scope['scheme']} {len(content)}".encode())


def test_curl(serve, material, pem, tmp_path):
    (tmp_path / "body").write_bytes(bytes(300_000))
    with serve(version, h2c=True) as server:
        words = ("curl", "-sS", "--http2-prior-knowledge", "-w", " %{http_version}", server.url)
        assert command(*words) == "2 http 0 2"
        assert command(*words, "--data-binary", f"@{tmp_path / 'body'}") == "2 http 300000 2"
        assert command("curl", "-sS", "--http2", "-w", " %{http_version}", server.url) == "1.1 http 0 1.1"
    with serve(version, tls_cert=(pem,), http2=True) as server:
        words = (
            "curl",
            "-sS",
            "--cacert",
            material.ca,
            "-w",
            " %{http_version}",
            f"https://localhost:{server.port}",
        )
        assert command(*words, "--http2", "--ipv4") == "2 https 0 2"
        assert command(*words, "--http1.1", "--ipv4") == "1.1 https 0 1.1"


@pytest.mark.parametrize("size", [1, 1000, 60_000, 3_000_000])
def test_curl_hears_an_answer_before_its_body_is_read(serve, tmp_path, size):
    (tmp_path / "body").write_bytes(bytes(size))

    async def app(scope, receive, send):
        await respond(send, b"too much", 413)

    with serve(app, h2c=True) as server:
        words = (
            "curl",
            "-sS",
            "--http2-prior-knowledge",
            "-w",
            " %{http_code}",
            "-T",
            str(tmp_path / "body"),
        )
        assert command(*words, server.url) == "too much 413"


def test_tls_agrees_on_http2_only_if_asked_to(serve, material, pem):
    for offered, http2, agreed in (
        (["h2", "http/1.1"], True, "h2"),
        (["http/1.1", "h2"], True, "h2"),
        (["http/1.1"], True, "http/1.1"),
        (["h2", "http/1.1"], False, "http/1.1"),
        (["h2"], False, None),
    ):
        client = material.client()
        client.set_alpn_protocols(offered)
        from tls_material import secured

        with serve(ok, tls_cert=(pem,), http2=http2) as server, secured(server, client) as sock:
            assert sock.selected_alpn_protocol() == agreed


def test_httpx(serve, material, pem):
    digest = {}

    async def app(scope, receive, send):
        content = await read_body(receive)
        digest[scope["path"]] = hashlib.sha256(content).hexdigest()
        await start(send, 200, [(b"set-cookie", b"a=b")])
        for _ in range(50):
            await send({"type": "http.response.body", "body": content[:2000], "more_body": True})
        await send({"type": "http.response.body"})

    content = os.urandom(400_000)
    with serve(app, tls_cert=(pem,), http2=True) as server:
        with httpx.Client(http2=True, verify=material.client(), timeout=WAIT) as client:
            for number in range(3):
                got = client.post(f"https://localhost:{server.port}/{number}", content=content)
                assert (got.http_version, got.status_code, len(got.content)) == ("HTTP/2", 200, 100_000)
                assert digest[f"/{number}"] == hashlib.sha256(content).hexdigest()
                assert client.cookies["a"] == "b"


def test_h2load_and_nghttp(serve, material, pem):
    with serve(ok, h2c=True) as server:
        said = command("h2load", "-n", "2000", "-c", "4", "-m", "10", server.url + "/")
        assert "2000 succeeded, 0 failed, 0 errored" in said
        said = command("nghttp", "-nv", server.url + "/", server.url + "/two")
        assert said.count(":status: 200") == 2
        assert "error_code=NO_ERROR" in said
    with serve(ok, tls_cert=(pem,), http2=True) as server:
        said = command("h2load", "-n", "500", "-c", "2", "-m", "5", f"https://127.0.0.1:{server.port}/")
        assert "500 succeeded, 0 failed, 0 errored" in said
        assert "Application protocol: h2" in said


# --- a browser ---------------------------------------------------------------------------------------

PAGE = b"""<!doctype html><script>
const told = {protocol: performance.getEntriesByType("navigation")[0].nextHopProtocol};
async function all() {
  const source = new EventSource("/events");
  told.event = await new Promise(done => { source.onmessage = event => done(event.data); });
  source.close();
  const socket = new WebSocket("wss://" + location.host + "/socket");
  told.echo = await new Promise(done => {
    socket.onopen = () => socket.send("hello");
    socket.onmessage = event => done(event.data);
  });
  socket.close(1000);
  told.posted = await (await fetch("/length", {method: "POST", body: new Uint8Array(200000)})).text();
  await fetch("/told", {method: "POST", body: JSON.stringify(told)});
}
all();
</script>"""


class Browsed:
    """Serves the page, its events, its WebSocket, and hears what it tells."""

    def __init__(self):
        self.told = None
        self.versions = {}
        self.done = threading.Event()

    async def __call__(self, scope, receive, send):
        self.versions[scope["path"]] = (scope["type"], scope["http_version"])
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            message = await receive()
            await send({"type": "websocket.send", "text": message["text"]})
            await receive()
        elif scope["path"] == "/":
            await respond(send, PAGE, 200, [(b"content-type", b"text/html")])
        elif scope["path"] == "/events":
            await start(send, 200, [(b"content-type", b"text/event-stream")])
            await send({"type": "http.response.body", "body": b"data: first\n\n", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
        else:
            content = await read_body(receive)
            await respond(send, str(len(content)).encode())
            if scope["path"] == "/told":
                self.told = json.loads(content)
                self.done.set()


def test_chromium_has_page_events_and_websocket_on_one_connection(serve, pem, tmp_path):
    app = Browsed()
    with serve(app, tls_cert=(pem,), http2=True) as server:
        words = [
            "/usr/bin/chromium",
            *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--ignore-certificate-errors", f"--user-data-dir={tmp_path}", "--remote-debugging-port=0"),
            f"https://127.0.0.1:{server.port}/",
        ]
        browser = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert app.done.wait(40), app.versions
        finally:
            browser.terminate()
            browser.wait(20)
    assert app.told == {"protocol": "h2", "event": "first", "echo": "hello", "posted": "200000"}
    assert app.versions["/socket"] == ("websocket", "2")
    assert app.versions["/events"] == ("http", "2")


# --- gRPC --------------------------------------------------------------------------------------------


def framed(message: bytes) -> bytes:
    """A message as gRPC frames it, not compressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


async def grpc_service(scope, receive, send):
    """Upper: one message, one answer. Split: one message, many answers. Fail: a status."""
    content = await read_body(receive)
    message = content[5:]
    await start(send, 200, [(b"content-type", b"application/grpc")], trailers=True)
    status = b"0"
    if scope["path"] == "/test.Service/Upper":
        await send({"type": "http.response.body", "body": framed(message.upper()), "more_body": True})
    elif scope["path"] == "/test.Service/Split":
        for word in message.split():
            await send({"type": "http.response.body", "body": framed(word), "more_body": True})
    else:
        status = b"5"
    await send({"type": "http.response.body"})
    trailers = [(b"grpc-status", status), (b"grpc-message", b"as asked")]
    await send({"type": "http.response.trailers", "headers": trailers})


def test_grpc(serve):
    import grpc

    with serve(grpc_service, h2c=True) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            upper = channel.unary_unary("/test.Service/Upper")
            assert upper(b"hello", timeout=WAIT) == b"HELLO"
            assert upper(bytes(500_000), timeout=WAIT) == bytes(500_000)
            split = channel.unary_stream("/test.Service/Split")
            assert list(split(b"one two three", timeout=WAIT)) == [b"one", b"two", b"three"]
            with pytest.raises(grpc.RpcError) as failed:
                channel.unary_unary("/test.Service/Fail")(b"", timeout=WAIT)
            assert failed.value.code() == grpc.StatusCode.NOT_FOUND
            assert failed.value.details() == "as asked"


# --- the command -------------------------------------------------------------------------------------

APP = "app = ok"


def test_the_start_up_line_names_the_versions(way, tmp_path):
    with ServerProcess(tmp_path, APP, "--h2c") as server:
        server.wait_for(r" http=1\.1,2 ")
        said = command("curl", "-sS", "--http2-prior-knowledge", f"http://127.0.0.1:{server.port}/")
        assert said == "ok"
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--http2",), "add tls_cert, or use h2c"),
        (("--h2c", "--tls-self-signed"), "use http2 instead"),
        (("--h2c", "--http2-connection-window=65534"), "http2-connection-window"),
    ],
)
def test_what_cannot_work_is_said(way, tmp_path, flags, text):
    with ServerProcess(tmp_path, APP, *flags) as server:
        assert server.end() == 2
        assert text in server.said


@pytest.mark.any_way
def test_without_the_library_the_server_says_how_to_get_it(way, tmp_path):
    (tmp_path / "h2.py").write_text("raise ImportError('not there')")
    with ServerProcess(tmp_path, APP, "--h2c", "--parser=python") as server:
        assert server.end() == 2
        assert re.search(r"--h2c needs the package h2.*python -m pip install 'h2", server.said)
    with ServerProcess(tmp_path, APP) as server:  # and nobody misses it who has not asked
        assert server.port
        assert server.stop() == 0


def test_the_library_is_not_imported_unless_asked_for(tmp_path):
    code = (
        "import sys, servery; from servery.selection import select; "
        "select(servery.Config(app='a:b')); print({'h2', 'hpack', 'servery.http2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
