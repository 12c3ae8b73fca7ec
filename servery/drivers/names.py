"""Who is at the two ends of a connection, as its scopes say it.

Knows transports and what a balancer may have said instead; the scopes are made elsewhere.
"""

from __future__ import annotations

import asyncio

from ..addresses import peer_name, server_name
from ..asgi.scope import ConnectionInfo
from .service import Service

ConnectionNames = tuple[tuple[str, int] | None, tuple[str, int | None] | None, bool]
"""ASGI's ``client`` and ``server``, and whether the client has used TLS, where a balancer has said so."""


def connection_info(
    service: Service, transport: asyncio.Transport, names: ConnectionNames | None
) -> ConnectionInfo:
    """What all scopes of a connection have in common; `names` stand for those of its transport."""
    client, server, tls = names or (
        peer_name(transport.get_extra_info("peername")),
        server_name(transport.get_extra_info("sockname")),
        False,
    )
    return ConnectionInfo(
        client,
        server,
        "https" if tls else service.scheme,
        service.root_path,
        service.state,
        service.runs,
        transport.get_extra_info("tls"),
    )
