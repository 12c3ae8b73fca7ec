"""What connections, the server, the logs and the stop know of each other, and how engines are made."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from ..asgi.calls import App
from ..engine import HttpEngine, StreamsEngine, WebSocketHandshake
from ..events import RequestReceived

if TYPE_CHECKING:
    from .names import ConnectionNames

EngineFactory = Callable[[float], HttpEngine]
"""Makes the engine of a connection accepted at `now`."""

StreamsFactory = Callable[[float], StreamsEngine]
"""The same for a connection of HTTP/2."""

HandshakeReader = Callable[[RequestReceived], WebSocketHandshake | None]
"""Gives the handshake that a request is, or ``None`` if it asks for no WebSocket. Raises
`RemoteProtocolError` with the status that answers a faulty one."""


class TlsSession(Protocol):
    """TLS with one client: what it sends goes into `incoming`, what is for it comes out of `outgoing`."""

    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    ssl: ssl.SSLObject

    def describe(self) -> dict[str, dict[str, Any]]:
        """The extensions of a scope that tell of it, by name, once the handshake is over."""
        ...


class Certificates(Protocol):
    """What a server shows to its clients."""

    def begin(self, octets: bytes) -> TlsSession | None:
        """A session for the client whose first octets these are; ``None`` if more must come before that."""
        ...


class GoOn(Protocol):
    """Begins the connection proper, on a transport that another protocol has used so far."""

    def __call__(
        self, transport: Any, names: ConnectionNames | None, ahead: bytes, session: TlsSession | None
    ) -> None:
        """`names` stand for those of the transport itself, `ahead` has come already, and `session` is that of
        a client with TLS, whose handshake is over: nothing is `ahead` of that.
        """
        ...


class Connection(Protocol):
    """What the server asks of a connection that some driver runs."""

    def stop(self, now: float, patient: bool = False) -> None:
        """Finish what is in progress, then close; close at once if nothing is.

        With `patient` an idle peer gets a moment for a request that may be on its way.
        """
        ...

    def told_to_end(self) -> None:
        """The stream grace is over: ``receive()`` of the request in progress says ``http.disconnect``."""
        ...

    def abort(self) -> None:
        """Reset the connection."""
        ...


class Corked(Protocol):
    """What has kept back output."""

    def end_of_turn(self) -> None:
        """Write what was kept back for the rest of a turn of the loop."""
        ...


class Cycle(Protocol):
    """What a connection, the logs and the stop know of an application call, whatever it serves."""

    request: RequestReceived
    request_id: str
    started: float
    status: int
    buffered: int
    task: Any
    origin: tuple[tuple[str, int] | None, str] | None
    """(client, scheme) where a proxy has told of them."""

    @property
    def engine(self) -> Any:
        """The engine that answers."""
        ...

    @property
    def answered(self) -> bool:
        """Whether the application is done with the connection."""
        ...

    @property
    def told(self) -> bool:
        """Whether the application has been told that the peer left, before it was done."""
        ...

    def disconnected(self, lost: bool) -> None:
        """The peer left; `lost` when nothing can be sent any more."""
        ...

    def wake(self) -> None:
        """Let what waits look again."""
        ...

    def begin(self, app: App) -> Coroutine[Any, Any, None]:
        """The call of the application, for a task."""
        ...

    async def wait(self) -> None:
        """Wait until `wake`."""
        ...
