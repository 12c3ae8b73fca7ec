"""What the compiled module of HTTP/2 offers: to its callers its engine is the reference, method by method."""

from ..engine import Stamp
from ..http2.engine import Http2Engine as _Reference
from ..limits import Limits

class Known:
    """What a header section has become."""

class Stream:
    """One request and its response."""

class Http2Engine(_Reference):
    """See `servery.engine.StreamsEngine` for the contract."""

    def __init__(self, limits: Limits, stamp: Stamp, now: float) -> None: ...
