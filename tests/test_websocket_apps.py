"""Applications that people write for WebSockets: what their frameworks need, on a real server."""

from __future__ import annotations

import asyncio
import json
import queue

import httpx
import pytest
import socketio
import strawberry
import websockets
from fastapi import Depends, FastAPI, WebSocket, WebSocketException
from harness import WAIT
from process import ServerProcess
from starlette.applications import Starlette
from starlette.endpoints import WebSocketEndpoint
from starlette.routing import WebSocketRoute
from strawberry.asgi import GraphQL
from websockets.sync.client import connect


def client(server, path="/", **options):
    return connect(f"ws://127.0.0.1:{server.port}{path}", proxy=None, **options)


# --- Starlette and FastAPI -------------------------------------------------------------------------------


def test_starlette(serve):
    ended = queue.Queue()

    async def each(websocket):
        await websocket.accept(subprotocol="x", headers=[(b"x-a", b"1")])
        try:
            async for message in websocket.iter_json():
                await websocket.send_json({"heard": message})
            await websocket.receive_text()
        finally:
            ended.put("each")

    class Endpoint(WebSocketEndpoint):
        """Has its methods called."""

        encoding = "bytes"

        async def on_receive(self, websocket, data):
            await websocket.send_bytes(data * 2)

        async def on_disconnect(self, websocket, close_code):
            ended.put(close_code)

    async def leaves(websocket):
        await websocket.accept()
        await websocket.receive_text()

    routes = [
        WebSocketRoute("/each", each),
        WebSocketRoute("/endpoint", Endpoint),
        WebSocketRoute("/leaves", leaves),
    ]
    with serve(Starlette(routes=routes)) as server:
        with client(server, "/each", subprotocols=["x"]) as socket:
            assert (socket.subprotocol, socket.response.headers["x-a"]) == ("x", "1")
            for message in ([1, "é"], {"a": None}):
                socket.send(json.dumps(message))
                assert json.loads(socket.recv()) == {"heard": message}
        assert ended.get(timeout=WAIT) == "each"
        with client(server, "/endpoint") as socket:
            socket.send(b"ab")
            assert socket.recv() == b"abab"
            socket.close(4002)
        assert ended.get(timeout=WAIT) == 4002
        with client(server, "/leaves"):
            pass
        with pytest.raises(websockets.InvalidStatus, match="HTTP 403"):
            client(server, "/nowhere")
        server.access.wait(4)
    assert server.errors.lines(20) == []


def test_fastapi(serve):
    app = FastAPI()

    async def token(websocket: WebSocket) -> str:
        if "token" not in websocket.query_params:
            raise WebSocketException(code=1008)
        return websocket.query_params["token"]

    @app.websocket("/items/{number}")
    async def items(websocket: WebSocket, number: int, token=Depends(token)) -> None:  # noqa: B008
        await websocket.accept()
        await websocket.send_text(f"{number} {token}")
        await websocket.close(1001, "done")

    with serve(app) as server:
        with client(server, "/items/7?token=t") as socket:
            assert socket.recv() == "7 t"
            with pytest.raises(websockets.ConnectionClosedOK) as caught:
                socket.recv()
            assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1001, "done")
        with pytest.raises(websockets.InvalidStatus, match="HTTP 403"):
            client(server, "/items/7")
        assert httpx.get(f"{server.url}/openapi.json", trust_env=False).status_code == 200
    assert server.errors.lines(20) == []


# --- Channels --------------------------------------------------------------------------------------------

CHAT = """
from django.conf import settings

layer = {"BACKEND": "channels.layers.InMemoryChannelLayer"}
settings.configure(CHANNEL_LAYERS={"default": layer}, LOGGING_CONFIG=None)

import django
django.setup()

from channels.generic.websocket import AsyncJsonWebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from django.urls import path


class Chat(AsyncJsonWebsocketConsumer):
    async def connect(self):
        self.room = self.scope["url_route"]["kwargs"]["room"]
        await self.channel_layer.group_add(self.room, self.channel_name)
        await self.accept()

    async def receive_json(self, content):
        await self.channel_layer.group_send(self.room, {"type": "said", "content": content})

    async def said(self, event):
        await self.send_json(event["content"])

    async def disconnect(self, code):
        await self.channel_layer.group_send(self.room, {"type": "said", "content": {"left": code}})


app = ProtocolTypeRouter(
    {"http": get_asgi_application(), "websocket": URLRouter([path("chat/<str:room>", Chat.as_asgi())])}
)
"""


def test_a_chat_on_channels(way, tmp_path):
    with ServerProcess(tmp_path, CHAT) as server:
        with (
            client(server, "/chat/a") as one,
            client(server, "/chat/a") as two,
            client(server, "/chat/b") as other,
        ):
            one.send('{"text": "hello"}')
            assert [json.loads(socket.recv()) for socket in (one, two)] == [{"text": "hello"}] * 2
            two.close(4003)
            assert json.loads(one.recv()) == {"left": 4003}
            other.send('{"text": "alone"}')
            assert json.loads(other.recv()) == {"text": "alone"}
        assert server.stop() == 0
    assert "Traceback" not in server.said


# --- python-socketio -------------------------------------------------------------------------------------


@pytest.mark.parametrize("transports", [["websocket"], ["polling", "websocket"]])
def test_socketio(serve, transports):
    events = socketio.AsyncServer(async_mode="asgi")

    @events.event
    async def add(sid, first, second):
        await events.emit("told", {"sum": first + second}, to=sid)
        return first + second

    async def talk(server):
        async with socketio.AsyncSimpleClient() as caller:
            await caller.connect(server.url, transports=transports, wait_timeout=5)
            assert caller.transport == "websocket" or len(transports) > 1  # the change may still be under way
            for number in range(20):
                assert await caller.call("add", (number, 1)) == number + 1
                assert await caller.receive(timeout=WAIT) == ["told", {"sum": number + 1}]

    with serve(socketio.ASGIApp(events)) as server:
        asyncio.run(talk(server))
    assert server.errors.lines(30) == []


# --- GraphQL subscriptions -------------------------------------------------------------------------------


@strawberry.type
class Query:
    """GraphQL wants one."""

    hello: str = "hello"


@strawberry.type
class Subscription:
    """Counts."""

    @strawberry.subscription
    async def count(self, target: int) -> int:
        for number in range(target):
            yield number
            await asyncio.sleep(0)


def test_a_graphql_subscription(serve):
    app = GraphQL(strawberry.Schema(query=Query, subscription=Subscription))
    with serve(app) as server, client(server, subprotocols=["graphql-transport-ws"]) as socket:
        assert socket.subprotocol == "graphql-transport-ws"
        socket.send('{"type": "connection_init"}')
        assert json.loads(socket.recv())["type"] == "connection_ack"
        ask = {"id": "1", "type": "subscribe", "payload": {"query": "subscription { count(target: 5) }"}}
        socket.send(json.dumps(ask))
        heard = [json.loads(socket.recv()) for _ in range(6)]
        assert [one["payload"]["data"]["count"] for one in heard[:5]] == [0, 1, 2, 3, 4]
        assert heard[5]["type"] == "complete"
        socket.send("nonsense")
        with pytest.raises(websockets.ConnectionClosedError) as caught:
            socket.recv()
        assert caught.value.rcvd.code == 4400
    assert server.errors.lines(30) == []
