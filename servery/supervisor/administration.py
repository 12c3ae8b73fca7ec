"""The admin listener of a master: where it is, and what it says of all workers."""

from __future__ import annotations

import logging
import os
import selectors
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from .. import logs
from .._version import __version__
from ..admin.polled import PolledAdmin, next_poll
from ..config import Config
from ..drivers.inspection import resident_memory
from ..metrics.counting import Snapshot, WorkerNumbers, by_worker, crew_numbers, merge
from ..selection import select
from ..sockets import Listener
from .crew import Crew
from .handle import State, Worker
from .identity import find_identity
from .listening import adopted

FRESH_WAIT = 0.5
"""Seconds that an answer waits for what workers say: one that is stuck must not hold up a scrape."""

STATES = {State.STARTING: "starting", State.SERVING: "ready", State.LEAVING: "stopping"}

log = logging.getLogger(logs.ERROR_LOGGER)


class Supervisor(Protocol):
    """What is asked of a master, and told to it."""

    crew: Crew
    since: float

    @property
    def ready(self) -> bool:
        """Whether load balancers may send requests."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether a stop has begun."""
        ...

    @property
    def urls(self) -> list[str]:
        """Where it listens."""
        ...

    def stop(self) -> None:
        """Begin a graceful stop."""
        ...

    def reload(self) -> str | None:
        """Begin to load application and configuration anew; or why that cannot be."""
        ...

    def scale(self, workers: int) -> str | None:
        """Have so many workers from now on; or why that cannot be."""
        ...


class MasterSource:
    """A server of many processes; see `servery.admin.source.Source`.

    Workers are asked when somebody asks. Of one that does not answer in time the last report is used, and its
    age told.
    """

    def __init__(self, master: Supervisor) -> None:
        self._master = master
        self.patience = FRESH_WAIT
        """Seconds to wait for workers."""

    def ready(self) -> bool:
        """See `Source`."""
        return self._master.ready

    async def snapshot(self) -> Snapshot:
        """See `Source`."""
        await self._ask("count")
        crew, now = self._master.crew, time.monotonic()
        serving = sum(worker.state is State.SERVING for worker in crew.workers)
        numbers = [
            WorkerNumbers(
                worker.slot,
                worker.counts.get("memory", 0),
                worker.counts.get("connections", 0),
                worker.counts.get("in_progress", 0),
                now - worker.counted,
            )
            for worker in crew.workers
            if worker.metrics
        ]
        return {
            **merge((crew.gone, *(worker.metrics for worker in crew.workers))),
            **crew_numbers(serving, crew.target, crew.restarts),
            **by_worker(numbers),
        }

    async def state(self) -> dict[str, Any]:
        """See `Source`."""
        await self._ask("describe")
        master, now = self._master, time.monotonic()
        crew = master.crew
        return {
            "version": __version__,
            "status": "stopping" if master.stopping else "ready" if master.ready else "starting",
            "since": round(master.since, 3),
            "listening": [] if master.stopping else master.urls,
            "runs": str(select(crew.config)),
            "master": {
                "pid": os.getpid(),
                "memory": resident_memory(),
                "generation": crew.generation,
                "workers_wanted": crew.target,
                "worker_restarts": dict(crew.restarts),
            },
            "workers": [_describe(worker, now) for worker in crew.workers],
        }

    def stop(self) -> None:
        """See `Source`."""
        self._master.stop()

    def reload(self) -> str | None:
        """See `Source`."""
        return self._master.reload()

    def scale(self, workers: int) -> str | None:
        """See `Source`."""
        return self._master.scale(workers)

    async def _ask(self, what: str) -> None:
        """Let workers report, and wait for those that may answer soon."""
        crew, now = self._master.crew, time.monotonic()
        number = time.monotonic_ns()  # rises, also from one program in this process to the next
        asked = [
            worker
            for worker in crew.workers
            if worker.state is not State.STARTING and worker.ask_for(what, number, now, FRESH_WAIT)
        ]
        while any(not worker.has_answered(what, number) and worker in crew.workers for worker in asked):
            if time.monotonic() - now >= self.patience:
                return
            await next_poll()


def _describe(worker: Worker, now: float) -> dict[str, Any]:
    return {
        "pid": worker.pid,
        "slot": worker.slot,
        "generation": worker.generation,
        "state": STATES[worker.state],
        "age": round(now - worker.started, 3),
        "silent": round(worker.silent, 3),
        "memory": worker.counts.get("memory"),
        "requests_begun": worker.counts.get("requests", 0),
        "connections": worker.counts.get("connections", 0),
        "requests_in_flight": worker.counts.get("in_progress", 0),
        "requests_waiting": 0,
        "requests": [],
        **worker.described,
    }


class Administration:
    """The admin listener of a master, for its whole life; nothing without ``--admin``.

    Known by its address, so that a new configuration, or the program that replaces this one, takes it over.
    """

    def __init__(self, source: MasterSource, selector: selectors.BaseSelector) -> None:
        self._source = source
        self._selector = selector
        self._open: dict[str, PolledAdmin] = {}
        self._inherited: dict[str, list[Listener]] = {}

    def take_over(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Keep what `state` of the program before this one said, for `follow`."""
        for entry in entries:
            listener = adopted(entry["fd"], entry["path"])
            self._inherited.setdefault(entry["address"], []).append(listener)

    def follow(self, config: Config) -> None:
        """Listen where `config` says, too. Raises `BindError`, with nothing changed."""
        address = config.admin
        if address is None or address in self._open:
            return
        admin = PolledAdmin(config, select(config), self._source, self._inherited.pop(address, None))
        self._open[address] = admin
        for listener in admin.listeners:
            if listener.path is not None:
                find_identity(config).own(listener.path)
        self._selector.register(admin, selectors.EVENT_READ)
        log.info("admin listener: %s", " ".join(listener.url for listener in admin.listeners))

    def settle(self, config: Config) -> None:
        """Stop listening where `config` does not say so."""
        for address in self._open.keys() - {config.admin}:
            admin = self._open.pop(address)
            self._selector.unregister(admin)
            admin.close()
        for address in list(self._inherited):
            for listener in self._inherited.pop(address):
                listener.close()

    def poll(self) -> None:
        """Do what can be done without waiting."""
        for admin in list(self._open.values()):
            admin.poll()

    def pause(self) -> None:
        """Take on no more: whoever connects waits for `resume`, or for the next program."""
        for admin in self._open.values():
            admin.pause()

    def resume(self) -> None:
        """Go on."""
        for admin in self._open.values():
            admin.resume()

    @property
    def quiet(self) -> bool:
        """Whether nobody waits for an answer, or is about to ask."""
        return all(admin.quiet for admin in self._open.values())

    def state(self) -> list[dict[str, Any]]:
        """What another program needs to go on with it; the descriptors must stay open."""
        return [
            {"address": address, "fd": listener.sock.fileno(), "path": listener.path}
            for address, listener in self._listeners()
        ]

    def _listeners(self) -> Iterator[tuple[str, Listener]]:
        for address, admin in self._open.items():
            yield from ((address, listener) for listener in admin.listeners)

    def close(self) -> None:
        """Stop listening, and cut what is open."""
        for admin in self._open.values():
            admin.close()
        self._open.clear()

    def let_go(self) -> None:
        """In a new worker: close what is the master's, and nothing more."""
        for admin in self._open.values():
            admin.let_go()
