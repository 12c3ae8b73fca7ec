"""Nothing outlives its request or connection, with the collector off; descriptors that ran out come back."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import threading
import time
import weakref

import psutil
import pytest
from h2_peer import POST as POST2
from h2_peer import connect as h2_connect
from h2_peer import raw
from harness import eventually, read_response, reset
from holdings import at_rest, connections, holdings, memory
from process import ServerProcess
from sample_apps import body, ok, read_body, respond, start
from wire_frames import TEXT, close, frame, handshake, text

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKS = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
POST = b"POST /%b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
HS = handshake()


class Marked(dict):
    """A value that can be watched, put into each scope's state."""


class Watched:
    """Puts a large object of its own into each scope; `alive` are those that somebody still holds."""

    def __init__(self, application):
        self.application = application
        self.references = []

    @property
    def alive(self):
        return [reference for reference in self.references if reference() is not None]

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await ok(scope, receive, send)
            return
        marked = Marked(block=b"x" * 100_000)
        self.references.append(weakref.ref(marked))
        scope["state"]["marked"] = marked
        scope["kept"] = receive, send  # as frameworks do
        await self.application(scope, receive, send)


async def every_kind(scope, receive, send):
    """Answers in the way that the path names."""
    how = scope["path"]
    if scope["type"] == "websocket":
        await every_websocket(how, receive, send)
        return
    if how == "/raise":
        raise ZeroDivisionError
    if how == "/return":
        return
    if how == "/cut":
        await start(send)
        await body(send, b"part", True)
        raise ZeroDivisionError
    if how == "/stream":
        await start(send)
        for _ in range(3):
            await body(send, b"part", True)
            await asyncio.sleep(0)
        await body(send)
        return
    if how == "/wait":
        await receive()
        await receive()
        return
    await read_body(receive)
    if how == "/tasks":
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        waiting.cancel()
    await respond(send)


async def every_websocket(how, receive, send):
    """The same."""
    if how == "/deny":
        await send({"type": "websocket.close"})
        return
    if how == "/return":
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        if how == "/raise":
            raise ZeroDivisionError
        if how == "/close":
            return
        await send({**message, "type": "websocket.send"})


KINDS = {
    "answer": (GET % b"", True),
    "post": (POST % b"" + b"hello", True),
    "stream": (GET % b"stream", True),
    "exception": (GET % b"raise", True),
    "no response": (GET % b"return", True),
    "cut response": (GET % b"cut", True),
    "tasks": (POST % b"tasks" + b"hello", True),
    "refused": (b"BAD\r\n\r\n", True),
    "half a head": (b"GET / HT", False),
    "half a body": (POST % b"" + b"he", False),
    "left while it runs": (GET % b"wait", False),
    "two, then left": (GET % b"" + GET % b"wait", False),
    "websocket": (HS + text("a") + frame(TEXT, b"a", final=False), True),
    "websocket, closed": (HS + text("a") + close(), True),
    "websocket, closed by us": (handshake(target=b"/close") + text("a"), True),
    "websocket, faulty": (HS + frame(3), True),
    "websocket, exception": (handshake(target=b"/raise") + text("a"), True),
    "websocket, denied": (handshake(target=b"/deny"), True),
    "websocket, not answered": (handshake(target=b"/return"), True),
    "websocket, refused": (handshake(key=None), True),
    "websocket, left": (HS + frame(TEXT, b"a", size=9), False),
}


def forget_errors(server):
    """Let go of what was logged: tracebacks hold what they went through."""
    server.errors.records.clear()
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_request_stays_alive(serve, no_collector, kind):
    data, answered = KINDS[kind]
    app = Watched(every_kind)
    with serve(app, lifespan="on") as server:
        for leave in (socket.socket.close, reset):
            for _ in range(5):
                sock = server.connect()
                sock.sendall(data)
                if answered:
                    sock.recv(65536)
                leave(sock)
        with server.connect() as sock:
            sock.sendall(GET % b"")
            assert read_response(sock)[1] == b"ok"
            eventually(lambda: forget_errors(server) and not app.alive, "the scopes are gone")
    assert app.references


def test_nothing_of_a_request_stays_alive_while_its_connection_lasts(serve, no_collector):
    app = Watched(every_kind)
    with serve(app, lifespan="on") as server, server.connect() as sock:
        for data in (GET % b"", POST % b"" + b"hello", GET % b"stream", GET % b"raise") * 5:
            sock.sendall(data)
            read_response(sock)
            eventually(lambda: forget_errors(server) and not app.alive)
    assert len(app.references) == 20


def test_nothing_of_a_request_that_timed_out_stays_alive(serve, no_collector):
    app = Watched(every_kind)
    with serve(app, lifespan="on", timeout_body=0.1, timeout_linger=0.1) as server, server.connect() as sock:
        sock.sendall(POST % b"" + b"he")
        assert sock.recv(65536).startswith(b"HTTP/1.1 408")
        eventually(lambda: forget_errors(server) and not app.alive)
    assert len(app.references) == 1


def test_twenty_thousand_requests_leave_no_trace(serve, no_collector):
    process = psutil.Process(os.getpid())
    block = 50

    def ask(sock, times):
        data = (GET % b"" + POST % b"" + b"hello") * (block // 2)
        for _ in range(times // block):
            sock.sendall(data)
            rest, count = b"", 0
            while count < block:
                rest += sock.recv(1 << 20)
                count = rest.count(b"\r\n\r\nok")

    async def app(scope, receive, send):
        await read_body(receive)
        await respond(send)

    with serve(app, access_log=False) as server, server.connect() as sock:
        ask(sock, 2000)
        objects, memory = len(gc.get_objects()), process.memory_info().rss
        ask(sock, 20_000)
        assert len(gc.get_objects()) - objects < 200
        assert process.memory_info().rss - memory < 2_000_000


@pytest.mark.parametrize("data", (b"", GET % b"", GET % b"wait", POST % b"" + b"he", HS + text("a")))
def test_thousands_of_connections_leave_no_trace(serve, no_collector, data):
    """Neither a task, a descriptor, a connection nor an armed deadline is left of those that were reset."""

    def storm(times):
        for _ in range(times):
            sock = server.connect()
            sock.sendall(data)
            reset(sock)
            server.errors.records.clear()
        eventually(lambda: holdings(server) == before)

    def timers():
        return sum(not handle.cancelled() for handle in getattr(server.loop, "_scheduled", ()))

    settings = {"access_log": False, "log_level": "error"}
    with serve(
        every_kind, **settings, timeout_keep_alive=3600, timeout_first_byte=3600, timeout_body=3600
    ) as server:
        before = at_rest(server)
        storm(10)
        storm(250)  # as many as are ever open at a time, for the allocator
        held = memory()
        storm(1000)
        assert server.call(timers) <= 2  # the clock has one for all, and this look may be another
        assert memory() - held < 4_000_000


def test_ten_thousand_requests_of_http2_leave_no_trace(serve, no_collector):
    """On one connection, and then on hundreds, with bodies, resets, failures and headers that differ."""
    process = psutil.Process(os.getpid())

    async def app(scope, receive, send):
        await read_body(receive)
        await respond(send, b"x" * 100, headers=[(b"x-path", scope["raw_path"])])

    def ask(peer, first, times):
        for stream in range(first, first + 2 * times, 50 * 2):
            for number in range(stream, stream + 100, 2):
                path = f"/{number % 1000}"
                peer.headers(
                    number, [(n, path if n == ":path" else v) for n, v in POST2], end=number % 4 == 1
                )
                if number % 4 != 1:
                    peer.data(number, b"hello", end=True)
            peer.until(lambda last=stream + 98: last in peer.responses and peer.responses[last].over)
            peer.responses.clear()
            peer.frames.clear()

    def storm(times):
        for number in range(times):
            peer = h2_connect(server)
            peer.headers(1, POST2, end=False)
            peer.send_octets(raw(6, 0, 0, bytes(8 - number % 2)))
            if number % 3:
                peer.synced()
            reset(peer.sock)
        eventually(lambda: connections(server) == 0)

    settings = {"access_log": False, "log_level": "critical", "h2c": True}
    with serve(app, **settings, http2_max_streams=60) as server:
        with h2_connect(server) as peer:
            ask(peer, 1, 2000)
            objects, memory = len(gc.get_objects()), process.memory_info().rss
            ask(peer, 4001, 10_000)
            assert len(gc.get_objects()) - objects < 300
            assert process.memory_info().rss - memory < 2_000_000
        storm(100)
        memory = process.memory_info().rss
        storm(400)
        assert process.memory_info().rss - memory < 3_000_000


@pytest.mark.parametrize(
    "data",
    (GET[:-2] % b"" + b"X Y: z\r\n\r\n", CHUNKS + b"5\r\nhelloX\r\n", CHUNKS + b"g\r\n"),
    ids=("field line", "end of a chunk", "size of a chunk"),
)
def test_a_connection_that_was_refused_is_gone(serve, no_collector, data):
    """The error that is reported must not hold the frames that report it."""
    with serve(ok, access_log=False, date_header=False) as server:
        first = connections(server)
        assert b" 400 " in server.raw(data, shut=True)
        eventually(lambda: connections(server) == first)


def test_a_connection_that_was_closed_in_order_is_gone(serve, no_collector):
    with serve(ok, timeout_keep_alive=0.1) as server:
        first = connections(server)
        with server.connect() as sock:
            sock.sendall(GET % b"")
            assert read_response(sock)[1] == b"ok"
            assert connections(server) == first + 1
            assert sock.recv(1) == b""
        eventually(lambda: connections(server) == first)
    assert server.errors.lines(30) == []


def test_no_task_ends_unheard(tmp_path, way):
    """In debug mode, which would tell: nothing is destroyed, forgotten or never awaited."""
    source = """
    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            return await lifespan(receive, send)
        waiting = asyncio.ensure_future(receive())
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            hearing = asyncio.ensure_future(receive())
            try:
                while True:
                    await send({"type": "websocket.send", "bytes": b"x" * 65536})
            except OSError:
                await hearing
                return
        await start(send)
        try:
            for _ in range(50):
                await body(send, b"x" * 65536, True)
        except OSError:
            pass
        await waiting
        await body(send)
    """
    with ServerProcess(tmp_path, source, dev=True) as server:
        for leave in (socket.socket.close, reset):
            for number in range(20):
                sock = server.connect()
                sock.sendall(handshake() if number % 2 else GET % b"")
                sock.recv(10)
                leave(sock)
        assert server.stop() == 0
    for word in ("destroyed", "never", "Warning", "Traceback", "Unclosed"):
        assert word not in server.said


FEW = 64


def test_descriptors_that_ran_out_come_back(tmp_path, way):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))

    flags = ("--timeout-first-byte", "60")
    with ServerProcess(tmp_path, "app = ok", *flags, preexec_fn=few) as server:
        process = psutil.Process(server.process.pid)
        socks = [server.connect() for _ in range(2 * FEW)]
        server.wait_for("cannot accept connections")
        before, begun = sum(process.cpu_times()[:2]), time.monotonic()
        threading.Event().wait(1.1)
        passed = time.monotonic() - begun
        busy = (sum(process.cpu_times()[:2]) - before) / passed
        said = server.said.count("cannot accept connections")
        for sock in socks:
            sock.close()
        with server.connect() as sock:
            sock.sendall(GET % b"")
            assert read_response(sock)[1] == b"ok"
        assert server.stop() == 0
    assert busy < 0.3
    assert 1 <= said <= passed + 2
    assert "ulimit -n" in server.said
    assert "Traceback" not in server.said


def test_descriptors_that_ran_out_do_not_stop_those_who_are_connected(tmp_path, way):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))

    with ServerProcess(tmp_path, "app = ok", preexec_fn=few) as server, server.connect() as good:
        good.sendall(GET % b"")
        read_response(good)
        socks = [server.connect() for _ in range(2 * FEW)]
        server.wait_for("cannot accept connections")
        for _ in range(20):
            good.sendall(GET % b"")
            assert read_response(good)[1] == b"ok"
        for sock in socks:
            sock.close()
        assert server.stop() == 0


def test_the_harness_would_notice_a_leak(serve, no_collector):
    """The counts above mean something: an application that keeps its scopes is seen."""
    kept = []

    async def app(scope, receive, send):
        kept.append(scope)
        await respond(send)

    watched = Watched(app)
    with serve(watched, lifespan="on") as server, server.connect() as sock:
        sock.sendall(GET % b"")
        read_response(sock)
    assert len(watched.alive) == 1


class Keeper:
    """Keeps the exception that `send` raises, and with it the frames that hold `receive` and `send`."""

    def __init__(self):
        self.error = None
        self.failed = threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await ok(scope, receive, send)
            return
        try:
            await start(send)
            while True:
                await body(send, b"x" * 65536, True)
        except OSError as error:
            self.error = error
            self.failed.set()


def test_the_collector_frees_a_server_whose_application_keeps_exceptions(serve):
    app = Keeper()
    gone = weakref.ref(app)
    with serve(app) as server:
        with server.connect() as sock:
            sock.sendall(GET % b"")
            sock.recv(1024)
            reset(sock)
        assert app.failed.wait(10)
    del app, server, sock
    gc.collect()
    assert gone() is None
