"""The certificates of a worker: which one a client gets, what applications are told of it, and their renewal.

Given to drivers as `servery.drivers.tls_handshake.Certificates`. One thread may `refresh` while another
serves: what is served is replaced as a whole, and a handshake keeps what it has begun with.
"""

from __future__ import annotations

import logging
import ssl
import time

from ..config import Config
from ..errors import ServeryError
from .contexts import ServerContext, Terms, make_context
from .files import Pair, Seen, look, pairs
from .hello import server_name
from .password import read_password
from .self_signed import self_signed
from .session import Session
from .tickets import Kind, kind_of, origin

log = logging.getLogger("servery.error")


class Served:
    """The contexts in use at one time, by name. The first one is for clients that ask for no name we know.

    Their sessions begin in `origin`.
    """

    __slots__ = ("contexts", "default", "names", "origin")

    def __init__(self, contexts: list[ServerContext], origin: ssl.SSLContext) -> None:
        self.contexts = contexts
        self.origin = origin
        self.default = contexts[0]
        self.names: dict[str, ServerContext] = {}
        for context in contexts:
            for name in context.names:
                self.names.setdefault(name.lower(), context)

    def choose(self, name: str) -> ServerContext:
        """The context for a server name in lower case; a wildcard stands for one label (RFC 6125 section
        6.4.3).
        """
        found = self.names.get(name)
        if found is None and name:
            found = self.names.get(f"*.{name.partition('.')[2]}")
        return found or self.default


class Certificates:
    """Reads the files that `config` names. Raises `CertificateError` or `ConfigError`.

    `refresh` is for a watcher, and reads again what has changed.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        hosts = [config.host, *(text.rpartition(":")[0].strip("[]") for text in config.bind)]
        self._places = (self_signed(hosts),) if config.tls_self_signed else config.tls_cert
        self._kept: dict[Pair, tuple[Seen, ServerContext]] = {}
        self._loaded = self._noticed = self._look(self._pairs())
        self._failed: Seen | None = None
        self._kind: Kind | None = None
        self._served = self._load()

    # --- for drivers -----------------------------------------------------------------------------------

    def begin(self, octets: bytes) -> Session | None:
        """A session for the client whose first octets these are; ``None`` if its ClientHello is not
        complete.
        """
        try:
            name = server_name(octets)
        except ValueError:
            name = ""  # OpenSSL has the right alert for it
        served = self._served
        return None if name is None else Session(served.choose(name), name, served.origin)

    # --- for who renews ----------------------------------------------------------------------------------

    @property
    def described(self) -> str:
        """What is served, in a line."""
        names = sorted(self._served.names)
        return f"{len(self._served.contexts)} certificate(s) for {', '.join(names[:5]) or 'no name'}" + (
            f" and {len(names) - 5} more" if len(names) > 5 else ""
        )

    def refresh(self, forced: bool = False) -> None:
        """Read again what has changed, once it looks the same twice: somebody may be writing it just now.

        `forced` reads everything at once. What cannot be used is logged, once, and what is in use stays.
        Never raises.
        """
        try:
            seen = self._look(self._pairs())
            steady, self._noticed = seen == self._noticed, seen
            if forced:
                self._kept.clear()
            elif not steady or seen in (self._loaded, self._failed):
                return
            self._failed = seen  # unless it goes well
            self._served = self._load()
        except (ServeryError, OSError) as error:
            log.error("TLS: the certificates in use stay, the new ones cannot be used: %s", error)
        else:
            self._loaded, self._failed = seen, None
            log.info("TLS: read again: %s", self.described)

    def _pairs(self) -> list[Pair]:
        return pairs(self._places, self._config.tls_key)

    def _look(self, found: list[Pair]) -> Seen:
        config = self._config
        secret = config.tls_key_password or ""
        others = [config.tls_ca or "", secret.removeprefix("file:") if secret.startswith("file:") else ""]
        return look([path for pair in found for path in (pair.chain, pair.key)] + list(filter(None, others)))

    def _load(self) -> Served:
        kind, password = kind_of(self._config), read_password(self._config.tls_key_password)
        kept = {pair: self._context(pair, kind.terms, password) for pair in self._pairs()}
        begins_in = self._served.origin if kind == self._kind else origin(kind)
        self._kept, self._kind = kept, kind
        return Served([context for _, context in kept.values()], begins_in)

    def _context(self, pair: Pair, terms: Terms, password: str | None) -> tuple[Seen, ServerContext]:
        others = [terms.authorities] if terms.authorities is not None else []
        seen = look([pair.chain, pair.key, *others])
        if pair in self._kept and self._kept[pair][0] == seen:
            return self._kept[pair]
        context = make_context(pair, terms, password)
        if context.expires <= time.time():
            log.warning("TLS: the certificate in %r has expired: renew it", pair.chain)
        return seen, context
