"""The master: owns the listening sockets for its whole life, starts workers, and does what signals ask.

    TERM        stop, in the phases of a worker        HUP     reload application and configuration
    INT, QUIT   stop without waiting for requests      USR1    open log files anew
    TTIN, TTOU  one worker more, or less               USR2    replace the program, with sockets and workers

It runs no event loop and no application (unless ``preload`` asks for it), so that little can stop it. Workers
that are threads are in its process. Windows has Ctrl+C, which stops like INT, and Ctrl+Break, like TERM.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from .. import logs
from ..config import Config
from ..conflicts import gil_trouble
from ..errors import ServeryError
from ..server import INTERRUPTED, start_line
from ..streams import say
from ..tls.tickets import prepare_tickets
from . import upgrade
from .administration import Administration, MasterSource
from .board import open_board
from .channel import Channel
from .cpus import usable_cpus
from .crew import Crew
from .handle import State, Worker
from .identity import find_identity
from .listening import Sockets
from .orphans import reap_orphans
from .policy import Lifetime
from .runners import ChildProcess, Forking, Job, Starter
from .signals import Signals, existing
from .spawning import Spawning
from .systemd import Notifier
from .threads import Threading

TICK = 0.1
"""Seconds between two looks at the workers."""
LONGEST_STEP = 0.5
"""Seconds that pass at most between two looks, for what is counted: the machine may have slept meanwhile."""
QUIET_WAIT = 1.0
"""Seconds that the replacement of the program waits for whoever talks to the admin listener."""
LAST_WAIT = 1.0
"""Seconds between the order to end at once and the kill."""

HANDLED = existing("TERM", "INT", "BREAK", "QUIT", "HUP", "USR1", "USR2", "TTIN", "TTOU", "CHLD")
STOP = existing("TERM", "INT", "BREAK", "QUIT")
FAST = existing("INT", "QUIT")

log = logging.getLogger(logs.ERROR_LOGGER)

Again = Callable[[], Config]
"""Reads the configuration anew; raises `ConfigError`."""


def wanted_workers(config: Config) -> int:
    """The number of workers that the configuration asks for."""
    return usable_cpus() if config.workers == "auto" else int(config.workers)


class Master:
    """One supervised server, from its start to its end."""

    def __init__(self, config: Config, again: Again, signals: Signals, sockets: Sockets) -> None:
        self._again = again
        self._signals = signals
        self._sockets = sockets
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals, selectors.EVENT_READ)
        starter = _starter(config)
        board = open_board(for_spawned=isinstance(starter, Spawning))
        self.crew = Crew(config, wanted_workers(config), sockets, self._selector, starter, board)
        self._threads = isinstance(starter, Threading)
        self.admin = Administration(MasterSource(self), self._selector)
        self.crew.in_child = self.admin.let_go
        self.since = time.time()
        """Seconds of the system's clock at which the first program in this process began."""
        self._notifier = Notifier(os.environ)
        self._announced = self._reloading = False
        self._stop_signal = 0
        self._stop_at: float | None = None
        """Monotonic seconds at which the workers are asked to stop: after the drain delay."""
        self._fast = self._forced = False
        self._kill_at = float("inf")
        self._check: subprocess.Popen[bytes] | None = None
        self._exec_at: float | None = None
        """Monotonic seconds at which the program is replaced even if somebody waits for an answer."""
        self._folder = _folder()

    @property
    def ready(self) -> bool:
        """Whether load balancers may send requests: some worker serves, and no stop has begun."""
        serving = any(worker.state is State.SERVING for worker in self.crew.workers)
        return serving and not self._stop_signal

    @property
    def stopping(self) -> bool:
        """Whether a stop has begun."""
        return bool(self._stop_signal)

    @property
    def urls(self) -> list[str]:
        """Where it listens."""
        config = self.crew.config
        own, redirects = self._sockets.for_slot(0, config)
        return [listener.url_for(config.scheme) for listener in own] + [each.url for each in redirects]

    # --- what an administrator asks for ----------------------------------------------------------------

    def stop(self) -> None:
        """Begin a graceful stop, as SIGTERM does; not one that is more of a hurry if one has begun."""
        if not self._stop_signal:
            self._stop(signal.SIGTERM)

    def reload(self) -> str | None:
        """As SIGHUP; or why that cannot be."""
        return "the server is stopping" if self._stop_signal else self._reload()

    def scale(self, workers: int) -> str | None:
        """Have so many workers from now on; or why that cannot be."""
        return "the server is stopping" if self._stop_signal else self._scale(workers)

    def take_over(self, state: dict[str, Any]) -> None:
        """Go on with the workers of the program before this one; new ones replace them."""
        for entry in state["workers"]:
            channel = _adopt(entry["fd"], entry["unread"].encode())
            pid, slot, generation = entry["pid"], entry["slot"], entry["generation"]
            runner = ChildProcess(pid)
            worker = Worker(runner, slot, generation, channel, entry["started"], Lifetime(None, None, None))
            worker.state = State[entry["state"]]
            worker.deadline = float("inf") if entry["deadline"] is None else entry["deadline"]
            worker.metrics, worker.counted = entry["metrics"], entry["counted"]
            self.crew.adopt(worker)
        self.crew.generation = state["generation"]
        self.crew.gone, self.crew.restarts = state["gone"], Counter(state["restarts"])
        self.admin.take_over(state["admin"])
        self.since = state["since"]
        self.crew.replace(self.crew.config, self.crew.target, "upgrade")
        self.crew.had_served = self._announced = self._reloading = True

    # --- the loop ------------------------------------------------------------------------------------

    def run(self) -> int | Job:
        """Serve until a signal; the exit code. In a process forked for a worker: what that has to do."""
        before = time.monotonic()
        while True:
            for key, _ in self._selector.select(TICK):
                if key.data is not None:
                    self.crew.hear(key.data, time.monotonic())
            self.admin.poll()
            for number in self._signals.take():
                self._obey(number)
            now = time.monotonic()
            self.crew.reap(now)
            if not self._threads:  # else the application's own children are this process's
                reap_orphans(self._children())
            self.crew.watch(now, min(now - before, LONGEST_STEP))
            before = now
            if self.ready or not self._announced or self._stop_signal:
                self._notifier.alive(now)
            if self._stop_signal or self.crew.failure:
                if self._stopped(now):
                    return self._exit_code()
            else:
                job = self.crew.fill(now)
                if job is not None:
                    return job
                self._note_progress(now)

    def _children(self) -> set[int]:
        """The processes that somebody here waits for."""
        found = {worker.pid for worker in self.crew.workers}
        return found if self._check is None else found | {self._check.pid}

    def _note_progress(self, now: float) -> None:
        if self._check is not None and self._check.poll() is not None:
            self._finish_check(self._check.returncode, now)
        if self._check is not None or not self.crew.complete:
            return
        if not self._announced:
            self._announced = True
            config = self.crew.config
            bound = self._sockets.for_slot(0, config)
            line = start_line(config, _selection(config), self.crew.target, bound)
            say(line)
            if self._threads and (trouble := gil_trouble()):
                log.warning("the application has switched the GIL on: %s", trouble)
            self._notifier.ready(line)
        elif self._reloading:
            self._reloading = False
            self.crew.before = None
            self._sockets.prune(self.crew.config)
            self.admin.settle(self.crew.config)
            if self.crew.reverted:
                logs.configure(self.crew.config)
            else:
                log.info("reloaded: %d workers serve", self.crew.target)
            self._notifier.ready(f"{self.crew.target} workers serve")

    def _obey(self, number: int) -> None:
        if number in STOP:
            self._stop(number)
            return
        match signal.Signals(number).name:
            case "SIGUSR1":
                logs.reopen()
                for worker in self.crew.workers:
                    worker.ask("reopen")
            case _ if self._stop_signal:
                return
            case "SIGHUP":
                self._reload()
            case "SIGUSR2":
                self._begin_upgrade()
            case "SIGTTIN":
                self._scale(self.crew.target + 1)
            case "SIGTTOU":
                self._scale(self.crew.target - 1)

    def _scale(self, target: int) -> str | None:
        try:
            self._sockets.for_slot(max(target, 1) - 1, self.crew.config)
        except ServeryError as error:
            log.error("%s", error)
            return str(error)
        self.crew.target = max(target, 1)
        log.info("%d workers are wanted", self.crew.target)
        return None

    # --- reload and upgrade --------------------------------------------------------------------------

    def _reload(self) -> str | None:
        """New workers with a new configuration; whatever is wrong with it is told, and the old ones go on."""
        log.info("reloading")
        if self._threads:
            log.warning("reload: threads share the code that is imported already: only the settings are new")
        self._reloading = True
        self._notifier.reloading()
        try:
            with contextlib.suppress(OSError):
                os.chdir(self._folder)  # a link that may lead to a newer release by now
            config = self._again()
            _selection(config)
            find_identity(config)
            self._sockets.bind(config)
            self.admin.follow(config)
            prepare_tickets(config)
            if config.preload or self.crew.config.preload:
                self._begin_upgrade()  # what is imported here can only be replaced with the program
                return None
            logs.configure(config)
        except ServeryError as error:
            log.error("reload: %s; going on as before", error)
            self.crew.reverted = True
            return str(error)
        self.crew.replace(config, wanted_workers(config), "reload")
        return None

    def _begin_upgrade(self) -> None:
        if self._check is not None:
            return
        if self._threads:
            log.error("upgrade: workers that are threads end with the program that runs them; restart it")
            return
        log.info("trying out the program that is to replace this one")
        try:
            self._check = upgrade.start_check()
        except OSError as error:
            log.error("upgrade: cannot start %s: %s; going on as before", sys.executable, error.strerror)

    def _finish_check(self, code: int, now: float) -> None:
        """Replace the program if the new one could serve, once nobody waits for an answer of this one."""
        if code:
            self._check = None
            log.error("upgrade: the new program cannot serve (exit code %d); going on as before", code)
            self.crew.reverted = self._reloading = True
            return
        if self._exec_at is None:
            self._exec_at = now + QUIET_WAIT
            self.admin.pause()
        if self.admin.quiet or now >= self._exec_at:
            self._check = self._exec_at = None
            self._replace_program()
            self.admin.resume()

    def _replace_program(self) -> None:
        workers = self.crew.workers
        state = {
            "sockets": self._sockets.state(),
            "workers": [worker.state_for_successor() for worker in workers],
            "generation": self.crew.generation,
            "gone": self.crew.gone,
            "restarts": self.crew.restarts,
            "admin": self.admin.state(),
            "since": self.since,
        }
        log.info("replacing the program")
        handed = [*state["sockets"], *state["workers"], *state["admin"]]  # type: ignore[misc]
        descriptors = [entry["fd"] for entry in handed]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)  # they wait for the new program
        try:
            upgrade.hand_over(state, descriptors)
        except OSError as error:
            log.error("upgrade: cannot run %s: %s; going on as before", sys.executable, error.strerror)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    # --- the stop ------------------------------------------------------------------------------------

    def _stop(self, number: int) -> None:
        now = time.monotonic()
        fast = number in FAST
        if not self._stop_signal:
            self._stop_signal, self._fast = number, fast
            if self._check is not None:
                self._check.kill()
            if self._exec_at is not None:
                self._exec_at = None
                self.admin.resume()
            self._stop_at = now + (0.0 if fast else self.crew.config.drain_delay)
            log.info("stopping %d workers: %s", len(self.crew.workers), self._open_work())
            self._notifier.stopping()
        elif fast and not self._fast:
            self._fast, self._stop_at = True, now
        elif not self._forced:
            self._forced, self._stop_signal = True, number
            log.warning("stopping at once")
            self.crew.end_all("force", now)
            self._kill_at = now + LAST_WAIT

    def _stopped(self, now: float) -> bool:
        """Go on with the stop; whether it is over."""
        if self.crew.failure and not self._stop_signal:
            self._stop_signal, self._stop_at = signal.SIGTERM, now
        if self._stop_at is not None and now >= self._stop_at:
            self._stop_at = None
            self._sockets.close()  # before the workers' copies: who is too late shall be refused, not reset
            self.crew.end_all("hurry" if self._fast else "stop", now)
        if now >= self._kill_at:
            self._kill_at = float("inf")
            self.crew.kill_all()
        return not self.crew.workers

    def _exit_code(self) -> int:
        if self.crew.failure:
            text, code = self.crew.failure
            say(text)
            return code
        if self._forced:
            return INTERRUPTED + self._stop_signal
        return 1 if self.crew.unclean else 0

    def _open_work(self) -> str:
        counts = [worker.counts for worker in self.crew.workers]
        requests = sum(each.get("in_progress", 0) for each in counts)
        connections = sum(each.get("connections", 0) for each in counts)
        return f"{requests} requests in progress, {connections} connections open"


def _starter(config: Config) -> Starter:
    if config.worker_kind == "thread":
        return Threading()
    return Forking(HANDLED) if config.start_method == "fork" else Spawning(HANDLED)


def _selection(config: Config) -> Any:
    from ..selection import select

    return select(config)


def _adopt(fd: int, unread: bytes) -> Channel:
    import socket

    os.set_inheritable(fd, False)
    sock = socket.socket(fileno=fd)
    sock.setblocking(False)
    return Channel(sock, unread)


def _folder() -> str:
    """The working directory as the shell names it: perhaps by a link that leads to the newest release."""
    here = os.getcwd()
    named = os.environ.get("PWD", here)
    try:
        return named if os.path.samefile(named, here) else here
    except OSError:
        return here
