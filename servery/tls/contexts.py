"""One certificate's `ssl.SSLContext`: what is agreed on with every client, and errors that tell what to
change.

Knows `ssl` and the settings; which certificate serves which name is decided elsewhere.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from functools import cached_property

from ..config import Config
from ..errors import CertificateError, ConfigError
from .der import dns_names, expires
from .files import Pair

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class Terms:
    """What is the same for all certificates of a server.

    `clients` says whether clients show a certificate: ``none``, ``optional`` or ``required``; `authorities`
    is a file or directory of those who may issue them. `protocols` are the
    names that ALPN agrees on, in the server's order (RFC 7301).
    """

    authorities: str | None
    clients: str
    minimum: str
    ciphers: str
    protocols: tuple[str, ...]


PROTOCOLS = {False: ("http/1.1",), True: ("h2", "http/1.1")}
"""What ALPN agrees on, without and with HTTP/2."""


def terms_of(config: Config) -> Terms:
    """What `config` says of them."""
    return Terms(
        config.tls_ca,
        config.tls_client_cert,
        config.tls_min_version,
        config.tls_ciphers,
        PROTOCOLS[config.http2],
    )


class ServerContext(ssl.SSLContext):
    """A context with its certificate. Made by `make_context`."""

    pem: str
    """The certificate, without its chain."""
    names: tuple[str, ...]
    """What it is served for, in lower case: ``a.example``, ``*.example``."""
    expires: int
    """When its time is over, in seconds since the epoch."""

    @cached_property
    def suites(self) -> dict[str, int]:
        """The number of each cipher suite by OpenSSL's name (RFC 8446 appendix B.4)."""
        return {cipher["name"]: cipher["id"] & 0xFFFF for cipher in self.get_ciphers()}


def context_on(terms: Terms) -> ServerContext:
    """A context without a certificate. Raises `ConfigError` for ciphers that do not exist."""
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[terms.minimum]
    # The server's order is the operator's word; compression and renegotiation are attacks (CRIME, and work
    # without end).
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    try:
        context.set_ciphers(terms.ciphers)
    except ssl.SSLError:
        raise ConfigError(
            f"tls_ciphers: {terms.ciphers!r} names no cipher that OpenSSL knows: "
            "write names or groups as `openssl ciphers` lists them, with colons between"
        ) from None
    context.set_alpn_protocols(terms.protocols)
    context.verify_mode = _VERIFY[terms.clients]
    return context


def make_context(pair: Pair, terms: Terms, password: str | None) -> ServerContext:
    """Read the files of `pair`; `password` opens the key. Raises `CertificateError` or `ConfigError`."""
    context = context_on(terms)
    _load_chain(context, pair, password)
    if terms.authorities is not None:
        _load_authorities(context, terms.authorities)
    return context


def _load_chain(context: ServerContext, pair: Pair, password: str | None) -> None:
    for path in (pair.chain, pair.key):
        _check_readable("tls_cert" if path == pair.chain else "tls_key", path)
    asked = _Password(pair.key, password)
    try:
        context.load_cert_chain(pair.chain, pair.key, asked)
        der, context.pem = _first_certificate(pair.chain)
        context.names = (pair.host,) if pair.host is not None else tuple(dns_names(der))
        context.expires = expires(der)
    except ssl.SSLError as error:
        raise CertificateError(_why(error, pair, asked.told)) from None
    except (ValueError, UnicodeDecodeError):
        raise CertificateError(f"tls_cert {pair.chain!r}: cannot be read as a PEM certificate") from None


class _Password:
    """OpenSSL calls it for an encrypted key; without it, it would ask on the terminal."""

    def __init__(self, path: str, password: str | None) -> None:
        self._path = path
        self._password = password
        self.told = False

    def __call__(self) -> str:
        if self._password is None:
            raise CertificateError(f"tls_key {self._path!r}: the key is encrypted: give tls_key_password")
        self.told = True
        return self._password


def _why(error: ssl.SSLError, pair: Pair, told: bool) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"tls_key {pair.key!r}: this is not the key of the certificate in {pair.chain!r}: give its own"
    if told:  # what the reason is called then depends on the version of OpenSSL
        return f"tls_key {pair.key!r}: tls_key_password does not open it"
    if pair.key == pair.chain and "PRIVATE KEY" not in _text(pair.key):
        return f"tls_cert {pair.chain!r}: there is no key in it: give tls_key, or write {pair.chain},KEY"
    return (
        f"tls_cert {pair.chain!r}, key {pair.key!r}: OpenSSL cannot read them ({error.reason or error}): "
        "both must be PEM, the certificate before its chain"
    )


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    _check_readable("tls_ca", path)
    try:
        if os.path.isdir(path):
            context.load_verify_locations(capath=path)
        else:
            context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise CertificateError(
            f"tls_ca {path!r}: OpenSSL finds no certificate there ({error.reason or error}): it must be PEM"
        ) from None


def _check_readable(setting: str, path: str) -> None:
    try:
        os.stat(path)
        if not os.path.isdir(path):
            with open(path, "rb"):
                pass
    except OSError as error:
        raise CertificateError(f"{setting} {path!r}: cannot be read: {error.strerror}") from error


def _text(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as stream:
        return stream.read()


def _first_certificate(path: str) -> tuple[bytes, str]:
    """(DER, PEM) of the certificate that a file begins with: what is shown to clients as the server's own."""
    _, begin, rest = _text(path).partition("-----BEGIN CERTIFICATE-----")
    body, end, _ = rest.partition("-----END CERTIFICATE-----")
    pem = f"{begin}{body}{end}\n"
    return ssl.PEM_cert_to_DER_cert(pem), pem
