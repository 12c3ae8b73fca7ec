"""Very many WebSockets on one server: what each costs while it is idle, and what it costs to tell all of them
something."""

from __future__ import annotations

import selectors
import socket
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from serving import connect, connect_many, cpu, established, pss, server
from wire_frames import PONG, TEXT, Client, Frame, frame, text

IDLE = 10_000
PING_INTERVAL = 5.0
PING_SIZE = 10
"""Octets of a ping of servery's: two of the head, eight of the number that it counts them by."""

MEMBERS = 5_000
ROUNDS = 20
DELIVERY = 4 + 1024
"""Octets of a broadcast message, in one frame."""
WRITE_TIMEOUT = 3.0


def opened(sock: socket.socket, path: bytes = b"/") -> Client:
    """A WebSocket on `sock`."""
    client = Client(sock)
    assert client.open(target=path).startswith(b"HTTP/1.1 101 "), client.head
    return client


def echoes(clients: Iterable[Client]) -> int:
    """Ask on each, and read up to the answer; how many have answered."""
    count = 0
    for client in clients:
        client.send(text("still here?"))
        while (answer := client.read()) is not None and answer.opcode != TEXT:
            client.send(frame(PONG, answer.payload))
        count += answer == Frame(TEXT, b"still here?")
    return count


# --- idle ------------------------------------------------------------------------------------------------


def idle(seconds: float, flags: list[str]) -> None:
    """Ten thousand idle WebSockets: weighed, pinged for a while, and each of them asked for an answer."""
    flags = ["--ws-ping-interval", str(PING_INTERVAL), *flags]
    with server(*flags) as (process, port):
        for sock in connect_many(port, 200):
            with sock:
                assert echoes([opened(sock)]) == 1
        before = pss(process)
        clients = [opened(sock) for sock in connect_many(port, IDLE)]
        assert established(process) == IDLE
        each = (pss(process) - before) / IDLE / 1024
        print(f"idle WebSockets: {IDLE}, {each:.2f} KiB each", flush=True)
        used = cpu(process)
        pings = answer_pings(clients, seconds)
        used = (cpu(process) - used) * 1e6 / max(pings, 1)
        each = (pss(process) - before) / IDLE / 1024
        print(f"idle WebSockets: {pings} pings answered in {seconds:.0f} s, {used:.1f} µs each")
        print(f"idle WebSockets: {each:.2f} KiB each after that", flush=True)
        assert pings >= IDLE * int(seconds / PING_INTERVAL / 2)
        assert established(process) == IDLE
        assert echoes(clients) == IDLE
        print(f"idle WebSockets: {IDLE} answered, none was lost")
        for client in clients:
            client.sock.close()


def answer_pings(clients: list[Client], seconds: float) -> int:
    """Answer every ping for so long; how many came. Raises if anything else comes, an end above all."""
    count, end = 0, time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.sock, selectors.EVENT_READ)
        while time.monotonic() < end:
            for key, _ in selector.select(0.5):
                sock: socket.socket = key.fileobj  # type: ignore[assignment]
                data = sock.recv(4096)
                assert data[:1] == b"\x89", data
                assert len(data) % PING_SIZE == 0, data
                sock.sendall(frame(PONG, data[-8:]))
                count += len(data) // PING_SIZE
    return count


# --- broadcast -------------------------------------------------------------------------------------------


class Crowd:
    """Members that read, and who conducts: see the application."""

    def __init__(self, port: int, count: int) -> None:
        self.conductor = opened(connect(port), b"/conduct")
        self.members = [opened(sock, b"/member").sock for sock in connect_many(port, count)]
        self._selector = selectors.DefaultSelector()
        for sock in self.members:
            self._selector.register(sock, selectors.EVENT_READ)

    def tell(self, how: str) -> float:
        """One message for everybody; seconds until each member has all of it."""
        begun = time.monotonic()
        left = dict.fromkeys(self.members, DELIVERY)
        self.conductor.send(text(how))
        while left:
            events = self._selector.select(30)
            assert events, f"{len(left)} members were told nothing for half a minute"
            for key, _ in events:
                sock: socket.socket = key.fileobj  # type: ignore[assignment]
                data = sock.recv(left[sock])
                assert data, "a member lost its connection"
                left[sock] -= len(data)
                if not left[sock]:
                    del left[sock]
        return time.monotonic() - begun

    def close(self) -> None:
        """Everybody leaves."""
        self._selector.close()
        for sock in (*self.members, self.conductor.sock):
            sock.close()


def broadcast(flags: list[str]) -> None:
    """One message for five thousand, again and again: what it costs, also beside a member that never
    reads."""
    flags = ["--timeout-write", str(WRITE_TIMEOUT), "--ws-ping-interval", "none", *flags]
    with server(*flags) as (process, port):
        crowd = Crowd(port, MEMBERS)
        for _ in range(3):
            crowd.tell("in turn")
        for how in ("in turn", "together"):
            used = cpu(process)
            times = [crowd.tell(how) for _ in range(ROUNDS)]
            each = (cpu(process) - used) * 1e6 / ROUNDS / MEMBERS
            print(
                f"broadcast {how}: {MEMBERS} members, {each:.2f} µs of CPU for each message, "
                f"a round takes {statistics.median(times) * 1000:.0f} ms",
                flush=True,
            )
        beside_a_slow_one(crowd, port)
        assert established(process) == MEMBERS + 1
        crowd.close()


def beside_a_slow_one(crowd: Crowd, port: int) -> None:
    """A member that does not read is cut in time, and the others do not notice."""
    usual = statistics.median(crowd.tell("together") for _ in range(5))
    slow = connect(port)
    begun = time.monotonic()
    opened(slow, b"/slow")
    worst = 0.0
    while not is_reset(slow):
        worst = max(worst, crowd.tell("together"))
        assert time.monotonic() - begun < WRITE_TIMEOUT * 3, "the slow member is still there"
    passed = time.monotonic() - begun
    print(
        f"broadcast beside a member that does not read: it was cut after {passed:.1f} s; a round took "
        f"{worst * 1000:.0f} ms at most, {usual * 1000:.0f} ms before",
        flush=True,
    )
    assert passed >= WRITE_TIMEOUT
    assert worst < WRITE_TIMEOUT / 2, "the others had to wait"
    slow.close()


def is_reset(sock: socket.socket) -> bool:
    """Whether RST came, looked up without reading anything."""
    state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state == 7  # TCP_CLOSE
