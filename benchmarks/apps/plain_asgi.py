"""The ASGI application that most scenarios are served with: no framework, one path for each."""

from __future__ import annotations

import asyncio
import os

from proof import facts

FILES = os.environ.get("BENCHMARKS_FILES", "")
OCTETS = (b"content-type", b"application/octet-stream")
JSON_TYPE = (b"content-type", b"application/json")
BODY = b"x" * 1024
JSON_48 = b'{"id":42,"name":"benchmark","ok":true,"n":12345}'
SIXTEEN_KIB = b"y" * 16384
ONE_KIB = b"z" * 1024


async def answer(send, body, kind=OCTETS):
    """A whole body with its length."""
    headers = [kind, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def immediate(scope, receive, send):
    """1 KiB at once."""
    await answer(send, BODY)


async def small_json(scope, receive, send):
    """48 octets of JSON."""
    await answer(send, JSON_48, JSON_TYPE)


async def wait(scope, receive, send):
    """1 KiB after 10 ms that do not block."""
    await asyncio.sleep(0.01)
    await answer(send, BODY)


async def slow(scope, receive, send):
    """1 KiB after 1.5 s."""
    await asyncio.sleep(1.5)
    await answer(send, BODY)


async def stream(send, chunk, count):
    """`count` chunks of unknown number to the server, so that it has to frame them."""
    await send({"type": "http.response.start", "status": 200, "headers": [OCTETS]})
    for _ in range(count):
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def large_chunks(scope, receive, send):
    """Eight chunks of 16 KiB."""
    await stream(send, SIXTEEN_KIB, 8)


async def small_chunks(scope, receive, send):
    """64 chunks of 1 KiB."""
    await stream(send, ONE_KIB, 64)


async def upload(scope, receive, send):
    """Reads a body, and answers with its size in two parts."""
    size = 0
    more = True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [OCTETS]})
    await send({"type": "http.response.body", "body": b"%d" % size, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def file(scope, receive, send):
    """A file: by `pathsend` where the server has it, else read in pieces of 64 KiB."""
    path = os.path.join(FILES, os.path.basename(scope["path"]))
    headers = [OCTETS, (b"content-length", b"%d" % os.path.getsize(path))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if "http.response.pathsend" in scope.get("extensions", {}):
        await send({"type": "http.response.pathsend", "path": path})
        return
    with open(path, "rb") as opened:
        while piece := opened.read(65536):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def proof(scope, receive, send):
    """What this process is."""
    await answer(send, facts(), JSON_TYPE)


async def missing(scope, receive, send):
    """404 for every other path."""
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


PATHS = {
    "/": immediate,
    "/json": small_json,
    "/wait": wait,
    "/slow": slow,
    "/large-chunks": large_chunks,
    "/small-chunks": small_chunks,
    "/upload": upload,
    "/file/128k": file,
    "/file/8m": file,
    "/.proof": proof,
}


async def echo(scope, receive, send):
    """A WebSocket that says what it hears."""
    await receive()
    await send({"type": "websocket.accept"})
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("text") is not None:
            await send({"type": "websocket.send", "text": message["text"]})
        else:
            await send({"type": "websocket.send", "bytes": message["bytes"]})


async def lifespan(receive, send):
    """Nothing to start, nothing to stop."""
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def app(scope, receive, send):
    """The application."""
    if scope["type"] == "http":
        await PATHS.get(scope["path"], missing)(scope, receive, send)
    elif scope["type"] == "websocket":
        await echo(scope, receive, send)
    else:
        await lifespan(receive, send)
