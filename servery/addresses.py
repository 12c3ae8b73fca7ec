"""Addresses as text and as values: ``--bind`` into what to listen on, socket names into ASGI pairs.

Pure functions: nothing here opens, resolves or looks at a socket; `sockets` does.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import ConfigError

if TYPE_CHECKING:
    from .config import Config

FORMS = "write HOST:PORT, [IPV6]:PORT, :PORT, unix:PATH, fd://N or systemd:NAME"
_HOST = re.compile(r"[^\s/\[\]@:?#]*")


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host name or numeric address and a port. An empty host is every interface, IPv4 and IPv6."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The path of a Unix socket; a leading ``@`` is a name in Linux's abstract namespace."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class FdAddress:
    """A descriptor of a bound or listening socket, inherited from the process that started this one."""

    fd: int

    def __str__(self) -> str:
        return f"fd://{self.fd}"


@dataclass(frozen=True, slots=True)
class SystemdAddress:
    """The sockets of this name that systemd has opened for the server; without a name all of them."""

    name: str

    def __str__(self) -> str:
        return f"systemd:{self.name}" if self.name else "systemd"


Address = TcpAddress | UnixAddress | FdAddress | SystemdAddress


def parse_bind(text: str) -> Address:
    """Read the value of ``--bind``.

    ``host:port``, ``[v6]:port``, ``:port`` (every interface, IPv4 and IPv6), ``unix:PATH``,
    ``unix:@NAME`` (Linux's abstract namespace), ``fd://N``, ``systemd`` or ``systemd:NAME``. Raises
    `ConfigError` for anything else.
    """
    if text == "systemd" or text.startswith("systemd:"):
        return SystemdAddress(text.removeprefix("systemd").removeprefix(":"))
    if text.startswith("unix:"):
        return _parse_unix(text)
    if text.startswith("fd:"):
        number = text.removeprefix("fd://")
        if not (number.isascii() and number.isdecimal()):
            raise ConfigError(f"bind {text!r}: no descriptor number; write fd://3, for example")
        return FdAddress(int(number))
    if "://" in text:
        raise ConfigError(f"bind {text!r}: this is an address, not a URL; {FORMS}")
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        if text.isdecimal():
            fix = f"write :{text} or 127.0.0.1:{text}"
        else:
            fix = f"write {text}:8000" if text else FORMS
        raise ConfigError(f"bind {text!r}: no port; {fix}")
    return TcpAddress(_parse_host(text, host), _parse_port(text, port))


def addresses(config: Config) -> list[Address]:
    """Where `config` says to listen: ``bind``, else ``uds``, else ``fd``, else ``host`` and ``port``.

    Raises `ConfigError` for a ``bind`` that cannot be read.
    """
    if config.bind:
        return [parse_bind(text) for text in config.bind]
    if config.uds is not None:
        return [_parse_unix(f"unix:{config.uds}")]
    if config.fd is not None:  # 0 is a descriptor like any other
        return [FdAddress(config.fd)]
    return [TcpAddress(config.host.removeprefix("[").removesuffix("]"), config.port)]


def peer_name(name: Any) -> tuple[str, int] | None:
    """The ASGI ``client`` of a ``getpeername()`` value: host without scope id, and port.

    None for Unix sockets and for anything else that has no host and port. Never raises.
    """
    match name:
        case (str(host), int(port), *_):
            return host.partition("%")[0], port
    return None


def client_of(host: str) -> str:
    """Who is behind an address: itself, or for IPv6 its /64: one customer has at least one (RFC 6177).

    An IPv4 address in the form of an IPv6 one is itself. Never raises.
    """
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))


def server_name(name: Any) -> tuple[str, int | None] | None:
    """The ASGI ``server`` of a ``getsockname()`` value: as `peer_name`, or ``(path, None)``.

    A name in the abstract namespace starts with ``@``. None for a socket without a name. Never raises.
    """
    if isinstance(name, bytes):
        text = name.decode("utf-8", "backslashreplace")
        name = f"@{text[1:]}" if text.startswith("\0") else text
    if isinstance(name, str):
        return (name, None) if name else None
    return peer_name(name)


def _parse_unix(text: str) -> UnixAddress:
    path = text.removeprefix("unix:")
    if path in ("", "@") or "\0" in path:
        raise ConfigError(f"bind {text!r}: no usable path; write unix:/run/servery.sock, for example")
    return UnixAddress(path)


def _parse_host(text: str, host: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise ConfigError(f"bind {text!r}: {host} is not an IPv6 address; {FORMS}") from None
        return host[1:-1]
    if ":" in host:
        raise ConfigError(f"bind {text!r}: an IPv6 address needs brackets; write [::1]:8000, for example")
    if not _HOST.fullmatch(host):
        raise ConfigError(f"bind {text!r}: {host!r} is not a host name or address; {FORMS}")
    return host


def _parse_port(text: str, port: str) -> int:
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65535):
        raise ConfigError(f"bind {text!r}: the port must be a number from 0 to 65535; {FORMS}")
    return int(port)
