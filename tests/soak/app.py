"""What the soak talks to: answers at once, streams, takes uploads, waits, fails."""

import asyncio

TEXT = (b"content-type", b"text/plain")
BODY = b"x" * 1024


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    path = scope["path"]
    if path == "/upload":
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            more = message["more_body"]
    elif path == "/wait":
        await asyncio.sleep(0.05)
    elif path == "/fail":
        raise ZeroDivisionError
    await send({"type": "http.response.start", "status": 200, "headers": [TEXT]})
    if path == "/stream":
        for _ in range(20):
            await send({"type": "http.response.body", "body": BODY * 16, "more_body": True})
    await send({"type": "http.response.body", "body": BODY})
