"""Starlette: routes, lifespan and its state. Run it: servery starlette_app:app"""

import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, str]]:
    yield {"greeting": "Hello"}  # each request finds this in request.state


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{request.state.greeting}, {request.path_params['name']}\n")


async def echo(request: Request) -> JSONResponse:
    return JSONResponse({"octets": len(await request.body())})


routes = [Route("/hello/{name}", hello), Route("/echo", echo, methods=["POST"])]
app = Starlette(routes=routes, lifespan=lifespan)
