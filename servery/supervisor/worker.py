"""A worker of the master: a `Server` of its own, and the link by which it reports and obeys."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
import sys
import threading

from .. import logs
from ..config import Config
from ..drivers.inspection import describe as describe_work
from ..drivers.inspection import resident_memory, snapshot
from ..drivers.service import Service, error_log
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

LAST_WORDS = 1.0
"""Seconds for the master to take in what a worker has said, before that ends."""

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
            own_admin=False,
        )
        link.start(server)
        code = server.run(announce=False)
        link.finish()
        return code
    except ServeryError as error:
        text, code = describe(error)
        job.channel.send({"failed": text, "code": code})
        return code
    finally:
        job.channel.finish(LAST_WORDS)
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
        self._each = max(1, round(BEAT / beat))
        """Beats from one report of all numbers to the next."""
        self._beats = 0
        self._service: Service | None = None

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
        self._service = server.service
        self._channel.send({"ready": True})
        self._report(asyncio.get_running_loop(), server)

    def stopping(self) -> None:
        """See `servery.server.Companion`."""
        self._channel.send({"stopping": True})

    def finish(self) -> None:
        """The server has ended: say what it has counted up to its end."""
        if self._service is not None and self._service.metrics is not None:
            self._channel.send({"metrics": snapshot(self._service)})

    def _report(self, loop: asyncio.AbstractEventLoop, server: Server) -> None:
        self._channel.offer(report(server, self._beats % self._each == 0))
        self._beats += 1
        loop.call_later(self._beat, self._report, loop, server)

    def _obey(self, server: Server, loop_thread: int) -> None:
        for message in self._channel.messages():
            self._do(message, server, loop_thread)
        self._do({"do": "stop"}, server, loop_thread)  # the master is gone

    def _do(self, message: Message, server: Server, loop_thread: int) -> None:
        answer = {"answers": message["do"], "number": message.get("number")}
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
            case "count":  # done by the loop: a report means that it turns
                self._count(server, answer)
            case "describe":  # done here: what a loop that is stuck has in hand is of interest most of all
                self._channel.offer({"state": in_hand(server)} | answer)
            case "stacks":
                error_log.error(
                    "the event loop has not turned for %.0f s (--worker-timeout)\n%s",
                    message["silent"],
                    stacks.describe(server, loop_thread),
                )
                self._channel.send({"stacks": True})

    def _count(self, server: Server, answer: Message) -> None:
        loop = server.loop
        if loop is None or loop.is_closed():  # nothing is counted yet, or all is said: nobody needs to wait
            self._channel.offer(answer)
            return
        with contextlib.suppress(RuntimeError):  # closed just now
            loop.call_soon_threadsafe(lambda: self._channel.offer(report(server, True) | answer))


def _beat(config: Config) -> float:
    """Seconds between two reports: several of them before silence counts."""
    usual = QUICK_BEAT if config.limit_max_requests else BEAT
    return min(usual, (config.worker_timeout or usual * 4) / 4)


def report(server: Server, numbers: bool) -> Message:
    """What the master learns of a worker at each beat: its counters; where it counts also all `numbers`."""
    message: Message = {"counts": {**server.snapshot(), "memory": resident_memory()}}
    if numbers and server.service is not None and server.service.metrics is not None:
        message["metrics"] = snapshot(server.service)
    return message


def in_hand(server: Server) -> Message:
    """What a worker has in hand, from any thread: see `servery.drivers.inspection.describe`."""
    service = server.service
    return {} if service is None else stacks.looked_at(lambda: describe_work(service)) or {}
