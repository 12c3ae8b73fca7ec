"""The page of the demo: `page.html` with this server's configuration and this request filled in."""

from __future__ import annotations

import base64
import hashlib
import html
import platform
import re
from collections.abc import Iterable
from importlib import resources
from string import Template
from typing import Any

from .._version import __version__

_SOURCE = resources.files(__package__).joinpath("page.html").read_text("utf-8")
_TEMPLATE = Template(_SOURCE)


def _hash(element: str) -> str:
    """The CSP source that allows exactly the one inline `element` of the page."""
    content = re.findall(rf"<{element}>(.*?)</{element}>", _SOURCE, re.DOTALL)[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; script-src {_hash('script')}; style-src {_hash('style')}; connect-src 'self';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
).encode()


def render(scope: dict[str, Any]) -> bytes:
    """The page for one request. Everything filled in is escaped for HTML."""
    told = scope.get("extensions", {}).get("servery")
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    values = {
        "root": html.escape(scope.get("root_path", "")),
        "version": html.escape(str((told or {}).get("version", __version__))),
        "configuration": _rows(_configuration(told)),
        "request": _rows(_request(scope)),
        "headers": _rows(headers),
        "header_count": str(len(headers)),
    }
    # A path may hold lone surrogates for octets that are not UTF-8.
    return _TEMPLATE.substitute(values).encode("utf-8", "backslashreplace")


def _configuration(told: dict[str, Any] | None) -> list[tuple[str, str]]:
    """What the server tells of itself in the scope, then what the interpreter knows."""
    told_apart = {**(told or {})}
    runs = str(told_apart.pop("runs", ""))  # words such as parser=python
    rows = [(name, value) for name, _, value in (word.partition("=") for word in runs.split())]
    rows += [(name, str(value)) for name, value in told_apart.items()]
    if told is None:
        rows = [("server", "not servery, or it does not say")]
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return [*rows, ("python", python), ("system", f"{platform.system()} {platform.machine()}")]


def _request(scope: dict[str, Any]) -> list[tuple[str, str]]:
    query = scope.get("query_string", b"").decode("latin-1")
    return [
        ("method", scope["method"]),
        ("path", scope["path"]),
        ("query", query or "–"),
        ("http version", scope["http_version"]),
        ("scheme", scope.get("scheme", "http")),
        ("client", _address(scope.get("client"))),
        ("server", _address(scope.get("server"))),
    ]


def _address(address: tuple[str, int | None] | None) -> str:
    """``host:port``, ``[v6]:port``, the path of a Unix socket, or a dash."""
    if address is None:
        return "–"
    host, port = address
    if port is None:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _rows(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(
        f'<div class="row"><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>'
        for name, value in pairs
    )
