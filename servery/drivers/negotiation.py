"""A connection without TLS on a listener that also speaks HTTP/2: the first octets say what it is.

Knows the preface of HTTP/2 (RFC 9113 section 3.3) and time; whoever speaks takes over with what has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import cast

from ..engine import NEVER
from ..grammar import HTTP2_PREFACE
from .asyncio_driver import AsyncioConnection
from .http2_driver import Http2Connection
from .names import ConnectionNames
from .service import Service
from .transports import prepare

TakeOver = Callable[[asyncio.Transport, ConnectionNames | None, bytes, bool], None]
"""Goes on with a connection whose first octets are there; the last argument says whether it is HTTP/2."""


class Negotiation(asyncio.Protocol):
    """One connection before its protocol is known. It is the clock's `Timed`, the server's `Connection`.

    `take_over` is who speaks then, if that is not a connection of the reference.
    """

    __slots__ = ("_names", "_octets", "_service", "_take_over", "_transport", "armed")

    def __init__(
        self, service: Service, names: ConnectionNames | None, take_over: TakeOver | None = None
    ) -> None:
        self._service = service
        self._names = names
        self._take_over = take_over
        self._octets = b""
        self._transport: asyncio.Transport
        self.armed = NEVER

    # --- from the transport --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection was accepted."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are, but do not say so
        service = self._service
        prepare(self._transport, service.limits.write_buffer)
        service.connected(self)
        service.clock.arm(self, monotonic() + service.limits.first_byte_timeout)
        if service.stopping:
            self.stop(monotonic())

    def data_received(self, data: bytes) -> None:
        """Octets from the peer."""
        octets = self._octets = self._octets + data
        if octets.startswith(HTTP2_PREFACE):
            self._become(True)
        elif not HTTP2_PREFACE.startswith(octets):
            self._become(False)

    def eof_received(self) -> bool:
        """The peer has finished sending: what came is a part of a preface, and so no request."""
        if not self._octets:
            return False
        connection = self._become(False)
        return connection is None or connection.eof_received()  # another one hears of it from the kernel

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed."""
        self._service.clock.disarm(self)
        self._service.disconnected(self)

    # --- from the clock and the server -----------------------------------------------------------------

    def on_deadline(self, now: float) -> None:
        """Nothing came in time; what is unfinished gets the answer that HTTP/1 has for it."""
        if self._octets:
            self.eof_received()
        else:
            self._transport.close()

    def stop(self, now: float, patient: bool = False) -> None:
        """The server stops: a first request may be on its way."""
        self._service.clock.arm(self, min(self.armed, now + self._service.limits.linger_timeout))

    def told_to_end(self) -> None:
        """No application is running."""

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    # --- inside --------------------------------------------------------------------------------------

    def _become(self, http2: bool) -> AsyncioConnection | Http2Connection | None:
        service, transport, octets = self._service, self._transport, self._octets
        service.clock.disarm(self)
        self._octets = b""
        take_over, names = self._take_over, self._names
        if take_over is not None:
            service.replaced(self, lambda: take_over(transport, names, octets, http2))
            return None
        connection = (Http2Connection if http2 else AsyncioConnection)(service, names)
        transport.set_protocol(connection)
        service.replaced(self, lambda: connection.connection_made(transport))
        connection.data_received(octets)
        return connection
