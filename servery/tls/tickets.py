"""Where TLS sessions begin: contexts without a certificate, whose keys seal the tickets by which sessions are
resumed.

OpenSSL seals tickets with keys of the context in which a connection begins, whatever context gives it a
certificate afterwards (RFC 5077, RFC 8446 section 4.6.1). Python cannot set these keys, but a process that is
forked has those of its parent. So a master has such a context before it forks its workers, and a client is
resumed by each of them; and by one whose certificates have been renewed meanwhile.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from ..config import Config
from .contexts import Terms, context_on, terms_of
from .files import Seen, look


@dataclass(frozen=True, slots=True)
class Kind:
    """What sessions that may be resumed have in common.

    Who has been resumed shows no certificate again: with other authorities than before, none may be.
    """

    terms: Terms
    authorities: Seen


def kind_of(config: Config) -> Kind:
    """That of the sessions of a server, now."""
    return Kind(terms_of(config), look([config.tls_ca] if config.tls_ca is not None else []))


_prepared: dict[Kind, ssl.SSLContext] = {}


def prepare_tickets(config: Config) -> None:
    """New keys, for the processes that are forked from now on. Raises `ConfigError`."""
    _prepared.clear()
    if config.uses_tls:
        kind = kind_of(config)
        _prepared[kind] = context_on(kind.terms)


def origin(kind: Kind) -> ssl.SSLContext:
    """The context that was prepared for such sessions; else one of its own. Raises `ConfigError`."""
    return _prepared.get(kind) or context_on(kind.terms)
