"""What a peer sent, made harmless for a line: no forged lines, no terminal escapes, no broken quotes."""

from __future__ import annotations

import re

_UNSAFE = re.compile(r'[^\x20-\x7e]|["\\]')
# Cc (C0, DEL, C1) without newline and tab, line separators, and what reorders text on a terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(value: bytes | str) -> str:
    r"""Give `value` as printable ASCII without bare quotes: ``\xNN`` per octet, ``\"`` and ``\\``.

    Text is escaped as its UTF-8 octets; octets kept in text as lone surrogates come out as themselves.
    """
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    # Three scans in C: nearly every value ends here.
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    if isinstance(value, str):
        text = _octets(value).decode("latin-1")
    return _UNSAFE.sub(_escaped, text)


def escape_word(value: bytes | str) -> str:
    r"""Like `escape`, for a field between spaces: a space becomes ``\x20``, nothing becomes ``-``."""
    return escape(value).replace(" ", "\\x20") or "-"


def escape_controls(text: str) -> str:
    r"""Make control characters visible (``\xNN``, ``\uNNNN``), but keep newlines, tabs and all other text."""
    return _CONTROL.sub(_visible, text)


def _octets(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no octet
        return text.encode("utf-8", "surrogatepass")


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return "\\" + char if char in '"\\' else f"\\x{ord(char):02x}"


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
