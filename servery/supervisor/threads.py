"""Workers that are threads of this process, each with an event loop and a server of its own.

Worth having only where Python runs without the GIL. A thread cannot be killed: one that does not end is left
behind until the process ends, and what brings the process down ends them all.
"""

from __future__ import annotations

import errno
import itertools
import threading
from dataclasses import replace

from ..sockets import Listener
from .runners import Job
from .worker import serve_job

_numbers = itertools.count(1)


class WorkerThread:
    """One worker; it runs from the moment it is made. Raises `OSError` if there can be no more threads."""

    def __init__(self, job: Job) -> None:
        self.number = next(_numbers)
        self._job = job
        self._code = 1  # unless it gets to say something else
        self._thread = threading.Thread(target=self._run, name=f"servery worker {self.number}")
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from error

    def poll(self) -> int | None:
        """See `Runner`."""
        return None if self._thread.is_alive() else self._code

    def abort(self) -> bool:
        """See `Runner`."""
        return False

    def kill(self) -> bool:
        """See `Runner`."""
        return False

    def _run(self) -> None:
        job = self._job
        try:
            self._code = serve_job(job, own_process=False)
        finally:
            for listener in (*job.bound[0], *job.bound[1]):
                listener.close()
            job.channel.close()


class Threading:
    """Starts workers as threads."""

    def start(self, job: Job) -> WorkerThread:
        """See `Starter`."""
        own, redirects = job.bound
        copies = ([_copy(each) for each in own], [_copy(each) for each in redirects])
        return WorkerThread(replace(job, bound=copies, loaded=None))


def _copy(listener: Listener) -> Listener:
    """The same socket, for who closes it while others go on to accept from it."""
    return Listener(listener.sock.dup())
