"""servery: an application server for Python. It owns the socket, speaks HTTP and runs ASGI applications.

    import servery
    servery.run("module:app", port=8000)          # until a signal
    await servery.serve(app, port=0)              # inside of a running event loop

Names are imported when they are first used, so that ``servery --help`` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .api import run, serve
    from .config import Config
    from .errors import ClientDisconnected, ConfigError, ServeryError, StartupError
    from .server import Server

__all__ = [
    "ClientDisconnected",
    "Config",
    "ConfigError",
    "Server",
    "ServeryError",
    "StartupError",
    "__version__",
    "run",
    "serve",
]

_HOMES = {
    "Config": "config",
    "ClientDisconnected": "errors",
    "ConfigError": "errors",
    "ServeryError": "errors",
    "StartupError": "errors",
    "Server": "server",
    "run": "api",
    "serve": "api",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'servery' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"servery.{home}"), name)
