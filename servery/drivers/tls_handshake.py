"""A connection with TLS until its handshake is over: then the connection proper follows, and speaks in it.

Knows records, time and how many handshakes may be in flight. Until a client has shown that it speaks TLS,
nothing of it reaches anything that costs much.
"""

from __future__ import annotations

import asyncio
import ssl
from time import monotonic
from typing import cast

from ..addresses import peer_name
from ..engine import NEVER
from .contracts import GoOn, TlsSession
from .names import ConnectionNames
from .service import Service, error_log
from .transports import prepare

RECORD = 0x16
"""What the first octet of every TLS connection is: the type of a handshake record (RFC 8446 section 5.1)."""

_TEXT = b"this port speaks HTTPS: the address begins with https://\n"
PLAIN = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_TEXT), _TEXT)
)
"""The answer to a request without TLS."""


class Gate:
    """The handshakes in flight of one service: `Limits.tls_handshakes` at most, the oldest gives way.

    `go_on` begins what comes behind them.
    """

    __slots__ = ("go_on", "in_flight", "service")

    def __init__(self, service: Service, go_on: GoOn) -> None:
        self.service = service
        self.go_on = go_on
        self.in_flight: dict[Handshake, None] = {}  # in the order in which they came

    def enter(self, handshake: Handshake) -> None:
        """One more is in flight."""
        self.in_flight[handshake] = None
        if len(self.in_flight) > self.service.limits.tls_handshakes:
            next(iter(self.in_flight)).give_up("it gives way to newer ones (--limit-tls-handshakes)")

    def leave(self, handshake: Handshake) -> None:
        """It is over, in whatever way; to be called again does no harm."""
        self.in_flight.pop(handshake, None)


class Handshake(asyncio.Protocol):
    """One connection before the end of its handshake. It is the clock's `Timed` and the server's
    `Connection`.
    """

    __slots__ = ("_client", "_first", "_gate", "_names", "_over", "_session", "_transport", "armed")

    def __init__(self, gate: Gate, names: ConnectionNames | None = None) -> None:
        self._gate = gate
        self._names = names
        self._first = b""  # what comes until it is known whom to answer as
        self._session: TlsSession | None = None
        self._transport: asyncio.Transport
        self._client: tuple[str, int] | None = None
        self._over = False  # nothing is read as TLS any more
        self.armed = NEVER

    # --- from the transport --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection was accepted."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are, but do not say so
        service = self._gate.service
        prepare(self._transport, service.limits.write_buffer)
        self._client = self._names[0] if self._names else peer_name(transport.get_extra_info("peername"))
        service.connected(self)
        now = monotonic()
        service.clock.arm(self, now + service.limits.tls_handshake_timeout)
        self._gate.enter(self)
        if service.stopping and not self._over:
            self.stop(now, patient=True)

    def data_received(self, data: bytes) -> None:
        """Octets from the peer."""
        if self._over:
            return
        if self._session is not None:
            self._session.incoming.write(data)
        elif not self._begin(data):
            return
        self._go_on()

    def eof_received(self) -> bool:
        """The peer has closed, so that no handshake will come to an end."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed."""
        if not self._over:
            error_log.debug("%s: TLS: the client left during the handshake", self._client)
        self._over = True
        service = self._gate.service
        service.clock.disarm(self)
        self._gate.leave(self)
        service.disconnected(self)

    # --- from the clock and the server -----------------------------------------------------------------

    def on_deadline(self, now: float) -> None:
        """The handshake, or the last words after one that failed, took too long."""
        if self._over:
            self._transport.abort()
        else:
            self.give_up(
                "the server stops"
                if self._gate.service.stopping
                else "not complete in time (--timeout-tls-handshake)"
            )

    def give_up(self, why: str) -> None:
        """Close without a word: the client has said nothing yet that could be answered."""
        error_log.debug("%s: TLS: the handshake is given up: %s", self._client, why)
        self._over = True
        self._gate.leave(self)
        self._transport.abort()

    def stop(self, now: float, patient: bool = False) -> None:
        """The server stops: no request can have come yet.

        With `patient` one may be on its way, behind the rest of the handshake: both get a short time.
        """
        service = self._gate.service
        if not patient:
            self.give_up("the server stops")
        elif not self._over:
            service.clock.arm(self, min(self.armed, now + service.limits.linger_timeout))

    def told_to_end(self) -> None:
        """No application is running."""

    def abort(self) -> None:
        """Close now."""
        self._over = True
        self._transport.abort()

    # --- inside --------------------------------------------------------------------------------------

    def _begin(self, data: bytes) -> bool:
        """Whether the client speaks TLS, and has said whom it asks for."""
        self._first += data
        if self._first[0] != RECORD:
            self._refuse_plain(self._first)
            return False
        certificates = self._gate.service.tls
        assert certificates is not None
        session = certificates.begin(self._first)
        if session is None:
            return False
        session.incoming.write(self._first)
        self._first = b""
        self._session = session
        return True

    def _go_on(self) -> None:
        session = self._session
        assert session is not None
        try:
            session.ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._send(session)
        except ssl.SSLError as error:
            error_log.debug(
                "%s: TLS: the handshake failed: %s", self._client, error.reason or type(error).__name__
            )
            self._send(session)  # the alert
            self._linger()
        else:
            self._send(session)
            self._open(session)

    def _send(self, session: TlsSession) -> None:
        if session.outgoing.pending and not self._transport.is_closing():
            self._transport.write(session.outgoing.read())

    def _open(self, session: TlsSession) -> None:
        """The handshake is over: others take over, unless the client has left meanwhile."""
        if self._transport.is_closing():
            return
        gate = self._gate
        service = gate.service
        self._over = True
        gate.leave(self)
        service.clock.disarm(self)
        service.replaced(self, lambda: gate.go_on(self._transport, self._names, b"", session))

    def _refuse_plain(self, data: bytes) -> None:
        if not data[:1].isalpha():
            self.give_up("this is not TLS")
            return
        error_log.debug("%s: TLS: the client speaks HTTP without it", self._client)
        self._transport.write(PLAIN)
        self._gate.service.log_refusal(self._client, None, 400)
        self._linger()

    def _linger(self) -> None:
        """FIN, then drop what comes for a while: a reset would destroy our last words."""
        self._over = True
        self._gate.leave(self)
        service = self._gate.service
        service.clock.arm(self, monotonic() + service.limits.linger_timeout)
        try:
            self._transport.write_eof()
        except OSError:  # the peer has reset the connection
            self._transport.abort()
