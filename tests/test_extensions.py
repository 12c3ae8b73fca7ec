"""The ASGI extensions: trailers both ways, early hints, files by path and by descriptor."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

import pytest
from harness import WAIT, eventually, read_response, read_to_end, statuses
from sample_apps import body, respond, start

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
WITH_TRAILERS = b"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n"


# --- trailers ------------------------------------------------------------------------------------------


async def trailing(scope, receive, send):
    await start(send, 200, [(b"trailer", b"x-digest")], trailers=True)
    await body(send, b"ab", True)
    await body(send, b"cd")
    await send({"type": "http.response.trailers", "headers": [(b"x-digest", b"1")], "more_trailers": True})
    await send({"type": "http.response.trailers", "headers": [(b"X-More", b"2")]})


def test_trailers_for_a_client_that_wants_them(serve):
    async def app(scope, receive, send):
        assert scope["extensions"]["http.response.trailers"] == {}
        await trailing(scope, receive, send)

    with serve(app) as server:
        received = server.raw(WITH_TRAILERS)
    assert b"transfer-encoding: chunked" in received
    assert received.endswith(b"2\r\nab\r\n2\r\ncd\r\n0\r\nx-digest: 1\r\nX-More: 2\r\n\r\n")


@pytest.mark.parametrize("request_", (LAST, b"GET / HTTP/1.0\r\nTE: trailers\r\n\r\n"), ids=("1.1", "1.0"))
def test_others_get_none_and_the_same_content(serve, request_):
    async def app(scope, receive, send):
        assert "http.response.trailers" not in scope["extensions"]
        await trailing(scope, receive, send)

    with serve(app) as server:
        received = server.raw(request_)
    assert b"x-digest: 1" not in received
    assert received.endswith((b"2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n", b"\r\n\r\nabcd"))
    assert server.errors.lines(30) == []


@pytest.mark.parametrize("status", (204, 304))
def test_no_trailers_without_content(serve, status):
    async def app(scope, receive, send):
        await start(send, status, trailers=True)
        await body(send)
        await send({"type": "http.response.trailers", "headers": [(b"x-a", b"1")]})

    with serve(app) as server:
        received = server.raw(GET.replace(b"\r\n\r\n", b"\r\nTE: trailers\r\n\r\n") + WITH_TRAILERS)
    assert statuses(received) == [b"%d" % status] * 2
    assert b"x-a" not in received
    assert b"chunked" not in received


@pytest.mark.parametrize("value", (b"a\r\nx: y", b"a\nb", b"a\0"))
def test_trailers_that_could_split_the_response_cut_it(serve, value):
    async def app(scope, receive, send):
        await start(send, trailers=True)
        await body(send, b"ab")
        await send({"type": "http.response.trailers", "headers": [(b"x-a", value)]})

    with serve(app) as server:
        received = server.raw(WITH_TRAILERS)
    assert received.endswith(b"ab\r\n")
    assert len(server.errors.lines(40)) == 1


def test_trailers_of_a_request_come_with_its_last_message(serve):
    messages = []

    async def app(scope, receive, send):
        assert scope["extensions"]["http.request.trailers"] == {}
        while True:
            messages.append(await receive())
            if not messages[-1]["more_body"]:
                break
        await respond(send)

    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    data = head + b"2\r\nab\r\n0\r\nX-A: 1\r\nx-b:2 \r\n\r\n"
    with serve(app) as server, server.connect() as sock:
        sock.sendall(data)
        assert read_response(sock)[1] == b"ok"
        assert b"".join(message["body"] for message in messages) == b"ab"
        assert messages[-1]["trailers"] == [(b"x-a", b"1"), (b"x-b", b"2")]
        assert all("trailers" not in message for message in messages[:-1])
        messages.clear()
        sock.sendall(GET)
        read_response(sock)
        assert messages == [{"type": "http.request", "body": b"", "more_body": False}]


# --- early hints ---------------------------------------------------------------------------------------

LINKS = (b"</a.css>; rel=preload", b"</b.js>; rel=preload")
HINT = b"HTTP/1.1 103 Early Hints\r\nlink: %b\r\nlink: %b\r\n\r\n" % LINKS


@pytest.mark.parametrize("order", ("before the start", "after the start"))
def test_early_hints(serve, order):
    async def app(scope, receive, send):
        hint = {"type": "http.response.early_hint", "links": list(LINKS)}
        if order == "before the start":
            await send(hint)
        await start(send, 200, [(b"content-length", b"2")])
        if order == "after the start":
            await send(hint)
        await asyncio.sleep(0)
        await body(send, b"ok")

    with serve(app) as server:
        received = server.raw(GET + LAST)
        assert received.count(HINT) == 2
        assert received.startswith(HINT + b"HTTP/1.1 200 OK\r\n")
        assert b"103" not in server.raw(b"GET / HTTP/1.0\r\n\r\n")
    assert server.errors.lines(30) == []


@pytest.mark.parametrize("links", (None, [b"a\r\nx: y"], [b"a\nb"], 5))
def test_hints_that_cannot_be_sent(serve, links):
    async def app(scope, receive, send):
        message = {"type": "http.response.early_hint"}
        if links is not None:
            message["links"] = links
        await send(message)

    with serve(app) as server:
        assert statuses(server.raw(LAST)) == [b"500"]
    assert len(server.errors.lines(40)) == 1


# --- files ---------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    """A file of a million octets in which every place is known, and its content."""
    content = b"".join(b"%07d\n" % number for number in range(125_000))
    path = tmp_path / "file"
    path.write_bytes(content)
    return path, content


@pytest.mark.parametrize("length", (True, False), ids=("length", "chunks"))
@pytest.mark.parametrize("text", (str, os.fspath, os.fsencode))
def test_a_file_by_path(serve, file, length, text):
    path, content = file

    async def app(scope, receive, send):
        assert scope["extensions"]["http.response.pathsend"] == {}
        await start(send, 200, [(b"content-length", b"%d" % len(content))] if length else [])
        await send({"type": "http.response.pathsend", "path": text(str(path))})

    with serve(app) as server, server.connect() as sock:
        for _ in range(2):  # and the connection goes on
            sock.sendall(GET)
            head, got, rest = read_response(sock)
            assert got == (content if b"content-length" in head else chunk(content))
            assert rest == b""
    assert server.errors.lines(30) == []
    assert [record.access.body_bytes_sent for record in server.access.records] == [len(content)] * 2


def chunk(data):
    """`data` as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_a_file_for_head_is_not_read(serve, file):
    path, content = file

    async def app(scope, receive, send):
        await start(send, 200, [(b"content-length", b"%d" % len(content))])
        await send({"type": "http.response.pathsend", "path": str(path)})

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET.replace(b"GET", b"HEAD") + GET)
        head, _, rest = read_response(sock, head_only=True)
        assert b"content-length: 1000000" in head
        assert read_response(sock, rest)[1] == content


def test_an_empty_file(serve, tmp_path):
    (tmp_path / "empty").touch()

    async def app(scope, receive, send):
        await start(send)
        await send({"type": "http.response.pathsend", "path": str(tmp_path / "empty")})

    with serve(app) as server:
        received = server.raw(GET + LAST)
    assert statuses(received) == [b"200"] * 2
    assert server.errors.lines(30) == []


def test_parts_of_open_files_between_other_content(serve, file):
    path, content = file

    async def app(scope, receive, send):
        kind = "http.response.zerocopysend"
        with open(path, "rb") as opened:
            await start(send)
            await body(send, b"begin", True)
            await send({"type": kind, "file": opened, "offset": 8, "count": 16, "more_body": True})
            await body(send, b"middle", True)
            opened.seek(999_992)
            await send({"type": kind, "file": opened, "more_body": True})
            await send({"type": kind, "file": opened.fileno(), "offset": 0, "count": 0, "more_body": True})
            await send({"type": kind, "file": opened.fileno(), "offset": 80, "count": 8})

    with serve(app) as server:
        received = server.raw(LAST).partition(b"\r\n\r\n")[2]
    parts = (b"begin", content[8:24], b"middle", content[-8:], content[80:88])
    assert received == b"".join(map(chunk, parts)) + b"0\r\n\r\n"
    assert server.errors.lines(30) == []


@pytest.mark.parametrize("how", ("path", "descriptor"))
def test_a_file_for_a_slow_reader(serve, tmp_path, how):
    path = tmp_path / "large"
    size = 20_000_000
    with open(path, "wb") as opened:
        opened.truncate(size)

    async def app(scope, receive, send):
        if scope["path"] == "/":
            await respond(send)
            return
        await start(send, 200, [(b"content-length", b"%d" % size)])
        if how == "path":
            await send({"type": "http.response.pathsend", "path": str(path)})
        else:
            with open(path, "rb") as opened:
                await send({"type": "http.response.zerocopysend", "file": opened, "offset": 0, "count": size})

    with serve(app) as server, socket.socket() as slow, server.connect() as other:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        slow.settimeout(WAIT)
        slow.connect(server.address)
        slow.sendall(LAST.replace(b"/ ", b"/file "))
        head = slow.recv(4096)
        for _ in range(10):  # others are served meanwhile
            other.sendall(GET)
            assert read_response(other)[1] == b"ok"
        received = len(head.partition(b"\r\n\r\n")[2])
        while data := slow.recv(1 << 20):
            received += len(data)
        assert received == size
    assert server.errors.lines(30) == []


def test_a_reader_that_leaves_or_never_reads_ends_the_sending(serve, tmp_path):
    path = tmp_path / "large"
    with open(path, "wb") as opened:
        opened.truncate(50_000_000)
    errors = []

    async def app(scope, receive, send):
        await start(send)
        try:
            await send({"type": "http.response.pathsend", "path": str(path)})
        except OSError as error:
            errors.append(error)
            raise

    with serve(app, timeout_write=0.3) as server:
        server.raw(
            LAST.replace(b"GET", b"HEAD")
        )  # loops open some descriptors of their own with the first one
        before = len(os.listdir("/proc/self/fd"))
        with server.connect() as leaving:
            leaving.sendall(GET)
            leaving.recv(1000)
        eventually(lambda: len(errors) == 1)
        with server.connect() as stuck:
            stuck.sendall(GET)
            stuck.recv(1)
            eventually(lambda: len(errors) == 2)
        eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)
    assert server.errors.lines(20) == []


def test_a_file_that_shrinks_is_a_broken_response(serve, tmp_path):
    path = tmp_path / "shrinks"
    size = 30_000_000
    with open(path, "wb") as opened:
        opened.truncate(size)

    async def app(scope, receive, send):
        await start(send, 200, [(b"content-length", b"%d" % size)])
        await send({"type": "http.response.pathsend", "path": str(path)})

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET)
        sock.recv(1000)
        os.truncate(path, 1000)
        received = 0
        while data := sock.recv(1 << 20):
            received += len(data)
    assert received < size
    (record,) = [record for record in server.errors.records if record.levelno >= 40]
    assert "shorter" in str(record.exc_info[1])
    assert server.access.records[0].access.aborted


@pytest.mark.parametrize("path", ("/nonexistent", "/", "/dev/null"))
def test_what_is_no_file_is_a_500(serve, path):
    async def app(scope, receive, send):
        await start(send)
        await send({"type": "http.response.pathsend", "path": path})

    with serve(app) as server:
        assert statuses(server.raw(LAST)) == [b"500"]


@pytest.mark.parametrize(("offset", "count"), ((0, 1_000_001), (1_000_001, 1), (-1, 5), (0, -1)))
def test_a_range_that_is_not_in_the_file_is_a_500(serve, file, offset, count):
    path, _ = file

    async def app(scope, receive, send):
        with open(path, "rb") as opened:
            await start(send)
            await send(
                {"type": "http.response.zerocopysend", "file": opened, "offset": offset, "count": count}
            )

    with serve(app) as server:
        assert statuses(server.raw(LAST)) == [b"500"]


def test_files_for_several_readers_at_a_time(serve, file):
    path, content = file
    results = []

    async def app(scope, receive, send):
        await start(send, 200, [(b"content-length", b"%d" % len(content))])
        await send({"type": "http.response.pathsend", "path": str(path)})

    def client():
        with server.connect() as sock:
            sock.sendall(LAST)
            results.append(read_to_end(sock).endswith(content))

    with serve(app) as server:
        threads = [threading.Thread(target=client) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [True] * 10
