"""Start-up and shutdown of the application: what failed is said, and the exit code is honest."""

from __future__ import annotations

import asyncio
import signal

import pytest
from harness import new_loop, read_response
from process import ServerProcess
from sample_apps import ok, respond

from servery import Server
from servery.config import Config
from servery.errors import LifespanError

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"

RAISES = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        raise RuntimeError("db down")
"""
FAILS = """
async def app(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.failed", **%r})
    await asyncio.sleep(%d)
"""


def test_an_exception_of_the_start_up_ends_the_process_and_is_shown(tmp_path, way):
    with ServerProcess(tmp_path, RAISES) as server:
        assert server.end() == 3
    assert "RuntimeError: db down" in server.said
    assert server.said.count("Traceback") == 1
    assert "http://" not in server.said  # the port was never announced


@pytest.mark.parametrize(
    "more", ({}, {"message": None}, {"message": "no \x1b[31mdatabase"}), ids=("bare", "none", "text")
)
@pytest.mark.parametrize("lingers", (0, 60), ids=("returns", "lingers"))
def test_a_start_up_that_failed_ends_the_process(tmp_path, way, more, lingers):
    flags = ("--timeout-cancel", "0.1")
    with ServerProcess(tmp_path, FAILS % (more, lingers), *flags) as server:
        assert server.end() == 3
    assert "failed to start" in server.said
    assert ("database" in server.said) == bool(more.get("message"))
    assert "Traceback" not in server.said


def test_an_application_without_lifespan_is_served(serve):
    async def app(scope, receive, send):
        assert scope["type"] == "http"
        assert "state" not in scope
        await respond(send)

    with serve(app, lifespan="auto") as server, server.connect() as sock:
        sock.sendall(GET)
        assert read_response(sock)[1] == b"ok"


def test_lifespan_that_must_be_there(way):
    async def app(scope, receive, send):
        assert scope["type"] == "http"

    async def main():
        with pytest.raises(LifespanError):
            await Server(Config(app=app, port=0, lifespan="on", **way.settings)).serve()
        assert len(asyncio.all_tasks()) == 1

    run(way.loop, main())


def test_a_start_up_that_takes_too_long(way):
    ended = []

    async def app(scope, receive, send):
        try:
            await receive()
            await asyncio.sleep(60)
        finally:
            ended.append(scope["type"])

    async def main():
        with pytest.raises(LifespanError, match="within 0.1 s"):
            await Server(Config(app=app, port=0, timeout_lifespan_startup=0.1, **way.settings)).serve()
        assert len(asyncio.all_tasks()) == 1

    run(way.loop, main())
    assert ended == ["lifespan"]


def run(loop, coroutine):
    """Run `coroutine` in a loop of its own."""
    with asyncio.Runner(loop_factory=lambda: new_loop(loop)) as runner:
        runner.run(coroutine)


def test_messages_that_do_not_belong_here_are_refused(serve):
    errors = []

    async def app(scope, receive, send):
        if scope["type"] != "lifespan":
            await respond(send)
            return
        for kind in ("lifespan.shutdown.complete", "http.response.start", None):
            try:
                await send({"type": kind})
            except Exception as error:
                errors.append(str(error))
        await ok(scope, receive, send)

    with serve(app, lifespan="on") as server, server.connect() as sock:
        sock.sendall(GET)
        assert read_response(sock)[1] == b"ok"
    assert len(errors) == 3
    assert all("not allowed in a lifespan" in error for error in errors)


SHUTDOWNS = {
    "raises": "raise RuntimeError('cannot flush')",
    "fails": "await send({'type': 'lifespan.shutdown.failed', 'message': 'cannot flush'})",
    "fails without a word": "await send({'type': 'lifespan.shutdown.failed'})",
    "takes too long": "await asyncio.sleep(60)",
}


@pytest.mark.parametrize("how", SHUTDOWNS)
def test_a_shutdown_that_fails_shows_in_the_exit_code(tmp_path, way, how):
    source = f"""
    async def app(scope, receive, send):
        await receive()
        await send({{"type": "lifespan.startup.complete"}})
        await receive()
        {SHUTDOWNS[how]}
    """
    flags = ("--timeout-lifespan-shutdown", "0.3", "--timeout-cancel", "0.2")
    with ServerProcess(tmp_path, source, *flags) as server:
        assert server.port
        assert server.stop() == 1
    assert "shut down" in server.said
    assert ("cannot flush" in server.said) == (how in ("raises", "fails"))


def test_an_end_of_the_lifespan_call_while_serving_is_said_at_the_stop(serve):
    """Some applications return right after their start-up: they are served, and no error is made of it."""

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
        else:
            await respond(send)

    with serve(app, lifespan="on") as server, server.connect() as sock:
        sock.sendall(GET)
        assert read_response(sock)[1] == b"ok"
    assert server.server.exit_code == 0


BACKGROUND = """
import gc

class Ticker:
    async def run(self):
        while True:
            await asyncio.sleep(0.005)
            self.ticks += 1

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        ticker = Ticker()
        ticker.ticks = 0
        task = asyncio.ensure_future(ticker.run())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        task.cancel()
        print("ticked" if ticker.ticks else "did not tick")
        await send({"type": "lifespan.shutdown.complete"})
    else:
        gc.collect()
        await respond(send)
"""


def test_the_lifespan_call_is_never_collected(tmp_path, way):
    with ServerProcess(tmp_path, BACKGROUND, dev=True) as server:
        with server.connect() as sock:
            for _ in range(50):
                sock.sendall(GET)
                assert read_response(sock)[1] == b"ok"
        assert server.stop() == 0
    assert "ticked\n" in server.said
    for word in ("destroyed", "never", "Warning", "Traceback"):
        assert word not in server.said


EXITS = {
    "no such module": ("nosuch:app", (), 3),
    "no such attribute": ("app:nosuch", (), 3),
    "address of another machine": ("app:app", ("--host", "203.0.113.1"), 3),
    "unknown flag": ("app:app", ("--nonsense",), 2),
    "value that cannot be": ("app:app", ("--port", "70000"), 2),
    "contradiction": ("app:app", ("--uds", "/tmp/x", "--fd", "3"), 2),
}


@pytest.mark.parametrize("case", EXITS)
def test_exit_codes_of_servers_that_cannot_start(tmp_path, way, case):
    target, flags, code = EXITS[case]
    with ServerProcess(tmp_path, "app = ok", *flags, where=(), target=target) as server:
        assert server.end() == code
    assert "Traceback" not in server.said
    assert "servery: error: " in server.said


def test_a_clean_stop_is_zero(tmp_path, way):
    for number in (signal.SIGTERM, signal.SIGINT):
        with ServerProcess(tmp_path, "app = ok") as server:
            assert server.port
            server.signal(number)
            assert server.end() == 0
        assert "Traceback" not in server.said
