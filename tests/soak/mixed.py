"""A long run of everything at once on a master and its workers: does memory grow, do descriptors stay?

``python tests/soak/mixed.py --minutes 30 --parser native --io reactor``, or ``make soak WHAT=mixed``: kept
connections, new ones all the time, uploads, streams, WebSockets, aborts of all kinds, and metrics that are
read. Memory (PSS) and descriptors of the master and of each worker are sampled all the while. A process is
judged by what it has in the median of the last third of the samples, over that of the first third: what is
filled once (caches, arenas) is there then, and a leak goes on. Fails if that is more than `--most-memory` or
`--most-descriptors`, if a worker was replaced, or an answer was wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scraping import Scraper
from serving import connect, descriptors, pss, reset, server
from wire_frames import BINARY, Client, close, frame, text

ANSWER = 1024
GET = b"GET / HTTP/1.1\r\nHost: soak\r\n\r\n"
STREAM = b"GET /stream HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n"
UPLOAD = b"POST /upload HTTP/1.1\r\nHost: soak\r\nContent-Length: %d\r\n\r\n"
STREAMED = ANSWER * 16 * 20 + ANSWER
WARM_UP = 10.0
"""Seconds before the first sample: what every process does once is done."""


# --- what clients do -------------------------------------------------------------------------------------


def read_answer(sock: object, size: int = ANSWER) -> None:
    """A whole response with this content, framed by its length, by chunks or by the end of the connection."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += data if (data := sock.recv(65536)) else cut(received)
    head, _, content = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    chunked = b"transfer-encoding: chunked" in head.lower()
    while not content.endswith(b"0\r\n\r\n") if chunked else len(content) < size:
        content += data if (data := sock.recv(65536)) else cut(content)
    assert content.count(b"x") == size, len(content)


def cut(received: bytes) -> bytes:
    """What there is to say of an answer that is not whole."""
    raise AssertionError(f"cut after {len(received)} octets")


def kept(port: int, chance: random.Random) -> None:
    """Many requests on one connection."""
    with connect(port) as sock:
        for _ in range(100):
            sock.sendall(GET)
            read_answer(sock)


def pipelined(port: int, chance: random.Random) -> None:
    """Many at once, whose answers are read by their size."""
    with connect(port) as sock:
        sock.sendall(GET * 15 + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        received = b""
        while data := sock.recv(65536):
            received += data
        assert received.count(b"HTTP/1.1 200 OK") == 16


def churned(port: int, chance: random.Random) -> None:
    """A connection for each request."""
    for _ in range(20):
        with connect(port) as sock:
            sock.sendall(GET)
            read_answer(sock)


def streamed(port: int, chance: random.Random) -> None:
    """A long answer, read to its end."""
    with connect(port) as sock:
        sock.sendall(STREAM)
        read_answer(sock, STREAMED)


def uploaded(port: int, chance: random.Random) -> None:
    """Contents of any size."""
    with connect(port) as sock:
        for _ in range(5):
            body = bytes(chance.randrange(300_000))
            sock.sendall(UPLOAD % len(body) + body)
            read_answer(sock)


def talked(port: int, chance: random.Random) -> None:
    """A WebSocket, compressed or not, closed in order."""
    with connect(port) as sock:
        client = Client(sock)
        client.open(*[b"Sec-WebSocket-Extensions: permessage-deflate"] * chance.randrange(2))
        for _ in range(20):
            client.send(text("hello" * 50), frame(BINARY, os.urandom(chance.randrange(20_000))))
            assert client.read() is not None
            assert client.read() is not None
        client.send(close())
        client.read()


def aborted(port: int, chance: random.Random) -> None:
    """Anything, left or reset in the middle."""
    begun = (
        GET[: chance.randrange(1, len(GET))],
        UPLOAD % 100_000 + bytes(chance.randrange(50_000)),
        STREAM,
        GET.replace(b"/ ", b"/wait "),
        GET.replace(b"/ ", b"/fail "),
        b"BAD\x00\r\n\r\n",
    )
    sock = connect(port)
    try:
        sock.sendall(chance.choice(begun))
        if chance.random() < 0.5:
            sock.recv(1000) if chance.random() < 0.3 else time.sleep(0.001)
    except OSError:
        pass  # it has been refused already
    finally:
        reset(sock) if chance.random() < 0.5 else sock.close()


def left_websocket(port: int, chance: random.Random) -> None:
    """A WebSocket that is cut within a frame, or resets."""
    sock = connect(port)
    client = Client(sock)
    client.open()
    client.send(text("hello"), frame(BINARY, b"x", size=5000) if chance.random() < 0.5 else frame(3))
    reset(sock) if chance.random() < 0.5 else sock.close()


KINDS: tuple[Callable[[int, random.Random], None], ...] = (
    *(kept, pipelined, churned, streamed, uploaded, talked),
    *(aborted, aborted, left_websocket),
)


class Visitor(threading.Thread):
    """One client after the other, each of some kind, with a moment between them."""

    def __init__(self, port: int, seed: int, pause: float) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._chance = random.Random(seed)
        self._pause = pause
        self.ending = threading.Event()
        self.did: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self) -> None:
        while not self.ending.wait(self._chance.random() * self._pause):
            kind = self._chance.choice(KINDS)
            try:
                kind(self._port, self._chance)
            except Exception as error:
                self.faults.append(f"{kind.__name__}: {error!r}")
            self.did[kind.__name__] += 1


# --- what is watched -------------------------------------------------------------------------------------


@dataclass
class Watched:
    """Samples of one process."""

    process: psutil.Process
    name: str
    memory: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)

    def sample(self) -> None:
        """Look once. Raises `psutil.NoSuchProcess`."""
        self.memory.append(pss(self.process))
        self.descriptors.append(descriptors(self.process))

    def grown(self) -> tuple[float, float]:
        """MiB and descriptors that there are more in the last third than in the first, in the median."""
        return growth(self.memory) / 2**20, growth(self.descriptors)


def growth(samples: list[int]) -> float:
    """The median of the last third over that of the first."""
    third = max(1, len(samples) // 3)
    return statistics.median(samples[-third:]) - statistics.median(samples[:third])


def watch(processes: list[Watched], seconds: float, interval: float) -> None:
    """Sample until the time is over, and tell now and then."""
    end = time.monotonic() + seconds
    told = 0.0
    while (now := time.monotonic()) < end:
        for each in processes:
            each.sample()
        if now - told >= 15:
            told = now
            parts = [
                f"{each.name} {each.memory[-1] / 2**20:.1f} MiB {each.descriptors[-1]} fd"
                for each in processes
            ]
            print(f"{end - now:6.0f} s left: {', '.join(parts)}", flush=True)
        time.sleep(interval)


def judge(processes: list[Watched], most_memory: float, most_descriptors: float) -> list[str]:
    """What is wrong with the samples."""
    wrong = []
    for each in processes:
        memory, held = each.grown()
        print(f"{each.name}: {memory:+.2f} MiB, {held:+.1f} descriptors, {len(each.memory)} samples")
        if memory > most_memory:
            wrong.append(f"{each.name}: memory grows")
        if held > most_descriptors:
            wrong.append(f"{each.name}: descriptors stay")
    return wrong


def soak(options: argparse.Namespace, folder: str) -> list[str]:
    """The whole run; what was wrong."""
    admin = f"unix:{folder}/admin"
    flags = [f"--{axis}={value}" for axis in ("parser", "io", "loop") if (value := getattr(options, axis))]
    flags += [
        "--workers",
        str(options.workers),
        "--admin",
        admin,
        "--log-level",
        "critical",
        *options.flags.split(),
    ]
    with server(*flags) as (master, port):
        visitors = [Visitor(port, seed, options.pause) for seed in range(options.clients)]
        with Scraper(admin, 2.0) as scraper:
            for visitor in visitors:
                visitor.start()
            time.sleep(WARM_UP)
            workers = master.children()
            processes = [Watched(master, "master")]
            processes += [Watched(each, f"worker {place}") for place, each in enumerate(workers)]
            watch(processes, options.minutes * 60, options.interval)
            for visitor in visitors:
                visitor.ending.set()
            for visitor in visitors:
                visitor.join(60)
        scraper.scrape()
        same = master.children() == workers
    did = sum((visitor.did for visitor in visitors), Counter[str]())
    print(", ".join(f"{count} {name}" for name, count in sorted(did.items())))
    print(f"{scraper.count} scrapes, the slowest {scraper.slowest * 1000:.0f} ms")
    wrong = judge(processes, options.most_memory, options.most_descriptors)
    wrong += [] if same else ["a worker was replaced"]
    return wrong + scraper.faults + [fault for visitor in visitors for fault in visitor.faults]


def main() -> int:
    """Parse the arguments, run, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long samples are taken (%(default)s)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=6, help="clients at a time (%(default)s)")
    parser.add_argument(
        "--pause", type=float, default=0.02, help="longest pause of each in seconds (%(default)s)"
    )
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between samples (%(default)s)")
    parser.add_argument("--most-memory", type=float, default=2.0, help="MiB that it may grow (%(default)s)")
    parser.add_argument("--most-descriptors", type=float, default=8.0, help="that may stay (%(default)s)")
    for axis in ("parser", "io", "loop"):
        parser.add_argument(f"--{axis}", help=f"the server's --{axis}")
    parser.add_argument("--flags", default="", help="more flags for the server, in one word")
    with tempfile.TemporaryDirectory() as folder:
        wrong = soak(parser.parse_args(), folder)
    for fault in wrong[:20]:
        print(fault)
    print(f"NOT as it should be: {len(wrong)} faults" if wrong else "as it should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
