"""What the fused connection offers to the server: the rest is its protocol's, and an application's."""

from typing import Any

from ..drivers.service import Service
from .reactor import Reactor, Transport

class Shared:
    """What the connections of a worker share."""

    def __init__(self, service: Service) -> None: ...

class Connection(Transport):
    """One connection of a reactor."""

    def __init__(
        self, reactor: Reactor, fd: int, shared: Shared, peername: Any = None, sockname: Any = None
    ) -> None: ...
