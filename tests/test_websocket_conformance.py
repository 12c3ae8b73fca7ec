"""The rules of RFC 6455 and RFC 7692, one by one, on real connections: ``make conformance`` in some seconds.

The cases are our own: `websocket_cases`. Each is played with its octets sent at once and one by one.
"""

from __future__ import annotations

import random
import socket
import zlib

import pytest
from websocket_cases import GROUPS
from wire_frames import BINARY, CLOSE, TEXT, Client, Frame, close, frame

BYTEWISE = 300
"""Octets of a step that are sent one by one at most."""


async def echo(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})


def send(client, octets, bytewise):
    if not bytewise:
        client.send(octets)
        return
    for octet in octets:
        client.send(bytes((octet,)))


def play(client, case, bytewise):
    """What went wrong, for a reader; empty if nothing did."""
    steps = case if isinstance(case[-1], int) else (*case, close(1000), 1000)
    for number, step in enumerate(steps):
        if isinstance(step, bytes):
            try:
                send(client, step, bytewise and len(step) <= BYTEWISE)
            except (BrokenPipeError, ConnectionResetError):  # the fault was found before its last octet
                continue
        else:
            found = client.read()
            if isinstance(step, int) and found is not None and found.opcode == CLOSE:
                found = found.code
            if found != step:
                return f"step {number}: {step!r:.100} was expected, and {found!r:.100} came"
    try:
        return "" if client.read() is None else "the server did not end the connection"
    except ConnectionResetError:  # the client went on sending behind its close
        return ""


@pytest.mark.parametrize("bytewise", [False, True], ids=["at once", "by octet"])
@pytest.mark.parametrize("group", GROUPS)
def test_cases(serve, group, bytewise):
    with serve(echo, access_log=False) as server:
        for number, case in enumerate(GROUPS[group]):
            with server.connect() as sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                client = Client(sock)
                client.open()
                assert play(client, case, bytewise) == "", (number, str(case)[:1000])
    assert server.errors.lines(30) == []


# --- RFC 7692 --------------------------------------------------------------------------------------------

TAIL = b"\x00\x00\xff\xff"
BOTH = b"server_no_context_takeover; client_no_context_takeover"
OFFERS = {
    "nothing": (b"", {}),
    "no context": (BOTH, {}),
    "small windows": (b"server_max_window_bits=9; client_max_window_bits=9", {}),
    "small windows, no context": (b"server_max_window_bits=9; client_max_window_bits=9; " + BOTH, {}),
    "largest windows": (b"server_max_window_bits=15; client_max_window_bits", {"ws_deflate_window_bits": 15}),
    "largest windows, no context": (
        b"server_max_window_bits=15; client_max_window_bits; " + BOTH,
        {"ws_deflate_window_bits": 15, "ws_deflate_memory_level": 9},
    ),
    "the server's wishes": (
        b"client_max_window_bits",
        {"ws_deflate_context_takeover": False, "ws_deflate_window_bits": 10, "ws_deflate_min_size": 0},
    ),
}
SIZES = (0, 16, 64, 256, 1024, 4096, 8192, 65_536, 131_072)
MESSAGES = 4


class Peer:
    """A client's compression, exactly as the head of the answer says it shall be."""

    def __init__(self, head):
        line = head.lower().partition(b"\r\nsec-websocket-extensions: ")[2].partition(b"\r\n")[0]
        name, *parameters = line.split(b"; ")
        assert name == b"permessage-deflate"
        self.agreed = dict(part.partition(b"=")[::2] for part in parameters)
        self.out = self.into = None

    def bits(self, side):
        return int(self.agreed.get(side + b"_max_window_bits", 15))

    def forgets(self, side):
        return side + b"_no_context_takeover" in self.agreed

    def deflate(self, content):
        if self.out is None or self.forgets(b"client"):
            self.out = zlib.compressobj(wbits=-self.bits(b"client"))
        return (self.out.compress(content) + self.out.flush(zlib.Z_SYNC_FLUSH))[:-4]

    def inflate(self, octets):
        if self.into is None or self.forgets(b"server"):
            self.into = zlib.decompressobj(wbits=-self.bits(b"server"))
        return self.into.decompress(octets + TAIL)


def contents(size, chance):
    """Text that repeats itself, and octets that do not."""
    words = [b'{"name": "', b'", "value": ', "é".encode(), b"}, ", b"%d" % chance.randrange(1000)]
    text = b"".join(chance.choices(words, k=size // 4 + 1))[:size].decode(errors="ignore").encode()
    return (TEXT, text), (BINARY, chance.randbytes(size))


@pytest.mark.parametrize("offer", OFFERS)
def test_compression(serve, offer):
    parameters, settings = OFFERS[offer]
    fields = b"Sec-WebSocket-Extensions: permessage-deflate" + b"; " * bool(parameters) + parameters
    chance = random.Random(offer)
    with serve(echo, access_log=False, **settings) as server:
        for size in SIZES:
            with server.connect() as sock:
                client = Client(sock)
                client.open(fields)
                peer = Peer(client.head)
                for opcode, content in contents(size, chance) * MESSAGES:
                    client.send(frame(opcode, peer.deflate(content), rsv=4))
                    answer = client.read()
                    if answer.rsv:
                        answer = Frame(answer.opcode, peer.inflate(answer.payload))
                    assert answer == Frame(opcode, content), size
                client.send(close(1000))
                assert client.read_to_close() == [Frame(CLOSE, b"\x03\xe8")]
    assert server.errors.lines(30) == []
