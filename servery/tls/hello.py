"""The one thing that must be known before a handshake begins: the server name that the client asks for.

Read from the ClientHello (RFC 8446 section 4.1.2, RFC 6066 section 3) in as many records as it comes in. What
is wrong with one is not said here: OpenSSL gets the same octets, and has an alert for each mistake.
"""

from __future__ import annotations

import re

HANDSHAKE = 22
"""The type of the record that every TLS connection begins with."""
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_HOST_NAME = 0

LONGEST = 16_384
"""Octets of a ClientHello, and of a record; those with post-quantum keys have two thousand."""
RECORDS = 16
"""Records in which it may come: each read begins anew."""
_NAME = re.compile(rb"[A-Za-z0-9._-]{1,253}")


def server_name(data: bytes) -> str | None:
    """The name in the ClientHello that `data` begins with, in lower case, ``""`` if it has none.

    ``None`` if its end has not come yet. Raises `ValueError` for what is no ClientHello.
    """
    message = _message(data)
    if message is None:
        return None
    try:
        return _name(message)
    except IndexError:
        raise ValueError("a ClientHello whose parts do not fit into it") from None


def _message(data: bytes) -> bytes | None:
    """The body of the first handshake message, out of its records; None if there is more to come."""
    at, message = 0, b""
    for _ in range(RECORDS):
        if len(data) < at + 5:
            return None
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        if data[at] != HANDSHAKE or not 0 < size <= LONGEST:
            raise ValueError("no handshake record")
        message += data[at + 5 : at + 5 + size]
        at += 5 + size
        if len(message) >= 4:
            end = 4 + int.from_bytes(message[1:4], "big")
            if message[0] != _CLIENT_HELLO or end > LONGEST:
                raise ValueError("no ClientHello")
            if len(message) >= end:
                return message[4:end]
    if len(data) < at:
        return None
    raise ValueError("too many records")


class _Reader:
    """Reads values with their lengths before them. Raises `IndexError` beyond the end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise IndexError
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def vector(self, width: int) -> bytes:
        return self.take(int.from_bytes(self.take(width), "big"))

    @property
    def more(self) -> bool:
        return self._at < len(self._data)


def _name(message: bytes) -> str:
    reader = _Reader(message)
    reader.take(34)  # version and random
    reader.vector(1)  # session id
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression methods
    extensions = _Reader(reader.vector(2) if reader.more else b"")
    while extensions.more:
        kind = int.from_bytes(extensions.take(2), "big")
        content = extensions.vector(2)
        if kind == _SERVER_NAME:
            names = _Reader(_Reader(content).vector(2))
            while names.more:
                is_host = names.take(1)[0] == _HOST_NAME
                name = names.vector(2)
                if is_host:
                    return name.decode("ascii").lower().removesuffix(".") if _NAME.fullmatch(name) else ""
    return ""
