"""What a long run says while it goes on: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

WIDTH = 24


def clock(seconds: float) -> str:
    """``3:20``, ``1:02:03``."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """Counts steps of about the same length. `planned` is the expected length of one, in seconds."""

    def __init__(self, steps: int, planned: float, out: TextIO = sys.stderr) -> None:
        self.steps = steps
        self.done = 0
        self._planned = planned
        self._begin = time.monotonic()
        self._out = out

    def left(self) -> float:
        """Seconds that are left, judged by the steps so far."""
        each = (time.monotonic() - self._begin) / self.done if self.done else self._planned
        return each * (self.steps - self.done)

    def show(self, what: str) -> None:
        """Before a step."""
        filled = WIDTH * self.done // max(1, self.steps)
        bar = "#" * filled + "-" * (WIDTH - filled)
        line = f"[{bar}] {self.done}/{self.steps}  {clock(self.left())} left  {what}"
        if self._out.isatty():
            print(f"\r\x1b[K{line[:120]}", end="", file=self._out, flush=True)
        else:
            print(line, file=self._out, flush=True)

    def step(self, count: int = 1) -> None:
        """After one, or after several that need not be made."""
        self.done += count

    def end(self) -> None:
        """Leaves the line."""
        if self._out.isatty():
            print("\r\x1b[K", end="", file=self._out, flush=True)
