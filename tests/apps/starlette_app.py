"""What `test_frameworks.py` asks of every framework, in Starlette; and files, events and background tasks.

``/happened`` waits for the next thing that an endpoint had to say when its client could no longer be told.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

HERE = Path(__file__).resolve().parent


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, object]]:
    app.state.happened, app.state.gate = asyncio.Queue(), asyncio.Event()
    yield {"greeting": "Hello"}
    app.state.ended.set()


async def hello(request: Request) -> PlainTextResponse:
    name = request.path_params["name"]
    return PlainTextResponse(f"{request.state.greeting}, {name}{request.query_params.get('mark', '')}")


async def client(request: Request) -> JSONResponse:
    assert request.client is not None
    return JSONResponse([request.method, request.client.port])


async def echo(request: Request) -> JSONResponse:
    digest, parts = hashlib.sha256(), 0
    async for part in request.stream():
        digest.update(part)
        parts += bool(part)
    return JSONResponse({"sha256": digest.hexdigest(), "parts": parts})


async def upload(request: Request) -> JSONResponse:
    async with request.form() as form:
        file = form["file"]
        assert not isinstance(file, str)
        content = await file.read()
        return JSONResponse({"name": file.filename, "sha256": hashlib.sha256(content).hexdigest()})


async def stream(request: Request) -> StreamingResponse:
    gate = request.app.state.gate
    gate.clear()

    async def parts() -> AsyncIterator[bytes]:
        yield b"first"
        await gate.wait()
        yield b" and " + b"last" * 50_000

    return StreamingResponse(parts(), media_type="application/octet-stream")


async def release(request: Request) -> Response:
    request.app.state.gate.set()
    return Response(status_code=204)


async def forever(request: Request) -> StreamingResponse:
    async def parts() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"tick"
                await asyncio.sleep(0.005)
        finally:
            request.app.state.happened.put_nowait("left")

    return StreamingResponse(parts(), media_type="text/plain")


async def patient(request: Request) -> PlainTextResponse:
    while not await request.is_disconnected():
        await asyncio.sleep(0.005)
    request.app.state.happened.put_nowait("disconnected")
    return PlainTextResponse("for nobody")


async def happened(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await request.app.state.happened.get())


async def background(request: Request) -> PlainTextResponse:
    async def later() -> None:
        await request.app.state.gate.wait()
        request.app.state.happened.put_nowait("done in the background")

    request.app.state.gate.clear()
    return PlainTextResponse("accepted", 202, background=BackgroundTask(later))


async def file(request: Request) -> FileResponse:
    offered = request.scope["extensions"]["http.response.pathsend"]
    return FileResponse(request.path_params["path"], headers={"x-pathsend": repr(offered)})


async def events(request: Request) -> EventSourceResponse:
    async def messages() -> AsyncIterator[dict[str, str]]:
        try:
            number = 0
            while True:
                number += 1
                yield {"id": str(number), "event": "tick", "data": f"number {number}"}
                await asyncio.sleep(0.005)
        finally:
            request.app.state.happened.put_nowait("unsubscribed")

    return EventSourceResponse(messages())


async def error(request: Request) -> Response:
    raise RuntimeError("starlette fails on purpose")


def make(ended: threading.Event) -> Starlette:
    """A fresh application; its shutdown sets `ended`."""
    app = Starlette(
        lifespan=lifespan,
        routes=[
            Route("/hello/{name}", hello),
            Route("/client", client, methods=["GET", "POST", "PUT", "DELETE"]),
            Route("/echo", echo, methods=["POST"]),
            Route("/upload", upload, methods=["POST"]),
            Route("/stream", stream),
            Route("/release", release, methods=["POST"]),
            Route("/forever", forever),
            Route("/patient", patient),
            Route("/happened", happened),
            Route("/background", background),
            Route("/file/{path:path}", file),
            Route("/events", events),
            Route("/error", error),
            Mount("/static", StaticFiles(directory=HERE)),
        ],
    )
    app.state.ended = ended
    return app
