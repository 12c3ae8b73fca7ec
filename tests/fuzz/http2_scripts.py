"""One life of a connection of HTTP/2 as a list of steps, made by chance: frames, time, calls of applications.

The steps are those of a driver and of applications that know no order. `fuzz.http2_playing` says what an
engine makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hpack

from fuzz.chance import Chance
from servery.grammar import HTTP2_PREFACE
from servery.limits import Limits

Step = tuple[str, tuple[Any, ...]]
"""A method of the engine, and its arguments."""

STREAMS = (1, 3, 5, 7, 9, 2, 4, 11, 21, 0)
NUMBERS = (0, 1, 4, 100, 65_535, 16_384, 20, 2**31 - 1, 2**31, 2**32 - 1)
SETTINGS = (
    *((4, 65_535), (4, 10), (4, 100_000), (1, 0), (1, 100), (1, 2**20), (5, 20_000), (3, 5), (99, 7)),
)
REQUESTS: tuple[tuple[tuple[str, str], ...], ...] = (
    ((":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")),
    ((":method", "GET"), (":scheme", "http"), (":path", "/%41?b=c"), (":authority", "a")),
    ((":method", "HEAD"), (":path", "/"), (":scheme", "http"), ("host", "a")),
    ((":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "b:1")),
    ((":method", "POST"), (":scheme", "http"), (":path", "/p"), (":authority", "a"), ("content-length", "9")),
    ((":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), (":authority", "a")),
    (
        *((":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", "/")),
        *((":authority", "a"), ("sec-websocket-version", "13")),
    ),
)
SOUND = (
    *(
        ("accept", "*/*"),
        ("te", "trailers"),
        ("expect", "100-continue"),
        ("priority", "u=1"),
        ("priority", "u=7"),
    ),
    *(("cookie", "a=b"), ("cookie", "c=d"), ("authorization", "secret"), ("x", ""), ("x-long", "y" * 400)),
)
FAULTY = (
    *(
        ("te", "gzip"),
        ("expect", "x"),
        ("content-length", "0"),
        ("content-length", "5"),
        ("content-length", "x"),
    ),
    *(
        ("host", "a"),
        ("host", "b"),
        ("connection", "close"),
        ("X-Y", "z"),
        ("x", " z"),
        ("x", "a\nb"),
        ("", "x"),
    ),
    *(
        (":path", "/"),
        (":x", "y"),
        (":protocol", "websocket"),
        ("x", "\xe9"),
        (":method", "G T"),
        (":path", "a"),
    ),
    *((":path", "/" + "x" * 300), (":method", "CONNECT"), (":authority", "")),
)
RESPONSES: tuple[Any, ...] = (
    *((), [(b"content-type", b"text/plain")], [(b"content-length", b"5")], [(b"x-a", b"\xe9"), (b"x", b"")]),
    *(
        [(b"set-cookie", b"a=b"), (b"connection", b"close")],
        [(b"Date", b"d"), (b"server", b"s")],
        [[b"x-list", b"y"]],
    ),
    *([(b"a", b"b\tc")], [(b"n", b"v" * 300)] * 3, [(b"content-length", b"9"), (b"content-length", b"9")]),
)
WRONG: tuple[Any, ...] = (
    *([(b"a b", b"")], [(b"x", b" y")], [["x-list", b"y"]], [(b"x", b"y", b"z")], [(b"te\xff", b"")], 7, [7]),
    *(
        [(b"content-length", b"8"), (b"content-length", b"9")],
        [(b"content-length", b"x")],
        [(b"x", b"a\r\nb")],
    ),
)
CONTENTS = (b"hello", b"x" * 9, b"", b"y" * 5000, b"z" * 40_000)
BLOCKS = (b"\x82", b"\x40\x01a\x01b", b"\x20", b"\x3f\xe1\x1f", b"\x00\x00\x00", b"\x10\x01a\x01b")
"""Beginnings of blocks that are compressed as they may be."""
BROKEN = (
    *(
        b"\xff\xff\xff\xff\x7f",
        b"\x00",
        b"\x40\x82\x00",
        b"\xbe",
        b"\x00\x81\xff\x00",
        b"\x00\x01a\x7f\xff\x01",
    ),
    *(b"\x80", b"\x3f\xe2\x1f", b"\x82\x20", b"\xff\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
)
"""Ends of blocks that are not."""


@dataclass
class Script:
    """What happens to an engine."""

    limits: Limits
    steps: list[Step]

    def __str__(self) -> str:
        return "\n".join(map(repr, (self.limits, *self.steps)))


class Client:
    """Makes frames, most of them as they should be, and calls of applications, most of them in order."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.encoder = hpack.Encoder()
        self.number = -1
        self.sending: list[int] = []  # streams whose bodies have not come
        self.answered: dict[int, int] = {}  # how far the response of a stream is

    # --- frames --------------------------------------------------------------------------------------

    def frame(self, kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        """A whole frame, or now and then one that says something else of itself."""
        chance = self.chance
        fault = chance.below(256)
        if fault < 3:
            flags ^= 1 << chance.below(8)
        elif fault < 6:
            stream = chance.pick(STREAMS)
        elif fault < 9:
            payload = payload[: chance.below(len(payload) + 1)] + bytes(chance.below(3))
        elif fault < 12:
            stream |= 2**31  # a reserved bit
        return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload

    def block(self, fields: list[tuple[str, str]]) -> bytes:
        """A section, compressed; now and then by somebody else."""
        chance = self.chance
        block: bytes = self.encoder.encode(fields, huffman=chance.flag())
        fault = chance.below(256)
        if fault < 16:
            return chance.pick(BLOCKS) + block
        return block + chance.pick(BROKEN) if fault < 20 else block

    def headers(self) -> bytes:
        """A request."""
        chance = self.chance
        self.number += chance.pick((2,) * 12 + (4, 0))
        stream = max(self.number, 1)
        fields = [
            *chance.pick(REQUESTS),
            *(chance.pick(SOUND) for _ in range(chance.pick((0, 0, 0, 1, 2, 9)))),
        ]
        if chance.flag(0.12):
            fields.insert(chance.below(len(fields) + 1), chance.pick(FAULTY))
        if chance.flag(0.04):
            del fields[chance.below(4)]
        ends = chance.flag(0.4) if fields[0][1] in ("POST", "CONNECT") else chance.flag(0.9)
        if not ends:
            self.sending.append(stream)
        self.answered[stream] = 0
        return self.section(stream, self.block(fields), 1 if ends else 0)

    def trailers(self) -> bytes:
        """What comes behind a body, or would."""
        chance = self.chance
        stream = self._sending() if chance.flag(0.8) else chance.pick(STREAMS)
        fields = [chance.pick(SOUND if chance.flag(0.8) else FAULTY)]
        self._sent(stream)
        return self.section(stream, self.block(fields), 1 if chance.flag(0.9) else 0)

    def section(self, stream: int, block: bytes, flags: int) -> bytes:
        """A header section in one frame or several."""
        chance = self.chance
        first, last = b"", b""
        if chance.flag(0.08):
            flags |= 0x20
            first = chance.pick((0, 1, stream)).to_bytes(4, "big") + b"\x10"
        if chance.flag(0.06):
            flags |= 8
            padding = chance.pick((0, 1, 5, 200))
            first, last = bytes((padding,)) + first, bytes(padding if chance.flag(0.8) else 0)
        parts = [block]
        if chance.flag(0.1) and len(block) > 3:
            parts = [block[:2], block[2:3], block[3:]][: chance.pick((3, 3, 3, 2))]
        ends = [0] * (len(parts) - 1) + [4]
        frames = [self.frame(1, flags | ends[0], stream, first + parts[0] + last)]
        frames += [self.frame(9, end, stream, part) for end, part in zip(ends[1:], parts[1:], strict=True)]
        return b"".join(frames)

    def data(self) -> bytes:
        """Content, padded or not."""
        chance = self.chance
        content, flags = chance.pick(CONTENTS)[:16_000], chance.pick((0, 0, 1))
        stream = self._sending() if chance.flag(0.9) else chance.pick(STREAMS)
        if flags:
            self._sent(stream)
        if chance.flag(0.1):
            flags |= 8
            padding = chance.pick((0, 3, 255))
            content = bytes((padding,)) + content + bytes(padding if chance.flag(0.8) else 0)
        return self.frame(0, flags, stream, content)

    def _sending(self) -> int:
        return self.chance.pick(self.sending[-4:]) if self.sending else max(self.number, 1)

    def _sent(self, stream: int) -> None:
        if stream in self.sending:
            self.sending.remove(stream)

    def settings(self) -> bytes:
        """SETTINGS, or their acknowledgement."""
        chance = self.chance
        if chance.flag(0.4):
            return self.frame(4, 1, 0, b"")
        pairs = [chance.pick(SETTINGS) for _ in range(chance.below(3))]
        if chance.flag(0.1):
            pairs.append((chance.pick((1, 2, 4, 5, 6, 8)), chance.pick(NUMBERS)))
        payload = b"".join(name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in pairs)
        return self.frame(4, 0, 0, payload)

    def window(self) -> bytes:
        """WINDOW_UPDATE."""
        stream = self.chance.pick((0, 0, max(self.number, 1), 1, 3))
        number = self.chance.pick(NUMBERS[1:7] if self.chance.flag(0.9) else NUMBERS)
        return self.frame(8, 0, stream, number.to_bytes(4, "big")) * self.chance.pick((1, 1, 1, 6))

    def reset(self) -> bytes:
        """RST_STREAM."""
        stream = max(self.number - self.chance.pick((0, 0, 2, 4)), 1)
        self._sent(stream)
        return self.frame(3, 0, stream, b"\0\0\0\x08")

    def other(self) -> bytes:
        """Any other frame."""
        chance = self.chance
        kind, flags, stream, payload = chance.pick(
            (
                *((6, 0, 0, b"12345678"), (6, 1, 0, b"goodbye\0"), (2, 0, 3, bytes(5)), (7, 0, 0, bytes(8))),
                *(
                    (0x10, 0, 0, b"\0\0\0\1u=1"),
                    (0x10, 0, 0, b"\0\0\0\3u=7"),
                    (0xEE, 0, 0, b"?"),
                    (5, 4, 1, bytes(4)),
                ),
                *(
                    (9, 4, 1, b""),
                    (6, 0, 1, bytes(8)),
                    (6, 0, 0, bytes(7)),
                    (4, 0, 1, b""),
                    (4, 0, 0, bytes(5)),
                ),
            )
        )
        return self.frame(kind, flags, stream, payload)

    def some(self) -> bytes:
        """One frame, or the frames of one section."""
        if self.number < 0 or not (self.sending or self.chance.flag(0.5)):
            return self.headers()
        makers: tuple[Callable[[], bytes], ...] = (
            *(self.headers,) * 9,
            *(self.data,) * 6,
            *(self.trailers, self.settings, self.settings, self.window, self.window, self.reset, self.other),
        )
        return self.chance.pick(makers)()

    # --- applications --------------------------------------------------------------------------------

    def call(self, now: float) -> Step:
        """What a driver or an application does, besides handing on octets."""
        chance = self.chance
        stream = chance.pick(list(self.answered)[-5:]) if self.answered else 1
        if chance.flag(0.04):
            stream = chance.pick(STREAMS)
        if chance.flag(0.3):
            return self._other(stream, now)
        return self._respond(stream, now)

    def _respond(self, stream: int, now: float) -> Step:
        """The next step of a response."""
        chance = self.chance
        step = self.answered.get(stream, 0)
        if step == 0:
            self.answered[stream] = trailers = chance.pick((1, 1, 1, 1, 3))
            status = chance.pick((200, 200, 200, 204, 304, 404, 999, 101))
            return "start_response", (stream, status, chance.pick(RESPONSES), trailers == 3)
        if step == 1 and chance.flag(0.15):
            self.answered[stream] = 5
            return "reserve_body", (stream, 5, False)
        if step in (1, 3):
            more = chance.flag(0.4)
            if not more:
                self.answered[stream] = step + 1
            return "send_body", (stream, chance.pick(CONTENTS), more)
        if step == 4:
            self.answered[stream] = 2
            return "send_trailers", (stream, chance.pick(RESPONSES), False)
        if step == 5:
            self.answered[stream] = 6
            return "send_reserved", (stream, b"hello")
        if step == 6:
            self.answered[stream] = 2
            return "end_reserved", (stream,)
        self.answered.pop(stream, None)
        return "released", (stream, now)

    def _other(self, stream: int, now: float) -> Step:
        chance = self.chance
        steps: tuple[Step, ...] = (
            *(("consumed", (stream, chance.pick((5, 9, 5000, 16_000)), now)),) * 3,
            *(("pump", (now,)),) * 4,
            *(("expire", (now,)),) * 3,
            *(("continue_body", (stream,)), ("send_informational", (stream, 103, [(b"link", b"x")]))),
            *(("answer", (stream, 503, "no", b"retry-after: 1\r\n")), ("fail_response", (stream,))),
            *(
                ("abandon", (stream,)),
                ("reserve_body", (stream, 5, False)),
                ("send_reserved", (stream, b"hello")),
            ),
            *(
                ("end_reserved", (stream,)),
                ("open_tunnel", (stream, [(b"x", b"y")])),
                ("takes_trailers", (stream,)),
            ),
            *(("start_response", (stream, 200, chance.pick(WRONG), False)), ("released", (stream, now))),
            *(("send_trailers", (stream, chance.pick(WRONG), True)), ("stop", (now, chance.flag())))[
                : 1 + chance.flag(0.2)
            ],
            *(("receive", (b"", now)), ("forget", ()))[: chance.pick((0, 0, 0, 0, 1, 2))],
        )
        return chance.pick(steps)


def random_limits(chance: Chance) -> Limits:
    """Such as are met soon, now and then."""
    if chance.flag(0.5):
        return Limits()
    return Limits(
        head_size=chance.pick((65_536, 65_536, 600)),
        field_count=chance.pick((100, 100, 3)),
        body_size=chance.pick((None, 7)),
        body_buffer=chance.pick((65_536, 10_000, 100_000)),
        h2_streams=chance.pick((100, 2)),
        h2_connection_window=chance.pick((1_048_576, 65_535, 100_000)),
        h2_continuations=chance.pick((16, 1)),
        h2_resets=chance.pick((200, 3)),
        h2_control_frames=chance.pick((1000, 4)),
    )


def random_script(chance: Chance) -> Script:
    """A connection with some thirty things that happen to it."""
    limits, client, now = random_limits(chance), Client(chance), 0.0
    steps: list[Step] = []
    ahead = HTTP2_PREFACE if chance.octet() else b"PRI * HTTP/2.0\r\n\r\nSM\n"
    ahead += client.settings() if chance.flag(0.3) else b"\0\0\0\4\0\0\0\0\0"
    for _ in range(10 + chance.below(30)):
        now += chance.pick((0.0,) * 9 + (0.5, 3.0, 25.0))
        if chance.flag(0.5):
            ahead += client.some()
            cut = len(ahead) - (chance.below(len(ahead)) if chance.flag(0.1) else 0)
            steps.append(("receive", (ahead[:cut], now)))
            ahead = ahead[cut:]
        else:
            steps.append(client.call(now))
    return Script(limits, [*(step for step in steps if step[1] != (b"", 0.0)), ("pump", (now,))])
