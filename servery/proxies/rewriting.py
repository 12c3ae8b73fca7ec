"""A scope as it would be without the proxies in between.

Knows ASGI scopes (https://asgi.readthedocs.io/en/latest/specs/www.html) and what forwarding fields are; whom
to believe is asked of `Trust`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..asgi.scope import decode_path
from .fields import FIELDS, Origin, read_origin
from .trust import Trust

_SECURE = {"http": "https", "websocket": "wss"}
_PLAIN = {"http": "http", "websocket": "ws"}


class ScopeRewriter:
    """Rewrites scopes by the fields in `believed`, if the peer is trusted.

    All other forwarding fields, and all of an untrusted peer, are removed from ``scope["headers"]`` if
    `removes`; else they stay for the application, and change nothing. `root_path` is what the scopes begin
    with: a prefix that a proxy names replaces it.
    """

    __slots__ = ("_believed", "_removes", "_root", "_trust")

    def __init__(self, trust: Trust, believed: Collection[bytes], removes: bool, root_path: str) -> None:
        self._trust = trust
        self._believed = frozenset(believed)
        self._removes = removes
        self._root = root_path

    def __call__(self, scope: dict[str, Any]) -> None:
        """Change `scope` in place; its list of headers is replaced, not changed."""
        headers = scope["headers"]
        said: dict[bytes, bytes] = {}
        for name, value in headers:
            if name in FIELDS:
                said[name] = said[name] + b"," + value if name in said else value
        if not said:
            return
        trusted = self._trust.is_trusted(scope["client"], scope["server"])
        believed = self._believed if trusted else frozenset()
        if self._removes:
            scope["headers"] = [field for field in headers if field[0] not in FIELDS or field[0] in believed]
        if trusted:
            heard = {name: value for name, value in said.items() if name in believed}
            self._apply(scope, read_origin(heard, self._trust.trusts))

    def _apply(self, scope: dict[str, Any], origin: Origin) -> None:
        if origin.client is not None:
            scope["client"] = origin.client
        if origin.tls is not None:
            scope["scheme"] = (_SECURE if origin.tls else _PLAIN)[scope["type"]]
        if origin.host is not None or origin.port is not None:
            _set_host(scope, origin)
        if origin.prefix is not None:
            self._set_prefix(scope, origin.prefix)

    def _set_prefix(self, scope: dict[str, Any], prefix: bytes) -> None:
        path, raw_path = scope["path"], scope["raw_path"]
        scope["root_path"] = root = decode_path(prefix)
        scope["path"] = root + path[len(self._root) :]
        scope["raw_path"] = prefix + raw_path[len(self._root.encode()) :]


def _set_host(scope: dict[str, Any], origin: Origin) -> None:
    """The Host field and ``server``: what applications make links of."""
    default = 443 if scope["scheme"] in ("https", "wss") else 80
    if origin.host is not None:
        name, port = origin.host
        port = origin.port or port
    else:
        asked = next((value for field, value in scope["headers"] if field == b"host"), b"")
        name = asked.partition(b"]")[0] + b"]" if asked.startswith(b"[") else asked.partition(b":")[0]
        port = origin.port
    if name:
        host = name if port in (None, default) else b"%b:%d" % (name, port)
        others = [field for field in scope["headers"] if field[0] != b"host"]
        scope["headers"] = [(b"host", host), *others]
        scope["server"] = (name.strip(b"[]").decode(), port or default)
