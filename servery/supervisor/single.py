"""One process without a supervisor: what an operating system and a service manager expect of a server."""

from __future__ import annotations

import asyncio
import os
import time

from .. import logs
from ..config import Config
from ..listening import Bound, bind
from ..server import Server, start_line
from .identity import Identity, find_identity, set_name, set_umask
from .pidfile import pidfile
from .systemd import Notifier


class Manager:
    """Tells the service manager of the phases of a server; the server's companion."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier

    def serving(self, server: Server) -> None:
        """See `servery.server.Companion`."""
        bound = (server.listeners, server.redirects)
        self._notifier.ready(start_line(server.config, server.selection, 1, bound))
        self._live(asyncio.get_running_loop())

    def stopping(self) -> None:
        """See `servery.server.Companion`."""
        self._notifier.stopping()

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._notifier.watchdog_interval is not None:
            self._notifier.alive(time.monotonic())
            loop.call_later(self._notifier.watchdog_interval, self._live, loop)


def run_single(config: Config) -> int:
    """Serve in this process until a signal; the exit code. Main thread only.

    Raises `ConfigError` and `StartupError`.
    """
    identity = find_identity(config)
    set_umask(config)
    set_name(config, "")
    with pidfile(config.pidfile):
        bound = bind_and_become(config, identity) if config.user or config.group else None
        return Server(config, bound=bound, companion=Manager(Notifier(os.environ))).run()


def bind_and_become(config: Config, identity: Identity) -> Bound:
    """Listen with the rights that the process was started with, then give them up, before any import."""
    logs.configure(config)
    own, redirects = bind(config)
    listeners = (*own, *redirects)
    try:
        for listener in listeners:
            if listener.path is not None:
                identity.own(listener.path)
        identity.assume()
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return own, redirects
