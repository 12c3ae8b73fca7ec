"""Serving from Python: the two functions most programs need. `servery.server.Server` gives more control."""

from __future__ import annotations

from typing import Any

from .apps import refuse_while_importing
from .config import Config
from .server import Server
from .supervisor import needs_supervisor


def run(app: Any, **settings: Any) -> None:
    """Serve `app` (an ASGI callable or ``"module:attr"``) until a signal; `settings` are those of `Config`.

    With ``reload=True`` a child process serves, and is replaced when a file changes. With ``workers`` several
    processes serve; this returns in each of them. Raises `ConfigError` or `StartupError`; leaves with
    `SystemExit` if the stop was not clean.
    """
    refuse_while_importing()
    config = Config(app=app, **settings)
    if needs_supervisor(config):
        from .supervisor.supervise import run_supervised

        code = run_supervised(config)
    elif config.reload:
        from .supervisor.reloader import run_reloader

        code = run_reloader(config)
    else:
        from .supervisor.single import run_single

        code = run_single(config)
    if code:
        raise SystemExit(code)


async def serve(app: Any, **settings: Any) -> None:
    """Serve `app` inside of the running event loop until the task is cancelled; see `Server` for more."""
    await Server(Config(app=app, **settings)).serve()
