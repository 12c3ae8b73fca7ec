"""What the process of a server holds while it serves: nothing of it may stay when the clients have gone."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Any

import psutil
from harness import Running, eventually, read_to_end

CONNECTIONS = (
    *("servery.drivers.asyncio_driver.AsyncioConnection", "servery._speedups.connection.Connection"),
    *("servery.drivers.http2_driver.Http2Connection", "servery._speedups.http2_connection.Http2Connection"),
)


def objects(*names: str) -> list[Any]:
    """The objects of the classes with these dotted names: none, if nobody has imported their module."""
    parts = [name.rpartition(".") for name in names]
    kinds = {getattr(sys.modules[module], name) for module, _, name in parts if module in sys.modules}
    return [thing for thing in gc.get_objects() if type(thing) in kinds]


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
        "tasks": server.call(lambda: len(asyncio.all_tasks())),
        "deadlines": server.call(lambda: sum(len(bucket) for bucket in buckets.values())),
        "watched": sum(reactor.watched for reactor in reactors),
        "descriptors": psutil.Process().num_fds(),  # last: they are closed a turn after the rest is gone
    }


def at_rest(server: Running) -> dict[str, int]:
    """What a server holds that has served: some loops open, for the first connection, what they keep then."""
    before = holdings(server)
    with server.connect() as sock:
        sock.sendall(b"BAD\r\n\r\n")
        read_to_end(sock)
    del before["descriptors"]
    eventually(lambda: before.items() <= holdings(server).items())
    return holdings(server)


def memory() -> int:
    """Octets of memory that are resident, after the collector has run: asyncio's transports need it."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)
