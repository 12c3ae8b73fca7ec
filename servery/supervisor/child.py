"""The reloader's child process: how the parent starts, stops and describes it, and what it runs.

The child is a server of its own. It is given its configuration, and the parent's listening sockets as
``fd://N``, through a pipe that the parent keeps open: when that breaks off, the parent is gone and the
child stops too. On Windows, descriptors cannot be handed over: there the child binds for itself
(unverified).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..addresses import FdAddress, parse_bind
from ..errors import ServeryError
from .handle import how_ended
from .interpreter import holding_back, launch, pickled, tell, told

if TYPE_CHECKING:
    from ..config import Config

MODULE = "servery.supervisor.child"


class Child:
    """A running child process, or what is left of it."""

    __slots__ = ("_lifeline", "process")

    def __init__(self, config: Config, fds: Sequence[int]) -> None:
        """Start it.

        `config` must not ask for a reload; its ``bind`` names `fds`, which the child inherits. Raises
        `ConfigError` for a configuration that cannot leave this process.
        """
        message = pickled(config, "reload")
        # Ctrl-C goes to every process of the terminal, and the parent passes it on as SIGTERM; both together
        # would count as a second, impatient signal. The child stays in the terminal's foreground all the
        # same, so that a debugger in it can read from there.
        with holding_back({signal.SIGINT}):
            self.process, self._lifeline = launch(MODULE, fds)
        tell(self._lifeline, message)

    def ended(self) -> str | None:
        """How the process ended, in words that follow its name; None while it runs."""
        code = self.process.poll()
        return None if code is None else how_ended(code)

    def close(self) -> None:
        """Let go of a process that has ended."""
        with contextlib.suppress(BrokenPipeError):
            self._lifeline.close()


def main(lifeline: int) -> int:
    """Run the server with the configuration that comes in through `lifeline`; its exit code."""
    from ..failures import report
    from ..leaving import leave_within
    from ..server import Server

    config: Config = told(lifeline)
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
