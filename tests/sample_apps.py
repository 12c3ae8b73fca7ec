"""Small ASGI applications, and the steps that they are made of."""

from __future__ import annotations

import ast
from typing import Any


class Gone(Exception):
    """``receive()`` said that the client left."""


async def read_body(receive: Any) -> bytes:
    """The whole request body. Raises `Gone` if the client leaves before its end."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        body += message["body"]
        if not message["more_body"]:
            return body


async def start(send: Any, status: int = 200, headers: Any = (), **more: Any) -> None:
    """Send the start of a response."""
    await send({"type": "http.response.start", "status": status, "headers": list(headers), **more})


async def body(send: Any, data: bytes = b"", more: bool = False) -> None:
    """Send a part of the content."""
    await send({"type": "http.response.body", "body": data, "more_body": more})


async def respond(send: Any, data: bytes = b"ok", status: int = 200, headers: Any = ()) -> None:
    """Send a whole response with its length."""
    await start(send, status, [(b"content-length", b"%d" % len(data)), *headers])
    await body(send, data)


async def ok(scope: Any, receive: Any, send: Any) -> None:
    """Answers every request with ``ok``, and takes part in the lifespan."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    else:
        await respond(send)


async def lifespan(receive: Any, send: Any) -> None:
    """Starts and stops without doing anything."""
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


class Echo:
    """Answers with what it got, as a literal for `seen`. `started` and `finished` are paths, in order."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.finished: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.started.append(scope["path"])
        content = await read_body(receive)
        self.finished.append(scope["path"])
        names = ("method", "path", "raw_path", "query_string", "root_path", "client", "server")
        facts = {name: scope[name] for name in names}
        facts.update(headers=[(bytes(name), bytes(value)) for name, value in scope["headers"]], body=content)
        await respond(send, repr(facts).encode())


def seen(content: bytes) -> dict[str, Any]:
    """What `Echo` saw, from the content of its answer."""
    facts: dict[str, Any] = ast.literal_eval(content.decode())
    return facts
