"""A certificate that nobody has signed, for development: made once, and kept in the user's cache.

Kept, so that a browser asks once and not at every start, and so that all workers serve the same one.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
import socket
import tempfile
import time
from typing import Any

from ..errors import CertificateError, ConfigError
from .der import expires

DAYS = 365
"""How long one is good for: Safari takes no more than 825."""
RENEW = 30 * 86_400
"""Seconds before its end when a new one is made."""
ALWAYS = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("", "0.0.0.0", "::")


def self_signed(hosts: list[str]) -> str:
    """The path of a PEM file with certificate and key for this machine and for `hosts`, names or addresses.

    Raises `ConfigError` without the package cryptography, `CertificateError` if the file cannot be written.
    """
    named = [host for host in hosts if host not in EVERYWHERE]
    names = sorted({*ALWAYS, socket.gethostname().lower(), *named})
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = os.path.join(home, "servery")
    path = os.path.join(directory, f"self-signed-{digest}.pem")
    if not _is_good(path):
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            _write(path, directory, _make(names))
        except OSError as error:
            raise CertificateError(
                f"tls_self_signed: the certificate cannot be kept in {directory!r} ({error.strerror}): "
                "set XDG_CACHE_HOME to a directory that can be written, or give tls_cert"
            ) from error
    return path


def _is_good(path: str) -> bool:
    import ssl

    try:
        with open(path, encoding="ascii") as stream:
            text = stream.read()
        return (
            expires(ssl.PEM_cert_to_DER_cert(text[: text.index("-----BEGIN PRIVATE")])) > time.time() + RENEW
        )
    except (OSError, ValueError):
        return False


def _write(path: str, directory: str, content: bytes) -> None:
    """Whole or not at all: another worker may be reading."""
    descriptor, temporary = tempfile.mkstemp(dir=directory)  # its mode is 0600
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _make(names: list[str]) -> bytes:
    """Certificate and key in PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError as error:
        raise ConfigError(
            "tls_self_signed needs the package cryptography, which is not installed: "
            "install it with `python -m pip install cryptography`, or give tls_cert"
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "servery self-signed")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName([_general_name(x509, name) for name in names]), False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem: bytes = certificate.public_bytes(serialization.Encoding.PEM) + private
    return pem


def _general_name(x509: Any, name: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
