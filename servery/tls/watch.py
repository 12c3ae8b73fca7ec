"""Renewal while serving: a thread that looks at the files of certificates from time to time, or when it is
told to.

A thread, and not a timer of the event loop: a disk that hangs, or a hundred certificates, must not hold up
clients.
"""

from __future__ import annotations

import threading

from ..config import Config
from .certificates import Certificates


def watch(config: Config) -> Watcher | None:
    """The certificates of `config`, read; ``None`` without TLS. Raises `CertificateError` or
    `ConfigError`.
    """
    return Watcher(Certificates(config), config.tls_watch) if config.uses_tls else None


class Watcher:
    """Calls `Certificates.refresh` every `interval` seconds, only when told to if that is ``None``."""

    def __init__(self, certificates: Certificates, interval: float | None) -> None:
        self.certificates = certificates
        self._interval = interval
        self._wake = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="servery-tls", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def refresh(self) -> None:
        """Read all certificates again, now; from any thread, and from a signal handler."""
        self._wake.set()

    def close(self) -> None:
        """Look no more."""
        self._ended = True
        self._wake.set()

    def _run(self) -> None:
        while not self._ended:
            told = self._wake.wait(self._interval)
            self._wake.clear()
            if not self._ended:
                self.certificates.refresh(forced=told)
