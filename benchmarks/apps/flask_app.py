"""Flask: `GET /items/42` answers 23 octets of JSON."""

from __future__ import annotations

from flask import Flask, Response
from proof import facts

app = Flask(__name__)


@app.get("/items/<int:number>")
def item(number: int) -> Response:
    """One item, by its number."""
    return Response(f'{{"item_id":{number},"q":null}}', mimetype="application/json")


@app.get("/.proof")
def proof() -> Response:
    """What this process is."""
    return Response(facts(), mimetype="application/json")
