"""How many connections one client may have open at a time: who has as many is refused when it is accepted.

A client is an address, or the /64 that a customer is given with IPv6. Peers on Unix sockets and trusted
proxies speak for many, and are let in.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Any

from ..addresses import client_of, peer_name
from ..metrics.counting import Metrics
from ..proxies.trust import Trust

SAY_AGAIN = 10.0
"""Seconds between two lines about it in the error log."""

UNCOUNTED = ""
"""The client that has no limit."""

_RESET = struct.pack("ii", 1, 0)

log = logging.getLogger("servery.error")


class Clients:
    """Counts the connections of each client: `limit` at a time. `trust` says who speaks for many.

    A connection is admitted when it is accepted; it counts from then until it has left.
    """

    __slots__ = ("_limit", "_metrics", "_open", "_opening", "_owners", "_said", "_trust", "_unsaid")

    def __init__(self, limit: int, trust: Trust, metrics: Metrics | None) -> None:
        self._limit = limit
        self._trust = trust
        self._metrics = metrics
        self._open: Counter[str] = Counter()
        self._owners: dict[object, str] = {}
        self._opening = UNCOUNTED
        self._said = -SAY_AGAIN
        self._unsaid = 0

    def admit(self, peer: Any) -> str | None:
        """Whose a connection from `peer`, a ``getpeername()`` value, is; None if it is to be refused."""
        name = peer_name(peer)
        if name is None or self._trust.trusts(name[0]):
            return UNCOUNTED
        client = client_of(name[0])
        if self._open[client] >= self._limit:
            self._refused(client)
            return None
        self._open[client] += 1
        return client

    def enter(self, connection: object, client: str) -> None:
        """`connection` is that of `client`, who was admitted."""
        if client:
            self._owners[connection] = client

    def open(self, client: str, begin: Callable[[], Any]) -> None:
        """`begin` makes the connection of `client`, which becomes known by `entered`."""
        self._opening = client
        try:
            begin()
        finally:
            self._give(self._opening)  # nobody's by now, unless none was made
            self._opening = UNCOUNTED

    def entered(self, connection: object) -> None:
        """A connection was made."""
        self.enter(connection, self._opening)
        self._opening = UNCOUNTED

    def left(self, connection: object) -> None:
        """It is gone; to be called again does no harm."""
        self._give(self._owners.pop(connection, UNCOUNTED))

    def replaced(self, connection: object, begin: Callable[[], Any]) -> None:
        """`begin` makes the connection that goes on in the place of this one."""
        self.open(self._owners.pop(connection, UNCOUNTED), begin)

    def _give(self, client: str) -> None:
        if client:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]  # as many entries as clients, and no more

    def _refused(self, client: str) -> None:
        if self._metrics is not None:
            self._metrics.rejected(-2)
        self._unsaid += 1
        now = monotonic()
        if now - self._said >= SAY_AGAIN:
            log.warning(
                "refused a connection of %s, which has %d open (--limit-client-connections); "
                "refused since the last line of this kind: %d",
                *(client, self._limit, self._unsaid),
            )
            self._said, self._unsaid = now, 0


def refuse(sock: socket.socket) -> None:
    """Close an accepted socket with RST: closed in order, each would be remembered for a minute."""
    with sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except OSError:
            pass  # the peer has left
