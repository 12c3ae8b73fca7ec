"""Long runs that watch memory and descriptors of a server process: ``make soak``, ``make soak ARGS="--minutes
30 --parser native --io reactor --loop uvloop"``.

Two parts. `idle` opens 10,000 connections from several loopback addresses, each with one answered request,
counts them in the server, states the memory that each costs, and asks on every one of them again. `mixed`
sends ordinary and bad traffic for a while and fails if memory or descriptors grow. Figures are printed; only
what must hold is asserted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil

HERE = os.path.dirname(os.path.abspath(__file__))
GET = b"GET / HTTP/1.1\r\nHost: soak\r\n\r\n"
ANSWER_SIZE = 1024
CONNECTIONS = 10_000
REPORT = 2000
"""Connections of mixed traffic between two lines of progress."""
PER_ADDRESS = 5_000
"""Connections from one source address: the kernel has some 28,000 ports for each."""


@contextlib.contextmanager
def server(*flags: str) -> Iterator[tuple[psutil.Process, int]]:
    """A server process and its port."""
    command = [sys.executable, "-m", "servery", "app:app", "--port", "0", "--no-access-log", *flags]
    process = subprocess.Popen(command, cwd=HERE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    print(line.strip())
    try:
        yield psutil.Process(process.pid), int(line.rpartition(":")[2])
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
        assert code == 0, f"the server ended with {code}"


def connect(port: int, source: str = "127.0.0.1") -> socket.socket:
    """A client's socket from the loopback address `source`."""
    sock = socket.socket()
    sock.settimeout(30)
    sock.bind((source, 0))
    sock.connect(("127.0.0.1", port))
    return sock


def ask(sock: socket.socket) -> None:
    """One small request on a kept connection; its whole answer is read."""
    sock.sendall(GET)
    received = b""
    while len(received.partition(b"\r\n\r\n")[2]) < ANSWER_SIZE:
        data = sock.recv(4096)
        assert data, "the server closed a kept connection"
        received += data


def pss(process: psutil.Process) -> int:
    """Octets of memory that are this process's own, or its share."""
    return int(process.memory_full_info().pss)


def idle(flags: list[str]) -> None:
    """Ten thousand idle connections: accepted, counted, weighed, answered again."""
    with server("--timeout-keep-alive", "300", *flags) as (process, port):
        with connect(port) as first:
            for _ in range(500):
                ask(first)
        before, opened = pss(process), []
        for number in range(CONNECTIONS):
            sock = connect(port, f"127.0.0.{2 + number // PER_ADDRESS}")
            ask(sock)
            opened.append(sock)
        held = sum(1 for item in process.net_connections() if item.status == psutil.CONN_ESTABLISHED)
        each = (pss(process) - before) / CONNECTIONS / 1024
        print(f"idle: {held} connections established in the server, {each:.2f} KiB each")
        assert held == CONNECTIONS
        for sock in opened:
            ask(sock)
        print(f"idle: {CONNECTIONS} answered again")
        for sock in opened:
            sock.close()


def reset(sock: socket.socket) -> None:
    """Close with RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def one(port: int, chance: random.Random) -> None:
    """One connection of some kind, good or bad."""
    kind = chance.randrange(8)
    sock = connect(port)
    try:
        if kind == 0:
            for _ in range(20):
                ask(sock)
        elif kind == 1:
            sock.sendall(b"GET /stream HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n")
            while sock.recv(65536):
                pass
        elif kind == 2:
            sock.sendall(b"GET /stream HTTP/1.1\r\nHost: soak\r\n\r\n")
            sock.recv(1000)
        elif kind == 3:
            body = os.urandom(chance.randrange(200_000))
            head = b"POST /upload HTTP/1.1\r\nHost: soak\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            sock.sendall(head % len(body) + body)
            while sock.recv(65536):
                pass
        elif kind == 4:
            sock.sendall(
                b"POST /upload HTTP/1.1\r\nHost: soak\r\nContent-Length: 100000\r\n\r\n" + b"x" * 500
            )
        elif kind == 5:
            sock.sendall(b"GET /wait HTTP/1.1\r\nHost: soak\r\n\r\n")
        elif kind == 6:
            sock.sendall(b"BAD\x00\r\n\r\n")
            while sock.recv(65536):
                pass
        else:
            sock.sendall(GET[: chance.randrange(len(GET))])
    finally:
        if chance.random() < 0.5:
            reset(sock)
        else:
            sock.close()


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
    parser.add_argument("--part", choices=("idle", "mixed", "all"), default="all")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long the mixed traffic lasts")
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
    if options.part in ("idle", "all"):
        idle(flags)
    if options.part in ("mixed", "all"):
        mixed(options.minutes, options.least, options.most, flags)


if __name__ == "__main__":
    main()
