"""The forwarding fields, X-Forwarded-* and RFC 7239 Forwarded: read from the right, as far as trust goes.

Each proxy appends what it has seen, so that the last element is our peer's, the one before that of the peer
which the last names, and so on: whatever stands left of the first address that is not trusted was made up by
somebody for all we know. Knows nothing of scopes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from .nodes import Node, read_host, read_node, read_port, read_prefix

FOR, PROTO, HOST = b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"
PORT, PREFIX, FORWARDED = b"x-forwarded-port", b"x-forwarded-prefix", b"forwarded"

FIELDS = frozenset((FOR, PROTO, HOST, PORT, PREFIX, FORWARDED))
"""All that may be believed, in lower case."""

MOST_HOPS = 32
"""Proxies that a request may have come through: what is left of that many elements is not looked at."""

SCHEMES = {b"http": False, b"ws": False, b"https": True, b"wss": True}
"""Whether the client has used TLS, by the scheme that a proxy names."""

MOST_COMMAS = 8
"""Commas within the quotes of one element; more make it malformed. Nobody has any."""

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# Proxies that do not know better write addresses with colons and brackets without quotes around.
_VALUE = (
    rb"""(?:"(?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[\t\x20-\x7e\x80-\xff])*"|[!#$%&'*+.^_`|~0-9A-Za-z:\[\]-]+)"""
)
_ELEMENT = re.compile(b"%b=%b(?:(?:[ \t]*;)+[ \t]*%b=%b)*" % (_TOKEN, _VALUE, _TOKEN, _VALUE))
_PAIR = re.compile(b"(%b)=(%b)(?:[ \t]*;)*[ \t]*" % (_TOKEN, _VALUE))
_OWS = b" \t"
_EMPTY = b" \t;"
"""What may stand around an element: pairs may be absent."""
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


@dataclass(slots=True)
class Origin:
    """What is believed of the client's own connection; ``None`` where nothing is said.

    `client` is its (address, port), `tls` whether it used TLS, `host` the (name, port) that it asked for,
    `port` the one that it has connected to, `prefix` the path that a proxy has removed.
    """

    client: Node | None = None
    tls: bool | None = None
    host: tuple[bytes, int | None] | None = None
    port: int | None = None
    prefix: bytes | None = None


def read_origin(said: Mapping[bytes, bytes], trusts: Callable[[str], bool]) -> Origin:
    """What the fields `said` (name -> value, repeated ones joined with a comma) by a trusted peer mean."""
    if FORWARDED in said:
        origin = _read_forwarded(said[FORWARDED], trusts)
        depth = 1
    else:
        origin = Origin()
        origin.client, depth = _walk(said.get(FOR, b""), trusts)
        origin.tls = SCHEMES.get(_element(said, PROTO, depth).lower())
        origin.host = read_host(_element(said, HOST, depth))
        origin.port = read_port(_element(said, PORT, depth))
    origin.prefix = read_prefix(_element(said, PREFIX, depth))
    return origin


def _walk(value: bytes, trusts: Callable[[str], bool]) -> tuple[Node | None, int]:
    """The address farthest from us that can be vouched for, and how many proxies have spoken."""
    client, depth = None, 0
    for text in reversed(value.rsplit(b",", MOST_HOPS)[-MOST_HOPS:]):
        node = read_node(text)
        if node is None:
            break
        client, depth = node, depth + 1
        if not trusts(node[0]):
            break
    return client, max(depth, 1)


def _element(said: Mapping[bytes, bytes], name: bytes, depth: int) -> bytes:
    """What the proxy at `depth` has said, or whoever comes next to it of those that said anything."""
    elements = said.get(name, b"").rsplit(b",", depth)[-depth:]
    return elements[0].strip(_OWS)


def _read_forwarded(value: bytes, trusts: Callable[[str], bool]) -> Origin:
    origin = Origin()
    for element in _elements(value):
        origin.tls = SCHEMES.get(element.get(b"proto", b"").lower())
        origin.host = read_host(element.get(b"host", b""))
        node = read_node(element.get(b"for", b""))
        if node is None:
            break
        origin.client = node
        if not trusts(node[0]):
            break
    return origin


def _elements(value: bytes) -> Iterator[dict[bytes, bytes]]:
    """The elements of a Forwarded value, from the right, up to one that is malformed (RFC 7239 section 4).

    From the right, so that a quote which a client has left open cannot swallow what a proxy has appended.
    """
    end = len(value)
    for _ in range(MOST_HOPS):
        at = _begin_of_last(value, end)
        if at is None:
            return
        element = value[at:end].strip(_EMPTY)
        if element:
            yield {name.lower(): _unquoted(text) for name, text in _PAIR.findall(element)}
        end = at - 1
        if end < 0:
            return


def _begin_of_last(value: bytes, end: int) -> int | None:
    """Where the last element before `end` begins: behind a comma, but quoted texts may have some, too."""
    at = end
    for _ in range(MOST_COMMAS + 1):
        comma = value.rfind(b",", 0, at)
        element = value[comma + 1 : end].strip(_EMPTY)
        if not element or _ELEMENT.fullmatch(element):
            return comma + 1
        if comma < 0:
            break
        at = comma
    return None


def _unquoted(text: bytes) -> bytes:
    return _ESCAPED.sub(rb"\1", text[1:-1]) if text.startswith(b'"') else text
