"""The reloader's child process: how the parent starts, stops and describes it, and what it runs.

The child is a server of its own. It is given its configuration, and the parent's listening sockets as
``fd://N``, through a pipe that the parent keeps open: when that breaks off, the parent is gone and the
child stops too. On Windows, descriptors cannot be handed over: there the child binds for itself and the
pipe is its standard input (unverified).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from ..addresses import FdAddress, parse_bind
from ..errors import ConfigError, ServeryError

if TYPE_CHECKING:
    from ..config import Config

COMMAND = (sys.executable, "-m", "servery.supervisor.child")


class Child:
    """A running child process, or what is left of it."""

    __slots__ = ("_lifeline", "process")

    def __init__(self, config: Config, fds: Sequence[int]) -> None:
        """Start it; the last argument of its command line is the number of its end of the pipe.

        `config` must not ask for a reload; its ``bind`` names `fds`, which the child inherits. Raises
        `ConfigError` for a configuration that cannot leave this process.
        """
        try:
            message = pickle.dumps(config)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"reload: the configuration cannot be handed to another process ({error}); "
                f"give log_config as the path of a file"
            ) from error
        if sys.platform == "win32":
            self.process = subprocess.Popen([*COMMAND, "0"], stdin=subprocess.PIPE)
            assert self.process.stdin is not None
            self._lifeline: BinaryIO = self.process.stdin
        else:
            theirs, ours = os.pipe()
            self._lifeline = os.fdopen(ours, "wb")
            try:
                with _no_interrupt():
                    self.process = subprocess.Popen([*COMMAND, str(theirs)], pass_fds=(theirs, *fds))
            finally:
                os.close(theirs)
        with contextlib.suppress(BrokenPipeError):  # it is dead already; `ended` will tell
            self._lifeline.write(message)
            self._lifeline.flush()

    def ended(self) -> str | None:
        """How the process ended, in words that follow its name; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def close(self) -> None:
        """Let go of a process that has ended."""
        with contextlib.suppress(BrokenPipeError):
            self._lifeline.close()


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Start a process that does not get SIGINT.

    Ctrl-C goes to every process of the terminal, and the parent passes it on as SIGTERM; both together
    would count as a second, impatient signal. The child stays in the terminal's foreground all the same,
    so that a debugger in it can read from there.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main(lifeline: int) -> int:
    """Run the server with the configuration that comes in through `lifeline`; its exit code."""
    from ..failures import report
    from ..leaving import leave_within
    from ..server import Server

    with open(lifeline, "rb", closefd=False) as pipe:
        config: Config = pickle.load(pipe)
    inherited = [address.fd for address in map(parse_bind, config.bind) if isinstance(address, FdAddress)]
    for fd in (lifeline, *inherited):
        os.set_inheritable(fd, False)  # what the application starts must not keep the port
    threading.Thread(target=_stop_with_parent, args=(lifeline,), daemon=True).start()
    try:
        code = Server(config).run()
    except ServeryError as error:
        code = report(error)
    return leave_within(config.timeout_cancel, code)  # a thread that goes on would hold up the reload


def _stop_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)  # nothing more is ever written: this returns when the parent's end is closed
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
