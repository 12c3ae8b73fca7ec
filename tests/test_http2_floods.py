"""Floods of HTTP/2 against a process: it stays small, ends the connection, and serves the others."""

from __future__ import annotations

import subprocess
import threading

import hpack
import psutil
import pytest
from h2_peer import GET, POST, PREFACE, Peer, raw
from harness import WAIT, read_to_end
from hyperframe.frame import PingFrame, SettingsFrame
from process import ServerProcess

MEGABYTE = 2**20
APP = """
running = most = 0

async def app(scope, receive, send):
    global running, most
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    if scope["path"] == "/most":
        return await respond(send, str(most).encode())
    running += 1
    most = max(most, running)
    try:
        if scope["path"] == "/big":
            await respond(send, bytes(60_000))
        elif scope["path"] == "/unread":
            await asyncio.sleep(3)
        else:
            await asyncio.sleep(0)
            await respond(send)
    finally:
        running -= 1
"""


def block(fields=GET) -> bytes:
    encoded: bytes = hpack.Encoder().encode(fields, huffman=False)
    return encoded


def rapid_reset(count: int) -> bytes:
    head = block()
    frames = (
        raw(1, 5, 2 * number + 1, head if not number else INDEXED) + raw(3, 0, 2 * number + 1, b"\0\0\0\x08")
        for number in range(count)
    )
    return b"".join(frames)


INDEXED = b"\x82\x86\x84\xbe"
"""The same request with what the first one has put into the table."""

BOMB = block([*GET, ("x", "y" * 4000)]) + b"\xbe" * 12_000

FLOODS = {
    "rapid reset": rapid_reset(20_000),
    "made you reset": b"".join(
        raw(1, 5, 2 * number + 1, INDEXED if number else block()) + raw(8, 0, 2 * number + 1, bytes(4))
        for number in range(20_000)
    ),
    "too many streams": b"".join(
        raw(1, 4, 2 * number + 1, INDEXED if number else block()) for number in range(20_000)
    ),
    "continuation": raw(1, 1, 1) + raw(9, 0, 1) * 100_000,
    "continuation with octets": raw(1, 1, 1, bytes(16_000)) + raw(9, 0, 1, bytes(16_000)) * 500,
    "ping": PingFrame(0, b"12345678").serialize() * 100_000,
    "settings": SettingsFrame(settings={4: 65_535}).serialize() * 50_000,
    "empty data": raw(1, 4, 1, block(POST)) + raw(0, 0, 1) * 100_000,
    "bomb": raw(1, 5, 1, BOMB),
    "unknown frames": raw(0xEE) * 100_000,
}


def at_once(port: int, path: str = "/") -> bytes:
    """A request on a connection of its own, by a client that knows nothing of the flood."""
    import socket

    with socket.create_connection(("127.0.0.1", port), WAIT) as sock:
        sock.sendall(b"GET %b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path.encode())
        return read_to_end(sock).partition(b"\r\n\r\n")[2]


@pytest.fixture(scope="module")
def flooded(way, tmp_path_factory):
    from under_test import chosen

    folder = tmp_path_factory.mktemp("flooded")
    with chosen(way), ServerProcess(folder, APP, "--h2c", "--no-access-log") as server:
        for _ in range(3):  # it has imported what it needs, and knows common fields
            assert at_once(server.port) == b"ok"
            with Peer(server.connect()) as peer:
                assert peer.get(1).content == b"ok"
        yield server
        assert server.stop() == 0
        assert "ERROR" not in server.said


@pytest.mark.parametrize("name", FLOODS)
def test_flood(flooded, name):
    process = psutil.Process(flooded.process.pid)
    before = process.memory_info().rss
    with Peer(flooded.connect(), hello=False) as peer:
        octets = PREFACE + SettingsFrame().serialize() + FLOODS[name]
        sender = threading.Thread(target=peer.send_octets, args=(octets,))
        sender.start()
        assert at_once(flooded.port) == b"ok"
        peer.until(lambda: peer.goaway or peer.closed)
        assert at_once(flooded.port) == b"ok"
        peer.sock.shutdown(2)
        sender.join(WAIT)
    assert process.memory_info().rss - before < 12 * MEGABYTE
    assert int(at_once(flooded.port, "/most")) <= 102


def test_windows_that_stay_shut(flooded):
    process = psutil.Process(flooded.process.pid)
    before = process.memory_info().rss
    with Peer(flooded.connect(), settings={4: 0}) as peer:
        for number in range(100):
            peer.headers(2 * number + 1, [*GET[:2], (":path", "/big"), GET[3]])
        peer.synced()
        assert at_once(flooded.port) == b"ok"
        assert process.memory_info().rss - before < 20 * MEGABYTE
        assert peer.goaway == []


def test_bodies_of_tiny_frames_that_nobody_reads(flooded):
    process = psutil.Process(flooded.process.pid)
    before = process.memory_info().rss
    with Peer(flooded.connect()) as peer:
        for number in range(5):
            stream = 2 * number + 1
            peer.headers(stream, [(":method", "POST"), GET[1], (":path", "/unread"), GET[3]], end=False)
            peer.send_octets(raw(0, 0, stream, b"xy") * 5_000)
        peer.synced()
        assert peer.goaway == []
        assert process.memory_info().rss - before < 12 * MEGABYTE
        assert at_once(flooded.port) == b"ok"


def test_many_requests_on_one_connection_leave_nothing(flooded):
    process = psutil.Process(flooded.process.pid)
    words = ["h2load", "-c", "1", "-m", "20", f"http://127.0.0.1:{flooded.port}/"]
    for count, room in ((1000, 20), (6000, 4)):
        before = process.memory_info().rss
        said = subprocess.run([*words, "-n", str(count)], capture_output=True, text=True, check=True).stdout
        assert f"{count} succeeded" in said
        assert process.memory_info().rss - before < room * MEGABYTE
