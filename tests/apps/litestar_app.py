"""What `test_frameworks.py` asks of every framework, in Litestar."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from litestar import HttpMethod, Litestar, MediaType, Request, get, post, route
from litestar.background_tasks import BackgroundTask
from litestar.datastructures import UploadFile
from litestar.enums import RequestEncodingType
from litestar.params import Body
from litestar.response import Response, ServerSentEvent, Stream

AnyRequest = Request[Any, Any, Any]


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    app.state.happened, app.state.gate = asyncio.Queue(), asyncio.Event()
    app.state.greeting = "Hello"
    yield
    app.state.ended.set()


@get("/hello/{name:str}", media_type=MediaType.TEXT)
async def hello(request: AnyRequest) -> str:
    return (
        f"{request.app.state.greeting}, {request.path_params['name']}{request.query_params.get('mark', '')}"
    )


@route("/client", http_method=[HttpMethod.GET, HttpMethod.POST, HttpMethod.PUT], status_code=200)
async def client(request: AnyRequest) -> list[Any]:
    assert request.client is not None
    return [request.method, request.client.port]


@route("/client", http_method=[HttpMethod.DELETE], status_code=200)
async def delete_client(request: AnyRequest) -> list[Any]:
    assert request.client is not None
    return [request.method, request.client.port]


@post("/echo", status_code=200, request_max_body_size=None)
async def echo(request: AnyRequest) -> dict[str, Any]:
    digest, parts = hashlib.sha256(), 0
    async for part in request.stream():
        digest.update(part)
        parts += bool(part)
    return {"sha256": digest.hexdigest(), "parts": parts}


@post("/upload", status_code=200)
async def upload(
    data: Annotated[dict[str, UploadFile], Body(media_type=RequestEncodingType.MULTI_PART)],
) -> dict[str, Any]:
    file = data["file"]
    return {"name": file.filename, "sha256": hashlib.sha256(await file.read()).hexdigest()}


@get("/stream")
async def stream(request: AnyRequest) -> Stream:
    gate = request.app.state.gate
    gate.clear()

    async def parts() -> AsyncIterator[bytes]:
        yield b"first"
        await gate.wait()
        yield b" and " + b"last" * 50_000

    return Stream(parts(), media_type="application/octet-stream")


@post("/release", status_code=204)
async def release(request: AnyRequest) -> None:
    request.app.state.gate.set()


@get("/forever")
async def forever(request: AnyRequest) -> Stream:
    async def parts() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"tick"
                await asyncio.sleep(0.005)
        finally:
            request.app.state.happened.put_nowait("left")

    return Stream(parts())


@get("/events")
async def events() -> ServerSentEvent:
    async def messages() -> AsyncIterator[dict[str, Any]]:
        for number in range(1, 4):
            yield {"id": str(number), "event": "tick", "data": f"number {number}"}

    return ServerSentEvent(messages())


@get("/happened", media_type=MediaType.TEXT)
async def happened(request: AnyRequest) -> str:
    said: str = await request.app.state.happened.get()
    return said


@get("/background", media_type=MediaType.TEXT, status_code=202)
async def background(request: AnyRequest) -> Response[str]:
    later = BackgroundTask(request.app.state.happened.put, "done in the background")
    return Response("accepted", background=later)


@get("/error")
async def error() -> None:
    raise RuntimeError("litestar fails on purpose")


def make(ended: threading.Event) -> Litestar:
    """A fresh application; its shutdown sets `ended`."""
    handlers = [hello, client, delete_client, echo, upload, stream, release]
    handlers += [forever, events, happened, background, error]
    app = Litestar(handlers, lifespan=[lifespan], openapi_config=None)
    app.state.ended = ended
    return app
