"""Crowds of clients that leave in every way there is: nothing of them stays, whoever owns the sockets.

After each crowd the server's process holds as many connections, descriptors, tasks, deadlines and watched
sockets as before it, and sooner or later not more memory than the crowd before has left behind. The collector
is off.
"""

from __future__ import annotations

import contextlib
import gc
import json
import signal
import socket
import subprocess
import sys

import pytest
from harness import WAIT, eventually, read_response, read_to_end, reset, statuses
from holdings import at_rest, holdings, memory
from sample_apps import Gone, body, respond, start

from servery import ClientDisconnected

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /%b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
BLOCK = b"x" * 65_536
LARGE = 100 * len(BLOCK)
"""Octets of a response that no buffers on the way hold."""

MANY = 20
GROWTH = 1_000_000
"""Octets of memory by which the process may differ between two crowds."""

CROWDS_AT_MOST = 8
"""Until then the allocator has seen it all: a process that has grown with each of them would go on."""

CLIENT = """
import json, socket, sys, threading
where, upload, download, count = json.load(sys.stdin)
socks = [socket.create_connection(tuple(where)) for _ in range(count)]

def transfer(number, sock):
    sock.sendall((upload if number % 2 else download).encode())
    if number % 2:
        while True:
            sock.sendall(bytes(65536))
    while True:
        sock.recv(1000)
        told.release()

told = threading.Semaphore(0)
for pair in enumerate(socks):
    threading.Thread(target=transfer, args=pair, daemon=True).start()
for _ in range(count):
    told.acquire()
print("under way", flush=True)
threading.Event().wait()
"""
"""Uploads and downloads, half of each, that never end by themselves."""


async def drop_body(receive):
    """Read the request body. Raises `Gone` if the client leaves before its end."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        if not message["more_body"]:
            return


class Crowded:
    """An application for crowds; `ended` are the paths of the calls that are over, and what ended them."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, type[BaseException] | None]] = []

    async def __call__(self, scope, receive, send):
        path, error = scope["path"], None
        try:
            await self.answer(path, receive, send)
        except (OSError, Gone) as gone:
            error = type(gone)
        if path != "/probe":
            self.ended.append((path, error))

    async def answer(self, path, receive, send):
        """Answer as the path says."""
        if path == "/endless":
            await start(send)
            while True:
                await body(send, BLOCK, True)
        elif path == "/large":
            await start(send, 200, [(b"content-length", b"%d" % LARGE)])
            for _ in range(LARGE // len(BLOCK)):
                await body(send, BLOCK, True)
            await body(send)
        elif path == "/wait":
            while (await receive())["type"] != "http.disconnect":
                pass
        else:
            await drop_body(receive)
            await respond(send)


@contextlib.contextmanager
def small_windows(server, count=MANY):
    """Sockets of clients that take little before somebody reads from them."""
    with contextlib.ExitStack() as stack:
        socks = []
        for _ in range(count):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            sock.settimeout(WAIT)
            sock.connect(server.address)
            socks.append(sock)
        yield socks


# --- crowds -------------------------------------------------------------------------------------------


def killed(server, app):
    """kill -9 while they send and receive."""
    upload, download = (POST % (b"", 1 << 40)).decode(), (GET % b"endless").decode()
    command = [sys.executable, "-I", "-S", "-c", CLIENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(json.dumps([server.address, upload, download, MANY]).encode())
        client.stdin.close()
        assert client.stdout.readline() == b"under way\n"
        client.send_signal(signal.SIGKILL)
    eventually(lambda: len(app.ended) == MANY, "the application is told of all")
    assert set(app.ended) == {("/", Gone), ("/endless", ClientDisconnected)}


def slow(server, app):
    """They read a little now and then, and leave in the middle."""
    with small_windows(server) as socks:
        for sock in socks:
            sock.sendall(GET % b"endless")
        for _ in range(5):
            for sock in socks:
                assert sock.recv(2000)
    eventually(lambda: len(app.ended) == MANY)
    assert set(app.ended) == {("/endless", ClientDisconnected)}


def stuck(server, app):
    """Every buffer on the way is full; half of them close, half reset; one reads on to the end."""
    with small_windows(server) as socks:
        for sock in socks:
            sock.sendall(GET % b"large")
        for sock in socks:
            assert sock.recv(1)
        assert app.ended == []
        assert len(read_response(socks[0], b"H")[1]) == LARGE
        for sock in socks[1::2]:
            reset(sock)
    eventually(lambda: len(app.ended) == MANY)
    assert app.ended.count(("/large", None)) == 1
    assert app.ended.count(("/large", ClientDisconnected)) == MANY - 1


def half_closed(server, app):
    """FIN first, then they read: an answer, a large answer, none at all; or they leave without reading."""
    requests = (GET % b"", GET % b"large", GET % b"wait", POST % (b"", 10) + b"half", GET[:10], b"")
    with small_windows(server, 2 * len(requests)) as socks:
        for sock, data in zip(socks, requests * 2, strict=True):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        answers = [read_to_end(sock) for sock in socks[: len(requests)]]
    assert answers[0].endswith(b"\r\n\r\nok")
    assert len(answers[1]) > LARGE
    assert [statuses(answer) for answer in answers[2:]] == [[], [b"400"], [b"400"], []]
    eventually(lambda: len(app.ended) == 8)


CROWDS = (killed, slow, stuck, half_closed)


@pytest.mark.parametrize("crowd", CROWDS)
def test_nothing_is_left_of_a_crowd(serve, no_collector, crowd):
    app = Crowded()
    with empty(serve, app) as (server, before):
        sizes = []
        for _ in range(CROWDS_AT_MOST):
            crowd(server, app)
            leave_nothing(server, before)
            app.ended.clear()
            sizes.append(memory())
            if len(sizes) > 1 and sizes[-1] - sizes[-2] < GROWTH:
                break
        else:
            pytest.fail(f"memory grows: {sizes}")


def test_nothing_is_left_of_ten_thousand_that_connect_and_reset(serve, no_collector):
    """Some have sent something: half a head, or a request that is being answered."""

    def storm(batches, batch=250):
        for number in range(batches):
            socks = [server.connect() for _ in range(batch)]
            for sock in socks[number % 3 :: 3]:
                sock.send(GET % b"wait" if number % 2 else GET[:10])
            for sock in socks:
                reset(sock)
            gc.collect()  # asyncio's transports refer to themselves

    with empty(serve, Crowded()) as (server, before):
        storm(4)
        leave_nothing(server, before)
        held = memory()
        storm(40)
        leave_nothing(server, before)
        assert memory() - held < 4 * GROWTH


@contextlib.contextmanager
def empty(serve, app):
    """A server that waits for everything for ever; with what it holds before anybody comes."""
    times = {f"timeout_{name}": 3600 for name in ("keep_alive", "first_byte", "head", "body", "write")}
    with serve(app, access_log=False, log_level="warning", backlog=1000, **times) as server:
        yield server, at_rest(server)
        assert server.errors.lines(30) == []


def leave_nothing(server, before):
    """Wait until the server holds what it held before, and see that it serves."""
    eventually(lambda: holdings(server) == before, f"{before}")
    with server.connect() as sock:
        sock.sendall(GET % b"probe")
        assert read_response(sock)[1] == b"ok"
