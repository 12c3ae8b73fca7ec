"""A server under constant load while everything that replaces workers happens to it, and what came of it."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from harness import WAIT
from process import ServerProcess
from scraping import Scraper
from steady import Client
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

APP = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "http":
        await respond(send, b"%d" % os.getpid())
    else:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": str(os.getpid())})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})
"""

LATE = 1.0
"""Seconds after a kill in which a connection that no worker has answered yet may be lost with its worker."""


class Listener(threading.Thread):
    """Opens WebSockets, one after the other, each until the server closes it."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._url = f"ws://127.0.0.1:{port}/"
        self._ending = threading.Event()
        self.ends: list[tuple[float, int | None, int]] = []
        """When, by which worker, and with which code each of them was closed; 1006 is none."""
        self.faults: list[tuple[float, str]] = []
        """Those that could not be opened."""

    def run(self) -> None:
        while not self._ending.is_set():
            pid: int | None = None
            try:
                with connect(self._url, open_timeout=WAIT, ping_interval=None, compression=None) as peer:
                    pid = int(peer.recv(WAIT))
                    while not self._ending.is_set():
                        peer.send("ping")
                        assert peer.recv(WAIT) == "ping"
                        self._ending.wait(0.05)
            except ConnectionClosed as error:
                code = error.rcvd.code if error.rcvd else 1006
                self.ends.append((time.monotonic(), pid, code))
            except Exception as error:
                self.faults.append((time.monotonic(), repr(error)))

    def __enter__(self) -> Listener:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join(WAIT)
        assert not self.is_alive(), "a WebSocket is left hanging"


@dataclass
class Outcome:
    """What happened, and what clients saw of it."""

    seconds: float = 0.0
    did: Counter[str] = field(default_factory=Counter)
    answered: int = 0
    connections: int = 0
    workers: int = 0
    """Processes that have answered."""
    lost_with_a_killed_worker: int = 0
    faults: list[Any] = field(default_factory=list)
    """Requests that were refused or cut, and not by a kill."""
    closed: Counter[int] = field(default_factory=Counter)
    """WebSockets by close code, those of killed workers left out."""
    exit_code: int = -1
    scrapes: int = 0
    slowest_scrape: float = 0.0
    counted: int = 0
    """Requests that the server says it has answered."""
    least_counted: int = 0
    """Those that clients saw answered by workers that were not killed."""
    miscounted: list[str] = field(default_factory=list)
    """What was wrong with the metrics."""
    restarts: dict[str, int] = field(default_factory=dict)
    """Workers that were replaced, as the server counts them."""


class Kills:
    """The workers that were killed, and when."""

    def __init__(self) -> None:
        self._at: dict[int, float] = {}

    def random(self, master: int) -> None:
        """Kill one of the workers of `master`."""
        children = psutil.Process(master).children()
        if children:
            victim = random.choice(children).pid
            self._at[victim] = time.monotonic()
            os.kill(victim, signal.SIGKILL)

    def explain(self, when: float, pid: int | None) -> bool:
        """Whether a connection of worker `pid`, if that is known, was lost by a kill."""
        if pid is not None:
            return pid in self._at
        return any(0 <= when - killed <= LATE for killed in self._at.values())

    def __contains__(self, pid: int) -> bool:
        return pid in self._at


def churn(
    folder: Path,
    seconds: float,
    *flags: str,
    rate: int = 2000,
    sockets: int = 4,
    every: dict[str, float],
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Serve with two workers for `seconds`: `rate` requests a second of four clients, `sockets` WebSockets.

    The metrics are read once a second. `every` says after how many seconds each of ``reload``, ``kill`` and
    ``upgrade`` happens, again and again.
    """
    outcome, kills = Outcome(seconds), Kills()
    scraper = Scraper(address := f"unix:{folder}/admin")
    flags = ("--workers", "2", "--no-access-log", "--admin", address, *flags)
    with ServerProcess(folder, APP, *flags) as server:
        clients = [Client(server.port, 4 / rate) for _ in range(4)]
        listeners = [Listener(server.port) for _ in range(sockets)]
        with ExitStack() as stack:
            for each in (*clients, *listeners, scraper):
                stack.enter_context(each)
            actions = {
                "reload": lambda: server.signal(signal.SIGHUP),
                "kill": lambda: kills.random(server.process.pid),
                "upgrade": lambda: server.signal(signal.SIGUSR2),
            }
            begun = time.monotonic()
            due = {name: begun + each for name, each in every.items()}
            while (now := time.monotonic()) < begun + seconds:
                for name in [name for name in due if now >= due[name]]:
                    due[name] += every[name]
                    actions[name]()
                    outcome.did[name] += 1
                    say(f"{now - begun:5.1f} s: {name}")
                time.sleep(0.05)
        scraper.scrape()
        outcome.exit_code = server.stop()
    outcome.did["recycled"] = server.said.count("(--limit-max-requests)")
    _sum_up(outcome, clients, listeners, kills)
    _compare(outcome, clients, scraper, kills)
    return outcome


def _sum_up(outcome: Outcome, clients: list[Client], listeners: list[Listener], kills: Kills) -> None:
    outcome.answered = sum(sum(client.answers.values()) for client in clients)
    outcome.connections = sum(client.connections for client in clients)
    outcome.workers = len(set().union(*(client.answers for client in clients)))
    for fault in (fault for client in clients for fault in client.faults):
        if kills.explain(fault.when, fault.pid):
            outcome.lost_with_a_killed_worker += 1
        else:
            outcome.faults.append(fault)
    for when, pid, code in (end for listener in listeners for end in listener.ends):
        if code != 1012 and kills.explain(when, pid):
            outcome.lost_with_a_killed_worker += 1
        else:
            outcome.closed[code] += 1
    for when, error in (fault for listener in listeners for fault in listener.faults):
        if kills.explain(when, None):
            outcome.lost_with_a_killed_worker += 1
        else:
            outcome.faults.append((when, error))


def _compare(outcome: Outcome, clients: list[Client], scraper: Scraper, kills: Kills) -> None:
    """What the server has counted, and what its clients have: they differ by what killed workers knew."""
    outcome.scrapes, outcome.slowest_scrape = scraper.count, round(scraper.slowest, 3)
    outcome.miscounted = scraper.faults
    outcome.counted = int(scraper.last.get("servery_requests_total GET 200", 0))
    outcome.least_counted = sum(
        count for client in clients for pid, count in client.answers.items() if pid not in kills
    )
    most = outcome.answered + outcome.lost_with_a_killed_worker
    if not outcome.least_counted <= outcome.counted <= most:
        outcome.miscounted.append(f"{outcome.counted} not from {outcome.least_counted} to {most}")
    name = "servery_worker_restarts_total "
    outcome.restarts = {
        reason.removeprefix(name): int(count)
        for reason, count in scraper.last.items()
        if reason.startswith(name) and count
    }
