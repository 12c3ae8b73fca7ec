"""A call of the application: the coroutine that a task runs, and what it waits for.

Knows coroutines and wake-ups; knows nothing of messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import coroutine
from typing import Any

from ..engine import Message, Port, Scope, Wakeup
from ..errors import ClientDisconnected

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Call:
    """What the cycles of all kinds have in common.

    The driver runs `begin` in a task, and says with `wake` that there is news.
    """

    __slots__ = ("_lost", "_scope", "_wakeup", "port")

    def __init__(self, scope: Scope, port: Port) -> None:
        self.port = port
        self._scope: Scope | None = scope
        self._lost = False  # send() raises
        self._wakeup: Wakeup | None = None

    def begin(self, app: App) -> Coroutine[Any, Any, None]:
        """`run`, for a task: waiting in `entered`, so that a cancellation before the first step ends it well.

        Thrown into a coroutine that has not begun it would pass by, and nobody would be told.
        """
        call = self.run(app)
        call.send(None)
        return call

    async def run(self, app: App) -> None:
        """Call the application, after `entered`, and see it to an end."""
        raise NotImplementedError

    def _take_scope(self) -> Scope:
        """The scope, once: applications keep `receive` and `send` in it, which must not lead back to it."""
        scope, self._scope = self._scope, None
        assert scope is not None
        return scope

    @property
    def answered(self) -> bool:
        """Whether the application is done with the connection."""
        raise NotImplementedError

    def wake(self) -> None:
        """Let what waits look again: the connection is writable, or something arrived."""
        if self._wakeup is not None:
            self._wakeup.set()

    async def wait(self) -> None:
        """Wait until `wake`."""
        wakeup = self._wakeup
        if wakeup is None:
            wakeup = self._wakeup = self.port.wakeup()
        await wakeup.wait()

    async def _drained(self) -> None:
        """Wait until the peer has taken enough of what was queued. Raises `ClientDisconnected`."""
        while not (self.port.writable or self._lost or self.answered):
            await self.wait()
        if self._lost:
            raise ClientDisconnected("the client has closed the connection")


@coroutine
def entered() -> Generator[None, None, None]:
    """The first thing that `Call.run` awaits."""
    yield
