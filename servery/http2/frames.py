"""Frames as octets: RFC 9113 sections 3.4, 4.1, 6 and 7.

Knows how octets are cut into frames, and how those look that the engine writes itself; what frames mean is
not its business.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import Http2Error
from ..grammar import HTTP2_PREFACE
from ..limits import Limits

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE = range(6)
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(6, 10)
PRIORITY_UPDATE = 0x10
"""RFC 9218 section 7.1."""

END_STREAM, ACK, END_HEADERS, PADDED = 0x1, 0x1, 0x4, 0x8
"""Flags."""

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED = range(6)
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM = range(6, 12)

HEADER_SIZE = 9
GOAWAY_SIZE = HEADER_SIZE + 8
"""Octets of a GOAWAY frame without a reason."""
MAX_SIZE = 16_384
"""Octets of payload at most: the least that the RFC allows to ask for (section 4.2)."""
LAST_STREAM = 2**31 - 1
MAX_WINDOW = 2**31 - 1
DEFAULT_WINDOW = 65_535
"""What a flow-control window is before anybody changes it (section 6.9.2)."""

(TABLE, PUSH, STREAMS, WINDOW, FRAME, LIST, CONNECT, NO_PRIORITIES) = (1, 2, 3, 4, 5, 6, 8, 9)
"""Settings: RFC 9113 section 6.5.2, RFC 8441 section 3, RFC 9218 section 2.1."""

NOT_ALLOWED = "a frame that is not allowed"
WRONG_SIZE = "a frame of a wrong size"
WRONG_SETTING = "a setting with a value that is not allowed"
OVER_WINDOW = "more than a flow-control window"
ON_CLOSED = "a frame for a stream that is closed"
PASSED_OVER = "a frame for a stream that was passed over"
NOT_BEGUN = "a frame for a stream that has not begun"
"""What peers and logs are told of faults whose verdict is left to a library, whatever the library."""

ReceivedFrame = tuple[int, int, int, bytes]
"""Type, flags, stream, and the whole frame with its header."""


class FrameReader:
    """Cuts what a client sends into frames. Nothing but an unfinished frame is kept."""

    __slots__ = ("_octets", "_preface")

    def __init__(self) -> None:
        self._octets = b""
        self._preface = HTTP2_PREFACE

    @property
    def begun(self) -> bool:
        """Whether the preface has come."""
        return not self._preface

    def feed(self, data: bytes) -> Iterator[ReceivedFrame]:
        """The frames that are whole now. Raises `Http2Error`, as soon as a frame's header is too much."""
        octets = self._octets + data if self._octets else data
        self._octets = b""
        at = 0
        if self._preface:
            at = self._read_preface(octets)
        size = len(octets)
        while size - at >= HEADER_SIZE:
            length = int.from_bytes(octets[at : at + 3], "big")
            if length > MAX_SIZE:
                raise Http2Error(FRAME_SIZE_ERROR, "frame too large")
            end = at + HEADER_SIZE + length
            if end > size:
                break
            stream = int.from_bytes(octets[at + 5 : at + 9], "big") & LAST_STREAM
            yield octets[at + 3], octets[at + 4], stream, octets[at:end]
            at = end
        self._octets = octets[at:]

    def _read_preface(self, octets: bytes) -> int:
        part = octets[: len(self._preface)]
        if not self._preface.startswith(part):
            raise Http2Error(PROTOCOL_ERROR, "not the preface of HTTP/2")
        self._preface = self._preface[len(part) :]
        return len(part)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A whole frame."""
    return b"%b%c%c%b%b" % (len(payload).to_bytes(3, "big"), kind, flags, stream.to_bytes(4, "big"), payload)


def settings_frame(settings: dict[int, int]) -> bytes:
    """A SETTINGS frame (section 6.5)."""
    pairs = (key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in settings.items())
    return frame(SETTINGS, 0, 0, b"".join(pairs))


def goaway_frame(last: int, code: int, reason: str = "") -> bytes:
    """A GOAWAY frame (section 6.8): streams above `last` were not and will not be served."""
    numbers = last.to_bytes(4, "big") + code.to_bytes(4, "big")
    return frame(GOAWAY, 0, 0, numbers + reason.encode("ascii", "replace"))


def ping_frame(payload: bytes) -> bytes:
    """A PING frame (section 6.7) with eight octets of ours."""
    return frame(PING, 0, 0, payload)


def window_update_frame(stream: int, size: int) -> bytes:
    """A WINDOW_UPDATE frame (section 6.9)."""
    return frame(WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


def our_settings(limits: Limits) -> dict[int, int]:
    """What the peer is told of us, by number."""
    return {
        PUSH: 0,
        STREAMS: limits.h2_streams,
        WINDOW: min(limits.body_buffer, MAX_WINDOW),
        FRAME: MAX_SIZE,
        LIST: min(limits.head_size, 2**32 - 1),
        CONNECT: 1,
        NO_PRIORITIES: 1,
    }
