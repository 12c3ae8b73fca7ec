"""Where certificates are: ``--tls-cert`` into pairs of files, and how it is seen that they have changed.

Knows paths; what is in the files is read elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import CertificateError
from ..rules import split_tls_cert

_CHAIN_ENDINGS = (".crt", ".pem", ".cer")
_KEY_ENDING = ".key"
_CERTBOT = ("fullchain.pem", "privkey.pem")
"""What a directory of certbot's, /etc/letsencrypt/live/NAME, has for a server."""

Seen = tuple[tuple[str, int, int, int], ...]
"""Paths with what changes when somebody writes them: time, size, number."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate's file, its chain in it too, and the file of its key: the same one if that is in it.

    `host` is the name to serve it for; ``None`` for the names that stand in the certificate.
    """

    host: str | None
    chain: str
    key: str


def pairs(places: tuple[str, ...], key: str | None) -> list[Pair]:
    """The files that ``tls_cert`` and ``tls_key`` name, a directory's sorted by name.

    Raises `CertificateError` for a directory that has none, or cannot be read.
    """
    found: list[Pair] = []
    for place in places:
        host, chain, own_key = split_tls_cert(place)
        if os.path.isdir(chain):
            inside = list(_inside(chain))
            if not inside:
                raise CertificateError(
                    f"tls_cert {chain!r}: no certificate in this directory: put in it NAME.crt and NAME.key, "
                    f"or directories that have {' and '.join(_CERTBOT)}"
                )
            found += inside
        else:
            found.append(Pair(host, chain, own_key or key or chain))
    return found


def _inside(directory: str) -> Iterator[Pair]:
    try:
        names = sorted(os.listdir(directory))
    except OSError as error:
        raise CertificateError(f"tls_cert {directory!r}: cannot be read: {error.strerror}") from error
    for name in names:
        path = os.path.join(directory, name)
        stem, ending = os.path.splitext(path)
        chain, key = (os.path.join(path, part) for part in _CERTBOT)
        if os.path.exists(chain):
            yield Pair(None, chain, key)
        elif ending in _CHAIN_ENDINGS and not os.path.isdir(path):
            yield Pair(None, path, stem + _KEY_ENDING if os.path.exists(stem + _KEY_ENDING) else path)


def look(paths: list[str]) -> Seen:
    """What the files at `paths` look like; one that is missing looks like nothing else."""
    return tuple(_look(path) for path in paths)


def _look(path: str) -> tuple[str, int, int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return path, -1, -1, -1
    return path, status.st_mtime_ns, status.st_size, status.st_ino
