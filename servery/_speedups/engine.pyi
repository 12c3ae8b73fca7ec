"""What the compiled module offers: to its callers its engine is the reference, method by method."""

from ..http1.engine import Http1Engine as Http1Engine

def build_info() -> dict[str, str]: ...
