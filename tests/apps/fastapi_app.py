"""What `test_frameworks.py` asks of every framework, in FastAPI; and what it adds to Starlette."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import BackgroundTasks, Depends, FastAPI, Request, Response, UploadFile
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel


class Order(BaseModel):
    dish: str
    count: int = 1


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, object]]:
    app.state.happened, app.state.gate = asyncio.Queue(), asyncio.Event()
    yield {"greeting": "Hello"}
    app.state.ended.set()


async def resource(request: Request) -> AsyncIterator[str]:
    yield "open"
    request.app.state.happened.put_nowait("closed")


def make(ended: threading.Event) -> FastAPI:
    """A fresh application; its shutdown sets `ended`."""
    app = FastAPI(lifespan=lifespan)
    app.state.ended = ended
    add_common(app)
    add_own(app)
    return app


def add_common(app: FastAPI) -> None:
    state = app.state

    @app.get("/hello/{name}", response_class=PlainTextResponse)
    async def hello(request: Request, name: str, mark: str = "") -> str:
        return f"{request.state.greeting}, {name}{mark}"

    @app.api_route("/client", methods=["GET", "POST", "PUT", "DELETE"])
    async def client(request: Request) -> list[str | int]:
        assert request.client is not None
        return [request.method, request.client.port]

    @app.post("/echo")
    async def echo(request: Request) -> dict[str, str | int]:
        digest, parts = hashlib.sha256(), 0
        async for part in request.stream():
            digest.update(part)
            parts += bool(part)
        return {"sha256": digest.hexdigest(), "parts": parts}

    @app.post("/upload")
    async def upload(file: UploadFile) -> dict[str, str | None]:
        return {"name": file.filename, "sha256": hashlib.sha256(await file.read()).hexdigest()}

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        state.gate.clear()

        async def parts() -> AsyncIterator[bytes]:
            yield b"first"
            await state.gate.wait()
            yield b" and " + b"last" * 50_000

        return StreamingResponse(parts(), media_type="application/octet-stream")

    @app.post("/release", status_code=204)
    async def release() -> None:
        state.gate.set()

    @app.get("/forever")
    async def forever() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"tick"
                    await asyncio.sleep(0.005)
            finally:
                state.happened.put_nowait("left")

        return StreamingResponse(parts(), media_type="text/plain")

    @app.get("/happened", response_class=PlainTextResponse)
    async def happened() -> str:
        said: str = await state.happened.get()
        return said

    @app.get("/error")
    async def error() -> None:
        raise RuntimeError("fastapi fails on purpose")


def add_own(app: FastAPI) -> None:
    @app.middleware("http")
    async def stamp(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        response.headers["x-middleware"] = "was here"
        return response

    @app.post("/orders", status_code=201)
    async def order(order: Order) -> Order:
        return order

    @app.get("/resource")
    async def use(resource: Annotated[str, Depends(resource)]) -> dict[str, str]:
        return {"resource": resource}

    @app.get("/background", status_code=202)
    async def background(tasks: BackgroundTasks) -> str:
        tasks.add_task(app.state.happened.put, "done in the background")
        return "accepted"

    @app.get("/thread")
    def thread() -> bool:
        return threading.current_thread() is not app.state.thread

    @app.get("/loop")
    async def loop() -> None:
        app.state.thread = threading.current_thread()
