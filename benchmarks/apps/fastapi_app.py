"""FastAPI: a JSON answer, and what a body that fails validation gets."""

from __future__ import annotations

from fastapi import FastAPI, Response
from proof import facts
from pydantic import BaseModel

app = FastAPI(openapi_url=None)


class Item(BaseModel):
    """What `POST /items` takes."""

    name: str
    price: float


@app.get("/items/{number}")
async def read_item(number: int) -> dict[str, object]:
    """One item, by its number."""
    return {"item_id": number, "q": None}


@app.post("/items")
async def make_item(item: Item) -> dict[str, object]:
    """The item that was sent."""
    return {"name": item.name, "price": item.price}


@app.get("/.proof")
async def proof() -> Response:
    """What this process is."""
    return Response(facts(), media_type="application/json")
