"""The opening handshake of a WebSocket: RFC 6455 section 4.2, and section 9.1 for extensions.

Knows which requests ask for a WebSocket, what they must say, and what is answered; the head of the answer is
written by the HTTP side, which is handed in.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from hashlib import sha1

from ..engine import RawHeaders
from ..engine import WebSocketEngine as Engine
from ..errors import LocalProtocolError, RemoteProtocolError
from ..events import Headers, RequestReceived
from ..grammar import EXTENSION, TOKEN, WEBSOCKET_KEY, list_members
from ..limits import Limits
from .deflate import Agreement, Deflater, DeflateSettings, Inflater, Offer, negotiate
from .engine import WebSocketEngine

VERSION = b"13"

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

WriteHead = Callable[[bytes, RawHeaders], bytes]
"""Makes the head of a 101 response from whole field lines of ours and the application's headers, which it
checks: `servery.http1.writer.switching_head`."""


class Handshakes:
    """Reads the handshakes of a worker. `deflate` is how messages are compressed, ``None`` if they never
    are; `engine` is called with the arguments of `WebSocketEngine`."""

    def __init__(
        self,
        limits: Limits,
        deflate: DeflateSettings | None,
        write_head: WriteHead,
        engine: Callable[..., Engine] = WebSocketEngine,
    ) -> None:
        self.limits = limits
        self.deflate = deflate
        self.write_head = write_head
        self.engine = engine

    def __call__(self, request: RequestReceived) -> Handshake | None:
        """The handshake that `request` is, or ``None`` if it asks for no WebSocket: then it is plain HTTP.

        Over HTTP/2 it is an extended CONNECT, without a key (RFC 8441 section 5). Raises
        `RemoteProtocolError` with status 426 for another version, with 400 for everything else that is wrong.
        """
        upgrade = request.upgrade
        method = b"CONNECT" if request.version == b"2" else b"GET"
        if upgrade is None or request.method != method or b"websocket" not in list_members([upgrade]):
            return None
        if not request.complete and request.version != b"2":
            raise RemoteProtocolError(400, "a WebSocket handshake has no body")
        if request.complete and request.version == b"2":
            raise RemoteProtocolError(400, "a WebSocket needs a stream that is open")
        versions = _values(request.headers, b"sec-websocket-version")
        keys = _values(request.headers, b"sec-websocket-key")
        if len(versions) > 1 or len(keys) > 1:
            raise RemoteProtocolError(400, "a field of the WebSocket handshake is there twice")
        if versions != [VERSION]:
            raise RemoteProtocolError(426, "this server speaks version 13 of the WebSocket protocol")
        if request.version == b"2":
            keys = [b"%d" % request.stream]  # only for what is to differ from one to the next
        elif not keys or not WEBSOCKET_KEY.fullmatch(keys[0]):
            raise RemoteProtocolError(400, "Sec-WebSocket-Key must be 16 octets in base64")
        subprotocols = read_subprotocols(_values(request.headers, b"sec-websocket-protocol"))
        offers = read_extensions(_values(request.headers, b"sec-websocket-extensions"))
        return Handshake(self, keys[0], subprotocols, offers)


class Handshake:
    """See `servery.engine.WebSocketHandshake` for the contract."""

    __slots__ = ("_handshakes", "_key", "_offers", "subprotocols")

    def __init__(
        self, handshakes: Handshakes, key: bytes, subprotocols: list[str], offers: list[Offer]
    ) -> None:
        self._handshakes = handshakes
        self._key = key
        self._offers = offers
        self.subprotocols = subprotocols

    def accept(self, subprotocol: str | None, headers: RawHeaders, now: float) -> Engine:
        """The engine of the WebSocket, with the 101 response queued in it. Raises `LocalProtocolError`."""
        agreement = self._negotiate(subprotocol)
        digest = sha1(self._key + _GUID, usedforsecurity=False).digest()
        own = [
            *((b"upgrade", b"websocket"), (b"connection", b"upgrade")),
            *((b"sec-websocket-accept", b64encode(digest)), *_agreed(subprotocol, agreement)),
        ]
        lines = b"".join(b"%b: %b\r\n" % field for field in own)
        return self._engine(agreement, now, self._handshakes.write_head(lines, _check(headers)))

    def agree(self, subprotocol: str | None, headers: RawHeaders, now: float) -> tuple[Engine, RawHeaders]:
        """The same over HTTP/2: the engine, and the fields of the 200 response."""
        agreement = self._negotiate(subprotocol)
        fields = [*_agreed(subprotocol, agreement), *_check(headers)]
        return self._engine(agreement, now, b""), fields

    def _negotiate(self, subprotocol: str | None) -> Agreement | None:
        if subprotocol is not None and subprotocol not in self.subprotocols:
            raise LocalProtocolError(
                f"subprotocol {subprotocol!r} was not offered: choose one of {self.subprotocols}, or None"
            )
        settings = self._handshakes.deflate
        return None if settings is None else negotiate(self._offers, settings)

    def _engine(self, agreement: Agreement | None, now: float, head: bytes) -> Engine:
        made_by = self._handshakes
        settings = made_by.deflate
        spread = sha1(self._key, usedforsecurity=False).digest()[0] / 255
        if agreement is None or settings is None:
            return made_by.engine(made_by.limits, now, head, spread=spread)
        deflater = Deflater(agreement, settings)
        return made_by.engine(made_by.limits, now, head, deflater, Inflater(agreement), spread)


def _agreed(subprotocol: str | None, agreement: Agreement | None) -> Headers:
    """The fields that say what was agreed on."""
    fields: Headers = []
    if subprotocol is not None:
        fields.append((b"sec-websocket-protocol", subprotocol.encode("ascii")))
    if agreement is not None:
        fields.append((b"sec-websocket-extensions", agreement.answer))
    return fields


def _check(headers: RawHeaders) -> RawHeaders:
    """Fields of the handshake itself are not the application's to set."""
    try:
        headers = [(bytes(name), value) for name, value in headers]
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(
            f"headers must be an iterable of (name, value) pairs of bytes: {error}"
        ) from error
    for name, _ in headers:
        if name.lower() == b"upgrade" or name.lower().startswith(b"sec-websocket-"):
            raise LocalProtocolError(
                f"header {name!r} is the server's to write: give 'subprotocol' for Sec-WebSocket-Protocol"
            )
    return headers


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def read_subprotocols(values: list[bytes]) -> list[str]:
    """The members of all Sec-WebSocket-Protocol fields, in order. Raises `RemoteProtocolError`."""
    members = _members(values)
    if not all(TOKEN.fullmatch(member) for member in members):
        raise RemoteProtocolError(400, "malformed Sec-WebSocket-Protocol")
    return [member.decode("ascii") for member in members]


def read_extensions(values: list[bytes]) -> list[Offer]:
    """The members of all Sec-WebSocket-Extensions fields, in order. Raises `RemoteProtocolError`."""
    offers: list[Offer] = []
    for member in _members(values):
        if not EXTENSION.fullmatch(member):
            raise RemoteProtocolError(400, "malformed Sec-WebSocket-Extensions")
        name, *parameters = (part.strip(b" \t") for part in member.split(b";"))
        offers.append((name, [_parameter(text) for text in parameters]))
    return offers


def _members(values: list[bytes]) -> list[bytes]:
    """Case counts here; empty members do not (RFC 9110 section 5.6.1.2)."""
    members = [member.strip(b" \t") for value in values for member in value.split(b",")]
    return [member for member in members if member]


def _parameter(text: bytes) -> tuple[bytes, bytes | None]:
    name, equals, value = text.partition(b"=")
    return name.rstrip(b" \t"), value.strip(b' \t"') if equals else None
