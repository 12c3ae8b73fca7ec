"""A client of HTTP/2 that may do wrong: frames by hand (hyperframe), header compression by hpack."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

import hpack
from harness import WAIT
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
GET = ((":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a"))
POST = ((":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a"))


def make_engine(name: str, limits: Any, stamp: Callable[[int], bytes], now: float) -> Any:
    """That engine by itself, for one connection."""
    if name == "native":
        from servery._speedups.http2 import Http2Engine as Compiled

        return Compiled(limits, stamp, now)
    from servery.http2.engine import Http2Engine
    from servery.http2.library import load

    return Http2Engine(load(), limits, stamp, now)


def raw(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"", length: int | None = None) -> bytes:
    """Any frame, whether it can be or not."""
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


class Response:
    """What came for one stream."""

    def __init__(self) -> None:
        self.heads: list[list[tuple[str, str]]] = []
        self.content = b""
        self.ended = False
        self.reset: int | None = None

    @property
    def status(self) -> str:
        """That of the final head."""
        return next(
            value for head in self.heads for name, value in head if name == ":status" and value >= "2"
        )

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the final head."""
        return next(dict(head) for head in self.heads if dict(head)[":status"] >= "2")

    @property
    def over(self) -> bool:
        return self.ended or self.reset is not None


class Peer:
    """One connection. What comes is kept in `frames`, `responses` by stream, and `goaway`.

    Windows are opened as fast as content comes, unless `windows` is false.
    """

    def __init__(
        self,
        sock: socket.socket | ssl.SSLSocket,
        *,
        settings: Any = None,
        hello: bool = True,
        windows: bool = True,
    ) -> None:
        self.sock = sock
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.frames: list[Frame] = []
        self.responses: dict[int, Response] = {}
        self.goaway: list[tuple[int, int]] = []
        self.settings: dict[int, int] = {}
        self.pings: list[bytes] = []
        self.acks = 0
        self.closed = False
        self.windows = windows
        self._octets = b""
        self._block: list[Any] = []
        if hello:
            self.send_octets(PREFACE + SettingsFrame(settings=settings or {}).serialize())

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    # --- out -----------------------------------------------------------------------------------------

    def send_octets(self, data: bytes) -> None:
        """As they are; a server that has closed is no error."""
        try:
            self.sock.sendall(data)
        except (ConnectionError, ssl.SSLError):
            pass

    def block(self, fields: Any) -> bytes:
        """A header section, compressed."""
        encoded: bytes = self.encoder.encode(fields, huffman=False)
        return encoded

    def headers(self, stream: int, fields: Any = GET, *, end: bool = True, more: Any = ()) -> None:
        """A request, or trailers."""
        frame = HeadersFrame(stream, self.block([*fields, *more]), flags=["END_HEADERS"])
        if end:
            frame.flags.add("END_STREAM")
        self.send_octets(frame.serialize())

    def data(self, stream: int, content: bytes = b"", *, end: bool = False, pad: int | None = None) -> None:
        """Content, 16 KiB at a time."""
        for at in range(0, max(len(content), 1), 16_000):
            frame = DataFrame(stream, content[at : at + 16_000])
            if pad is not None:
                frame.flags.add("PADDED")
                frame.pad_length = pad
            if end and at + 16_000 >= len(content):
                frame.flags.add("END_STREAM")
            self.send_octets(frame.serialize())

    def reset(self, stream: int, code: int = 8) -> None:
        self.send_octets(RstStreamFrame(stream, error_code=code).serialize())

    def ping(self, payload: bytes = b"12345678") -> None:
        self.send_octets(PingFrame(0, payload).serialize())

    def window(self, size: int, stream: int = 0) -> None:
        self.send_octets(WindowUpdateFrame(stream, size).serialize())

    # --- in ------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], Any]) -> None:
        """Read until `condition` holds, or the server has closed."""
        while not condition() and not self.closed:
            self.read()

    def read(self) -> None:
        """What comes next."""
        try:
            data = self.sock.recv(65_536)
        except ConnectionError:
            data = b""
        self.closed = not data
        octets = self._octets + data
        while len(octets) >= 9:
            frame, length = Frame.parse_frame_header(memoryview(octets[:9]))
            if len(octets) < 9 + length:
                break
            frame.parse_body(memoryview(octets[9 : 9 + length]))
            octets = octets[9 + length :]
            self.frames.append(frame)
            self._take(frame)
        self._octets = octets

    def _take(self, frame: Any) -> None:
        if isinstance(frame, HeadersFrame | ContinuationFrame):
            self._block.append(frame)
            if "END_HEADERS" in frame.flags:
                section = self.decoder.decode(b"".join(part.data for part in self._block))
                response = self.responses.setdefault(frame.stream_id, Response())
                response.heads.append([(str(name), str(value)) for name, value in section])
                response.ended = "END_STREAM" in self._block[0].flags
                self._block = []
        elif isinstance(frame, DataFrame):
            response = self.responses[frame.stream_id]
            response.content += frame.data
            response.ended = "END_STREAM" in frame.flags
            if self.windows and frame.data:
                self.window(len(frame.data))
                if not response.ended:
                    self.window(len(frame.data), frame.stream_id)
        elif isinstance(frame, RstStreamFrame):
            self.responses.setdefault(frame.stream_id, Response()).reset = frame.error_code
        elif isinstance(frame, GoAwayFrame):
            self.goaway.append((frame.last_stream_id, frame.error_code))
        elif isinstance(frame, SettingsFrame):
            if "ACK" in frame.flags:
                self.acks += 1
            else:
                self.settings.update(frame.settings)
                self.send_octets(SettingsFrame(flags=["ACK"]).serialize())
        elif isinstance(frame, PingFrame):
            if "ACK" in frame.flags:
                self.pings.append(frame.opaque_data)
            else:
                self.send_octets(PingFrame(0, frame.opaque_data, flags=["ACK"]).serialize())

    def response(self, stream: int) -> Response:
        """The whole response of a stream, or its reset."""
        self.until(lambda: stream in self.responses and self.responses[stream].over)
        assert stream in self.responses, f"no answer on stream {stream}; GOAWAY {self.goaway}"
        return self.responses[stream]

    def get(self, stream: int, *more: tuple[str, str], path: str = "/") -> Response:
        """A request without a body, and its response."""
        fields = [(name, path if name == ":path" else value) for name, value in GET]
        self.headers(stream, [*fields, *more])
        return self.response(stream)

    def synced(self) -> None:
        """The server has taken everything that was sent until now, or has closed."""
        count = len(self.pings)
        self.ping(b"synced..")
        self.until(lambda: len(self.pings) > count or self.goaway)

    def error(self) -> int | None:
        """The code of the GOAWAY that ends the connection; ``None`` if it ends without one."""
        self.until(lambda: self.goaway)
        return self.goaway[-1][1] if self.goaway else None


def connect(server: Any, **more: Any) -> Peer:
    """A fresh connection to a server that speaks h2c."""
    sock = server.connect(WAIT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Peer(sock, **more)
