"""The administrator's listener: it opens before the application starts up, and closes after it has ended.

Served by the same engine and on the same loop as everything else, with a service of its own: no limit of the
application's keeps a probe out, and nothing of it is in the access log or the counts.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..addresses import parse_bind
from ..config import Config
from ..drivers.io import Io
from ..drivers.service import Service
from ..drivers.stamp import DateStamp
from ..limits import Limits
from ..selection import Selection
from ..sockets import Listener, bind_all
from .application import AdminApplication
from .source import Source

SOCKET_MODE = 0o600
"""Of a Unix socket: its owner's, and root's. Whoever may connect may stop the server."""

BACKLOG = 64
CONNECTIONS = 32
"""Requests at a time: probes, a scraper or two, and a person."""

LAST = 1.0
"""Seconds that a request in progress gets at the end."""

log = logging.getLogger("servery.error")


@asynccontextmanager
async def administered(
    config: Config, selection: Selection, io: Io, source: Source | None
) -> AsyncIterator[list[Listener]]:
    """Listen where ``--admin`` says as long as the block runs; without it, or a source, do nothing.

    Raises `BindError` and `ConfigError` for an address that cannot be had.
    """
    if config.admin is None or source is None:
        yield []
        return
    listeners = bind_all([parse_bind(config.admin)], uds_mode=SOCKET_MODE, backlog=BACKLOG)
    service = _make_service(config, selection, source)
    try:
        acceptors = await io.listen([listener.sock for listener in listeners], service)
        log.info("admin listener: %s", " ".join(listener.url for listener in listeners))
        try:
            yield listeners
        finally:
            for acceptor in acceptors:
                await acceptor.stop()
            await _end(service)
    finally:
        for listener in listeners:
            listener.close()


def _make_service(config: Config, selection: Selection, source: Source) -> Service:
    limits, stamp = Limits(), DateStamp(date=True, server=True)
    return Service(
        app=AdminApplication(source, config.admin_public),
        limits=limits,
        make_engine=selection.engine_factory(limits, stamp),
        handshakes=selection.handshake_reader(config, stamp),
        loop=asyncio.get_running_loop(),
        context=contextvars.copy_context(),
        access=None,
        root_path="",
        concurrency=CONNECTIONS,
        state=None,
        runs=f"{selection} interface=admin",
    )


async def _end(service: Service) -> None:
    service.stopping = True
    for connection in list(service.connections):
        connection.stop(time.monotonic())
    try:
        await asyncio.wait_for(service.idle.wait(), LAST)
    except TimeoutError:
        pass
    for connection in list(service.connections):
        connection.abort()
    service.clock.close()
