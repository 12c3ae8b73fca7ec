"""A worker of the master: a `Server` of its own, and the link by which it reports and obeys."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading

from .. import logs
from ..config import Config
from ..drivers.service import error_log
from ..errors import ServeryError
from ..failures import describe
from ..leaving import leave_within
from ..server import Server
from . import stacks
from .channel import Channel, Message
from .identity import find_identity, set_name
from .runners import Job
from .signals import existing

BEAT = 1.0
"""Seconds between two reports of a worker whose event loop turns."""
QUICK_BEAT = 0.1
"""The same where requests are counted, so that a worker is replaced soon after its limit."""

FOR_THE_MASTER = existing("INT", "BREAK", "QUIT", "HUP", "USR1", "USR2")


def run_worker(job: Job) -> int:
    """Serve in this process until the master, or a signal, says to stop; the exit code. Main thread only."""
    # Ctrl+C goes to every process of the terminal; the master tells its workers what it means. Not SIG_IGN:
    # the application's own children would inherit that.
    for number in FOR_THE_MASTER:
        signal.signal(number, lambda *_: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if not faulthandler.is_enabled() and sys.stderr is not None:
        faulthandler.enable()  # what SIGABRT shows when even the link's thread cannot run
    return leave_within(job.config.timeout_cancel, serve_job(job, own_process=True))


def serve_job(job: Job, *, own_process: bool) -> int:
    """Serve until the master, or a signal, says to stop; the exit code.

    With a process of its own, that becomes who the configuration says; else the master has done so.
    """
    link = Link(job.channel, _beat(job.config), exits=own_process)
    try:
        if own_process:
            set_name(job.config, "worker")
            find_identity(job.config).assume()
        server = Server(
            job.config,
            bound=job.bound,
            loaded=job.loaded,
            companion=link,
            signals=(signal.SIGTERM,),
            sets_up_logs=own_process,
            loads=job.board.loads(job.slot) if job.board is not None else None,
        )
        link.start(server)
        return server.run(announce=False)
    except ServeryError as error:
        text, code = describe(error)
        job.channel.send({"failed": text, "code": code})
        return code
    finally:
        if not own_process:
            link.end()


class Link:
    """The worker's side of its channel; the server's companion.

    It reports from the event loop, so that silence means that the loop does not turn, and obeys in a thread
    of its own, which works even then.
    """

    def __init__(self, channel: Channel, beat: float, *, exits: bool) -> None:
        """`exits` says that the process ends if it is to stop before the application is imported."""
        self._channel = channel
        self._beat = beat
        self._exits = exits
        self._thread: threading.Thread | None = None

    def start(self, server: Server) -> None:
        """Begin to obey; to be called in the thread that will run the server's loop."""
        arguments = (server, threading.get_ident())
        self._thread = threading.Thread(target=self._obey, args=arguments, name="servery link", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Obey no more; the channel stays open, but nothing more comes through it."""
        self._channel.shut()
        if self._thread is not None:
            self._thread.join()

    def serving(self, server: Server) -> None:
        """See `servery.server.Companion`."""
        self._channel.send({"ready": True})
        self._report(asyncio.get_running_loop(), server)

    def stopping(self) -> None:
        """See `servery.server.Companion`."""
        self._channel.send({"stopping": True})

    def _report(self, loop: asyncio.AbstractEventLoop, server: Server) -> None:
        self._channel.send(report(server))
        loop.call_later(self._beat, self._report, loop, server)

    def _obey(self, server: Server, loop_thread: int) -> None:
        for message in self._channel.messages():
            self._do(message, server, loop_thread)
        self._do({"do": "stop"}, server, loop_thread)  # the master is gone

    def _do(self, message: Message, server: Server, loop_thread: int) -> None:
        match message["do"]:
            case "retire" | "stop" | "hurry" | "force" if self._exits and server.loaded is None:
                os._exit(0)  # an import cannot be cancelled, and has nothing to finish
            case "retire":
                server.retire()
            case "stop":
                server.should_exit = True
            case "hurry":
                server.hurry()
            case "force":
                server.should_exit = server.force_exit = True
            case "reopen":
                logs.reopen()
            case "snapshot":  # made by the loop: a report means that it turns
                if server.loop is not None:
                    server.loop.call_soon_threadsafe(lambda: self._channel.send(report(server)))
            case "stacks":
                error_log.error(
                    "the event loop has not turned for %.0f s (--worker-timeout)\n%s",
                    message["silent"],
                    stacks.describe(server, loop_thread),
                )
                self._channel.send({"stacks": True})


def _beat(config: Config) -> float:
    """Seconds between two reports: several of them before silence counts."""
    usual = QUICK_BEAT if config.limit_max_requests else BEAT
    return min(usual, (config.worker_timeout or usual * 4) / 4)


def report(server: Server) -> Message:
    """What the master learns of a worker at each beat, and whenever it asks for a snapshot: its counters."""
    return {"counts": {**server.snapshot(), "memory": resident_memory()}}


def resident_memory() -> int:
    """Octets of this process that are in memory; where only their peak is known, that; 0 where nothing is."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        if sys.platform == "win32":
            return 0
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
