"""The first moments of a connection that a balancer may have to introduce: the PROXY protocol.

A protocol of its own in front of the connection's: it reads the preamble of a trusted peer, and hands the
transport and what came behind on. Without ``--proxy-protocol`` there is none. The grammar is in
`servery.proxies.preamble`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import cast

from ..addresses import peer_name, server_name
from ..engine import NEVER
from ..errors import RemoteProtocolError
from ..proxies.preamble import Preamble
from ..proxies.trust import Trust, is_unix
from .contracts import GoOn
from .names import ConnectionNames
from .service import Service, error_log
from .transports import reset


@dataclass(frozen=True, slots=True)
class PreambleRules:
    """Whose preambles are read, and which versions: a trusted peer must send one, others must not."""

    trust: Trust
    versions: frozenset[int]


class PreambleConnection(asyncio.Protocol):
    """Reads the preamble; it is the clock's `Timed` and one of the server's connections meanwhile."""

    __slots__ = ("_go_on", "_peer", "_preamble", "_rules", "_service", "_transport", "armed")

    def __init__(self, service: Service, rules: PreambleRules, go_on: GoOn) -> None:
        self._service = service
        self._rules = rules
        self._go_on = go_on
        self._preamble = Preamble(rules.versions, service.limits.proxy_protocol_size)
        self.armed = NEVER

    # --- from the transport --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection was accepted."""
        self._transport = cast(asyncio.Transport, transport)
        own = server_name(transport.get_extra_info("sockname"))
        self._peer = peer = peer_name(transport.get_extra_info("peername"))
        service = self._service
        service.connected(self)
        if peer is None and not is_unix(own):
            self.abort()  # so has the peer done already
        elif not self._rules.trust.is_trusted(peer, own):
            self._introduce(None, b"")
        else:
            now = monotonic()
            service.clock.arm(self, now + service.limits.proxy_protocol_timeout)
            if service.stopping:
                self.stop(now)

    def data_received(self, data: bytes) -> None:
        """Octets from the peer."""
        preamble = self._preamble
        try:
            if not preamble.feed(data):
                return
        except RemoteProtocolError as error:
            self._refuse(error.reason)
            return
        names = None
        if preamble.source is not None:
            names = (preamble.source, preamble.destination, preamble.tls)
        self._introduce(names, preamble.rest)

    def eof_received(self) -> bool:
        """The peer has finished before it began."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed."""
        self._service.clock.disarm(self)
        self._service.disconnected(self)

    # --- from the clock and the server -----------------------------------------------------------------

    def on_deadline(self, now: float) -> None:
        """The preamble has not come in time."""
        if self._service.stopping:
            self._transport.close()
        else:
            self._refuse("its PROXY preamble did not come in time")

    def stop(self, now: float, patient: bool = False) -> None:
        """A request may be on its way behind the preamble: both get a short time to arrive."""
        self._service.clock.arm(self, min(self.armed, now + self._service.limits.linger_timeout))

    def told_to_end(self) -> None:
        """There is no request to tell it."""

    def abort(self) -> None:
        """Reset the connection."""
        reset(self._transport)

    # --- inside --------------------------------------------------------------------------------------

    def _introduce(self, names: ConnectionNames | None, ahead: bytes) -> None:
        service = self._service
        service.clock.disarm(self)
        service.replaced(self, lambda: self._go_on(self._transport, names, ahead, None))

    def _refuse(self, reason: str) -> None:
        """Nobody who could read an answer is known (section 2 of the protocol): close without one."""
        error_log.warning("PROXY protocol: connection of %s is refused: %s", self._peer, reason)
        if self._service.metrics is not None:
            self._service.metrics.rejected(-1)
        self._service.log_refusal(self._peer, None, 0)
        self.abort()
