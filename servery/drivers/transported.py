"""A connection on an asyncio transport, whatever version of HTTP it speaks: how it begins and ends, and its
octets to the engine.

Data flows one way: `data_received` -> engine -> `_dispatch`, which each version has of its own. What is
written is the business of `servery.drivers.writing`.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import cast

from ..asgi.scope import ConnectionInfo
from ..engine import Engine
from ..events import Event
from .names import ConnectionNames, connection_info
from .service import Service
from .transports import prepare
from .writing import WritingHalf


class TransportedConnection(WritingHalf):
    """The part of a connection that its transport calls.

    `names` are ASGI's ``client`` and ``server``, and whether the client has used TLS, where a balancer has
    said so.
    """

    __slots__ = ("_info", "_names")

    def __init__(self, service: Service, engine: Engine, names: ConnectionNames | None) -> None:
        super().__init__(service, engine)
        self._names = names
        self._info: ConnectionInfo

    def stop(self, now: float, patient: bool = False) -> None:
        """Finish what is in progress, then close; close at once if nothing is, unless `patient`."""
        raise NotImplementedError

    def told_to_end(self) -> None:
        """The stream grace is over: ``receive()`` of what is in progress says ``http.disconnect``."""
        raise NotImplementedError

    def _dispatch(self, events: list[Event], now: float) -> None:
        """Do what the engine says."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection was accepted."""
        transport = cast(asyncio.Transport, transport)  # uvloop's are, but do not say so
        self._transport = transport
        service = self._service
        prepare(transport, service.limits.write_buffer)
        self._info = connection_info(service, transport, self._names)
        service.connected(self)
        if service.stopping:
            self.stop(monotonic(), patient=True)  # its client could not know: a request may be on its way
        else:
            self.settle()

    def data_received(self, data: bytes) -> None:
        """Octets from the peer."""
        now = monotonic()
        events = self._engine.receive(data, now)
        if events:
            self._dispatch(events, now)
        self.settle()

    def eof_received(self) -> bool:
        """The peer has finished sending; it may still read (RFC 9112 section 9.6), so the transport stays
        open.
        """
        now = monotonic()
        self._dispatch(self._engine.receive(b"", now), now)
        self.settle()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed, by whom and for what reason ever: let go of everything."""
        self._lost = True
        self.writable = True
        service = self._service
        service.clock.disarm(self)
        service.disconnected(self)
        self._lose_cycle()
