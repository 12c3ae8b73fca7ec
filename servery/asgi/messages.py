"""What an application may send besides the start and the parts of a response, and what it may raise.

Files, trailers, early hints and debug information: https://asgi.readthedocs.io/en/latest/extensions.html.
Knows these messages and what they ask of engine and port; which request they belong to, and whether it is
answered, is the cycle's business.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..engine import Answering, Message, Port
from ..errors import ClientDisconnected, LocalProtocolError


class Sender(Protocol):
    """A cycle: see `servery.asgi.http_cycle.HttpCycle`."""

    @property
    def engine(self) -> Answering:
        """The engine that the response goes to."""
        ...

    @property
    def port(self) -> Port:
        """The way out."""
        ...

    @property
    def stream(self) -> int:
        """The number of the request."""
        ...

    def complete(self) -> None:
        """The response is queued to its end."""
        ...


async def send_other(cycle: Sender, kind: str, message: Message) -> None:
    """Send a message that is neither ``http.response.start`` nor ``http.response.body``.

    Raises `LocalProtocolError` for one that does not exist or is not allowed now, `ClientDisconnected` once
    the peer is gone, and `OSError` for a file that cannot be read.
    """
    if kind == "http.response.pathsend":
        await _send_file(cycle, required(message, "path"), 0, None, False)
    elif kind == "http.response.zerocopysend":
        more = bool(message.get("more_body", False))
        await _send_file(cycle, required(message, "file"), message.get("offset"), message.get("count"), more)
    elif kind == "http.response.trailers":
        more = bool(message.get("more_trailers", False))
        complete = cycle.engine.send_trailers(cycle.stream, message.get("headers", ()), more)
        cycle.port.flush()
        if complete:
            cycle.complete()
    elif kind == "http.response.early_hint":
        links = [(b"link", bytes(link)) for link in required(message, "links")]
        cycle.engine.send_informational(cycle.stream, 103, links)
        cycle.port.flush()
    elif kind == "http.response.debug":
        cycle.port.debug(message.get("info"))
    else:
        raise LocalProtocolError(f"{kind!r} is not a message that an HTTP application may send")


async def _send_file(cycle: Sender, file: Any, offset: int | None, count: int | None, more: bool) -> None:
    """Send a path (text) or an open file without copying it through Python where the driver can."""
    engine, port = cycle.engine, cycle.port
    sending = port.open_file(file, offset, count)
    try:
        wanted = engine.reserve_body(cycle.stream, sending.size, more)
        port.flush()
        if wanted:
            await port.send_file(sending)
    finally:
        sending.close()
    complete = engine.end_reserved(cycle.stream)
    port.flush()
    if complete:
        cycle.complete()


def required(message: Message, key: str) -> Any:
    """What the message says of `key`. Raises `LocalProtocolError`."""
    try:
        return message[key]
    except KeyError:
        raise LocalProtocolError(f"{message['type']!r} lacks {key!r}") from None


def as_bytes(body: Any) -> bytes:
    """Content that is not `bytes` already. Raises `LocalProtocolError`."""
    if isinstance(body, (bytearray, memoryview, bytes)):
        return bytes(body)
    raise LocalProtocolError(f"'body' of 'http.response.body' must be bytes, not {type(body).__name__}")


def is_disconnect(error: BaseException) -> bool:
    """Whether `error` says nothing but that the client left: ours, a framework's, or groups of them."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_disconnect(inner) for inner in error.exceptions)
    return isinstance(error, ClientDisconnected) or type(error).__name__ in _FRAMEWORKS_SAY


_FRAMEWORKS_SAY = frozenset(
    {"ClientDisconnect", "ClientDisconnected", "WebSocketDisconnect", "WebSocketDisconnected"}
)
"""Starlette answers ours, or a message that says so, with its own, and so do others; known by name."""
