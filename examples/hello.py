"""The smallest application. Run it: servery hello:app"""


async def app(scope, receive, send):
    assert scope["type"] == "http"  # with --lifespan auto this also says: no lifespan here
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"13")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"Hello, world\n"})
