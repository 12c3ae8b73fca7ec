"""What the fused connection of HTTP/2 offers to the server: the rest is its protocol's."""

from typing import Any

from .reactor import Reactor, Transport
from .shared import Shared

class StreamCycle:
    """The cycle of a request."""

class StreamFace:
    """Its port, as functions of the reference see it."""

class Http2Connection(Transport):
    """One connection of a reactor."""

    def __init__(
        self, reactor: Reactor, fd: int, shared: Shared, peername: Any = None, sockname: Any = None
    ) -> None: ...
    def start(self, ahead: bytes = b"", secure: bool = False) -> None:
        """The connection was accepted."""
