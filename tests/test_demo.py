"""The demo application behind a real server process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import http.client
import json
import platform
import re
import signal
import socket
import subprocess
import sys

import pytest
from wire_frames import BINARY, PING, PONG, TEXT, Client, close, frame, text

from servery import _version, demo
from servery.demo.application import HELD_SIZE

pytestmark = pytest.mark.shared_server

START_LINE = re.compile(r"servery \S+ · (?P<words>.*) · http://127\.0\.0\.1:(?P<port>\d+)")


@contextlib.contextmanager
def served(*flags):
    """A server process with the demo: its port, and the words of its start-up line."""
    command = [sys.executable, "-m", "servery", "servery.demo:app", "--port", "0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        while not (found := START_LINE.search(lines[-1] if lines else "")):
            lines.append(process.stderr.readline())
            assert lines[-1], f"the server did not start:\n{''.join(lines)}"
        yield int(found["port"]), dict(word.split("=") for word in found["words"].split())
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=20)[1]
        assert "Traceback" not in errors, errors
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def server(way):
    with served(*way.flags) as (port, words):
        yield port, words


@pytest.fixture
def port(server):
    return server[0]


def ask(port, method, target, body=None, headers=None):
    """One request on a connection of its own: the response, with its content as `content`."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request(method, target, body, headers or {})
        response = connection.getresponse()
        response.content = response.read()
        return response


def test_page_shows_the_configuration(server):
    port, words = server
    response = ask(port, "GET", "/")
    assert response.status == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    text = response.content.decode()
    rows = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))
    assert {key: rows[key] for key in ("parser", "io", "loop")} == {
        key: words[key] for key in ("parser", "io", "loop")
    }
    assert rows["version"] == _version.__version__
    assert rows["python"] == f"{platform.python_implementation()} {platform.python_version()}"
    assert (rows["method"], rows["path"], rows["http version"]) == ("GET", "/", "1.1")
    assert rows["server"] == f"127.0.0.1:{port}"
    assert rows["client"].startswith("127.0.0.1:")


def test_what_the_client_sends_is_escaped(port):
    evil = "<script>alert('1')</script>&\""
    page = ask(port, "GET", "/?q=%3Cb%3E&<i>", headers={"X-Evil": evil}).content.decode()
    assert page.count("<script>") == 1
    assert "&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;&amp;&quot;" in page
    assert "<dd>q=%3Cb%3E&amp;&lt;i&gt;</dd>" in page


def test_policy_allows_the_inline_code_of_the_page_and_nothing_else(port):
    response = ask(port, "GET", "/")
    policy = dict(
        part.strip().split(" ", 1) for part in response.headers["content-security-policy"].split(";")
    )
    text = response.content.decode()
    for element in ("script", "style"):
        (content,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[f"{element}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == "'none'"
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//|url\(|@import""", text)
    assert " style=" not in text


@pytest.mark.parametrize("target", ["/", "/healthz", "/scope", "/ticker", "/nowhere"])
def test_head_has_the_fields_of_get_and_no_content(port, target):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("GET", target)
        got = connection.getresponse()
    head = ask(port, "HEAD", target)
    assert (head.status, head.content) == (got.status, b"")
    varying = {"date", "connection", "transfer-encoding", "content-length"}
    fields = [[pair for pair in r.getheaders() if pair[0].lower() not in varying] for r in (got, head)]
    assert fields[0] == fields[1]
    if target in ("/healthz", "/nowhere"):
        assert head.headers["content-length"] == got.headers["content-length"]


@pytest.mark.parametrize("target", ["/", "/healthz", "/scope", "/nowhere", "/ticker"])
def test_every_answer_forbids_sniffing_and_has_a_policy(port, target):
    headers = ask(port, "HEAD", target).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("default-src 'none'")


def test_healthz(port):
    response = ask(port, "GET", "/healthz")
    assert (response.status, response.content) == (200, b"ok\n")


def test_scope_as_json(port):
    response = ask(port, "GET", "/scope?a=%20b", headers={"X-One": "caf\xe9"})
    assert response.headers["content-type"] == "application/json"
    scope = json.loads(response.content)
    assert (scope["type"], scope["method"], scope["path"]) == ("http", "GET", "/scope")
    assert scope["query_string"] == "a=%20b"
    assert ["x-one", "café"] in scope["headers"]
    assert scope["server"] == ["127.0.0.1", port]


def test_other_paths_and_methods(port):
    assert ask(port, "GET", "/nowhere").status == 404
    response = ask(port, "DELETE", "/")
    assert (response.status, response.headers["allow"]) == (405, "GET, HEAD")
    response = ask(port, "GET", "/echo")
    assert (response.status, response.headers["allow"]) == (405, "POST")


def test_root_path(way):
    with served("--root-path", "/api", *way.flags) as (port, _):
        page = ask(port, "GET", "/").content.decode()
        assert 'data-root="/api"' in page
        assert 'href="/api/scope"' in page
        assert json.loads(ask(port, "GET", "/scope").content)["path"] == "/api/scope"


# --- echo ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, HELD_SIZE, HELD_SIZE + 1])
@pytest.mark.parametrize("chunked", [False, True])
def test_echo_gives_the_body_back(port, size, chunked):
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    headers = {"content-type": "image/x-test"}
    sent = iter([body[: size // 2], body[size // 2 :]]) if chunked else body
    response = ask(port, "POST", "/echo", sent, headers)
    assert response.content == body
    assert response.headers["content-type"] == "image/x-test"
    assert response.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert response.headers["x-content-type-options"] == "nosniff"
    if size <= HELD_SIZE:
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        assert response.headers["content-digest"] == f"sha-256=:{digest}:"


def test_echo_without_a_content_type(port):
    assert ask(port, "POST", "/echo", b"abc").headers["content-type"] == "application/octet-stream"


def test_a_large_echo_comes_back_before_everything_was_sent(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        size = HELD_SIZE + 3
        client.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
        client.sendall(b"a" * (size - 2))
        stream = client.makefile("rb")
        while stream.readline() != b"\r\n":
            pass
        assert stream.read(size - 2) == b"a" * (size - 2)
        client.sendall(b"b")
        assert stream.read(1) == b"b"
        client.sendall(b"c")
        assert stream.read(1) == b"c"


@pytest.mark.parametrize("sent", [b"abc", b"a" * (HELD_SIZE + 1)])
def test_an_upload_that_breaks_off_harms_nobody(port, sent):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n" + sent)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(20)
        while client.recv(65536):
            pass
    assert ask(port, "GET", "/healthz").status == 200


# --- ticker ----------------------------------------------------------------------------------------------


def test_ticker_ticks(port):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("GET", "/ticker")
        response = connection.getresponse()
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-store"
        events = [[response.readline() for _ in range(3)] for _ in range(2)]
    for number, (name, data, end) in enumerate(events, 1):
        assert name == b"id: %d\n" % number
        assert json.loads(data.removeprefix(b"data: "))["number"] == number
        assert end == b"\n"


def test_a_listener_does_not_hold_the_server_up(way):
    with served("--timeout-stream-grace", "0", *way.flags) as (port, _):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"GET /ticker HTTP/1.1\r\nHost: a\r\n\r\n")
            assert client.recv(10).startswith(b"HTTP/1.1 ")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/ticker")
        assert connection.getresponse().readline() == b"id: 1\n"
    connection.close()


# --- alone, without a server -----------------------------------------------------------------------------


def run(scope, *incoming, fail_after=None):
    """Call the application directly; give what it sent. `send` raises OSError after `fail_after` messages."""
    sent = []

    async def main():
        messages = iter(incoming)

        async def receive():
            return next(messages, None) or await asyncio.Event().wait()

        async def send(message):
            if len(sent) == fail_after:
                raise OSError("the peer is gone")
            sent.append(message)

        await asyncio.wait_for(demo.app(scope, receive, send), 20)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    return sent


BARE = {"type": "http", "http_version": "1.1", "method": "GET", "path": "/", "headers": []}


def test_ticker_ends_when_the_client_goes_away():
    sent = run({**BARE, "path": "/ticker"}, {"type": "http.request"}, {"type": "http.disconnect"})
    assert [message.get("more_body", False) for message in sent] == [False, True, False]


@pytest.mark.parametrize("messages", [0, 1, 2])
def test_ticker_ends_when_send_fails(messages):
    assert len(run({**BARE, "path": "/ticker"}, {"type": "http.request"}, fail_after=messages)) == messages


def test_page_needs_nothing_that_is_optional():
    scope = {**BARE, "headers": [(b"x", b"\xff")], "client": ["::1", 80], "server": ["/run/s", None]}
    text = run(scope)[1]["body"].decode()
    assert f"<title>servery {_version.__version__}</title>" in text
    assert "not servery, or it does not say" in text
    assert "<dd>[::1]:80</dd>" in text
    assert "<dd>/run/s</dd>" in text
    assert "<dd>ÿ</dd>" in text


def test_a_path_that_is_not_text():
    scope = {**BARE, "root_path": "/\udcff", "path": "/\udcff"}
    assert rb'data-root="/\udcff"' in run(scope)[1]["body"]


def test_scope_of_things_that_json_does_not_know():
    sent = run({**BARE, "path": "/scope", "state": {"thing": object()}})
    assert json.loads(sent[1]["body"])["state"] == {"thing": "object"}


def test_lifespan():
    sent = run({"type": "lifespan"}, {"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})
    assert [message["type"] for message in sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]


def test_other_protocols_are_refused():
    with pytest.raises(NotImplementedError, match="HTTP and WebSockets only, not webtransport"):
        run({"type": "webtransport"})


def test_what_is_said_on_a_websocket_comes_back(port):
    with contextlib.closing(socket.create_connection(("127.0.0.1", port), 20)) as sock:
        client = Client(sock)
        assert client.open(target=b"/talk").startswith(b"HTTP/1.1 101 ")
        client.send(text("grüße"), frame(BINARY, b"\x00\xff"))
        found = [client.read() for _ in range(3)]
        [ping] = [one for one in found if one.opcode == PING]
        assert [json.loads(one.payload) for one in found if one.opcode == TEXT] == [{"echo": "grüße"}]
        assert [one.payload for one in found if one.opcode == BINARY] == [b"\x00\xff"]
        client.send(frame(PONG, ping.payload))
        assert 0 <= json.loads(client.read().payload)["round_trip"] < 20_000
        client.send(close())
        assert client.read_to_close()[-1].code == 1000


def test_there_is_one_websocket(port):
    with contextlib.closing(socket.create_connection(("127.0.0.1", port), 20)) as sock:
        assert Client(sock).open(target=b"/other").startswith(b"HTTP/1.1 403 ")


def test_a_websocket_on_another_server_has_no_pings():
    scope = {"type": "websocket", "path": "/talk"}
    messages = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "a"}]
    sent = run(scope, *messages, {"type": "websocket.disconnect", "code": 1000})
    assert [message["type"] for message in sent] == ["websocket.accept", "websocket.send"]


def test_a_websocket_ends_when_send_fails():
    scope = {"type": "websocket", "path": "/talk", "extensions": {"servery.websocket.ping": {}}}
    messages = [{"type": "websocket.connect"}, *[{"type": "websocket.receive", "text": "a"}] * 3]
    assert len(run(scope, *messages, fail_after=2)) == 2
