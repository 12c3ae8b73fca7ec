"""What a worker accepts connections from: its own listeners, and those that only redirect to them.

Knows which service gets the connections of which sockets; how they are bound is the business of `sockets`,
and accepting that of the `Io`.
"""

from __future__ import annotations

from collections.abc import Sequence

from .config import Config
from .drivers.acceptor import Acceptor
from .drivers.io import Io
from .drivers.service import Service
from .sockets import Address, Listener, bind_all, parse_bind, places, tcp_port
from .tls.redirect import Redirect

Bound = tuple[list[Listener], list[Listener]]
"""Listeners of a server, and those that only redirect to them."""


def places_of_redirects(config: Config) -> list[Address]:
    """Where to listen for what is only redirected."""
    return [parse_bind(text) for text in config.tls_redirect]


def bind(config: Config) -> Bound:
    """Bind all that `config` names. Raises `BindError`, with nothing left bound."""
    own = bind_all(places(config), uds_mode=config.uds_mode, backlog=config.backlog)
    try:
        redirects = places_of_redirects(config)
        return own, bind_all(redirects, uds_mode=config.uds_mode, backlog=config.backlog)
    except BaseException:
        for listener in own:
            listener.close()
        raise


async def listen(
    io: Io, service: Service, config: Config, own: Sequence[Listener], redirects: Sequence[Listener]
) -> list[Acceptor]:
    """Accept for `service` from its `own` listeners, and for the redirect to them from the others."""
    acceptors = list(await io.listen([listener.sock for listener in own], service))
    if redirects:
        redirect = Redirect(config.tls_redirect_port or tcp_port(own))
        acceptors += await io.listen([listener.sock for listener in redirects], service.beside(redirect))
    return acceptors


def described(scheme: str, own: Sequence[Listener], redirects: Sequence[Listener]) -> str:
    """All of them, for the start-up line."""
    where = " ".join(listener.url_for(scheme) for listener in own)
    if not redirects:
        return where
    return f"{where} · to https from {' '.join(listener.url for listener in redirects)}"
