"""Reload for developers: a parent that keeps the port bound and starts a new server when a file changes.

Connections that arrive while there is no child wait in the backlog of the sockets. The parent never
imports the application, so nothing that the application does can stop it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from types import FrameType

from .. import logs
from ..config import SETTINGS, Config
from ..conflicts import RELOAD_DETAILS
from ..failures import EXIT_UNCLEAN
from ..server import INTERRUPTED
from ..sockets import bind_all, places
from .child import Child
from .orphans import reap_orphans
from .signals import Signals
from .watch import Rules, Watcher, open_watcher

MARGIN = 1.0
"""Seconds that a child may take to exit beyond the sum of its own time-outs."""
TICK = 0.25
"""Seconds between two looks at a process that stops, where the system sends no SIGCHLD."""
NOT_FOR_CHILDREN = ("reload", *RELOAD_DETAILS, "host", "port", "uds", "fd", "uds_mode")
"""What the parent has done already, and what would contradict the sockets that the child is given."""

STOP = (signal.SIGINT, signal.SIGTERM)

log = logging.getLogger(logs.ERROR_LOGGER)


class StopSignals(Signals):
    """Counts SIGINT and SIGTERM, and wakes the waiting parent up for them and for the end of a child."""

    def __init__(self) -> None:
        super().__init__((*STOP, signal.SIGCHLD) if sys.platform != "win32" else STOP)
        self.count = 0
        self.last = 0
        """The number of the last of them."""

    def note(self, number: int, frame: FrameType | None) -> None:
        """See `Signals`. Counted at once: a watcher asks `is_set` without having waited."""
        super().note(number, frame)
        if number in STOP:
            self.count += 1
            self.last = number

    def is_set(self) -> bool:
        """Whether the parent was told to stop."""
        return self.count > 0

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for any signal; whether the parent was told to stop."""
        self.sleep(timeout)
        self.take()
        return self.is_set()


def run_reloader(config: Config) -> int:
    """Serve `config.app` in a child process and replace that process whenever a source file changes.

    Returns the exit code after SIGINT or SIGTERM, that of a child which was stopped; a second one kills a
    child that is still stopping. Logs to ``servery.error``. Must be called in the main thread. Raises
    `ConfigError` and `BindError` before anything has been started.
    """
    code = 0
    logs.configure(config)
    rules = Rules(config.reload_dir or _sources(config), config.reload_include, config.reload_exclude)
    where = places(config) if sys.platform != "win32" else []
    listeners = bind_all(where, uds_mode=config.uds_mode, backlog=config.backlog)
    fds = [listener.sock.fileno() for listener in listeners]
    try:
        stop = StopSignals()
        with stop.handled():
            watcher = open_watcher(rules, config.reload_delay, stop)
            log.info("reloading with %s; watching %s", watcher.name, ", ".join(rules.roots))
            while not stop.is_set():
                child = Child(_for_child(config, fds), fds)
                try:
                    changes = _until_change(child, watcher, stop)
                    if changes:
                        log.info("%s changed; reloading", _summary(changes))
                finally:
                    code = _stop(child, _grace(config), stop)
    finally:
        for listener in listeners:
            listener.close()
    return code


def _sources(config: Config) -> tuple[str, ...]:
    """The current directory, and `app_dir` where that lies elsewhere."""
    here, there = os.path.realpath(""), os.path.realpath(config.app_dir)
    return (here,) if os.path.join(there, "").startswith(os.path.join(here, "")) else (here, there)


def _for_child(config: Config, fds: list[int]) -> Config:
    if not fds:
        return config.replace(reload=False, **{name: SETTINGS[name].default for name in RELOAD_DETAILS})
    defaults = {name: SETTINGS[name].default for name in NOT_FOR_CHILDREN}
    return config.replace(**defaults, bind=tuple(f"fd://{fd}" for fd in fds))


def _grace(config: Config) -> float:
    """Seconds after which a child that was asked to stop has broken its own promises."""
    limits = config.limits
    lifespan = config.timeout_lifespan_shutdown
    if lifespan is None:
        return float("inf")
    return limits.graceful_timeout + limits.cancel_timeout + lifespan + MARGIN


def _until_change(child: Child, watcher: Watcher, stop: StopSignals) -> list[str]:
    """Wait for changes, or for a signal (then the list is empty); tell when the child ends before that."""
    told = False
    while not stop.is_set():
        changes = watcher.wait()
        if changes:
            return changes
        reap_orphans({child.process.pid})
        ended = child.ended()
        if ended and not told and not stop.is_set():
            told = True
            log.error("the server process %s; waiting for a file to change to start it again", ended)
    return []


def _stop(child: Child, grace: float, stop: StopSignals) -> int:
    """Ask the child to stop, and kill it after `grace` seconds or a second signal. It is gone afterwards.

    Returns the exit code for it: 0 if it had ended before.
    """
    deadline = time.monotonic() + grace
    if child.ended():
        child.close()
        return 0
    child.process.terminate()
    if stop.is_set():
        log.info("stopping the server process; a second signal kills it")
    while not child.ended():
        overdue = time.monotonic() >= deadline
        if overdue or stop.count > 1:
            reason = f"did not stop within {grace:g} seconds" if overdue else "was stopping"
            log.warning("the server process %s; killing it", reason)
            child.process.kill()
            child.process.wait()
            break
        stop.wait(max(0.0, min(TICK, deadline - time.monotonic())))
    child.close()
    if child.process.returncode >= 0:
        return child.process.returncode
    return INTERRUPTED + stop.last if stop.count > 1 else EXIT_UNCLEAN


def _summary(changes: list[str]) -> str:
    return changes[0] if len(changes) == 1 else f"{changes[0]} and {len(changes) - 1} more"
