"""Starlette: `GET /items/42` answers 23 octets of JSON."""

from __future__ import annotations

from proof import facts
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


async def item(request):
    """One item, by its number."""
    return JSONResponse({"item_id": int(request.path_params["number"]), "q": None})


async def proof(request):
    """What this process is."""
    return Response(facts(), media_type="application/json")


app = Starlette(routes=[Route("/items/{number:int}", item), Route("/.proof", proof)])
