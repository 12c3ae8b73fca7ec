"""No octet of a peer reaches a log unescaped, and no log breaks a response."""

from __future__ import annotations

import json
import logging
import re

import pytest
from harness import eventually, read_response
from process import ServerProcess
from sample_apps import ok, respond

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
HOSTILE = (
    b"GET /%1b%5d0;x%07%0d%0aINFO:%20fake HTTP/1.1\r\nHost: a\r\n\r\n",
    b'GET /"%20200%20-%20"\\x HTTP/1.1\r\nHost: a\r\n\r\n',
    b'GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: \xc2\x9b31m\xff\r\nX-Forwarded-For: 1.2.3.4\\" GET /x\r\n\r\n',
    b'GET / HTTP/1.1\r\nHost: a\r\nReferer: a" 200 "b\r\nAuthorization: Basic YQo6Yg==\r\n\r\n',
    b"GET /\x1b[31m HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\x1b[31m\x07\x9b / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: \x1b[31m\r\n\r\n",
)


@pytest.mark.parametrize(
    "format", ("text", "json", '%h %l %u %t "%r" %s %B "%{Referer}i" "%{User-Agent}i" "%{X-Forwarded-For}i"')
)
def test_a_line_for_each_request_and_only_printable_ascii(serve, format):
    with serve(ok, access_log_format=format) as server:
        for data in HOSTILE:
            with server.connect() as sock:
                sock.sendall(data)
                read_response(sock)
        lines = server.access.wait(len(HOSTILE))
        errors = server.errors.lines()
    assert len(lines) == len(HOSTILE)
    for line in [*lines, *errors]:
        assert re.fullmatch(r"[\x20-\x7e·]*", line), line
    if format == "json":
        assert [json.loads(line)["status"] for line in lines] == [200] * 4 + [400] * 3


def test_an_exception_text_with_what_the_peer_sent_is_escaped(tmp_path, way):
    source = """
    async def app(scope, receive, send):
        assert scope["type"] == "http"
        raise RuntimeError(scope["path"])
    """
    with ServerProcess(tmp_path, source) as server:
        with server.connect() as sock:
            sock.sendall(b"GET /%1b%5b31m%0d%0a2026-11-30T00:00:00%20fake HTTP/1.1\r\nHost: a\r\n\r\n")
            assert read_response(sock)[0].startswith(b"HTTP/1.1 500")
        assert server.stop() == 0
    assert "RuntimeError" in server.said
    assert "\x1b" not in server.said
    assert not re.search(r"^2026-11-30T00:00:00 fake", server.said, re.MULTILINE)


def test_a_handler_that_raises_breaks_no_response(serve):
    class Broken(logging.Handler):
        def emit(self, record):
            raise OSError("disk full")

    with serve(ok) as server, server.connect() as sock:
        logging.getLogger("servery.access").handlers[:] = [Broken()]
        for _ in range(3):
            sock.sendall(GET)
            assert read_response(sock)[1] == b"ok"
        lost = [line for line in server.errors.lines() if "access log" in line]
    assert len(lost) == 1


def test_nothing_is_formatted_when_the_access_log_is_off(serve):
    with serve(ok, access_log=False) as server, server.connect() as sock:
        sock.sendall(GET)
        assert read_response(sock)[1] == b"ok"
    assert server.access.lines() == []


def test_the_line_tells_status_size_and_time(serve):
    async def app(scope, receive, send):
        await respond(send, b"x" * 1234, 418)

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET)
        read_response(sock)
        (line,) = server.access.wait(1)
        host, port = sock.getsockname()
    assert re.fullmatch(
        rf'{host}:{port} - - \[\d\d/\w{{3}}/\d{{4}}:\d\d:\d\d:\d\d [+-]\d{{4}}\] "GET / HTTP/1.1" 418 1234'
        rf" \d\.\d{{6}} [0-9a-f]+-1",
        line,
    )


def test_a_reader_of_stdout_that_leaves_does_not_stop_the_server(tmp_path, way):
    with ServerProcess(tmp_path, "app = ok") as server:
        port = server.port
        assert port
        with server.connect() as sock:
            sock.sendall(GET)
            read_response(sock)
            server.break_output()
            for _ in range(20):
                sock.sendall(GET)
                assert read_response(sock)[1] == b"ok"
        assert server.stop() == 0


def test_debug_messages_of_the_application_go_to_the_debug_log(serve):
    async def app(scope, receive, send):
        assert scope["extensions"]["http.response.debug"] == {}
        await send({"type": "http.response.debug", "info": {"template": "x\x1b"}})
        await respond(send)

    with serve(app, log_level="debug") as server, server.connect() as sock:
        sock.sendall(GET)
        assert read_response(sock)[1] == b"ok"
        eventually(lambda: any("template" in line for line in server.errors.lines()))
    assert all("\x1b" not in line for line in server.errors.lines())
