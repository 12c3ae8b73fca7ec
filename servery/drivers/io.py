"""Who owns the sockets of a worker: the transports of its event loop, or a reactor.

Knows how connections are accepted and begun with either; what they do then is their own business. The reactor
and what it needs are handed in.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .acceptor import Acceptor, Listening, ReactorAcceptor, TransportAcceptor
from .clients import Clients, refuse
from .protocols import protocol_factory
from .room import Places
from .service import Service

Begin = Callable[[int, Any, Any], None]
"""Takes over an accepted descriptor, with what ``getpeername()`` and ``getsockname()`` say of it."""

Listen = Callable[[socket.socket, Begin, Callable[[int], None]], Listening]
"""Watches a listening socket: each connection goes to the first function, an error number to the second when
descriptors or memory have run out.
"""


class Io(Protocol):
    """The owner of a worker's sockets."""

    async def listen(self, socks: Sequence[socket.socket], service: Service) -> Sequence[Acceptor]:
        """Begin to accept connections for `service` from all of `socks`."""
        ...

    def close(self) -> None:
        """Let go of what was needed for it, after the last connection."""
        ...


class TransportIo:
    """Connections on the event loop's own transports."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def listen(self, socks: Sequence[socket.socket], service: Service) -> Sequence[Acceptor]:
        """See `Io`."""
        protocol = protocol_factory(service)
        room, clients = service.room, service.clients
        acceptors = [TransportAcceptor(self._loop, sock, protocol, room, clients) for sock in socks]
        for acceptor in acceptors:
            await acceptor.start()
        return _in_room(acceptors, service)

    def close(self) -> None:
        """Nothing is left: transports are the loop's."""


class ReactorIo:
    """Connections that a reactor watches.

    `listen` and `close` are the reactor's; `beginner` makes what takes over the connections of a service.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listen: Listen,
        beginner: Callable[[Service], Begin],
        close: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._listen = listen
        self._beginner = beginner
        self._close = close

    async def listen(self, socks: Sequence[socket.socket], service: Service) -> Sequence[Acceptor]:
        """See `Io`."""
        begin = self._beginner(service)
        if service.room is not None:
            begin = _counted(begin, service.room)
        if service.clients is not None:
            begin = _admitted(begin, service.clients)
        return _in_room([self._acceptor(sock, begin) for sock in socks], service)

    def close(self) -> None:
        """See `Io`."""
        self._close()

    def _acceptor(self, sock: socket.socket, begin: Begin) -> Acceptor:
        return ReactorAcceptor(self._loop, lambda exhausted: self._listen(sock, begin, exhausted))


def _in_room(acceptors: Sequence[Acceptor], service: Service) -> Sequence[Acceptor]:
    """`acceptors`, which hold at the limit on connections."""
    if service.room is not None:
        for acceptor in acceptors:
            service.room.join(acceptor)
    return acceptors


def _counted(begin: Begin, room: Places) -> Begin:
    """`begin`, for connections that take a place each."""

    def take(fd: int, peer: Any, own: Any) -> None:
        room.take()
        begin(fd, peer, own)

    return take


def _admitted(begin: Begin, clients: Clients) -> Begin:
    """`begin`, for connections of clients that do not have too many."""

    def admit(fd: int, peer: Any, own: Any) -> None:
        client = clients.admit(peer)
        if client is None:
            refuse(socket.socket(fileno=fd))
        else:
            clients.open(client, lambda: begin(fd, peer, own))

    return admit
