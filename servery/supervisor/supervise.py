"""The way into a supervised server, for the command line and for programs."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable

from .. import logs
from ..apps import load_app
from ..config import Config
from ..errors import ConfigError
from ..selection import select
from . import upgrade
from .identity import find_identity, set_name, set_umask
from .listening import Sockets
from .master import HANDLED, Master
from .pidfile import pidfile
from .signals import Signals
from .worker import Job, run_worker


def run_supervised(config: Config, again: Callable[[], Config] | None = None) -> int:
    """Serve with as many worker processes as `config` asks for, until a signal; the exit code.

    `again` reads the configuration anew for a reload; without it, a reload is one of the application alone.
    Must be called in the main thread. Raises `ConfigError` and `StartupError` before anything serves. Returns
    in each worker process too, with that one's exit code.
    """
    if not hasattr(signal, "SIGHUP"):
        raise ConfigError(
            "several workers need a system with fork(): serve with one, or start several servers"
        )
    logs.configure(config)
    select(config)
    find_identity(config)
    if upgrade.only_check():
        load_app(config)
        return 0
    state = upgrade.taken_over()
    set_umask(config)
    signals = Signals(HANDLED)
    with signals.handled(), pidfile(config.pidfile):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)  # what came while the program was replaced
        outcome = _serve(config, again or (lambda: config), signals, state)
    return run_worker(outcome) if isinstance(outcome, Job) else outcome


def _serve(
    config: Config, again: Callable[[], Config], signals: Signals, state: dict[str, object] | None
) -> int | Job:
    sockets = Sockets(state["sockets"] if state else ())  # type: ignore[arg-type]
    try:
        sockets.bind(config)
        master = Master(config, again, signals, sockets)
        if state:
            master.take_over(state)
        set_name(config, "master")
        if config.preload:
            master.crew.loaded = load_app(config)
            gc.collect()
            gc.freeze()  # the collector must not write to what workers share
        outcome = master.run()
    except BaseException:
        sockets.close()
        raise
    if not isinstance(outcome, Job):
        sockets.close()
    return outcome
