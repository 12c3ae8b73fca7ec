"""Whom the administrator's application asks and tells.

One process answers for itself (`ProcessSource`); whatever runs several of them can answer for all, by merging
what each says.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from .._version import __version__
from ..drivers.inspection import describe, resident_memory, snapshot
from ..drivers.service import Service
from ..metrics.counting import Snapshot, WorkerNumbers, by_worker, crew_numbers


class Source(Protocol):
    """A server, be it one process or many."""

    def ready(self) -> bool:
        """Whether new connections are welcome."""
        ...

    async def snapshot(self) -> Snapshot:
        """The numbers of all workers."""
        ...

    async def state(self) -> dict[str, Any]:
        """What there is now, for JSON."""
        ...

    def stop(self) -> None:
        """Begin a graceful stop."""
        ...

    def reload(self) -> str | None:
        """Begin to load application and configuration anew; or why that cannot be."""
        ...

    def scale(self, workers: int) -> str | None:
        """Have so many workers, 1 or more, from now on; or why that cannot be."""
        ...


class Process(Protocol):
    """What is asked of a server that is one process."""

    started: bool
    should_exit: bool
    service: Service | None

    @property
    def urls(self) -> list[str]:
        """Where it is reached."""
        ...


class ProcessSource:
    """A server that is one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._since = time.time()

    def ready(self) -> bool:
        """See `Source`."""
        return self._process.started and not self._process.should_exit

    async def snapshot(self) -> Snapshot:
        """See `Source`."""
        service = self._process.service
        if service is None:
            return crew_numbers(0, 1, {})
        busy = sum(not cycle.answered for cycle in service.cycles)
        numbers = WorkerNumbers(0, resident_memory(), len(service.connections), busy, 0.0)
        return snapshot(service) | crew_numbers(1, 1, {}) | by_worker([numbers])

    async def state(self) -> dict[str, Any]:
        """See `Source`."""
        process = self._process
        status = "ready" if self.ready() else "stopping" if process.should_exit else "starting"
        return {
            "version": __version__,
            "status": status,
            "since": round(self._since, 3),
            "listening": [] if process.should_exit else process.urls,
            "runs": process.service.runs if process.service is not None else None,
            "workers": [self._worker(process.service, status)] if process.service is not None else [],
        }

    def _worker(self, service: Service, status: str) -> dict[str, Any]:
        age = round(time.time() - self._since, 3)
        return {"slot": 0, "state": status, "age": age, **describe(service)}

    def stop(self) -> None:
        """See `Source`."""
        self._process.should_exit = True

    def reload(self) -> str | None:
        """See `Source`."""
        return "this server is one process, and nothing would serve while it starts again: stop and start it"

    def scale(self, workers: int) -> str | None:
        """See `Source`."""
        return "this server is one process, and nobody is there to start another"
