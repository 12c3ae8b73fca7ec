"""Frames as a client makes them, and the reading of a server's: written for the tests, not shared with
servery."""

from __future__ import annotations

import base64
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MASK = b"\x37\xfa\x21\x3d"
KEY = base64.b64encode(b"0123456789abcdef")
ACCEPT = b"BACScCJPNqyz+UBoqMH89VmURoA="
"""What answers `KEY`: worked out with sha1sum and base64."""


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    final: bool = True,
    rsv: int = 0,
    mask: bytes | None = MASK,
    size: int | None = None,
    width: int | None = None,
) -> bytes:
    """A client's frame; `size` is what it claims to carry, `width` the octets of its long length (0, 2,
    8)."""
    size = len(payload) if size is None else size
    if width is None:
        width = 0 if size < 126 else 2 if size < 65536 else 8
    head = bytes([(final << 7) | (rsv << 4) | opcode])
    code = {0: size & 127, 2: 126, 8: 127}[width]
    head += bytes([(128 if mask is not None else 0) | code])
    head += struct.pack({0: "!", 2: "!H", 8: "!Q"}[width], *([size] if width else []))
    if mask is None:
        return head + payload
    return head + mask + masked(payload, mask)


def masked(payload: bytes, mask: bytes) -> bytes:
    """`payload` under `mask`, one of the four keys after the other (RFC 6455 section 5.3)."""
    octets = bytearray(payload)
    for lane, key in enumerate(mask):
        octets[lane::4] = octets[lane::4].translate(_table(key))
    return bytes(octets)


@cache
def _table(key: int) -> bytes:
    return bytes(octet ^ key for octet in range(256))


def text(content: str) -> bytes:
    return frame(TEXT, content.encode())


def close(code: int | None = 1000, reason: bytes = b"") -> bytes:
    return frame(CLOSE, b"" if code is None else struct.pack("!H", code) + reason)


@dataclass
class Frame:
    """A server's frame."""

    opcode: int
    payload: bytes
    final: bool = True
    rsv: int = 0

    @property
    def code(self) -> int | None:
        """Of a close frame."""
        return struct.unpack("!H", self.payload[:2])[0] if self.payload else None


def read_frames(octets: bytes) -> tuple[list[Frame], bytes]:
    """The whole frames in `octets`, which must be in shortest form and unmasked, and what is behind them."""
    frames = []
    while len(octets) >= 2:
        first, second = octets[0], octets[1]
        assert second < 128, "a server must not mask"
        at, size = 2, second
        if second > 125:
            at = 4 if second == 126 else 10
            if len(octets) < at:
                break
            size = int.from_bytes(octets[2:at], "big")
            assert size > (125 if second == 126 else 65535), "not the shortest form"
        if len(octets) < at + size:
            break
        frames.append(Frame(first & 15, octets[at : at + size], first >= 128, first >> 4 & 7))
        octets = octets[at + size :]
    return frames, octets


def frames_of(parts: Iterable[bytes]) -> list[Frame]:
    """The frames that `parts` are, to the last octet."""
    frames, rest = read_frames(b"".join(parts))
    assert rest == b""
    return frames


def handshake(
    *fields: bytes, target: bytes = b"/", version: bytes | None = b"13", key: bytes | None = KEY
) -> bytes:
    """The request that opens a WebSocket."""
    lines = [b"GET %b HTTP/1.1" % target, b"Host: a", b"Connection: Upgrade", b"Upgrade: websocket"]
    if version is not None:
        lines.append(b"Sec-WebSocket-Version: " + version)
    if key is not None:
        lines.append(b"Sec-WebSocket-Key: " + key)
    return b"\r\n".join([*lines, *fields, b"", b""])


@dataclass
class Client:
    """The client's end of a WebSocket on a plain socket."""

    sock: socket.socket
    head: bytes = b""
    _rest: bytes = b""
    _frames: list[Frame] = field(default_factory=list)

    def open(self, *fields: bytes, more: bytes = b"", **options: bytes) -> bytes:
        """Send the handshake, with `more` in the same packet; the head of the answer."""
        self.sock.sendall(handshake(*fields, **options) + more)
        return self.read_head()

    def read_head(self) -> bytes:
        """The head of the answer."""
        while b"\r\n\r\n" not in self._rest:
            data = self.sock.recv(65536)
            assert data, f"closed inside of a head: {self._rest!r}"
            self._rest += data
        self.head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        return self.head

    def send(self, *frames: bytes) -> None:
        self.sock.sendall(b"".join(frames))

    def read(self) -> Frame | None:
        """The next frame, or ``None`` at EOF."""
        while True:
            if not self._frames:
                self._frames, self._rest = read_frames(self._rest)
            if self._frames:
                return self._frames.pop(0)
            data = self.sock.recv(65536)
            if not data:
                assert self._rest == b"", "closed inside of a frame"
                return None
            self._rest += data

    def drop(self, size: int) -> None:
        """Read `size` octets quickly, whatever they are."""
        dropped, self._rest = self._rest[:size], self._rest[size:]
        size -= len(dropped)
        while size:
            data = self.sock.recv(min(size, 1 << 20))
            assert data, "closed too early"
            size -= len(data)

    def read_to_close(self) -> list[Frame]:
        """All frames up to EOF."""
        frames = []
        while (one := self.read()) is not None:
            frames.append(one)
        return frames
