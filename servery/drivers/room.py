"""How many connections a worker may have: at the limit its acceptors hold, and others wait in the kernel."""

from __future__ import annotations

from typing import Protocol


class Holding(Protocol):
    """What accepts connections."""

    def hold(self) -> None:
        """Accept nothing until `release`."""
        ...

    def release(self) -> None:
        """Go on."""
        ...


class Room:
    """Places for `limit` connections. `take` and `give` are called for each one, once."""

    __slots__ = ("_acceptors", "left")

    def __init__(self, limit: int) -> None:
        self.left = limit
        self._acceptors: list[Holding] = []

    def join(self, acceptor: Holding) -> None:
        """`acceptor` holds while there is no room."""
        self._acceptors.append(acceptor)
        if self.left <= 0:
            acceptor.hold()

    def take(self) -> None:
        """A connection was accepted."""
        self.left -= 1
        if self.left == 0:
            for acceptor in self._acceptors:
                acceptor.hold()

    def give(self) -> None:
        """It is gone."""
        self.left += 1
        if self.left == 1:
            for acceptor in self._acceptors:
                acceptor.release()
