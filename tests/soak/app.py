"""What the soak talks to: answers, streams, takes uploads, waits, fails; echoes, and tells everybody."""

import asyncio

TEXT = (b"content-type", b"text/plain")
BODY = b"x" * 1024
MESSAGE = {"type": "websocket.send", "text": "x" * 1024}
BALLAST = {"type": "websocket.send", "bytes": bytes(16 << 20)}
"""More than any buffer between two sockets holds."""

members = set()
tasks = set()


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
    elif scope["type"] == "websocket":
        await talk(scope["path"], receive, send)
    else:
        await answer(scope["path"], receive, send)


async def answer(path, receive, send):
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


async def talk(path, receive, send):
    """An echo; a member of those who are told things, slow or not; or who bids that they are told."""
    await receive()
    await send({"type": "websocket.accept"})
    if path in ("/member", "/slow"):
        members.add(send)
    if path == "/slow":
        aside(send, BALLAST)
    try:
        while (message := await receive())["type"] == "websocket.receive":
            if path == "/conduct":
                await tell(message["text"])
            else:
                await send({**message, "type": "websocket.send"})
    finally:
        members.discard(send)


async def tell(how):
    """The message to everybody, one after the other, or so that nobody waits for anybody."""
    for send in list(members):
        if how == "in turn":
            await send(MESSAGE)
        else:
            aside(send, MESSAGE)


def aside(send, message):
    task = asyncio.ensure_future(sending(send, message))
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def sending(send, message):
    try:
        await send(message)
    except OSError:
        pass  # gone, which `receive` has told or will tell
