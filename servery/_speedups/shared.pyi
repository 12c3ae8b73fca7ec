"""What the fused connections of a worker share."""

from ..drivers.service import Service

class Shared:
    """The service, unpacked."""

    def __init__(self, service: Service) -> None: ...
