"""The PROXY protocol, versions 1 and 2: what a balancer says of a connection before its first octet.

https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt. Octets in, addresses out; no I/O.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address

from ..errors import RemoteProtocolError

V1_SIGNATURE = b"PROXY "
V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V1_LONGEST = 107
"""Octets of the longest line of version 1, with CRLF (section 2.1)."""
V2_HEAD = 16

Pair = tuple[str, int]
"""(numeric address, port)."""

_LOCAL, _PROXY = 0x20, 0x21
_KINDS: dict[int, type[IPv4Address] | type[IPv6Address]] = {1: IPv4Address, 2: IPv6Address}
_SSL, _CLIENT_SSL = 0x20, 0x01
_PORT = re.compile(rb"0|[1-9][0-9]{0,4}")


class Preamble:
    """The preamble of one connection: `feed` it until it is `complete`.

    `versions` are those accepted. `source` and `destination` are then what the balancer said of the client's
    connection, or ``None`` where it speaks for itself (LOCAL, UNKNOWN) or of something without addresses.
    `tls` says that the client has used TLS, `rest` is what came behind. A preamble of more than `limit`
    octets is refused.
    """

    __slots__ = ("_data", "_limit", "_versions", "complete", "destination", "rest", "source", "tls")

    def __init__(self, versions: frozenset[int], limit: int) -> None:
        self._versions = versions
        self._limit = limit
        self._data = b""
        self.complete = False
        self.source: Pair | None = None
        self.destination: Pair | None = None
        self.tls = False
        self.rest = b""

    def feed(self, data: bytes) -> bool:
        """More octets; whether the preamble is complete. Raises `RemoteProtocolError` if it is none."""
        self._data += data
        data = self._data
        if 2 in self._versions and _begins(data, V2_SIGNATURE):
            self._read_v2(data)
        elif 1 in self._versions and _begins(data, V1_SIGNATURE):
            self._read_v1(data)
        else:
            raise RemoteProtocolError(400, "the connection does not begin with a PROXY preamble")
        return self.complete

    def _end(self, size: int) -> None:
        self.rest = self._data[size:]
        self._data = b""
        self.complete = True

    def _read_v1(self, data: bytes) -> None:
        end = data.find(b"\r\n", 0, V1_LONGEST)
        longest = min(V1_LONGEST, self._limit)
        if end < 0 and len(data) < longest:
            return
        if end < 0 or end + 2 > longest:
            raise RemoteProtocolError(400, "the PROXY line is too long")
        words = data[:end].split(b" ")
        if words[1] != b"UNKNOWN":  # what follows that word is to be ignored
            self.source, self.destination = _read_words(words)
        self._end(end + 2)

    def _read_v2(self, data: bytes) -> None:
        if len(data) < V2_HEAD:
            return
        command, family = data[12], data[13]
        size = V2_HEAD + int.from_bytes(data[14:16], "big")
        if command not in (_LOCAL, _PROXY):
            raise RemoteProtocolError(400, f"PROXY version and command {command:#04x} are not known")
        if size > self._limit:
            raise RemoteProtocolError(400, f"the PROXY preamble has {size} octets, too many")
        if len(data) < size:
            return
        if command == _PROXY:
            self._read_addresses(family, data[V2_HEAD:size])
        self._end(size)

    def _read_addresses(self, family: int, block: bytes) -> None:
        kind = _KINDS.get(family >> 4)
        if kind is None or family & 15 not in (1, 2):
            return  # unspecified, a Unix socket, or newer than this: a connection without addresses
        half = kind(0).max_prefixlen // 8
        ports = 2 * half
        if len(block) < ports + 4:
            raise RemoteProtocolError(400, "the PROXY preamble is too short for its addresses")
        self.source = (str(kind(block[:half])), int.from_bytes(block[ports : ports + 2], "big"))
        self.destination = (str(kind(block[half:ports])), int.from_bytes(block[ports + 2 : ports + 4], "big"))
        self.tls = _says_tls(block[ports + 4 :])


def _begins(data: bytes, signature: bytes) -> bool:
    """Whether `data` is, or may become, something with this signature."""
    return data[: len(signature)] == signature[: len(data)]


def _says_tls(extensions: bytes) -> bool:
    """Whether the client has used TLS, by the type-length-value vectors (section 2.2.7)."""
    while len(extensions) >= 3:
        size = 3 + int.from_bytes(extensions[1:3], "big")
        if size > len(extensions):
            raise RemoteProtocolError(400, "an extension of the PROXY preamble is cut off")
        if extensions[0] == _SSL and size > 3:
            return bool(extensions[3] & _CLIENT_SSL)
        extensions = extensions[size:]
    return False


def _read_words(words: list[bytes]) -> tuple[Pair, Pair]:
    """Source and destination of a line of version 1, which has one space between any two words."""
    kind = {b"TCP4": IPv4Address, b"TCP6": IPv6Address}.get(words[1])
    if (
        kind is None or len(words) != 6 or b"%" in words[2] + words[3]
    ):  # no zones: they mean nothing elsewhere
        raise RemoteProtocolError(400, "the PROXY line is malformed")
    try:
        hosts = [str(kind(word.decode("ascii"))) for word in words[2:4]]
    except ValueError:
        raise RemoteProtocolError(400, "an address in the PROXY line is none") from None
    if not all(_PORT.fullmatch(word) and int(word) <= 65_535 for word in words[4:]):
        raise RemoteProtocolError(400, "a port in the PROXY line is none")
    return (hosts[0], int(words[4])), (hosts[1], int(words[5]))
