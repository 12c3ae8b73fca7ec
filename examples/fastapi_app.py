"""FastAPI: typed parameters and a checked body. Run it: servery fastapi_app:app"""

from fastapi import FastAPI
from pydantic import BaseModel


class Order(BaseModel):
    """What a client posts."""

    dish: str
    count: int = 1


app = FastAPI()


@app.get("/items/{number}")
async def item(number: int) -> dict[str, int]:
    return {"number": number}


@app.post("/orders", status_code=201)
async def order(order: Order) -> Order:
    return order
