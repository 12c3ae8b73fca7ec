"""What the administrator's listener answers, as a small ASGI application.

A loopback port can be reached by every web page that is open on the machine. So a request that a page has
made is refused: one with an Origin that changes something, and any whose Host is a name, behind which a page
may have put 127.0.0.1.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any

from ..asgi.calls import Receive, Send
from ..engine import Scope
from ..metrics import prometheus
from .source import Source

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

Answer = tuple[int, str, str]
"""Status, media type, content."""


class AdminApplication:
    """Serves `source`. With `names`, any Host is good: somebody has let other machines in on purpose."""

    def __init__(self, source: Source, names: bool) -> None:
        self._source = source
        self._names = names
        self._routes: dict[str, tuple[str, Callable[[bytes], Awaitable[Answer]]]] = {
            "/live": ("GET", self._live),
            "/ready": ("GET", self._ready),
            "/metrics": ("GET", self._metrics),
            "/state": ("GET", self._state),
            "/stop": ("POST", self._stop),
            "/reload": ("POST", self._reload),
            "/scale": ("POST", self._scale),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; WebSockets are denied."""
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        allow, (status, kind, content) = await self._answer(scope)
        body = content.encode()
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        if status == 405:
            headers.append((b"allow", allow.encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope) -> tuple[str, Answer]:
        fields = dict(scope["headers"])
        method, answer = self._routes.get(scope["path"], ("", None))
        allow = "GET, HEAD" if method == "GET" else method
        if not (self._names or _is_address(fields.get(b"host", b""))):
            return allow, (403, TEXT, "ask for this server by address, such as 127.0.0.1, or localhost\n")
        if answer is None:
            return allow, (404, TEXT, f"there are {' '.join(self._routes)}\n")
        if scope["method"] not in allow.split(", "):
            return allow, (405, TEXT, f"use {allow}\n")
        if method == "POST" and b"origin" in fields:
            return allow, (403, TEXT, "not from a web page\n")
        return allow, await answer(scope["query_string"])

    async def _live(self, _: bytes) -> Answer:
        return 200, TEXT, "live\n"

    async def _ready(self, _: bytes) -> Answer:
        return (200, TEXT, "ready\n") if self._source.ready() else (503, TEXT, "not ready\n")

    async def _metrics(self, _: bytes) -> Answer:
        return 200, prometheus.CONTENT_TYPE, prometheus.exposition(await self._source.snapshot())

    async def _state(self, _: bytes) -> Answer:
        import json  # when somebody asks, and not whenever a server starts

        state: dict[str, Any] = await self._source.state()
        return 200, JSON, json.dumps(state, indent=2) + "\n"

    async def _stop(self, _: bytes) -> Answer:
        self._source.stop()
        return 202, TEXT, "stopping\n"

    async def _reload(self, _: bytes) -> Answer:
        return _done(self._source.reload(), "reloading\n")

    async def _scale(self, query: bytes) -> Answer:
        match = re.fullmatch(rb"workers=([1-9][0-9]{0,3})", query)
        if match is None:
            return 400, TEXT, "say how many: /scale?workers=4\n"
        return _done(self._source.scale(int(match[1])), "scaling\n")


def _done(why_not: str | None, word: str) -> Answer:
    return (202, TEXT, word) if why_not is None else (409, TEXT, f"{why_not}\n")


def _is_address(host: bytes) -> bool:
    """Whether a Host field names an address, or this machine; nothing is what a Unix socket's client says."""
    text = host.decode("latin-1")
    name = text.partition("]")[0].lstrip("[") if text.startswith("[") else text.partition(":")[0]
    if name in ("", "localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
