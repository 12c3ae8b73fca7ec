"""What the process of a server holds while it serves: nothing of it may stay when the clients have gone."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import psutil
from harness import Running

CONNECTIONS = ("servery.drivers.asyncio_driver.AsyncioConnection", "servery._speedups.connection.Connection")


def objects(*names: str) -> list[Any]:
    """All objects of the classes that are called so, with their modules."""
    found = []
    for thing in gc.get_objects():
        kind = type(thing)
        if f"{kind.__module__}.{kind.__name__}" in names:
            found.append(thing)
    return found


def connections(server: Running) -> int:
    """The connection objects that exist, once the log has let go of them."""
    server.errors.records.clear()
    return len(objects(*CONNECTIONS))


def holdings(server: Running) -> dict[str, int]:
    """How many connections, descriptors, tasks, armed deadlines and watched descriptors there are."""
    clocks = [it for it in objects("servery.drivers.clock.Clock") if it._loop is server.loop]
    reactors = [it for it in objects("servery._speedups.reactor.Reactor") if it.loop is server.loop]
    assert len(clocks) == 1
    assert len(reactors) == (server.server.selection.io == "reactor")
    [buckets] = [clock._buckets for clock in clocks]
    return {
        "connections": connections(server),
        "descriptors": psutil.Process().num_fds(),
        "tasks": server.call(lambda: len(asyncio.all_tasks())),
        "deadlines": server.call(lambda: sum(len(bucket) for bucket in buckets.values())),
        "watched": sum(reactor.watched for reactor in reactors),
    }


def memory() -> int:
    """Octets of memory that are resident, after the collector has run: asyncio's transports need it."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)
