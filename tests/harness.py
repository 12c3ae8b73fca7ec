"""A real server on a real socket in a thread of the test process, and the raw clients that talk to it."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import under_test

from servery import Config, Server

WAIT = 10.0
"""Seconds after which something that must happen counts as not happening."""


class Capture(logging.Handler):
    """Keeps the records of one logger."""

    def __init__(self) -> None:
        super().__init__(level=1)
        self.records: list[logging.LogRecord] = []
        self.changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self.changed:
            self.records.append(record)
            self.changed.notify_all()

    def lines(self, level: int = 1) -> list[str]:
        """The messages of at least `level`."""
        return [record.getMessage() for record in self.records if record.levelno >= level]

    def wait(self, count: int) -> list[str]:
        """The messages, once there are `count`."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.records) >= count, WAIT), self.lines()
        return self.lines()


class Running:
    """A server that serves: where it is, what it logged, and its loop for a look inside."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.loop = loop
        self.errors = Capture()
        self.access = Capture()
        self.thread: threading.Thread | None = None

    @property
    def address(self) -> tuple[str, int] | str:
        """What `socket.connect` takes."""
        return self.server.sockets[0].getsockname()

    @property
    def port(self) -> int:
        return int(self.server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def service(self) -> Any:
        """What the server's connections share: look at it with `call`."""
        return self.server.service

    def connect(self, timeout: float = WAIT) -> socket.socket:
        """A client's socket."""
        address = self.address
        sock = socket.socket(socket.AF_UNIX if isinstance(address, str) else self.server.sockets[0].family)
        sock.settimeout(timeout)
        sock.connect(address)
        return sock

    def raw(self, data: bytes, *, shut: bool = False, cuts: list[int] | None = None) -> bytes:
        """Send `data` (cut into several sends), half-close if `shut`, return all octets up to EOF.

        A server that keeps the connection open makes this fail after `WAIT`: send ``Connection: close`` last.
        """
        with self.connect() as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            send_pieces(sock, data, cuts or [])
            if shut:
                sock.shutdown(socket.SHUT_WR)
            return read_to_end(sock)

    def stop(self) -> None:
        """Graceful stop; waits for it."""
        self.server.should_exit = True
        assert self.thread is not None
        self.thread.join(WAIT * 4)
        assert not self.thread.is_alive(), "the server did not stop"

    def call(self, function: Callable[[], Any]) -> Any:
        """Run `function` in the server's loop."""
        done: Any = asyncio.run_coroutine_threadsafe(_call(function), self.loop)
        return done.result(WAIT)


async def _call(function: Callable[[], Any]) -> Any:
    return function()


def send_pieces(sock: socket.socket, data: bytes, cuts: list[int]) -> None:
    """Send `data` in the pieces that `cuts` makes; a peer that has closed is no error."""
    at = 0
    try:
        for cut in [*cuts, len(data)]:
            sock.sendall(data[at:cut])
            at = cut
    except (ConnectionResetError, BrokenPipeError):
        pass


def read_to_end(sock: socket.socket) -> bytes:
    """Everything up to EOF."""
    received = b""
    while data := sock.recv(65536):
        received += data
    return received


def read_response(
    sock: socket.socket, buffer: bytes = b"", *, head_only: bool = False
) -> tuple[bytes, bytes, bytes]:
    """(head, body, what came after) of one response framed by Content-Length or chunks."""
    while b"\r\n\r\n" not in buffer:
        data = sock.recv(65536)
        assert data, f"connection closed inside of a head: {buffer!r}"
        buffer += data
    head, _, rest = buffer.partition(b"\r\n\r\n")
    lower = head.lower()
    if head_only or head.split(b" ")[1] in (b"204", b"304") or head.startswith(b"HTTP/1.1 1"):
        return head, b"", rest
    if b"transfer-encoding: chunked" in lower:
        while b"0\r\n\r\n" not in rest:
            data = sock.recv(65536)
            assert data, f"connection closed inside of a chunked body: {rest!r}"
            rest += data
        body, _, rest = rest.partition(b"0\r\n\r\n")
        return head, body, rest
    length = int(lower.partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(rest) < length:
        data = sock.recv(65536)
        assert data, f"connection closed inside of a body: {rest!r}"
        rest += data
    return head, rest[:length], rest[length:]


def statuses(received: bytes) -> list[bytes]:
    """The status codes of all responses in `received`."""
    return re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", received)


def reset(sock: socket.socket) -> None:
    """Close with RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def eventually(condition: Callable[[], Any], what: str = "") -> Any:
    """Wait until `condition` holds: for what another process or thread does without telling."""
    end = time.monotonic() + WAIT
    while not (result := condition()):
        assert time.monotonic() < end, f"did not happen: {what or condition}"
        time.sleep(0.01)
    return result


def new_loop(kind: str) -> asyncio.AbstractEventLoop:
    """An event loop of the kind that ``--loop`` names."""
    if kind == "uvloop":
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


@contextmanager
def running(app: Any, **settings: Any) -> Iterator[Running]:
    """Serve `app` in a thread until the block ends; `settings` are those of `servery.Config`.

    It runs in the way under test, unless `settings` name a parser.
    """
    if "parser" not in settings:
        settings = {**under_test.current().settings, **settings}
    settings = {"port": 0, "lifespan": "off", "timeout_graceful_shutdown": 2.0, **settings}
    if "uds" in settings or "bind" in settings or "fd" in settings:
        del settings["port"]
    config = Config(app=app, **settings)
    loop = new_loop(config.loop)
    running = Running(Server(config), loop)
    failure: list[BaseException] = []
    ready = threading.Event()

    async def main() -> None:
        serving = asyncio.ensure_future(running.server.serve())
        while not running.server.started and not serving.done():
            await asyncio.sleep(0.001)
        for name, capture in (("servery.error", running.errors), ("servery.access", running.access)):
            logger = logging.getLogger(name)
            logger.handlers[:] = [capture]
        ready.set()
        await serving

    def body() -> None:
        try:
            loop.run_until_complete(main())
            loop.run_until_complete(loop.shutdown_asyncgens())
        except BaseException as error:
            failure.append(error)
        finally:
            ready.set()
            loop.close()

    running.thread = threading.Thread(target=body, name="server", daemon=True)
    running.thread.start()
    assert ready.wait(WAIT), "the server did not start"
    if failure:
        raise failure[0]
    try:
        yield running
    finally:
        running.stop()
        if failure:
            raise failure[0]
