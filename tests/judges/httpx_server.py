"""A pytest plugin for httpx's own suite: where it imports uvicorn, it gets servery.

The suite wants `uvicorn.config.Config` and a `uvicorn.server.Server` to derive from. These two, with what
it uses of them, stand here; nothing named uvicorn is installed. Loaded with ``-p httpx_server`` by
`run.py`.
"""

from __future__ import annotations

import asyncio
import sys
import types
from typing import Any

import servery


class Config:
    """The settings of a server. The suite expects this address and this Server field word for word."""

    is_ssl = False
    host = "127.0.0.1"

    def __init__(self, app: Any, lifespan: str, loop: str) -> None:
        self.port = 8000
        self.settings = servery.Config(
            app=app,
            host=self.host,
            port=self.port,
            lifespan=lifespan,
            loop=loop,
            access_log=False,
            server_header=False,
            header=("server: uvicorn",),
        )


class Server:
    """Runs in a thread that the suite starts; it polls `started` and sets `should_exit`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.inner = servery.Server(config.settings)

    @property
    def started(self) -> bool:
        """Whether connections are accepted."""
        return self.inner.started

    @property
    def should_exit(self) -> bool:
        """Whether the server is to stop."""
        return self.inner.should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self.inner.should_exit = value

    def run(self) -> None:
        """Serve until `should_exit`."""
        asyncio.run(self.serve())

    async def serve(self, sockets: None = None) -> None:
        """Serve in the running loop."""
        await self.inner.serve()


def stand_in(name: str, **contents: Any) -> None:
    """Make ``import name`` find a module with `contents`."""
    module = types.ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module


stand_in("uvicorn", config=None, server=None)
stand_in("uvicorn.config", Config=Config)
stand_in("uvicorn.server", Server=Server)
