"""Accepting connections: in bounded batches, and in spite of a full descriptor table.

Knows listening sockets; a connection is handed to whoever owns it from then on, and to its protocol, at once.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from ..errors import ConfigError
from .clients import UNCOUNTED, Clients, refuse
from .room import Places
from .service import error_log

BATCH = 64
"""Connections accepted in one go, so that those already open get their turn."""

PAUSE = 0.5
"""Seconds without accepting after the process, or the system, ran out of descriptors or memory."""

SAY_AGAIN = 1.0
"""Seconds between two lines about that in the error log."""

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Acceptor(Protocol):
    """Accepts from one listening socket, which it does not own."""

    async def stop(self) -> None:
        """Accept what has already connected (it would be reset otherwise), then no more."""
        ...

    def hold(self) -> None:
        """Accept nothing until `release`, which has to come as often."""
        ...

    def release(self) -> None:
        """Go on."""
        ...


class Exhaustion:
    """What an acceptor does when descriptors or memory have run out: say so, pause, and try again later.

    `pause` and `resume` are the acceptor's own.
    """

    __slots__ = ("_loop", "_pause", "_resume", "_stopped", "_timer", "_told")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._pause = pause
        self._resume = resume
        self._timer: asyncio.TimerHandle | None = None
        self._told = -SAY_AGAIN
        self._stopped = False

    def __call__(self, number: int) -> None:
        """`accept` has failed with this error number."""
        if self._timer is not None:
            return
        now = monotonic()
        if now - self._told >= SAY_AGAIN:
            self._told = now
            error_log.error(
                "cannot accept connections: %s; raise the limit on open files (ulimit -n). Trying again",
                os.strerror(number),
            )
        if not self._stopped:
            self._pause()
            self._timer = self._loop.call_later(PAUSE, self._try_again)

    @property
    def pausing(self) -> bool:
        """Whether it is about to try again."""
        return self._timer is not None

    def stop(self) -> None:
        """Do not try again."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _try_again(self) -> None:
        self._timer = None
        self._resume()


class TransportAcceptor:
    """Accepts for the transports of the event loop, from `start` until `stop`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        room: Places | None = None,
        clients: Clients | None = None,
    ) -> None:
        self._room = room
        self._clients = clients
        self._held = 0
        self._stopped = False
        self._loop = loop
        self._sock = sock
        self._protocol = protocol
        self._opening: set[asyncio.Task[object]] = set()
        self._exhausted = Exhaustion(loop, self._pause, self._resume)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to accept. Raises `ConfigError` if that cannot be held at a limit."""
        try:
            self._resume()
        except NotImplementedError:  # the proactor loop of Windows watches no readiness
            if self._room is not None or self._clients is not None:
                raise ConfigError(
                    "--limit-connections and --limit-client-connections need an event loop with "
                    f"add_reader(), and {type(self._loop).__qualname__} has none: leave them out"
                ) from None
            self._server = await self._loop.create_server(self._protocol, sock=self._sock)

    async def stop(self) -> None:
        """See `Acceptor`."""
        if self._server is not None:
            self._server.close()
            return
        self._stopped = True
        self._exhausted.stop()
        self._pause()
        while self._accept_some():
            pass
        while self._opening:
            await asyncio.wait(self._opening)

    def hold(self) -> None:
        """See `Acceptor`."""
        self._held += 1
        self._pause()

    def release(self) -> None:
        """See `Acceptor`."""
        self._held -= 1
        if not self._stopped and not self._exhausted.pausing:
            self._resume()

    def _pause(self) -> None:
        self._loop.remove_reader(self._sock)

    def _resume(self) -> None:
        if not self._held:
            self._loop.add_reader(self._sock, self._accept_some)

    def _accept_some(self) -> bool:
        """Accept up to `BATCH` connections; whether more may be waiting."""
        for _ in range(BATCH):
            if self._held and not self._stopped:
                return False
            try:
                connection, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._exhausted(error.errno)
                    return False
                continue  # this one client gave up (ECONNABORTED and its like): the next may not have
            client = UNCOUNTED if self._clients is None else self._clients.admit(peer)
            if client is None:
                refuse(connection)
                continue
            connection.setblocking(False)
            if self._room is not None:
                self._room.take()
            task = self._loop.create_task(self._open(connection, client))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        return True

    async def _open(self, connection: socket.socket, client: str) -> None:
        protocol = self._protocol()
        if self._clients is not None:
            self._clients.enter(protocol, client)
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, connection)
        except OSError as error:  # reset between accept and now
            error_log.debug("connection lost while it was accepted: %s", error)
            connection.close()
            if self._room is not None:
                self._room.give()
            if self._clients is not None:
                self._clients.left(protocol)


class Listening(Protocol):
    """A listening socket that a reactor watches; its batches are the reactor's business."""

    def pause(self) -> None:
        """Accept nothing until `resume`."""
        ...

    def resume(self) -> None:
        """Go on."""
        ...

    def accept_all(self) -> None:
        """Accept until nobody waits."""
        ...

    def close(self) -> None:
        """Watch the socket no more; it stays open."""
        ...


class ReactorAcceptor:
    """Accepts through a reactor, from the moment it is made.

    `listen` begins to watch the socket; it is given what to call when descriptors or memory have run out.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, listen: Callable[[Callable[[int], None]], Listening]
    ) -> None:
        self._exhausted = Exhaustion(loop, self._pause, self._resume)
        self._held = 0
        self._listening = listen(self._exhausted)

    async def stop(self) -> None:
        """See `Acceptor`."""
        self._exhausted.stop()
        self._listening.accept_all()
        self._listening.close()

    def hold(self) -> None:
        """See `Acceptor`."""
        self._held += 1
        self._pause()

    def release(self) -> None:
        """See `Acceptor`."""
        self._held -= 1
        if not self._exhausted.pausing:
            self._resume()

    def _pause(self) -> None:
        self._listening.pause()

    def _resume(self) -> None:
        if not self._held:
            self._listening.resume()
