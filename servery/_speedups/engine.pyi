"""What the compiled module offers: to its callers its engine is the reference, method by method."""

from ..engine import Stamp
from ..http1.engine import Http1Engine as Http1Engine

class KeptStamp:
    """A stamp that asks another one once a second."""

    def __init__(self, stamp: Stamp) -> None: ...
    def __call__(self, has: int) -> bytes: ...

class Block:
    """Fields of a head that were seen before."""

class Answering:
    """What compiled cycles answer through: see `servery.engine.Answering`."""

class Request:
    """A request head, for compiled callers."""

def build_info() -> dict[str, str]: ...
