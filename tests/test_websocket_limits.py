"""How much a message may have, and what one may cost before it is whole: on real connections."""

from __future__ import annotations

import random
import socket
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from wire_frames import BINARY, CONTINUATION, PING, PONG, TEXT, Client, Frame, frame

from servery.limits import DEFAULTS

DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate"
LIMIT = 4000


async def weigh(scope, receive, send):
    """Answers each message with its length and its checksum."""
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        text = message.get("text")
        content = message["bytes"] if text is None else text.encode()
        await send({"type": "websocket.send", "text": weight(content)})


def weight(content: bytes) -> str:
    return f"{len(content)} {zlib.crc32(content)}"


@contextmanager
def connected(server, *fields: bytes) -> Iterator[Client]:
    """An open WebSocket; ``Sec-WebSocket-Extensions`` is answered if it is among `fields`."""
    with server.connect() as sock:
        client = Client(sock)
        assert client.open(*fields).startswith(b"HTTP/1.1 101 ")
        assert (b"\r\nsec-websocket-extensions: " in client.head) is (DEFLATE in fields)
        yield client


def deflated(content: bytes, flushes: int = 0) -> bytes:
    """The content of a compressed message, with empty blocks of zlib's inside."""
    compressor = zlib.compressobj(wbits=-15)
    step = len(content) // (flushes + 1) + 1
    octets = b""
    for at in range(0, len(content), step):
        octets += compressor.compress(content[at : at + step])
        octets += compressor.flush(zlib.Z_FULL_FLUSH if at + step < len(content) else zlib.Z_SYNC_FLUSH)
    return octets[:-4]


def in_frames(opcode: int, octets: bytes, count: int, rsv: int) -> bytes:
    """One message in `count` frames."""
    step = -(-len(octets) // count)
    parts = [octets[at : at + step] for at in range(0, len(octets), step)]
    data = frame(opcode, parts[0], final=len(parts) == 1, rsv=rsv)
    for number, part in enumerate(parts[1:], 2):
        data += frame(CONTINUATION, part, final=number == len(parts))
    return data


@contextmanager
def peak_below(most: int) -> Iterator[None]:
    """The process, which is client and server, may not hold `most` octets more at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


# --- to the octet ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("how", ["plain", "compressed", "compressed in blocks"])
def test_a_message_of_the_limit_is_delivered_and_one_of_an_octet_more_is_1009(serve, how, opcode):
    noise = bytes(random.Random(1).choices(range(32, 127), k=LIMIT + 3))
    fields, rsv = ((), 0) if how == "plain" else ((DEFLATE,), 4)
    with serve(weigh, ws_max_size=LIMIT) as server:
        for over in (-2, -1, 0, 1, 2, 3):
            content = noise[: LIMIT + over]
            octets = content if not rsv else deflated(content, 7 if "blocks" in how else 0)
            for frames in (1, 2, 40):
                with connected(server, *fields) as client:
                    client.send(in_frames(opcode, octets, frames, rsv))
                    if over <= 0:
                        assert client.read() == Frame(TEXT, weight(content).encode())
                    else:
                        assert [one.code for one in client.read_to_close()] == [1009]
    assert server.errors.lines(30) == []


def test_the_default_limit(serve):
    most = DEFAULTS.ws_max_size
    head = frame(BINARY, size=most, mask=bytes(4))
    with serve(weigh) as server:
        with connected(server) as client:
            client.send(head, bytes(most))
            assert client.read() == Frame(TEXT, weight(bytes(most)).encode())
            client.send(frame(BINARY, size=most + 1))
            assert [one.code for one in client.read_to_close()] == [1009]


def test_the_fragment_that_goes_over_the_limit_is_refused_by_its_head(serve):
    with serve(weigh, ws_max_size=1 << 20) as server, connected(server) as client:
        part = bytes(30_000)
        client.send(frame(BINARY, part, final=False))
        for _ in range(33):
            client.send(frame(CONTINUATION, part, final=False))
        client.send(frame(PING, b"34 of them"))
        assert client.read() == Frame(PONG, b"34 of them")
        client.send(frame(CONTINUATION, size=30_000, final=False))
        assert [one.code for one in client.read_to_close()] == [1009]


# --- what it costs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1_100_000, 64 << 20])
def test_a_bomb_costs_its_limit_and_no_more(serve, size):
    compressor = zlib.compressobj(level=9, wbits=-15)
    octets = b"".join(compressor.compress(bytes(min(size - at, 1 << 20))) for at in range(0, size, 1 << 20))
    octets = (octets + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]
    data = frame(BINARY, octets, rsv=4)
    with serve(weigh, ws_max_size=1 << 20) as server, connected(server, DEFLATE) as client:
        with peak_below(4 << 20):
            client.send(data)
            assert [one.code for one in client.read_to_close()] == [1009]


def test_a_frame_that_drips_costs_its_size(serve):
    size, dripped = 1 << 20, 8000
    with serve(weigh) as server, connected(server) as client:
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with peak_below(4 << 20):
            client.send(frame(BINARY, size=size, mask=bytes(4)))
            for _ in range(dripped):
                client.send(b"x")
            client.send(b"x" * (size - dripped))
            assert client.read() == Frame(TEXT, weight(b"x" * size).encode())


# --- what was not agreed on ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parameters",
    [
        b"server_max_window_bits=7",
        b"server_max_window_bits=8",
        b"server_max_window_bits=16",
        b"client_max_window_bits=7",
        b"server_no_context_takeover; server_no_context_takeover",
        b"server_no_context_takeover=1",
        b"unknown",
    ],
)
def test_an_offer_that_cannot_be_taken_is_declined_and_nothing_is_inflated(serve, parameters):
    with serve(weigh) as server:
        with connected(server, DEFLATE + b"; " + parameters) as client:
            client.send(frame(TEXT, b"plain"))
            assert client.read() == Frame(TEXT, weight(b"plain").encode())
            client.send(frame(TEXT, deflated(b"x" * 100), rsv=4))
            assert [one.code for one in client.read_to_close()] == [1002]


@pytest.mark.parametrize("rsv", [1, 2, 3, 4, 5, 6, 7])
def test_reserved_bits_mean_nothing_where_nothing_was_agreed_on(serve, rsv):
    with serve(weigh) as server, connected(server) as client:
        client.send(frame(TEXT, b"x", rsv=rsv))
        assert [one.code for one in client.read_to_close()] == [1002]


@pytest.mark.parametrize("rsv", [1, 2, 3, 5, 6, 7])
def test_compression_gives_a_meaning_to_one_of_them(serve, rsv):
    with serve(weigh) as server, connected(server, DEFLATE) as client:
        client.send(frame(TEXT, deflated(b"x" * 200), rsv=rsv))
        assert [one.code for one in client.read_to_close()] == [1002]
