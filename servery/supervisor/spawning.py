"""Workers that are spawned: each in a fresh interpreter, which is handed configuration and sockets."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Collection
from typing import NamedTuple

from ..config import Config
from .interpreter import Handle, handle_of, holding_back, launch, pickled
from .runners import Job

MODULE = "servery.supervisor.spawned"


class Handed(NamedTuple):
    """What a spawned worker is told; see `Job`."""

    config: Config
    own: list[Handle]
    redirects: list[Handle]
    channel: Handle
    slot: int
    board: int | None
    """The descriptor of its memory."""
    path: list[str]
    """Where modules are looked for."""
    argv: list[str]


class SpawnedProcess:
    """A child process in a fresh interpreter."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.number = process.pid
        self._process = process

    def poll(self) -> int | None:
        """See `Runner`."""
        return self._process.poll()

    def abort(self) -> bool:
        """See `Runner`. Windows has no such signal: there the process just ends."""
        if sys.platform == "win32":
            return self.kill()
        import signal

        self._process.send_signal(signal.SIGABRT)
        return True

    def kill(self) -> bool:
        """See `Runner`."""
        self._process.kill()
        return True


class Spawning:
    """Starts workers in fresh interpreters. `held_back` are signals that they must not take too early."""

    def __init__(self, held_back: Collection[int]) -> None:
        self._held_back = held_back

    def start(self, job: Job) -> SpawnedProcess:
        """See `Starter`."""
        own, redirects = job.bound
        socks = [listener.sock for listener in (*own, *redirects)]
        descriptors = [sock.fileno() for sock in (*socks, job.channel.sock)]
        board = job.board.descriptor if job.board is not None else None
        if board is not None:
            descriptors.append(board)
        with holding_back(self._held_back):
            process, pipe = launch(MODULE, descriptors, apart=True)
        handles = [handle_of(sock, process.pid) for sock in socks]
        handed = Handed(
            config=job.config,
            own=handles[: len(own)],
            redirects=handles[len(own) :],
            channel=handle_of(job.channel.sock, process.pid),
            slot=job.slot,
            board=board,
            path=sys.path,
            argv=sys.argv,
        )
        message = pickled(tuple(handed), "worker_start")
        with contextlib.suppress(BrokenPipeError), pipe:  # it is dead already; its end will tell
            pipe.write(message)
        job.channel.close()
        return SpawnedProcess(process)
