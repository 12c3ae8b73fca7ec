"""TLS in a reactor's transport: see `reactor.Transport.secure`."""

from ..drivers.contracts import TlsSession

class Records:
    """What a transport speaks in a session."""

    session: TlsSession
    def __init__(self, session: TlsSession) -> None: ...
