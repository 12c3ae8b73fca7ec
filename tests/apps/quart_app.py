"""What `test_frameworks.py` asks of every framework, in Quart."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator
from typing import Any

from quart import Quart, Response, request


def make(ended: threading.Event) -> Quart:
    """A fresh application; its shutdown sets `ended`."""
    app = Quart(__name__)
    app.config["MAX_CONTENT_LENGTH"] = None

    @app.while_serving
    async def lifespan() -> AsyncIterator[None]:
        app.happened, app.gate = asyncio.Queue(), asyncio.Event()  # type: ignore[attr-defined]
        app.greeting = "Hello"  # type: ignore[attr-defined]
        yield
        ended.set()

    add_routes(app)
    return app


def add_routes(app: Any) -> None:
    @app.get("/hello/<name>")
    async def hello(name: str) -> str:
        return f"{app.greeting}, {name}{request.args.get('mark', '')}"

    @app.route("/client", methods=["GET", "POST", "PUT", "DELETE"])
    async def client() -> list[Any]:
        return [request.method, request.scope["client"][1]]

    @app.post("/echo")
    async def echo() -> dict[str, Any]:
        digest, parts = hashlib.sha256(), 0
        async for part in request.body:
            digest.update(part)
            parts += bool(part)
        return {"sha256": digest.hexdigest(), "parts": parts}

    @app.post("/upload")
    async def upload() -> dict[str, Any]:
        file = (await request.files)["file"]
        return {"name": file.filename, "sha256": hashlib.sha256(file.read()).hexdigest()}

    @app.get("/stream")
    async def stream() -> Response:
        app.gate.clear()

        async def parts() -> AsyncIterator[bytes]:
            yield b"first"
            await app.gate.wait()
            yield b" and " + b"last" * 50_000

        return Response(parts(), mimetype="application/octet-stream")

    @app.post("/release")
    async def release() -> tuple[str, int]:
        app.gate.set()
        return "", 204

    @app.get("/forever")
    async def forever() -> Response:
        async def parts() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"tick"
                    await asyncio.sleep(0.005)
            finally:
                app.happened.put_nowait("left")

        response = Response(parts())
        response.timeout = None
        return response

    @app.get("/happened")
    async def happened() -> str:
        said: str = await app.happened.get()
        return said

    @app.get("/background")
    async def background() -> tuple[str, int]:
        app.add_background_task(app.happened.put, "done in the background")
        return "accepted", 202

    @app.get("/error")
    async def error() -> str:
        raise RuntimeError("quart fails on purpose")
