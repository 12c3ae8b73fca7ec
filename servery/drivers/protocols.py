"""What makes the protocols of accepted connections, on whatever transport they are: what stands before what.

A preamble, if balancers send one, then a TLS handshake, if there is TLS, or a look at the first octets, if
they may be those of HTTP/2, then the connection proper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .asyncio_driver import AsyncioConnection
from .contracts import GoOn, TlsSession
from .http2_driver import Http2Connection
from .names import ConnectionNames
from .negotiation import Negotiation, TakeOver
from .preamble import PreambleConnection
from .service import Service
from .tls_handshake import Gate, Handshake
from .tls_transport import carry


def protocol_factory(
    service: Service, on: GoOn | None = None, negotiated: TakeOver | None = None
) -> Callable[[], asyncio.Protocol]:
    """A function that makes the protocol of a connection for `service`.

    `on` is what comes behind a preamble and a handshake, `negotiated` what comes behind a look at the first
    octets, if that is not a connection of the reference.
    """
    make = _behind_preamble(service, on, negotiated)
    if service.preamble is None:
        return lambda: make(None)
    stays = on is None or service.tls is not None or service.h2c
    rules, go_on = service.preamble, _go_on(make) if on is None or stays else on
    return lambda: PreambleConnection(service, rules, go_on)


Make = Callable[[ConnectionNames | None], asyncio.Protocol]
"""Makes the protocol of a connection, with the names that a balancer has given."""


def _behind_preamble(service: Service, on: GoOn | None, negotiated: TakeOver | None) -> Make:
    if service.tls is not None:
        gate = Gate(service, _behind_handshake(service, on))
        return lambda names: Handshake(gate, names)
    if service.h2c:
        return lambda names: Negotiation(service, names, negotiated)
    return lambda names: AsyncioConnection(service, names)


def _behind_handshake(service: Service, on: GoOn | None) -> GoOn:
    """What speaks the protocol that ALPN has agreed on (RFC 9113 section 3.2)."""

    def begin(
        transport: asyncio.Transport, names: ConnectionNames | None, ahead: bytes, session: TlsSession | None
    ) -> None:
        assert session is not None
        if session.ssl.selected_alpn_protocol() == "h2":
            carry(transport, session, Http2Connection(service, names))
        elif on is not None:
            on(transport, names, ahead, session)
        else:
            carry(transport, session, AsyncioConnection(service, names))

    return begin


def _go_on(make: Make) -> GoOn:
    """Another protocol takes the transport over."""

    def begin(
        transport: asyncio.Transport, names: ConnectionNames | None, ahead: bytes, session: TlsSession | None
    ) -> None:
        protocol = make(names)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if ahead:
            protocol.data_received(ahead)

    return begin
