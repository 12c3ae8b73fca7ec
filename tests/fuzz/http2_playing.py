"""What an engine of HTTP/2 makes of a script, and where two engines part on it, or one of them on two cuts.

Everything that can be seen from outside is compared after each step: what it gave or raised, the frames that
it wrote, the state that a driver acts upon. Header sections are compared as a client reads them: how an
encoder compresses them is its own business.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import hpack
from h2_peer import make_engine

from fuzz.http2_scripts import STREAMS, Script
from fuzz.taking import taken
from servery.events import ConnectionFailed, Event, StreamFailed
from servery.limits import Limits

ENGINES = ("python", "native")
Seen = tuple[Any, ...]
"""(step, result or exception, frames, state, what waits)."""

_STATE = attrgetter("wants_read", "half_closed", "closing", "reset", "deadline")
_GONE = frozenset(("forget",))


def stamp(has: int) -> bytes:
    """What a server says of itself."""
    return b"" if has & 1 else b"date: today\r\n"


def _plain(event: Event) -> Any:
    """Errors have no equality."""
    if isinstance(event, ConnectionFailed | StreamFailed):
        error = event.error
        said = None if error is None else (type(error), error.status, error.reason, getattr(error, "code", 0))
        return type(event), said, event.stream, event.request_line, event.replied
    return event


class _Reader:
    """Reads what an engine writes, as a client would."""

    def __init__(self) -> None:
        self.decoder = hpack.Decoder()
        self.block = b""
        self.flags = 0

    def read(self, octets: bytes) -> list[Any]:
        frames: list[Any] = []
        while octets:
            size, kind, flags = int.from_bytes(octets[:3], "big"), octets[3], octets[4]
            stream, payload = int.from_bytes(octets[5:9], "big"), octets[9 : 9 + size]
            assert len(payload) == size, "a frame that is cut"
            octets = octets[9 + size :]
            if kind not in (1, 9):
                frames.append((kind, flags, stream, payload))
                continue
            self.flags |= flags
            self.block += payload
            if flags & 4:
                fields = [(type(field), *field) for field in self.decoder.decode(self.block, raw=True)]
                frames.append(("section", self.flags & 1, stream, fields))
                self.block, self.flags = b"", 0
        return frames


def play(name: str, script: Script) -> list[Seen]:
    """What `name` makes of every step."""
    engine, reader = make_engine(name, script.limits, stamp, 0.0), _Reader()
    seen: list[Seen] = []
    for step in script.steps:
        result = taken(engine, step, _plain)
        if step[0] in _GONE:
            return [*seen, (step[0], result, engine.closing)]
        frames = reader.read(b"".join(engine.take_output()))
        waiting = [(engine.waiting(stream), engine.content_sent(stream)) for stream in STREAMS]
        seen.append((step[0], result, frames, _STATE(engine), waiting))
    return seen


def difference(script: Script) -> str:
    """Where the engines part on `script`, for a reader; empty if they do not."""
    expected, found = (play(name, script) for name in ENGINES)
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one != other or repr(one) != repr(other):
            return f"step {number} of\n{script}\n" + "\n".join(
                f"{name}: {seen}" for name, seen in zip(ENGINES, (one, other), strict=True)
            )
    return ""


def _outcome(name: str, limits: Limits, parts: list[bytes]) -> Seen:
    """(events, frames, state) after `parts`, that come at the same time."""
    steps = [("receive", (part, 1.0)) for part in parts]
    seen = play(name, Script(limits, [*steps, ("pump", (1.0,))]))
    events = [event for step in seen[:-1] for event in step[1]]
    return events, [frame for step in seen for frame in step[2]], seen[-1][3]


def cut_difference(data: bytes, limits: Limits) -> str:
    """Where something depends on how `data` is cut, or on who reads it: in two at every place, and octet by
    octet.
    """
    whole = _outcome("python", limits, [data])
    cuttings = [[data], *([data[:at], data[at:]] for at in range(1, len(data)))]
    cuttings.append([data[at : at + 1] for at in range(len(data))])
    for parts in cuttings:
        for name in ENGINES:
            if _outcome(name, limits, parts) != whole:
                return (
                    f"{len(parts)} parts, the first of {len(parts[0])} octets, for {name}: {data!r}, {limits}"
                )
    return ""
