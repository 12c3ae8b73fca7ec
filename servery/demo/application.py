"""The routes of the demo: plain ASGI 3, one coroutine per route."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from .page import CONTENT_SECURITY_POLICY, render

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

HELD_SIZE = 1_048_576
"""Octets of an upload that `echo` keeps before it begins to answer. A browser reads no answer before it has
sent everything: if the echo began at once, each side would wait for the other once all buffers were full."""
TICK = 1.0
"""Seconds between two events of the ticker."""


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """The demo application (ASGI 3: HTTP, WebSockets and lifespan)."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "http":
        await route(scope, receive, send)
    elif scope["type"] == "websocket":
        await talk(scope, receive, send)
    else:
        raise NotImplementedError(f"the demo speaks HTTP and WebSockets only, not {scope['type']}")


async def lifespan(receive: Receive, send: Send) -> None:
    """Agree to start and to stop: the demo holds nothing open."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def route(scope: Scope, receive: Receive, send: Send) -> None:
    """Find the route by path, then look at the method."""
    path = path_of(scope)
    if path not in ROUTES:
        await answer(scope, send, 404, b"not found\n")
        return
    methods, handler = ROUTES[path]
    if scope["method"] not in methods:
        allow = [(b"allow", ", ".join(methods).encode())]
        await answer(scope, send, 405, b"method not allowed\n", headers=allow)
        return
    await handler(scope, receive, send)


def path_of(scope: Scope) -> str:
    """The path below the prefix that a proxy adds."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path or "/"


async def page(scope: Scope, receive: Receive, send: Send) -> None:
    """The page, made for this request."""
    policy = [(b"content-security-policy", CONTENT_SECURITY_POLICY)]
    await answer(scope, send, 200, render(scope), b"text/html; charset=utf-8", policy)


async def healthz(scope: Scope, receive: Receive, send: Send) -> None:
    """The shortest answer, for probes."""
    await answer(scope, send, 200, b"ok\n")


async def show_scope(scope: Scope, receive: Receive, send: Send) -> None:
    """The scope as JSON: octets as latin-1 text, what JSON cannot hold as the name of its type."""
    body = json.dumps(plain(scope), indent=2).encode() + b"\n"
    await answer(scope, send, 200, body, b"application/json")


async def ticker(scope: Scope, receive: Receive, send: Send) -> None:
    """One event per second until the client goes away."""
    start = response_start(200, b"text/event-stream", [(b"cache-control", b"no-store")])
    if scope["method"] == "HEAD":
        await send(start)
        await send({"type": "http.response.body"})
        return
    gone = asyncio.ensure_future(disconnected(receive))
    try:
        await send(start)
        await send_ticks(send, gone)
    except OSError:
        pass  # the client is gone: nobody is left to tick for
    finally:
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone


async def send_ticks(send: Send, gone: asyncio.Future[None]) -> None:
    """Send events until `gone` is done, then end the stream."""
    number = 0
    while not gone.done():
        number += 1
        event = json.dumps({"number": number, "time": time.strftime("%H:%M:%S")})
        data = f"id: {number}\ndata: {event}\n\n".encode()
        await send({"type": "http.response.body", "body": data, "more_body": True})
        await asyncio.wait({gone}, timeout=TICK)
    await send({"type": "http.response.body"})


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Give the request body back, with its own content type.

    Up to `HELD_SIZE` octets are answered when they are complete, with their SHA-256 as Content-Digest
    (RFC 9530); more is streamed, and the client must read while it sends.
    """
    held = bytearray()
    more = True
    while more and len(held) <= HELD_SIZE:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        held += message.get("body", b"")
        more = message.get("more_body", False)
    fields = {name: value for name, value in scope["headers"] if name in (b"content-type", b"content-length")}
    # Whatever comes back is somebody's upload: a browser must not run it as a page of this origin.
    headers = [(b"content-security-policy", b"default-src 'none'; sandbox")]
    if not more:
        digest = base64.b64encode(hashlib.sha256(held).digest())
        headers.append((b"content-digest", b"sha-256=:" + digest + b":"))
        headers.append((b"content-length", str(len(held)).encode()))
    elif b"content-length" in fields:
        headers.append((b"content-length", fields[b"content-length"]))
    await send(response_start(200, fields.get(b"content-type", b"application/octet-stream"), headers))
    await send({"type": "http.response.body", "body": bytes(held), "more_body": more})
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        more = message.get("more_body", False)
        await send({"type": "http.response.body", "body": message.get("body", b""), "more_body": more})


async def talk(scope: Scope, receive: Receive, send: Send) -> None:
    """A WebSocket at ``/talk``: every text comes back as ``{"echo": text}``, octets as they are.

    Where the server can ping, ``{"round_trip": milliseconds}`` comes once a second as well.
    """
    await receive()
    if path_of(scope) != "/talk":
        await send({"type": "websocket.close"})
        return
    await send({"type": "websocket.accept"})
    can_ping = "servery.websocket.ping" in scope.get("extensions", {})
    pinging = asyncio.ensure_future(ping(send)) if can_ping else None
    try:
        while (message := await receive())["type"] != "websocket.disconnect":
            await send(reply_to(message))
    except OSError:
        pass  # the client is gone: nobody is left to talk to
    finally:
        if pinging is not None:
            pinging.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await pinging


async def ping(send: Send) -> None:
    """Ask for a round trip again and again."""
    while True:
        await send({"type": "servery.websocket.ping"})
        await asyncio.sleep(TICK)


def reply_to(message: Message) -> Message:
    """What is said to a message, or to the answer of a ping."""
    if message.get("bytes") is not None:
        return {"type": "websocket.send", "bytes": message["bytes"]}
    if message["type"] == "websocket.receive":
        said: dict[str, Any] = {"echo": message["text"]}
    else:
        said = {"round_trip": round(message["round_trip"] * 1000, 3)}
    return {"type": "websocket.send", "text": json.dumps(said)}


async def answer(
    scope: Scope,
    send: Send,
    status: int,
    body: bytes,
    content_type: bytes = b"text/plain; charset=utf-8",
    headers: Headers | None = None,
) -> None:
    """Send a whole response; to HEAD the same fields without the content."""
    fields = [*(headers or []), (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
    await send(response_start(status, content_type, fields))
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def response_start(status: int, content_type: bytes, headers: Headers) -> Message:
    """The message that begins a response, with the fields that every response of the demo has."""
    fields = [
        (b"content-type", content_type),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        *headers,
    ]
    if not any(name == b"content-security-policy" for name, _ in headers):
        fields.append((b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"))
    return {"type": "http.response.start", "status": status, "headers": fields}


def plain(value: Any) -> Any:
    """`value` in terms of JSON."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return type(value).__name__


Handler = Callable[[Scope, Receive, Send], Awaitable[None]]

ROUTES: dict[str, tuple[tuple[str, ...], Handler]] = {
    "/": (("GET", "HEAD"), page),
    "/echo": (("POST",), echo),
    "/healthz": (("GET", "HEAD"), healthz),
    "/scope": (("GET", "HEAD"), show_scope),
    "/ticker": (("GET", "HEAD"), ticker),
}
