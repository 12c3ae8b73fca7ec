"""What a worker runs in, as the crew sees it: something that was started, may have ended, and can be made to.

A process that was forked is here; those that were spawned and threads have files of their own.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from ..apps import LoadedApp
from ..config import Config
from ..listening import Bound
from .board import Board
from .channel import Channel


@dataclass(frozen=True, slots=True)
class Job:
    """What a new worker is to do."""

    config: Config
    bound: Bound
    loaded: LoadedApp | None
    """The application, if it is imported already."""
    channel: Channel
    slot: int
    board: Board | None = None
    """Where it finds what the others have to do, if they accept from the same sockets."""


class Runner(Protocol):
    """A worker's process or thread."""

    number: int
    """The process id, or what stands for it."""

    def poll(self) -> int | None:
        """How it has ended: an exit code, or less than 0 for a signal; None while it runs."""
        ...

    def abort(self) -> bool:
        """Let it print its stacks and end; false if that cannot be."""
        ...

    def kill(self) -> bool:
        """End it at once; false if that cannot be."""
        ...


class Starter(Protocol):
    """Starts workers of one kind."""

    def start(self, job: Job) -> Runner | None:
        """A new worker with `job`; None in the new process itself, if it is a copy of this one.

        Raises `OSError` if there can be none now; then the job's channel is still open.
        """
        ...


class ChildProcess:
    """A child that is known by its id alone: it was forked, or started by the program before this one."""

    def __init__(self, number: int) -> None:
        self.number = number

    def poll(self) -> int | None:
        """See `Runner`."""
        try:
            pid, status = os.waitpid(self.number, os.WNOHANG)
        except ChildProcessError:  # somebody else has waited for it
            return 0
        return os.waitstatus_to_exitcode(status) if pid else None

    def abort(self) -> bool:
        """See `Runner`."""
        return self._signal(signal.SIGABRT)

    def kill(self) -> bool:
        """See `Runner`."""
        return self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> bool:
        try:
            os.kill(self.number, number)
        except ProcessLookupError:
            pass  # it has ended, and will be waited for
        return True


class Forking:
    """Starts workers as copies of this process. `held_back` are signals that they must not take too early."""

    def __init__(self, held_back: Collection[int]) -> None:
        self._held_back = held_back

    def start(self, job: Job) -> ChildProcess | None:
        """See `Starter`. The new process has to let `held_back` through itself."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # else the child would write once more what is buffered
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._held_back)
        try:
            pid = os.fork()
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise
        if pid == 0:
            return None
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        job.channel.close()
        return ChildProcess(pid)
