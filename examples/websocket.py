"""A chat room on a WebSocket: what one client says, all clients hear.

Run it: servery websocket:app
Then, in the consoles of two browser windows:

    chat = new WebSocket("ws://127.0.0.1:8000"); chat.onmessage = (event) => console.log(event.data)
    chat.send("hello")
"""

from __future__ import annotations

import asyncio
from typing import Any

present: set[asyncio.Queue[str]] = set()


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """ASGI 3, WebSockets alone."""
    if scope["type"] != "websocket":
        raise NotImplementedError("this application speaks WebSockets only")
    await receive()  # websocket.connect
    await send({"type": "websocket.accept"})
    mine: asyncio.Queue[str] = asyncio.Queue(100)
    present.add(mine)
    passing_on = asyncio.create_task(pass_on(mine, send))
    try:
        while (message := await receive())["type"] == "websocket.receive":
            for queue in present:
                if not queue.full():  # who reads too slowly misses something, and holds nobody up
                    queue.put_nowait(message.get("text") or "")
    finally:
        present.remove(mine)
        passing_on.cancel()


async def pass_on(queue: asyncio.Queue[str], send: Any) -> None:
    """Send what is said, until the client has gone."""
    while True:
        text = await queue.get()
        try:
            await send({"type": "websocket.send", "text": text})
        except OSError:
            return
