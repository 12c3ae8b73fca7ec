"""What the workers of one server tell each other: how many connections each of them has.

Numbers in memory that all of them share, one for each slot of the crew; the meaning is that of
`drivers.balance`. Where there is no such memory, on Windows, workers do without.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile

from ..drivers.balance import Loads

SLOTS = 512
"""Workers that have a place; those beyond do without."""
SIZE = 8 * (1 + SLOTS)


class Board:
    """The memory, and the descriptor by which a fresh interpreter gets at it: None if it needs none."""

    def __init__(self, descriptor: int | None = None) -> None:
        """With the `descriptor` of another process's board: the same memory."""
        self.descriptor = descriptor
        self._counts = memoryview(mmap.mmap(-1 if descriptor is None else descriptor, SIZE)).cast("q")

    def loads(self, slot: int) -> Loads | None:
        """What the worker of a slot sees, and changes."""
        return Loads(self._counts, 1 + slot) if slot < SLOTS else None

    def widen(self, slot: int) -> None:
        """A worker is about to start in a slot."""
        self._counts[0] = max(self._counts[0], min(1 + slot, SLOTS))

    def clear(self, slot: int) -> None:
        """Nobody serves there."""
        if slot < SLOTS:
            self._counts[1 + slot] = 0


def open_board(for_spawned: bool) -> Board | None:
    """A new one, None where there can be none. Those `for_spawned` workers have a descriptor."""
    if not for_spawned:
        return Board()
    if sys.platform == "win32":
        return None
    try:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("servery")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, SIZE)
        return Board(descriptor)
    except OSError:
        return None
