"""Neither side piles up data: reading pauses while nobody reads, send() waits for the client."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import select
import socket
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from harness import WAIT, read_response
from sample_apps import body, read_body, respond, start

POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"


async def count(scope, receive, send):
    """Answers with the number of octets and messages of the body."""
    total = messages = 0
    more = True
    while more:
        message = await receive()
        total += len(message["body"])
        messages += 1
        more = message["more_body"]
    await respond(send, b"%d %d" % (total, messages))


@pytest.fixture
def grown():
    """Octets by which this process has grown since the test began."""
    gc.collect()
    process = psutil.Process(os.getpid())
    before = process.memory_info().rss
    return lambda: process.memory_info().rss - before


def fill(sock, block):
    """Send `block` until the peer takes no more; the octets that were sent."""
    sock.setblocking(False)
    sent = 0
    while select.select((), (sock,), (), 0.3)[1]:
        sent += sock.send(block)
        assert sent < 100_000_000, "the server reads without end"
    sock.settimeout(WAIT)
    return sent


def test_a_body_that_nobody_reads_waits_in_the_network(serve, grown):
    go = []
    entered = threading.Event()

    async def app(scope, receive, send):
        gate = asyncio.Event()
        go.append(gate.set)
        entered.set()
        await gate.wait()
        await count(scope, receive, send)

    size = 100_000_000
    with serve(app) as server, server.connect() as sock:
        sock.sendall(POST % size)
        assert entered.wait(WAIT)
        block = b"x" * 65536
        sent = fill(sock, block)
        assert grown() < 5_000_000
        server.call(go[0])
        while sent < size:
            sent += sock.send(block[: size - sent])
        assert read_response(sock)[1].startswith(b"100000000 ")
        assert grown() < 10_000_000


def test_a_body_of_one_octet_chunks_is_read_in_few_messages(serve):
    size = 30_000
    with serve(count) as server, server.connect() as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        sock.sendall(b"1\r\nx\r\n" * size + b"0\r\n\r\n")
        total, messages = map(int, read_response(sock)[1].split())
    assert total == size
    assert messages < 300


@pytest.mark.parametrize("framing", ("length", "chunks"))
def test_a_body_in_tiny_writes_does_not_cost_a_multiple_of_its_size(serve, framing):
    """Octets that nobody has taken yet are kept together, not as one object for each write."""
    go = []
    entered = threading.Event()
    size = 20_000

    async def app(scope, receive, send):
        gate = asyncio.Event()
        go.append(gate.set)
        entered.set()
        await gate.wait()
        await respond(send, await read_body(receive))

    piece = b"x" if framing == "length" else b"1\r\nx\r\n"
    head = (
        POST % size
        if framing == "length"
        else POST.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked")
    )
    with serve(app) as server, server.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(head)
        assert entered.wait(WAIT)
        tracemalloc.start()
        try:
            for _ in range(size):
                sock.send(piece)
            sock.sendall(b"" if framing == "length" else b"0\r\n\r\n")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        server.call(go[0])
        assert read_response(sock)[1] == b"x" * size
    assert peak < 4_000_000


def test_send_waits_for_a_slow_reader(serve, grown):
    progress = []

    async def app(scope, receive, send):
        await start(send)
        for part in range(1000):
            await body(send, b"x" * 65536, True)
            progress.append(part)
        await body(send)

    with serve(app) as server, server.connect() as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        sock.recv(1)
        before = -1
        while before != len(progress):  # as long as buffers take more
            before = len(progress)
            threading.Event().wait(0.2)
        assert len(progress) < 500
        assert grown() < 5_000_000
        received = 1
        while data := sock.recv(1 << 20):
            received += len(data)
    assert received > 65_536_000
    assert len(progress) == 1000


def test_pipelined_requests_wait_until_the_client_reads(serve, grown):
    answered = []

    async def app(scope, receive, send):
        answered.append(scope["path"])
        await respond(send, b"x" * 1_000_000)

    with serve(app) as server, server.connect() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 100)
        sock.recv(1)
        before = -1
        while before != len(answered):
            before = len(answered)
            threading.Event().wait(0.2)
        assert len(answered) < 50
        assert grown() < 8_000_000
        left = 100 * 1_000_000
        while left > 0:
            left -= len(sock.recv(1 << 20))
    assert len(answered) == 100


@pytest.mark.parametrize("seed", range(2))
def test_no_wake_up_is_lost_between_readers_and_writers(serve, seed):
    """Many connections whose application now reads first, now answers first, now reads only a part."""

    async def app(scope, receive, send):
        number = int(scope["path"][1:])
        if number % 3 == 0:
            await respond(send, b"early")
        elif number % 3 == 1:
            await respond(send, b"%d" % len(await read_body(receive)))
        else:
            await receive()
            await asyncio.sleep(0)
            await respond(send, b"part")

    def client(number):
        random_ = random.Random(seed * 100 + number)
        answers = []
        with server.connect() as sock:
            for at in range(30):
                size = random_.choice((0, 1, 1000, 60_000, 65_536, 65_537))
                data = (
                    b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (at, size) + b"x" * size
                )
                cut = random_.randrange(len(data))
                sock.sendall(data[:cut])
                sock.sendall(data[cut:])
                head, content, rest = read_response(sock)
                assert rest == b""
                answers.append(content)
                if b"connection: close" in head.lower():  # more was left unread than is worth dropping
                    break
        return answers

    with serve(app, limit_drain_size=65_537) as server, ThreadPoolExecutor(8) as pool:
        for answers in pool.map(client, range(8)):
            assert len(answers) == 30
            assert answers[::3] == [b"early"] * 10
            assert answers[2::3] == [b"part"] * 10


def test_a_large_response_in_one_message(serve):
    size = 20_000_000

    async def app(scope, receive, send):
        await respond(send, b"x" * size)

    with serve(app) as server:
        received = server.raw(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert len(received.partition(b"\r\n\r\n")[2]) == size


def test_other_clients_are_served_while_one_does_not_read(serve):
    async def app(scope, receive, send):
        if scope["path"] == "/endless":
            await start(send)
            while True:
                await body(send, b"x" * 65536, True)
        await respond(send)

    with serve(app) as server, server.connect() as stuck, server.connect() as good:
        stuck.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        stuck.recv(1)
        for _ in range(50):
            good.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert read_response(good)[1] == b"ok"
