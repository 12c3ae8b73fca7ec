"""servery from this checkout, as a process, with an application of an outside suite."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType

from places import ROOT, NotRun

START = 30.0
STOP = 30.0
FLAGS = ["--port", "0", "--no-access-log", "--timeout-stream-grace", "1", "--timeout-graceful-shutdown", "3"]


def surroundings(*paths: Path) -> dict[str, str]:
    """The environment with `paths` and the checkout to import from, without settings and proxies."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SERVERY_") and not name.lower().endswith("_proxy")
    }
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, [*paths, ROOT]))}


class Served:
    """A context manager: a running server, its `url`, and afterwards its `exit_code`."""

    def __init__(
        self, python: Path, target: str, *, log: Path, cwd: Path, paths: list[Path], lifespan: str
    ) -> None:
        self.command = [python, "-m", "servery", target, *FLAGS, "--lifespan", lifespan]
        self.surroundings = surroundings(*paths)
        self.cwd = cwd
        self.log = log
        self.exit_code: int | None = None

    def __enter__(self) -> Served:
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.cwd,
                env=self.surroundings,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        end = time.monotonic() + START
        while True:
            said = self.log.read_text("utf-8", errors="replace")
            if found := re.search(r"http://127\.0\.0\.1:\d+", said):
                self.url = found[0]
                return self
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                self.process.wait()
                raise NotRun(f"the server did not start: {said[-500:]}")
            time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.exit_code = self.process.wait(STOP)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
