"""What a worker is doing, for the log: requests in flight, tasks, threads. Safe from any thread.

Made for an event loop that does not turn, so nothing here waits for it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

from ..leaving import where
from ..server import Server

MOST = 100
"""Requests, tasks and threads that are described, of each; of the others the number is told."""

ATTEMPTS = 100
"""How often a set that changes while it is looked at is looked at again."""


def describe(server: Server, loop_thread: int) -> str:
    """The stacks of all threads and tasks of `server`, whose loop runs in `loop_thread`, as text."""
    return "\n".join((*_requests(server), *_threads(loop_thread), *_tasks(server)))


def _requests(server: Server) -> Iterator[str]:
    service = server.service
    if service is not None:
        found = looked_at(lambda: service.in_flight(MOST))
        yield f"requests in flight: {len(service.cycles)}"
        yield from found


def _threads(loop_thread: int) -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    mine = threading.get_ident()
    for ident in sorted(frames, key=lambda ident: ident != loop_thread)[:MOST]:
        if ident != mine:
            name = "the event loop" if ident == loop_thread else repr(names.get(ident, ident))
            yield f"thread of {name}:" if ident == loop_thread else f"thread {name}:"
            yield "".join(traceback.format_stack(frames[ident])).rstrip()


def _tasks(server: Server) -> Iterator[str]:
    loop = server.loop
    if loop is None:
        return
    tasks: list[asyncio.Task[Any]] = looked_at(lambda: list(asyncio.all_tasks(loop)))
    yield f"tasks: {len(tasks)}"
    for task in tasks[:MOST]:
        yield f"task {task.get_name()}:"
        yield where(task.get_coro()).rstrip()


def looked_at(look: Any) -> Any:
    """What `look` gives, which goes through sets that change meanwhile."""
    for _ in range(ATTEMPTS):
        try:
            return look()
        except RuntimeError:  # the set has changed meanwhile
            time.sleep(0)
    return []
