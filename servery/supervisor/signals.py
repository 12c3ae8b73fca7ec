"""Signals of a parent process, as something to wait for together with sockets.

Python runs signal handlers between two steps of the program; a byte on a socket pair makes `select` return.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from collections import deque
from collections.abc import Collection, Iterator
from types import FrameType


def existing(*names: str) -> tuple[int, ...]:
    """The numbers of those of these signals (without SIG) that this system has."""
    return tuple(getattr(signal, f"SIG{name}") for name in names if hasattr(signal, f"SIG{name}"))


class Signals:
    """Notes the signals of this process in the order in which they come."""

    def __init__(self, numbers: Collection[int]) -> None:
        self._numbers = tuple(numbers)
        self._pending: deque[int] = deque()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals of this process, until the end of the block. Main thread only."""
        before = {number: signal.signal(number, self.note) for number in self._numbers}
        wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._reader.close()
            self._writer.close()

    def note(self, number: int, _: FrameType | None) -> None:
        """A signal has come."""
        self._pending.append(number)

    def take(self) -> list[int]:
        """The signals that have come since the last call."""
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(4096)
        taken = []
        while self._pending:
            taken.append(self._pending.popleft())
        return taken

    def fileno(self) -> int:
        """The descriptor that is readable when a signal has come."""
        return self._reader.fileno()

    def sleep(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for any signal."""
        select.select([self._reader], [], [], timeout)
