"""Server-sent events: a response without end that lets the server stop. Run it: servery sse:app

The stream ends when `receive()` returns ``http.disconnect``: when the client leaves, and also some seconds
after the stop signal (``--timeout-stream-grace``), while the client can still read a last message.
"""

import asyncio

INTERVAL = 1.0
HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


async def until_disconnect(receive):
    while (await receive())["type"] != "http.disconnect":
        pass


async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    gone = asyncio.create_task(until_disconnect(receive))
    count = 0
    try:
        while not gone.done():
            count += 1
            await send({"type": "http.response.body", "body": b"data: %d\n\n" % count, "more_body": True})
            await asyncio.wait([gone], timeout=INTERVAL)
        await send({"type": "http.response.body", "body": b"event: end\ndata: bye\n\n", "more_body": False})
    except OSError:
        pass  # the client has left, and there is nobody to tell
    finally:
        gone.cancel()
