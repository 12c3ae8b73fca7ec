"""Long runs that watch memory and descriptors of a server process: ``make soak``, ``make soak ARGS="--minutes
30 --parser native --io reactor --loop uvloop"``.

`idle` opens 10,000 connections from several loopback addresses, each with one answered request, counts them
in the server, states the memory that each costs, and asks on every one of them again. `mixed` sends
ordinary and bad traffic for a while and fails if memory or descriptors grow. `websockets` is like `idle`
with WebSockets, over many pings. `broadcast` tells 5,000 of them the same, and states what that costs; one
that does not read must delay nobody, and be cut in time. Figures are printed; only what must hold is
asserted.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import socket
import time
from functools import partial

import crowds
from serving import connect, connect_many, established, pss, reset, server
from wire_frames import BINARY, Client, close, frame, handshake, text

GET = b"GET / HTTP/1.1\r\nHost: soak\r\n\r\n"
ANSWER_SIZE = 1024
CONNECTIONS = 10_000
REPORT = 2000
"""Connections of mixed traffic between two lines of progress."""
PARTS = ("idle", "mixed", "websockets", "broadcast")


def ask(sock: socket.socket) -> None:
    """One small request on a kept connection; its whole answer is read."""
    sock.sendall(GET)
    received = b""
    while len(received.partition(b"\r\n\r\n")[2]) < ANSWER_SIZE:
        data = sock.recv(4096)
        assert data, "the server closed a kept connection"
        received += data


def idle(flags: list[str]) -> None:
    """Ten thousand idle connections: accepted, counted, weighed, answered again."""
    with server("--timeout-keep-alive", "300", *flags) as (process, port):
        with connect(port) as first:
            for _ in range(500):
                ask(first)
        before, opened = pss(process), []
        for sock in connect_many(port, CONNECTIONS):
            ask(sock)
            opened.append(sock)
        held = established(process)
        each = (pss(process) - before) / CONNECTIONS / 1024
        print(f"idle: {held} connections established in the server, {each:.2f} KiB each")
        assert held == CONNECTIONS
        for sock in opened:
            ask(sock)
        print(f"idle: {CONNECTIONS} answered again")
        for sock in opened:
            sock.close()


def one(port: int, chance: random.Random) -> None:
    """One connection of some kind, good or bad."""
    sock = connect(port)
    try:
        chance.choice(KINDS)(sock, chance)
    finally:
        if chance.random() < 0.5:
            reset(sock)
        else:
            sock.close()


def read_all(sock: socket.socket) -> None:
    while sock.recv(65536):
        pass


def good(sock: socket.socket, chance: random.Random) -> None:
    for _ in range(20):
        ask(sock)


def stream(sock: socket.socket, chance: random.Random) -> None:
    sock.sendall(b"GET /stream HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n")
    if chance.random() < 0.5:
        read_all(sock)
    else:
        sock.recv(1000)


def upload(sock: socket.socket, chance: random.Random) -> None:
    body = os.urandom(chance.randrange(200_000))
    head = b"POST /upload HTTP/1.1\r\nHost: soak\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    sock.sendall(head % len(body) + body)
    read_all(sock)


def half_an_upload(sock: socket.socket, chance: random.Random) -> None:
    sock.sendall(b"POST /upload HTTP/1.1\r\nHost: soak\r\nContent-Length: 100000\r\n\r\n" + b"x" * 500)


def left(sock: socket.socket, chance: random.Random) -> None:
    sock.sendall(b"GET /wait HTTP/1.1\r\nHost: soak\r\n\r\n")


def bad(sock: socket.socket, chance: random.Random) -> None:
    sock.sendall(b"BAD\x00\r\n\r\n")
    read_all(sock)


def part_of_a_head(sock: socket.socket, chance: random.Random) -> None:
    sock.sendall(GET[: chance.randrange(len(GET))])


def websocket(sock: socket.socket, chance: random.Random) -> None:
    """Messages, compressed in half of the cases, and some end."""
    client = Client(sock)
    offer = [b"Sec-WebSocket-Extensions: permessage-deflate"] * chance.randrange(2)
    client.open(*offer)
    for _ in range(5):
        client.send(text("hello"), frame(BINARY, os.urandom(chance.randrange(20_000))))
        client.read()
        client.read()
    client.send(chance.choice((close(), frame(3), frame(BINARY, b"x", size=5000), b"")))


def denied_websocket(sock: socket.socket, chance: random.Random) -> None:
    sock.sendall(handshake(version=b"12") + b"GET / HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n")
    read_all(sock)


KINDS = (
    *(good, stream, stream, upload, half_an_upload, left, bad, part_of_a_head),
    *(websocket, websocket, denied_websocket),
)


def mixed(minutes: float, least: int, most: float, flags: list[str]) -> None:
    """Mixed traffic, `least` connections or more: in their second half memory may grow by `most` MiB."""
    chance = random.Random(7)
    with server(*flags) as (process, port):
        end, count, base = time.monotonic() + minutes * 60, 0, 0
        while time.monotonic() < end or count < least:
            one(port, chance)
            count += 1
            if count == least // 2:
                base = pss(process)
            if count % REPORT == 0:
                memory = pss(process) / 2**20
                print(f"mixed: {count} connections, {memory:.1f} MiB, {process.num_fds()} descriptors")
        with connect(port) as sock:
            ask(sock)
            left = process.num_fds()
        grown = (pss(process) - base) / 2**20
        print(
            f"mixed: {count} connections, memory {grown:+.1f} MiB since the first {least // 2}, "
            f"{left} descriptors"
        )
        assert grown < most, "memory grows"
        assert left < 40, "descriptors are left"


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=(*PARTS, "all"), default="all")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long the mixed traffic lasts")
    parser.add_argument("--pings", type=float, default=60.0, help="seconds that pings last (%(default)s)")
    parser.add_argument("--least", type=int, default=4000, help="connections in any case (%(default)s)")
    parser.add_argument("--most", type=float, default=4.0, help="MiB that memory may grow (%(default)s)")
    for axis in ("parser", "io", "loop"):
        parser.add_argument(f"--{axis}", help=f"the server's --{axis}")
    parser.add_argument("--flags", default="", help="more flags for the server, in one word")
    options = parser.parse_args()
    wanted = CONNECTIONS + 100
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert hard >= wanted or hard == resource.RLIM_INFINITY, (
        f"the limit on open files must be {wanted} at least"
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    flags = [f"--{axis}={value}" for axis in ("parser", "io", "loop") if (value := getattr(options, axis))]
    flags += options.flags.split()
    parts = {
        "idle": partial(idle, flags),
        "mixed": partial(mixed, options.minutes, options.least, options.most, flags),
        "websockets": partial(crowds.idle, options.pings, flags),
        "broadcast": partial(crowds.broadcast, flags),
    }
    for part in PARTS if options.part == "all" else (options.part,):
        parts[part]()


if __name__ == "__main__":
    main()
