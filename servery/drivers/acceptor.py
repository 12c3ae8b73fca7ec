"""Accepting connections: in bounded batches, and in spite of a full descriptor table.

Knows listening sockets; a connection is handed to the loop and to its protocol at once.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from time import monotonic

from .service import error_log

BATCH = 64
"""Connections accepted in one go, so that those already open get their turn."""

PAUSE = 0.5
"""Seconds without accepting after the process, or the system, ran out of descriptors or memory."""

SAY_AGAIN = 1.0
"""Seconds between two lines about that in the error log."""

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Acceptor:
    """Accepts from one listening socket, which it does not own, until `stop`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._protocol = protocol
        self._opening: set[asyncio.Task[object]] = set()
        self._resume: asyncio.TimerHandle | None = None
        self._told = -SAY_AGAIN
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to accept."""
        try:
            self._loop.add_reader(self._sock, self._accept_batch)
        except NotImplementedError:  # the proactor loop of Windows watches no readiness
            self._server = await self._loop.create_server(self._protocol, sock=self._sock)

    async def stop(self) -> None:
        """Accept what has already connected (it would be reset otherwise), then no more."""
        if self._server is not None:
            self._server.close()
            return
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        self._loop.remove_reader(self._sock)
        while self._accept_some():
            pass
        while self._opening:
            await asyncio.wait(self._opening)

    def _accept_batch(self) -> None:
        self._accept_some()

    def _accept_some(self) -> bool:
        """Accept up to `BATCH` connections; whether more may be waiting."""
        for _ in range(BATCH):
            try:
                connection, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error)
                    return False
                continue  # this one client gave up (ECONNABORTED and its like): the next may not have
            connection.setblocking(False)
            task = self._loop.create_task(self._open(connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        return True

    async def _open(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError as error:  # reset between accept and now
            error_log.debug("connection lost while it was accepted: %s", error)
            connection.close()

    def _pause(self, error: OSError) -> None:
        if self._resume is not None:
            return
        now = monotonic()
        if now - self._told >= SAY_AGAIN:
            self._told = now
            error_log.error(
                "cannot accept connections: %s; raise the limit on open files (ulimit -n). Trying again",
                error.strerror,
            )
        self._loop.remove_reader(self._sock)
        self._resume = self._loop.call_later(PAUSE, self._try_again)

    def _try_again(self) -> None:
        self._resume = None
        self._loop.add_reader(self._sock, self._accept_batch)
