"""The way into a supervised server, for the command line and for programs."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable

from .. import logs
from ..apps import load_app
from ..config import Config
from ..conflicts import gil_trouble
from ..errors import BindError, ConfigError
from ..leaving import leave_within
from ..selection import select
from ..tls.tickets import prepare_tickets
from . import upgrade
from .identity import find_identity, set_name, set_umask
from .interpreter import pickled
from .listening import Sockets
from .master import HANDLED, Master
from .pidfile import pidfile
from .runners import Job
from .signals import Signals
from .worker import run_worker


def run_supervised(config: Config, again: Callable[[], Config] | None = None) -> int:
    """Serve with as many worker processes as `config` asks for, until a signal; the exit code.

    `again` reads the configuration anew for a reload; without it, a reload is one of the application alone.
    Must be called in the main thread. Raises `ConfigError` and `StartupError` before anything serves. Returns
    in each worker process too, with that one's exit code.
    """
    logs.configure(config)
    select(config)
    find_identity(config)
    _check_platform(config)
    if upgrade.only_check():
        load_app(config)
        return 0
    state = upgrade.taken_over()
    set_umask(config)
    signals = Signals(HANDLED)
    with signals.handled(), pidfile(config.pidfile):
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)  # what came while the program was replaced
        outcome = _serve(config, again or (lambda: config), signals, state)
    return run_worker(outcome) if isinstance(outcome, Job) else outcome


def _check_platform(config: Config) -> None:
    """Whether what `config` asks for can be had here, now that all is imported that it needs."""
    if config.worker_kind == "thread" and (trouble := gil_trouble()):
        raise ConfigError(f"worker_kind thread: {trouble}")
    if config.worker_kind == "process" and config.start_method == "spawn":
        pickled(config, "worker_start spawn")
    if config.reuse_port and not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigError("reuse_port: this system has no SO_REUSEPORT: drop it")
    if config.worker_max_memory is not None and sys.platform == "win32":
        raise ConfigError("worker_max_memory: Windows does not tell how much a process uses: drop it")


def _serve(
    config: Config, again: Callable[[], Config], signals: Signals, state: dict[str, object] | None
) -> int | Job:
    sockets = Sockets(state["sockets"] if state else ())  # type: ignore[arg-type]
    try:
        sockets.bind(config)
        prepare_tickets(config)
        master = Master(config, again, signals, sockets)
        if state:
            master.take_over(state)
        _administer(master, config, upgraded=bool(state))
        if config.worker_kind == "thread":  # there is no other process to become somebody else
            set_name(config, "")
            find_identity(config).assume()
        else:
            set_name(config, "master")
        if config.preload:
            master.crew.loaded = load_app(config)
            gc.collect()
            gc.freeze()  # the collector must not write to what workers share
        outcome = master.run()
    except BaseException:
        sockets.close()
        raise
    if isinstance(outcome, Job):
        return outcome
    sockets.close()
    master.admin.close()
    if master.crew.left_behind:  # they would hold up the exit for ever
        return leave_within(config.timeout_cancel, outcome)
    return outcome


def _administer(master: Master, config: Config, upgraded: bool) -> None:
    """Open the admin listener. For want of that alone no server ends that serves already."""
    try:
        master.admin.follow(config)
    except BindError as error:
        if not upgraded:
            raise
        logging.getLogger(logs.ERROR_LOGGER).error("%s; going on without", error)
    master.admin.settle(config)
