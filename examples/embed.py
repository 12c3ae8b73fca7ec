"""A server inside a program of your own. Run it: python embed.py

It listens on a free port, asks itself for a page, stops, and ends.
"""

import asyncio
import urllib.request

from hello import app

import servery


async def main() -> None:
    server = servery.Server(servery.Config(app=app, port=0, lifespan="off"))
    task = asyncio.create_task(server.serve())
    while not server.started and not task.done():
        await asyncio.sleep(0.01)
    if server.started:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/"
        response = await asyncio.to_thread(urllib.request.urlopen, url)
        with response:
            print(url, response.status, response.read().decode())
        server.should_exit = True
    await task  # raises what kept the server from starting


if __name__ == "__main__":
    asyncio.run(main())
