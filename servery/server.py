"""One worker process: import the application, bind, start up, serve, stop.

Knows the order of these phases and what each may take; sockets, engines and the application are made elsewhere. One
signal always ends it in bounded time: see `Server._stop`.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from . import logs
from ._version import __version__
from .addresses import addresses
from .apps import LoadedApp, load_app
from .asgi.lifespan import Lifespan
from .config import Config
from .drivers.acceptor import Acceptor
from .drivers.asyncio_driver import AsyncioConnection, AsyncioWakeup
from .drivers.service import Service, error_log
from .drivers.stamp import DateStamp
from .errors import LifespanError
from .selection import select
from .sockets import Listener, bind_all

INTERRUPTED = 128
"""Exit code when a second signal ended the stop: this plus the signal's number."""


class Server:
    """Serves one application until it is told to stop.

    `started` is true from the moment connections are accepted. Setting `should_exit` from any thread begins a graceful stop;
    setting `force_exit` too ends it at once. `listeners` are the bound sockets, `urls` where they are reached.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.selection = select(config)
        self.started = False
        self.listeners: list[Listener] = []
        self.exit_code = 0
        self.left_behind = False
        """Requests or threads that did not end are still there: only leaving the process ends them."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._should_exit = self._force_exit = False
        self._signal = 0
        self._wake = asyncio.Event()

    @property
    def should_exit(self) -> bool:
        """Whether a graceful stop was asked for."""
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._should_exit = value
        self._call_soon(self._wake.set)

    @property
    def force_exit(self) -> bool:
        """Whether the stop is to end at once."""
        return self._force_exit

    @force_exit.setter
    def force_exit(self, value: bool) -> None:
        self._force_exit = value
        self._call_soon(self._hurry)

    @property
    def sockets(self) -> list[Any]:
        """The listening sockets."""
        return [listener.sock for listener in self.listeners]

    @property
    def urls(self) -> list[str]:
        """Where the server is reached: ``http://127.0.0.1:8000``, ``unix:/run/app.sock``."""
        return [listener.url for listener in self.listeners]
