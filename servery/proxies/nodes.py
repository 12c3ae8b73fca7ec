"""Addresses and hosts as forwarding fields spell them: octets in, values or ``None`` out, never an error."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address

_NODE = re.compile(
    r"(?:(?P<v4>[0-9]{1,3}(?:\.[0-9]{1,3}){3})|\[(?P<v6>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[A-Za-z0-9._-]+))?"
)
_BARE_V6 = re.compile(r"[0-9A-Fa-f:.]{2,45}")
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~-]+)(?::([0-9]{1,5}))?")
_PREFIX = re.compile(rb"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*/?")

Node = tuple[str, int]
"""(numeric address, port); port 0 where none is known."""


def read_node(text: bytes) -> Node | None:
    """``v4``, ``v4:port``, ``v6``, ``[v6]`` or ``[v6]:port`` (RFC 7239 section 6).

    ``None`` for what names no address: ``unknown``, obfuscated identifiers, and junk. A port that is none, or
    obfuscated, is 0.
    """
    word = text.strip(b" \t").decode("latin-1")
    match = _NODE.fullmatch(word)
    if match is not None:
        host = match["v4"] or match["v6"]
        return (host, _port(match["port"])) if _is_address(host, bool(match["v4"])) else None
    if _BARE_V6.fullmatch(word) and _is_address(word, False):
        return word, 0
    return None


def read_host(text: bytes) -> tuple[bytes, int | None] | None:
    """(name or address, port) of a ``host[:port]``; an IPv6 address keeps its brackets."""
    match = _HOST.fullmatch(text.strip(b" \t"))
    if match is None:
        return None
    port = None if match[2] is None else _port(match[2].decode())
    return None if port == 0 else (match[1], port)


def read_port(text: bytes) -> int | None:
    """A port, 1 to 65535."""
    return _port(text.strip(b" \t").decode("latin-1")) or None


def read_prefix(text: bytes) -> bytes | None:
    """A prefix of a path: it begins with one slash and ends with none; ``b""`` for the root.

    Two slashes in a row name no prefix: at its beginning they would make links to another host.
    """
    word = text.strip(b" \t")
    if not word.startswith(b"/") or not _PREFIX.fullmatch(word):
        return None
    return word.rstrip(b"/")


def _port(text: str | None) -> int:
    if text is None or not (text.isascii() and text.isdecimal() and len(text) <= 5):
        return 0
    return int(text) if int(text) <= 65_535 else 0


def _is_address(text: str, is_v4: bool) -> bool:
    try:
        IPv4Address(text) if is_v4 else IPv6Address(text)
    except ValueError:
        return False
    return True
