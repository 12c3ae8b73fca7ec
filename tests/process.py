"""The command line as users start it: a process of its own, its output, its exit code."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

from harness import WAIT
from under_test import environment

PRELUDE = """
import asyncio, contextvars, os, signal, sys, threading, time
sys.path.insert(0, {tests!r})
from sample_apps import *
"""


class ServerProcess:
    """``python -m servery app:app`` with `source` as app.py in `folder`; killed at the end of the block.

    `source` has the names of `sample_apps` and a few modules. What the process prints is kept in `said`.
    Options are those of `subprocess.Popen` and `where` (the flags that say where to listen), `target` (the
    import string), `dev` (Python's development mode), `launcher` (a script run with the same arguments),
    `prefix` (a command that runs it) and `output` (a descriptor that gets what it prints, which is then not
    kept).
    """

    def __init__(self, folder: Path, source: str, *flags: str, **options: Any) -> None:
        where = options.pop("where", ("--port", "0"))
        target = options.pop("target", "app:app")
        dev = ("-X", "dev") if options.pop("dev", False) else ()
        run = (options.pop("launcher", None),)
        prefix = options.pop("prefix", ())
        output = options.pop("output", subprocess.PIPE)
        prelude = PRELUDE.format(tests=str(Path(__file__).parent))
        (folder / "app.py").write_text(prelude + textwrap.dedent(source))
        self.process = subprocess.Popen(
            [*prefix, sys.executable, *dev, *(run if run[0] else ("-m", "servery")), target, *where, *flags],
            cwd=folder,
            env=environment(),
            text=True,
            stdout=output,
            stderr=subprocess.STDOUT,
            **options,
        )
        self.said = ""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            with self._changed:
                self.said += line
                self._changed.notify_all()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match of `pattern` in the output."""
        with self._changed:
            found = self._changed.wait_for(lambda: re.search(pattern, self.said), WAIT)
        assert found, f"not printed: {pattern}\n{self.said}"
        return found

    @property
    def port(self) -> int:
        """The port, once the process serves."""
        return int(self.wait_for(r"http://\S+:(\d+)")[1])

    def connect(self) -> socket.socket:
        """A client's socket."""
        return socket.create_connection(("127.0.0.1", self.port), WAIT)

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end; the exit code. `said` is complete afterwards."""
        code = self.process.wait(WAIT)
        self._reader.join(WAIT)
        return code

    def stop(self) -> int:
        """SIGTERM, then `end`."""
        self.signal()
        return self.end()

    def break_output(self) -> None:
        """Read no more of what the process prints: its writes fail from now on."""
        assert self.process.stdout is not None
        os.dup2(os.open(os.devnull, os.O_RDONLY), self.process.stdout.fileno())

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(WAIT)
        if self.process.stdout is not None:
            self.process.stdout.close()
