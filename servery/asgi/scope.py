"""ASGI scopes: https://asgi.readthedocs.io/en/latest/specs/www.html, HTTP and WebSocket spec version 2.5.

Knows how a request head becomes a scope; knows nothing of sockets, engines or applications. Here bytes become
text for the first time. Nothing in a scope is shared with another one: an application may change what it
gets.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from .._version import __version__
from ..engine import Scope
from ..events import RequestReceived

SPEC_VERSION = "2.5"

_METHODS = {
    name.encode(): name
    for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "PROPFIND")
}


_PERCENT = ord("%")  # looked for as an octet, which is much quicker than as bytes

_TEMPLATE: Scope = {
    "type": "http",
    "asgi": None,
    "http_version": "1.1",
    **dict.fromkeys(("method", "scheme", "path", "raw_path", "query_string", "root_path", "headers")),
    **dict.fromkeys(("client", "server", "extensions")),
}


class ConnectionInfo:
    """What all scopes of one connection have in common.

    `client` is (host, port), or ``None`` for a Unix socket; `server` is (host, port) or (path, None). `state`
    is the lifespan's state, or ``None`` without lifespan; each scope gets a shallow copy. `runs` is what the
    server says of itself in ``scope["extensions"]["servery"]``: ``parser=python io=transport ...`` as in its
    start-up line. `tls` holds the extensions of a connection with TLS, by name.
    """

    __slots__ = ("client", "root_path", "runs", "scheme", "server", "state", "tls")

    def __init__(
        self,
        client: tuple[str, int] | None,
        server: tuple[str, int | None] | None,
        scheme: str,
        root_path: str,
        state: dict[str, Any] | None,
        runs: str,
        tls: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        self.client = client
        self.server = server
        self.scheme = scheme
        self.root_path = root_path
        self.state = state
        self.runs = runs
        self.tls = tls


def http_scope(request: RequestReceived, info: ConnectionInfo, request_id: str, trailers: bool) -> Scope:
    """The scope of an HTTP request. `trailers` says whether the peer wants response trailers."""
    extensions: dict[str, Any] = {
        "http.response.debug": {},
        "http.response.early_hint": {},
        "http.response.pathsend": {},
        "http.response.zerocopysend": {},
        "http.request.trailers": {},
        "servery": {"version": __version__, "runs": info.runs, "request_id": request_id},
    }
    if trailers:
        extensions["http.response.trailers"] = {}
    scope = _TEMPLATE.copy()  # quicker than to build it anew
    scope["method"] = _METHODS.get(request.method) or request.method.decode()
    scope["scheme"] = info.scheme
    scope["extensions"] = extensions
    _describe(scope, request, info)
    return scope


def websocket_scope(
    request: RequestReceived, info: ConnectionInfo, request_id: str, subprotocols: list[str]
) -> Scope:
    """The scope of a WebSocket that `request` asks for. `subprotocols` are those that the peer offers."""
    scope: Scope = {
        "type": "websocket",
        "scheme": "wss" if info.scheme == "https" else "ws",
        "http_version": "1.1",
        "subprotocols": subprotocols,
        "extensions": {
            "websocket.http.response": {},
            "servery.websocket.ping": {},
            "servery": {"version": __version__, "runs": info.runs, "request_id": request_id},
        },
    }
    _describe(scope, request, info)
    return scope


def _describe(scope: Scope, request: RequestReceived, info: ConnectionInfo) -> None:
    """What scopes of both types say."""
    raw_path = request.raw_path
    path = decode_path(raw_path) if _PERCENT in raw_path else raw_path.decode()  # ASCII: see grammar.py
    if info.root_path:  # path includes root_path (ASGI HTTP connection scope)
        path = info.root_path + path
        raw_path = info.root_path.encode() + raw_path
    scope["asgi"] = {"version": "3.0", "spec_version": SPEC_VERSION}
    if request.version != b"1.1":
        scope["http_version"] = request.version.decode()
    scope["path"] = path
    scope["raw_path"] = raw_path
    scope["query_string"] = request.query
    scope["root_path"] = info.root_path
    scope["headers"] = request.headers if request.authority is None else _with_host(request)
    scope["client"] = info.client
    scope["server"] = info.server
    if info.state is not None:
        scope["state"] = info.state.copy()
    if info.tls is not None:
        scope["extensions"].update(_own(info.tls))


def _own(tls: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A copy down to the list of certificates, all that can be changed in it."""
    copied = {name: facts.copy() for name, facts in tls.items()}
    copied["tls"]["client_cert_chain"] = list(copied["tls"]["client_cert_chain"])
    return copied


def decode_path(raw_path: bytes) -> str:
    """Percent-decoded once, then read as UTF-8 with U+FFFD for what is none; ``%zz`` stays as it is."""
    return unquote(raw_path.decode("ascii"), errors="replace")


def _with_host(request: RequestReceived) -> list[tuple[bytes, bytes]]:
    """RFC 9112 section 3.2.2: the authority of an absolute target replaces the Host field."""
    assert request.authority is not None
    others = [field for field in request.headers if field[0] != b"host"]
    return [(b"host", request.authority), *others]
