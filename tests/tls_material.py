"""Certificates for tests of TLS: an authority of their own, and the files and contexts made from it."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import trustme
from harness import Running


class Material:
    """An authority, and what it has issued in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(folder / "ca.pem")

    @property
    def ca(self) -> str:
        """The file of the authority's certificate."""
        return str(self.folder / "ca.pem")

    def issue(self, *names: str, to: str = "server", **more: Any) -> str:
        """A certificate for `names`, chain and key in one file; its path."""
        return str(self.write(self.authority.issue_cert(*names, **more), self.folder / f"{to}.pem"))

    @staticmethod
    def write(issued: trustme.LeafCert, path: Path) -> Path:
        """All of a certificate into one file, as renewing tools do it: beside it first, then in its place."""
        temporary = path.with_suffix(".new")
        issued.private_key_and_cert_chain_pem.write_to_path(temporary)
        temporary.replace(path)
        return path

    def client(self, own: str | None = None, **settings: Any) -> ssl.SSLContext:
        """A client that trusts the authority, and shows the certificate in the file `own`."""
        context = ssl.create_default_context(cafile=self.ca)
        if own is not None:
            context.load_cert_chain(own)
        for name, value in settings.items():
            setattr(context, name, value)
        return context


def secured(server: Running, context: ssl.SSLContext, name: str = "localhost") -> ssl.SSLSocket:
    """A client's socket after the handshake."""
    return wrapped(server.connect(), context, name)


def wrapped(sock: socket.socket, context: ssl.SSLContext, name: str | None = "localhost") -> ssl.SSLSocket:
    """The handshake on a connected socket, which is closed if it fails."""
    try:
        return context.wrap_socket(sock, server_hostname=name)
    except BaseException:
        sock.close()
        raise


def shown(sock: ssl.SSLSocket) -> set[str]:
    """The DNS names in the certificate that the server has shown."""
    certificate = sock.getpeercert()
    assert certificate is not None
    return {str(name) for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"}
