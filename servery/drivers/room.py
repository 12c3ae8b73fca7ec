"""How many connections a worker may have: at the limit its acceptors hold, and others wait in the kernel."""

from __future__ import annotations

from typing import Protocol


class Holding(Protocol):
    """What accepts connections."""

    def hold(self) -> None:
        """Accept nothing until `release`, which has to come as often."""
        ...

    def release(self) -> None:
        """Go on."""
        ...


class Places:
    """Something that connections take a place of, each once, and give it back. This one has no end."""

    __slots__ = ()

    def join(self, acceptor: Holding) -> None:
        """`acceptor` holds while no connection is to be accepted."""

    def take(self) -> None:
        """A connection was accepted."""

    def give(self) -> None:
        """It is gone."""

    def close(self) -> None:
        """No more are accepted."""


class Both(Places):
    """Two of them: each connection takes a place of both."""

    __slots__ = ("_parts",)

    def __init__(self, one: Places, other: Places) -> None:
        self._parts = (one, other)

    def join(self, acceptor: Holding) -> None:
        """See `Places`."""
        for part in self._parts:
            part.join(acceptor)

    def take(self) -> None:
        """See `Places`."""
        for part in self._parts:
            part.take()

    def give(self) -> None:
        """See `Places`."""
        for part in self._parts:
            part.give()

    def close(self) -> None:
        """See `Places`."""
        for part in self._parts:
            part.close()


class Room(Places):
    """Places for `limit` connections."""

    __slots__ = ("_acceptors", "left")

    def __init__(self, limit: int) -> None:
        self.left = limit
        self._acceptors: list[Holding] = []

    def join(self, acceptor: Holding) -> None:
        """See `Places`: it holds while there is no room."""
        self._acceptors.append(acceptor)
        if self.left <= 0:
            acceptor.hold()

    def take(self) -> None:
        """See `Places`."""
        self.left -= 1
        if self.left == 0:
            for acceptor in self._acceptors:
                acceptor.hold()

    def give(self) -> None:
        """See `Places`."""
        self.left += 1
        if self.left == 1:
            for acceptor in self._acceptors:
                acceptor.release()
