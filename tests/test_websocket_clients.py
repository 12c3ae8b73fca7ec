"""Clients that people use, against a real server: each in its own way of reading the RFCs."""

from __future__ import annotations

import asyncio
import random

import aiohttp
import httpx
import httpx_ws
import picows
import pytest
import websockets
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.sync.client import connect as connect_sync

CONTENTS = [b"", b"a", b"hello " * 1000, random.Random(1).randbytes(200_000), b"\0" * 1_000_000]


async def chat(scope, receive, send):
    """Sends back what comes; ``close 4001 why`` closes so, ``deny`` as the path denies."""
    await receive()
    if scope["path"] == "/deny":
        await send({"type": "websocket.http.response.start", "status": 401, "headers": [(b"x-why", b"no")]})
        await send({"type": "websocket.http.response.body", "body": b"go away"})
        return
    await send({"type": "websocket.accept", "subprotocol": next(iter(scope["subprotocols"]), None)})
    while (message := await receive())["type"] == "websocket.receive":
        if message.get("text", "").startswith("close "):
            _, code, reason = message["text"].split()
            await send({"type": "websocket.close", "code": int(code), "reason": reason})
            return
        await send({**message, "type": "websocket.send"})


def url(server, path="/"):
    return f"ws://127.0.0.1:{server.port}{path}"


# --- websockets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["deflate", None])
def test_websockets(serve, compression):
    async def talk(server):
        options = {"compression": compression, "subprotocols": ["x"], "max_size": None, "proxy": None}
        async with websockets.connect(url(server), **options) as socket:
            assert socket.subprotocol == "x"
            assert [one.name for one in socket.protocol.extensions] == ["permessage-deflate"] * bool(
                compression
            )
            for content in CONTENTS:
                for sent in (content, content.decode("latin-1")):
                    await socket.send(sent)
                    assert await socket.recv() == sent
            await socket.send(["a", "b", "c"])  # fragments
            assert await socket.recv() == "abc"
            assert await (await socket.ping()) >= 0
            await socket.send("close 4001 why")
            with pytest.raises(websockets.ConnectionClosedError) as caught:
                await socket.recv()
            assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (4001, "why")

    with serve(chat) as server:
        asyncio.run(talk(server))
    assert server.errors.lines(30) == []


@pytest.mark.parametrize(
    "offer", [{"server": 9}, {"client": 9}, {"server": 15, "client": 15}, {"none": True}]
)
def test_websockets_with_other_offers(serve, offer):
    factory = ClientPerMessageDeflateFactory(
        server_max_window_bits=offer.get("server"),
        client_max_window_bits=offer.get("client", True),
        server_no_context_takeover="none" in offer,
        client_no_context_takeover="none" in offer,
    )
    with serve(chat) as server:
        with connect_sync(
            url(server), extensions=[factory], compression=None, max_size=None, proxy=None
        ) as socket:
            assert len(socket.protocol.extensions) == 1
            for content in CONTENTS * 2:
                socket.send(content)
                assert socket.recv() == content


@pytest.mark.parametrize(
    "settings",
    [
        {"ws_deflate_context_takeover": False},
        {"ws_deflate_window_bits": 9, "ws_deflate_memory_level": 1},
        {"ws_deflate_window_bits": 15, "ws_deflate_memory_level": 9, "ws_deflate_min_size": 0},
        {"ws_per_message_deflate": False},
    ],
)
def test_websockets_with_other_settings_of_the_server(serve, settings):
    with serve(chat, **settings) as server:
        with connect_sync(url(server), max_size=None, proxy=None) as socket:
            wanted = settings.get("ws_per_message_deflate", True)
            assert len(socket.protocol.extensions) == wanted
            for content in CONTENTS * 2:
                socket.send(content)
                assert socket.recv() == content


def test_websockets_is_denied(serve):
    with serve(chat) as server:
        with pytest.raises(websockets.InvalidStatus) as caught:
            connect_sync(url(server, "/deny"), proxy=None)
    response = caught.value.response
    assert (response.status_code, response.headers["x-why"], response.body) == (401, "no", b"go away")


# --- aiohttp ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [0, 15, 9])
def test_aiohttp(serve, compress):
    async def talk(server):
        async with aiohttp.ClientSession() as session:
            options = {"compress": compress, "max_msg_size": 0, "protocols": ("x",), "autoping": True}
            async with session.ws_connect(url(server), **options) as socket:
                assert socket.protocol == "x"
                for content in CONTENTS:
                    await socket.send_bytes(content)
                    assert await socket.receive_bytes() == content
                await socket.send_str("grüße")
                assert await socket.receive_str() == "grüße"
                await socket.send_str("close 4001 why")
                message = await socket.receive()
                assert (message.type, message.data, message.extra) == (aiohttp.WSMsgType.CLOSE, 4001, "why")
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await session.ws_connect(url(server, "/deny"))
            assert caught.value.status == 401

    with serve(chat) as server:
        asyncio.run(talk(server))
    assert server.errors.lines(30) == []


# --- httpx-ws, which is wsproto --------------------------------------------------------------------------


def test_httpx_ws(serve):
    with serve(chat) as server, httpx.Client(trust_env=False) as client:
        options = {"subprotocols": ["x"], "max_message_size_bytes": 1 << 24}
        with httpx_ws.connect_ws(f"{server.url}/", client, **options) as socket:
            assert socket.subprotocol == "x"
            for content in CONTENTS:
                socket.send_bytes(content)
                assert socket.receive_bytes() == content
            socket.send_text("grüße")
            assert socket.receive_text() == "grüße"
            socket.ping().wait(10)
            socket.send_text("close 4001 why")
            with pytest.raises(httpx_ws.WebSocketDisconnect) as caught:
                socket.receive_text()
            assert (caught.value.code, caught.value.reason) == (4001, "why")
        with pytest.raises(httpx_ws.WebSocketUpgradeError):
            with httpx_ws.connect_ws(f"{server.url}/deny", client):
                pass
    assert server.errors.lines(30) == []


# --- picows ----------------------------------------------------------------------------------------------


def test_picows(serve):
    class Listener(picows.WSListener):
        """Sends each content when the one before has come back, then asks to be closed."""

        def __init__(self):
            self.found = []
            self.content = b""

        def on_ws_connected(self, transport):
            transport.send(picows.WSMsgType.BINARY, CONTENTS[0])

        def on_ws_frame(self, transport, frame):
            if frame.msg_type == picows.WSMsgType.CLOSE:
                self.found.append((frame.get_close_code(), frame.get_close_message()))
                transport.send_close(frame.get_close_code())
                return
            self.found.append(bytes(frame.get_payload_as_memoryview()))
            if len(self.found) < len(CONTENTS):
                transport.send(picows.WSMsgType.BINARY, CONTENTS[len(self.found)])
            else:
                transport.send(picows.WSMsgType.TEXT, b"close 4001 why")

    async def talk(server):
        transport, listener = await picows.ws_connect(Listener, url(server))
        await transport.wait_disconnected()
        return listener.found

    with serve(chat) as server:
        *contents, (code, reason) = asyncio.run(talk(server))
    assert contents == CONTENTS
    assert (int(code), reason) == (4001, b"why")
    assert server.errors.lines(30) == []
