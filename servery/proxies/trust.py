"""Which peers are believed: addresses, networks, and Unix sockets. Knows nothing of what they say."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

REMEMBERED = 4096
"""Hosts whose verdict is kept: parsing an address takes longer than the rest of a decision."""

UNIX = "unix"
"""The entry that stands for every peer on a Unix socket."""


class Trust:
    """A list of peers. `entries` are addresses, networks such as ``10.0.0.0/8``, and ``unix``.

    Raises `ValueError` for anything else.
    """

    __slots__ = ("_known", "_networks", "_unix")

    def __init__(self, entries: Iterable[str]) -> None:
        entries = tuple(entries)
        self._networks = [ip_network(entry) for entry in entries if entry != UNIX]
        self._unix = UNIX in entries
        self._known = lru_cache(REMEMBERED)(self._contain)

    def trusts(self, host: str) -> bool:
        """Whether the peer with this address is on the list."""
        return self._known(host)

    def is_trusted(self, client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> bool:
        """Whether a peer is on the list, by what ASGI calls ``client`` and ``server``.

        A peer without an address is on a Unix socket only if our end of it is: one that has reset its TCP
        connection has none either.
        """
        if client is not None:
            return self._known(client[0])
        return self._unix and is_unix(server)

    def _contain(self, host: str) -> bool:
        try:
            address = _plain(ip_address(host))
        except ValueError:
            return False
        return any(address in network or _mapped(address) in network for network in self._networks)


def is_unix(server: tuple[str, int | None] | None) -> bool:
    """Whether this ``server`` is a Unix socket."""
    return server is not None and server[1] is None


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """An IPv4 address that a socket of both families wraps into IPv6 is itself (RFC 4291 section 2.5.5.2)."""
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def _mapped(address: IPv4Address | IPv6Address) -> IPv6Address:
    """The other spelling: somebody may have written it into the list."""
    if isinstance(address, IPv6Address):
        return address
    return IPv6Address(IPv6Network("::ffff:0:0/96")[int(address)])
