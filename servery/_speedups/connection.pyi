"""What the fused connection offers to the server: the rest is its protocol's, and an application's."""

from typing import Any

from ..drivers.contracts import TlsSession
from .reactor import Reactor, Transport
from .shared import Shared

class Connection(Transport):
    """One connection of a reactor."""

    def __init__(
        self, reactor: Reactor, fd: int, shared: Shared, peername: Any = None, sockname: Any = None
    ) -> None: ...
    def start(self, ahead: bytes = b"", secure: bool = False, session: TlsSession | None = None) -> None:
        """The connection was accepted."""

def take_over(transport: Transport, shared: Shared, peername: Any, sockname: Any) -> Connection:
    """A connection on the descriptor of another transport."""
