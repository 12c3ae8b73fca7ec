"""One signal ends the process in bounded time: requests are answered, the lifespan ends, the code is true."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import WAIT, eventually, new_loop, read_response, read_to_end, reset, statuses
from process import ServerProcess
from sample_apps import lifespan, ok, respond

from servery import Server
from servery import serve as serve_here
from servery.config import Config

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"

BYE = """
async def bye(receive, send):
    await lifespan(receive, send)
    print("bye", flush=True)
"""
SLOW = (
    BYE
    + """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await bye(receive, send)
    if scope["path"] != "/":
        print("entered", flush=True)
        await asyncio.sleep(float(scope["path"][1:]))
    await respond(send, b"whole" * 1000)
"""
)


@pytest.fixture
def start(way, tmp_path):
    """Starts a process with each parser and on each loop: ``with start(source, *flags) as server``."""

    def start(source, *flags):
        return ServerProcess(tmp_path, source, "--timeout-linger", "0.2", *flags)

    return start


def test_a_request_in_progress_is_answered_and_idle_connections_close_at_once(start):
    with start(SLOW) as server, server.connect() as busy:
        idle = [server.connect() for _ in range(10)]
        for sock in idle:
            sock.sendall(GET % b"")
            assert read_response(sock)[1] == b"whole" * 1000
        busy.sendall(GET % b"1.5")
        server.wait_for("entered")
        server.signal()
        for sock in idle:
            assert sock.recv(1) == b""
            sock.close()
        assert server.process.poll() is None
        head, content, rest = read_response(busy)
        assert content == b"whole" * 1000
        assert b"connection: close" in head.lower()
        assert read_to_end(busy) == rest == b""
        assert server.end() == 0
    assert "bye" in server.said
    assert "Traceback" not in server.said


def test_idle_connections_do_not_hold_up_the_stop(start):
    flags = (
        "--timeout-keep-alive",
        "60",
        "--timeout-graceful-shutdown",
        "60",
        "--timeout-stream-grace",
        "60",
    )
    with start("app = ok", *flags) as server:
        socks = [server.connect() for _ in range(100)]
        for sock in socks:
            sock.sendall(GET % b"")
            read_response(sock)
        server.signal()
        for sock in socks:
            assert sock.recv(1) == b""
        assert server.end() == 0
        for sock in socks:
            sock.close()


@pytest.mark.parametrize("data", (b"", b"GET / HTTP/1.1\r\nHo"), ids=("nothing sent", "half a head"))
def test_a_request_that_is_on_its_way_gets_a_moment(serve, data):
    with serve(ok, timeout_linger=0.5, timeout_graceful_shutdown=5) as server:
        with server.connect() as late, server.connect() as never:
            never.sendall(data)
            late.sendall(data)
            with server.connect() as sock:  # by now the others are accepted and read
                sock.sendall(GET % b"")
                read_response(sock)
            listener = server.server.sockets[0]
            server.server.should_exit = True
            eventually(lambda: listener.fileno() == -1)  # the stop has begun
            late.sendall((GET % b"")[len(data) :])
            received = read_to_end(late)
            assert statuses(received) == [b"200"]
            assert b"connection: close" in received.lower()
            assert statuses(read_to_end(never)) in ([], [b"408"])
        server.stop()


STREAM = (
    BYE
    + """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await bye(receive, send)
    await start(send)
    try:
        while True:
            await body(send, b": x\\n\\n", True)
            await asyncio.sleep(0.01)
    finally:
        print("stream ended", flush=True)
"""
)


def test_an_endless_stream_is_cancelled_after_the_graceful_time_and_the_lifespan_ends(start):
    with start(STREAM, "--timeout-graceful-shutdown", "0.3") as server, server.connect() as sock:
        sock.sendall(GET % b"")
        assert sock.recv(10)
        server.signal()
        received = read_to_end(sock)
        assert not received.endswith(b"0\r\n\r\n")  # it was cut, and looks so
        assert server.end() == 0
    assert server.said.index("stream ended") < server.said.index("bye")
    assert "CancelledError" not in server.said
    assert "cancelling" in server.said


def test_a_stream_that_listens_is_told_first(start):
    source = (
        BYE
        + """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await bye(receive, send)
    await start(send)
    await body(send, b"begin", True)
    await receive()
    print(await receive(), flush=True)
    await body(send, b"end")
"""
    )
    flags = ("--timeout-stream-grace", "0.1", "--timeout-graceful-shutdown", "60")
    with start(source, *flags) as server, server.connect() as sock:
        sock.sendall(GET % b"")
        sock.recv(10)
        server.signal()
        assert read_to_end(sock).endswith(b"3\r\nend\r\n0\r\n\r\n")
        assert server.end() == 0
    assert "{'type': 'http.disconnect'}" in server.said
    assert "bye" in server.said
    assert "cancelling" not in server.said


def test_a_request_that_swallows_its_cancellation_is_left_behind(start):
    source = (
        BYE
        + """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await bye(receive, send)
    print("entered", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("never mind", flush=True)
"""
    )
    flags = ("--timeout-graceful-shutdown", "0.1", "--timeout-cancel", "0.2")
    with start(source, *flags) as server, server.connect() as sock:
        sock.sendall(GET % b"")
        server.wait_for("entered")
        assert server.stop() == 1
    assert "bye" in server.said
    assert "left behind" in server.said
    assert server.said.count("still running: ") == 1
    assert re.search(r"app\.py\", line \d+, in app\n.*await asyncio\.sleep\(60\)\n", server.said)


def test_a_thread_that_is_at_work_does_not_hold_up_the_exit(start):
    source = (
        BYE
        + """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await bye(receive, send)
    print("entered", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
"""
    )
    flags = ("--timeout-graceful-shutdown", "0.1", "--timeout-cancel", "0.3")
    with start(source, *flags) as server, server.connect() as sock:
        sock.sendall(GET % b"")
        server.wait_for("entered")
        assert server.stop() == 1
    assert "bye" in server.said
    assert re.search(r"left behind at the exit, still running: thread 'servery_\d+'", server.said)


def test_idle_threads_end_in_order_and_exit_handlers_run(start):
    source = """
import atexit, concurrent.futures
pool = concurrent.futures.ThreadPoolExecutor()
atexit.register(print, "at exit")

async def app(scope, receive, send):
    assert scope["type"] == "http"
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, time.sleep, 0)
    await loop.run_in_executor(pool, time.sleep, 0)
    await respond(send)
"""
    with start(source, "--timeout-cancel", "60") as server, server.connect() as sock:
        sock.sendall(GET % b"")
        assert read_response(sock)[1] == b"ok"
        assert server.stop() == 0
    assert server.said.endswith("at exit\n")
    assert "left behind" not in server.said


def test_the_shutdown_of_the_lifespan_runs_in_full_after_a_hung_request(start):
    source = """
async def app(scope, receive, send):
    if scope["type"] == "http":
        print("entered", flush=True)
        await asyncio.sleep(60)
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    try:
        await asyncio.sleep(0.3)
        print("flushed", flush=True)
    finally:
        await asyncio.sleep(0)
        print("closed", flush=True)
    await send({"type": "lifespan.shutdown.complete"})
"""
    with start(source, "--timeout-graceful-shutdown", "0.2") as server, server.connect() as sock:
        sock.sendall(GET % b"")
        server.wait_for("entered")
        assert server.stop() == 0
    assert "flushed\nclosed\n" in server.said


@pytest.mark.parametrize(
    ("number", "phase"),
    ((signal.SIGTERM, "requests"), (signal.SIGINT, "requests"), (signal.SIGTERM, "lifespan")),
)
def test_a_second_signal_ends_the_stop_at_once(start, number, phase):
    source = """
async def app(scope, receive, send):
    if scope["type"] == "http":
        print("entered", flush=True)
        try:
            await asyncio.sleep(60 if scope["path"] == "/slow" else 0)
        finally:
            print("unwound", flush=True)
        await respond(send)
        return
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    print("shutting down", flush=True)
    await asyncio.sleep(60)
"""
    with start(source) as server, server.connect() as sock:
        sock.sendall(GET % (b"slow" if phase == "requests" else b""))
        server.wait_for("entered")
        server.signal(number)
        server.wait_for("stopping" if phase == "requests" else "shutting down")
        server.signal(number)
        assert server.end() == 128 + number
    assert "unwound" in server.said
    assert "left behind" not in server.said
    assert "Traceback" not in server.said


def test_a_stop_during_the_start_up(start):
    source = """
async def app(scope, receive, send):
    await receive()
    print("starting", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("unwound", flush=True)
"""
    with start(source) as server:
        server.wait_for("starting")
        assert server.stop() == 0
    assert "unwound" in server.said
    assert "http://" not in server.said
    assert "Traceback" not in server.said


def test_all_who_have_sent_a_request_are_answered(start):
    source = """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    print("entered", flush=True)
    await asyncio.sleep(0.5)
    await respond(send)
"""
    with start(source) as server:
        first = server.connect()
        first.sendall(GET % b"")
        server.wait_for("entered")
        socks = [first]
        for _ in range(49):
            sock = server.connect()
            sock.sendall(GET % b"")
            socks.append(sock)
        server.signal()  # some have just been accepted, some wait in the backlog
        for sock in socks:
            received = read_to_end(sock)
            assert statuses(received) == [b"200"]
            assert received.endswith(b"ok")
            sock.close()
        assert server.end() == 0


def test_pipelined_requests_before_the_stop_are_not_reset(start):
    with start(SLOW) as server, server.connect() as sock:
        sock.sendall(GET % b"0.3" + GET % b"0")
        server.wait_for("entered")
        server.signal()
        received = read_to_end(sock)  # a reset would raise here
        assert received.endswith(b"whole")
        assert statuses(received)[0] == b"200"
        assert server.end() == 0


def test_new_connections_are_refused_during_the_stop(start):
    with start(SLOW) as server, server.connect() as sock:
        sock.sendall(GET % b"0.5")
        server.wait_for("entered")
        server.signal()
        server.wait_for("stopping")
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        read_response(sock)
        assert server.end() == 0


def test_connections_that_ended_in_every_way_do_not_hold_up_the_stop(serve):
    async def app(scope, receive, send):
        if scope["path"] == "/500":
            raise ZeroDivisionError
        await respond(send, headers=[(b"connection", b"close")] if scope["path"] == "/close" else [])

    flags = {"timeout_keep_alive": 0.2, "timeout_graceful_shutdown": 30, "timeout_stream_grace": 30}
    with serve(app, **flags) as server:
        for _ in range(20):
            for data in (b"", GET % b"", GET % b"close", GET % b"500", b"BAD\r\n\r\n", b"GET / HT"):
                for leave in (None, reset):
                    sock = server.connect()
                    sock.sendall(data)
                    if data.endswith(b"\r\n\r\n"):
                        sock.recv(65536)
                    (leave or type(sock).close)(sock)
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 10  # not the graceful time


# --- embedded -----------------------------------------------------------------------------------------


def run(loop, coroutine):
    """Run `coroutine` in a loop of its own."""
    with asyncio.Runner(loop_factory=lambda: new_loop(loop)) as runner:
        return runner.run(coroutine)


class Application:
    """Answers after `delay` seconds; `said` is what happened."""

    def __init__(self, delay=0.0):
        self.delay = delay
        self.said = []
        self.entered = asyncio.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            self.said.append("shut down")
            return
        self.entered.set()
        try:
            await asyncio.sleep(self.delay)
            await respond(send)
            self.said.append("answered")
        except asyncio.CancelledError:
            self.said.append("cancelled")
            raise


async def ask(server):
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    writer.write(GET % b"")
    return reader, writer


async def started(server):
    while not server.started:
        await asyncio.sleep(0.001)


def test_cancelling_the_serving_task_stops_in_order(way):
    async def main():
        app = Application(0.3)
        server = Server(Config(app=app, port=0, **way.settings, access_log=False, timeout_linger=0.1))
        task = asyncio.create_task(server.serve())
        await started(server)
        reader, writer = await ask(server)
        await app.entered.wait()
        task.cancel()
        received = await reader.read()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        writer.close()
        assert received.endswith(b"ok")
        assert app.said == ["answered", "shut down"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(way.loop, main())


def test_cancelling_it_again_stops_at_once(way):
    async def main():
        app = Application(60)
        server = Server(Config(app=app, port=0, **way.settings, access_log=False, timeout_linger=0.1))
        task = asyncio.create_task(server.serve())
        await started(server)
        _, writer = await ask(server)
        await app.entered.wait()
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(task), WAIT)
        writer.close()
        assert app.said == ["cancelled"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(way.loop, main())


def test_a_time_out_around_serve_is_a_graceful_stop(way):
    app = Application()

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await serve_here(app, port=0, **way.settings, access_log=False)

    run(way.loop, main())
    assert app.said == ["shut down"]


def test_the_end_of_the_loop_is_a_graceful_stop(way):
    """The loop's runner cancels every task when the main one returns; what serves ends in order even so."""
    server = None

    async def app(scope, receive, send):
        await ok(scope, receive, send)

    async def main():
        nonlocal server
        server = Server(Config(app=app, port=0, **way.settings, access_log=False, timeout_linger=0.1))
        task = asyncio.create_task(server.serve())
        await started(server)
        return task

    task = run(way.loop, main())
    assert task.cancelled()
    assert not server.started
    assert all(sock.fileno() == -1 for sock in server.sockets)


def test_cancelling_during_the_start_up(way):
    said = []

    async def app(scope, receive, send):
        await receive()
        said.append("starting")
        try:
            await asyncio.sleep(60)
        finally:
            said.append("unwound")

    async def main():
        task = asyncio.create_task(serve_here(app, port=0, **way.settings))
        while not said:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(way.loop, main())
    assert said == ["starting", "unwound"]


def test_a_server_in_a_thread_is_stopped_from_another(way):
    server = Server(Config(app=ok, port=0, **way.settings, access_log=False))
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run, way.loop, server.serve())
        while not server.started:
            assert not done.done(), done.result()
            threading.Event().wait(0.001)
        server.should_exit = True
        done.result(WAIT)
    assert server.exit_code == 0
