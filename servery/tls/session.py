"""One client's TLS: its `ssl.SSLObject`, and what applications are told of it.

https://asgi.readthedocs.io/en/latest/specs/tls.html
"""

from __future__ import annotations

import ssl
from typing import Any

from .contexts import ServerContext
from .der import subject

_VERSIONS = {"TLSv1.2": 0x0303, "TLSv1.3": 0x0304}


class Session:
    """TLS with one client. What it sends goes into `incoming`, what is for it comes out of `outgoing`.

    `context` has the certificate, `origin` the keys of tickets (see `servery.tls.tickets`); `name` is what
    the client has asked for.
    """

    __slots__ = ("_context", "_name", "incoming", "outgoing", "ssl")

    def __init__(self, context: ServerContext, name: str, origin: ssl.SSLContext) -> None:
        self._context = context
        self._name = name
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.ssl = origin.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.ssl.context = context

    def describe(self) -> dict[str, dict[str, Any]]:
        """The extensions ``tls`` and ``servery.tls`` of a scope, once the handshake is over."""
        cipher = self.ssl.cipher()
        version = self.ssl.version()
        name = cipher[0] if cipher is not None else ""
        chain = self._client_chain()
        return {
            "tls": {
                "server_cert": self._context.pem,
                "client_cert_chain": [ssl.DER_cert_to_PEM_cert(der) for der in chain],
                "client_cert_name": _subject(chain[0]) if chain else None,
                "client_cert_error": None,  # a certificate that cannot be verified ends the handshake
                "tls_version": _VERSIONS.get(version or ""),
                "cipher_suite": self._context.suites.get(name),
            },
            "servery.tls": {
                "server_name": self._name or None,
                "alpn_protocol": self.ssl.selected_alpn_protocol(),
                "version": version,
                "cipher": name,
            },
        }

    def _client_chain(self) -> list[bytes]:
        """What the client has sent, in DER, its own certificate first; of a resumed session that one
        alone.
        """
        own = self.ssl.getpeercert(binary_form=True)
        if own is None:
            return []
        if hasattr(self.ssl, "get_unverified_chain"):  # Python 3.13
            chain = [bytes(der) for der in self.ssl.get_unverified_chain()]
        else:
            sent = self.ssl._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
            chain = [ssl.PEM_cert_to_DER_cert(certificate.public_bytes()) for certificate in sent or ()]
        return chain if chain and chain[0] == own else [own, *chain]


def _subject(der: bytes) -> str | None:
    try:
        return subject(der)
    except ValueError:  # OpenSSL took it, so that nothing but a type unknown here can be wrong
        return None
