"""Telling systemd how far the server is: sd_notify(3). Without ``NOTIFY_SOCKET`` nothing is sent.

The variable stays, so that a program which replaces this one tells too. Descriptors, for socket
activation, are the business of `sockets`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping


class Notifier:
    """Sends states to the service manager. A manager that cannot be reached is no error."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self.watchdog_interval = _watchdog_interval(environ) if path else None
        """Seconds between two signs of life that the manager waits for; None if it waits for none."""
        self._next_sign = 0.0

    def ready(self, status: str) -> None:
        """The server serves, or serves again after a reload."""
        self._send(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")

    def reloading(self) -> None:
        """A reload has begun; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The stop has begun."""
        self._send("STOPPING=1")

    def alive(self, now: float) -> None:
        """A sign of life, if it is time for one."""
        if self.watchdog_interval is not None and now >= self._next_sign:
            self._next_sign = now + self.watchdog_interval
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if self._address and hasattr(socket, "AF_UNIX"):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.connect(self._address)
                sock.send(text.encode())


def _watchdog_interval(environ: Mapping[str, str]) -> float | None:
    """Half of what the manager allows, as sd_watchdog_enabled(3) advises."""
    try:
        if int(environ.get("WATCHDOG_PID", os.getpid())) != os.getpid():
            return None
        return int(environ["WATCHDOG_USEC"]) / 2e6
    except (KeyError, ValueError):
        return None
