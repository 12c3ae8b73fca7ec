"""What single texts of the configuration must look like: each rule returns what is wrong, or None."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network

HEADER = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\xa0-\xff]*)")
"""RFC 9110 section 5.6.2 for the name and 5.5 for the value, which goes out as latin-1."""

SERVER_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
"""What stands before the equals sign of ``tls_cert``: a host name, perhaps with a wildcard for one label."""

FRAMING_FIELDS = frozenset(
    ("connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")
)
"""Fields that describe one message or connection: the same for all responses, they would be lies."""


def root_path(text: str) -> str | None:
    """ASGI: a prefix of the path, so with a slash at its start and none at its end."""
    if text and (not text.startswith("/") or text.endswith("/")):
        stripped = text.strip("/")
        right = f"/{stripped}" if stripped else ""
        return f"a prefix begins with a slash and does not end with one: write {right!r}"
    return None


def bind(text: str) -> str | None:
    """The shape of an address; whether the system can bind it shows when it tries."""
    if text.startswith("unix:"):
        return None if text != "unix:" else "the path is missing: write unix:PATH"
    if text.startswith("fd://"):
        return None if _is_number(text[5:]) else "write fd://N with the number of the descriptor"
    if text == "systemd" or text.startswith("systemd:"):
        return None if text != "systemd:" else "the name is missing: write systemd:NAME, or systemd for all"
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        return "write HOST:PORT, [V6]:PORT, unix:PATH, fd://N or systemd:NAME"
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return "an IPv6 address needs brackets: write [V6]:PORT"
    if not _is_number(port) or int(port) > 65_535:
        return f"{port!r} is not a port, 0 to 65535"
    return None


def split_tls_cert(text: str) -> tuple[str | None, str, str | None]:
    """(host, certificate, key) of [HOST=]PATH[,KEY]: what may be left out is ``None``."""
    host, equals, rest = text.partition("=")
    if not equals or not SERVER_NAME.fullmatch(host):  # a path may have an equals sign
        host, rest = "", text
    chain, _, key = rest.partition(",")
    return host.lower() or None, chain, key or None


def tls_cert(text: str) -> str | None:
    """[HOST=]PATH[,KEY]; whether the files are there shows when they are read."""
    _, chain, key = split_tls_cert(text)
    if not chain or (key is None and text.endswith(",")):
        return "write PATH, PATH,KEY, HOST=PATH or HOST=PATH,KEY"
    return None


def tls_key_password(text: str) -> str | None:
    """A place and not the password itself: everybody on the machine can read a command line."""
    kind, _, name = text.partition(":")
    return None if kind in ("env", "file") and name else "write env:NAME or file:PATH, where the password is"


def header(text: str) -> str | None:
    """NAME:VALUE as it may stand in any response."""
    match = HEADER.fullmatch(text)
    if not match:
        return "write NAME:VALUE, the name a token and the value latin-1 without control characters"
    if match[1].lower() in FRAMING_FIELDS:
        return f"servery sets {match[1]} itself, for each response as it needs it: leave it out"
    return None


FORWARDING_FIELDS = (
    *("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix"),
    "forwarded",
)
"""Fields in which proxies tell of clients."""

SAID_BY_FORWARDED = FORWARDING_FIELDS[:4]
"""Those that say what `Forwarded` says, too."""


def peer(text: str) -> str | None:
    """An address, a network, or ``unix`` for all peers on Unix sockets."""
    if text == "unix":
        return None
    if text == "*":
        return (
            "this would be everybody, and so nobody: name the address or network of your proxy, as 10.0.0.0/8"
        )
    try:
        ip_network(text)
    except ValueError:
        pass
    else:
        return None
    try:
        return f"there are bits behind the prefix: write {ip_network(text, strict=False)}"
    except ValueError:
        return "write an address such as 10.0.0.1, a network such as 10.0.0.0/8 or fd00::/8, or unix"


def forwarding_field(text: str) -> str | None:
    """The name of a field that `proxies` knows."""
    return None if text.lower() in FORWARDING_FIELDS else f"write one of {', '.join(FORWARDING_FIELDS)}"


def field_name(text: str) -> str | None:
    """A field that servery may send and read."""
    if not HEADER.fullmatch(f"{text}:"):
        return "write the name of a field, such as x-request-id"
    if text.lower() in FRAMING_FIELDS:
        return "servery sets this field itself: choose another one, such as x-request-id"
    return None


def admin(text: str) -> str | None:
    """Where the administrator is let in; see `is_local`."""
    if text.startswith("fd://"):
        return "write unix:PATH or 127.0.0.1:PORT"
    return bind(text)


def is_local(address: str) -> bool:
    """Whether only this machine reaches `address`, which `bind` has let through."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def access_log_format(text: str) -> str | None:
    """`text`, `json`, or a template; its fields are checked by the log itself."""
    if text in ("text", "json") or "%" in text:
        return None
    return "write text, json, or a template with %-fields"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
