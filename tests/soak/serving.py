"""A server process to be watched, and the sockets of its clients."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import psutil

HERE = os.path.dirname(os.path.abspath(__file__))
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


def connect_many(port: int, count: int) -> Iterator[socket.socket]:
    """`count` of them, from as many addresses as they need."""
    for number in range(count):
        yield connect(port, f"127.0.0.{2 + number // PER_ADDRESS}")


def reset(sock: socket.socket) -> None:
    """Close with RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def pss(process: psutil.Process) -> int:
    """Octets of memory that are this process's own, or its share."""
    return int(process.memory_full_info().pss)


def descriptors(process: psutil.Process) -> int:
    """Descriptors that it has open."""
    return int(process.num_fds())


def cpu(process: psutil.Process) -> float:
    """Seconds of processor time that it has used."""
    return float(sum(process.cpu_times()[:2]))


def established(process: psutil.Process) -> int:
    """Connections that it holds."""
    return sum(1 for item in process.net_connections() if item.status == psutil.CONN_ESTABLISHED)
