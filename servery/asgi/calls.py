"""A call of the application: the coroutine that a task runs, what it waits for, and how it ends.

Knows coroutines, wake-ups and the request that is served; knows nothing of messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import coroutine
from typing import Any

from ..engine import Answering, Message, Port, Scope, Wakeup
from ..errors import ClientDisconnected
from ..events import RequestReceived
from .messages import is_disconnect

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Call:
    """What the cycles of all kinds have in common.

    The driver runs `begin` in a task, which it sets as `task`, and says with `wake` that there is news.
    `request`, `request_id`, `started` (monotonic seconds) and `status` are kept for the log. `origin` is
    (client, scheme) where that is not who the connection is with. `buffered` counts the octets of a request
    body that the application has not taken.
    """

    __slots__ = (
        *("_gone", "_lost", "_scope", "_told", "_wakeup", "buffered", "engine", "origin", "port"),
        *("request", "request_id", "started", "status", "stream", "task"),
    )

    def __init__(
        self,
        scope: Scope,
        request: RequestReceived,
        engine: Answering,
        port: Port,
        now: float,
        request_id: str,
    ) -> None:
        self.request = request
        self.request_id = request_id
        self.origin: tuple[tuple[str, int] | None, str] | None = None
        self.started = now
        self.status = 0
        self.task: Any = None
        self.buffered = 0
        self.engine = engine
        self.stream = request.stream
        self.port = port
        self._scope: Scope | None = scope
        self._gone = False  # receive() tells of the disconnect
        self._told = False  # receive() has told of it, while the application was not done
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
        """Call the application, after `entered`, and see its request to an end. Never raises `Exception`."""
        try:
            await entered()
            await app(self._take_scope(), self.receive, self.send)
        except Exception as error:
            if not (self._gone and is_disconnect(error)):
                self.port.app_failed(self, error)
            self._abandon()
        except BaseException:
            self._abandon()
            raise
        else:
            self._returned()
        finally:
            self.port.finished(self)

    async def receive(self) -> Message:
        """ASGI ``receive``."""
        raise NotImplementedError

    async def send(self, message: Message) -> None:
        """ASGI ``send``. Raises `ClientDisconnected` once the peer is gone, `LocalProtocolError` for a
        mistake.
        """
        raise NotImplementedError

    def _returned(self) -> None:
        """The application has returned, whether it was done or not."""
        raise NotImplementedError

    def _abandon(self) -> None:
        """The application has raised, or was cancelled: give the peer an honest end."""
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

    @property
    def gone(self) -> bool:
        """Whether the peer has finished sending, or is lost."""
        return self._gone

    @property
    def told(self) -> bool:
        """Whether the application has been told of that before it was done."""
        return self._told

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
