"""The ASGI lifespan protocol: https://asgi.readthedocs.io/en/latest/specs/lifespan.html, version 2.0.

Knows the messages of start-up and shutdown; the server decides how long to wait, and what a failure means.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from ..engine import Message, Wakeup
from ..errors import LifespanError, LocalProtocolError
from .calls import App


class Phase(Enum):
    """How far the application is."""

    WAITING = "it has not asked for an event"
    STARTING = "it is starting up"
    STARTED = "it has started"
    STOPPING = "it is shutting down"
    ENDED = "its lifespan call has ended"


class Lifespan:
    """One lifespan call of the application. `state` is what requests get a copy of."""

    def __init__(self, app: App, wakeup: Callable[[], Wakeup]) -> None:
        self.state: dict[str, Any] = {}
        self.phase = Phase.WAITING
        self.error: Exception | None = None
        """What the application raised, whatever the phase."""
        self.unsupported = False
        """The call ended before it took any event: the application knows no lifespan."""
        self._failure: str | None = None
        self._app = app
        self._stop_asked = False
        self._changed = wakeup()

    async def run(self) -> None:
        """Call the application; never raises `Exception`."""
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        try:
            await self._app(scope, self.receive, self.send)
        except Exception as error:
            self.error = error
        finally:
            self.unsupported = self.phase is Phase.WAITING
            if self._failure is None and self.phase in (Phase.WAITING, Phase.STARTING, Phase.STOPPING):
                self._failure = (
                    "the application's lifespan call ended early" if self.error is None else str(self.error)
                )
            self._enter(Phase.ENDED)

    async def started(self) -> None:
        """Wait for the end of the start-up. Raises `LifespanError` if it failed or is not supported."""
        while self.phase in (Phase.WAITING, Phase.STARTING):
            await self._changed.wait()
        if self._failure is not None:
            raise LifespanError(f"the application failed to start: {self._failure or 'it gave no reason'}")

    async def stopped(self) -> None:
        """Ask the application to shut down, and wait for it. Raises `LifespanError` if it failed."""
        self._stop_asked = True
        self._changed.set()
        while self.phase is not Phase.ENDED:
            await self._changed.wait()
        if self._failure is not None:
            raise LifespanError(
                f"the application failed to shut down: {self._failure or 'it gave no reason'}"
            )

    async def receive(self) -> Message:
        """ASGI ``receive``: start-up at once, shutdown when it is time."""
        if self.phase is Phase.WAITING:
            self._enter(Phase.STARTING)
            return {"type": "lifespan.startup"}
        while not self._stop_asked or self.phase is not Phase.STARTED:
            await self._changed.wait()
        self._enter(Phase.STOPPING)
        return {"type": "lifespan.shutdown"}

    async def send(self, message: Message) -> None:
        """ASGI ``send``. Raises `LocalProtocolError` for a message that does not belong here."""
        kind = message.get("type")
        if self.phase in (Phase.WAITING, Phase.STARTING) and kind in _STARTUP:
            if kind == "lifespan.startup.failed":
                self._failure = str(message.get("message") or "")
                self._enter(Phase.ENDED)
            else:
                self._enter(Phase.STARTED)
        elif self.phase is Phase.STOPPING and kind in _SHUTDOWN:
            if kind == "lifespan.shutdown.failed":
                self._failure = str(message.get("message") or "")
            self._enter(Phase.ENDED)
        else:
            raise LocalProtocolError(f"{kind!r} is not allowed in a lifespan when {self.phase.value}")

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._changed.set()


_STARTUP = ("lifespan.startup.complete", "lifespan.startup.failed")
_SHUTDOWN = ("lifespan.shutdown.complete", "lifespan.shutdown.failed")
