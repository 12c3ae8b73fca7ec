"""Header compression, for compiled callers."""

class FieldDecoder:
    """Field sections, out of blocks."""

class FieldEncoder:
    """Blocks, out of field sections."""

def library_version() -> str: ...
