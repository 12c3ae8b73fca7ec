"""One life of a WebSocket as a list of steps, made by chance: octets, time, and an application's calls.

The steps are those of a driver and an application that know no order. `fuzz.websocket_playing` says what an
engine makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fuzz.chance import Chance
from fuzz.frames import OCTETS, TEXTS, stream
from servery.limits import Limits
from servery.websocket.deflate import Agreement

AGREEMENTS = (None, None, None, Agreement(15, 15, True, True, b""), Agreement(12, 12, False, False, b""))
"""What may have been agreed on: most often nothing."""

Step = tuple[str, tuple[Any, ...]]
"""A method of the engine, and its arguments."""

_LONG = b"z" * 70_000
_CALLS: tuple[Callable[[Chance, float], Step], ...] = (
    lambda chance, now: ("send_text", (chance.pick((*TEXTS, "\ud800")),)),
    lambda chance, now: ("send_text", (chance.pick(TEXTS),)),
    lambda chance, now: ("send_bytes", (chance.pick((*OCTETS, _LONG)),)),
    lambda chance, now: ("taken", (chance.below(8), now)),
    lambda chance, now: ("unsent", (now,)),
    *(lambda chance, now: ("expire", (now,)),) * 2,
    *(lambda chance, now: ("ping", (now,)),) * 2,
    *(lambda chance, now: ("take_output", ()),) * 2,
)
_RARE: tuple[Callable[[Chance, float], Step], ...] = (
    lambda chance, now: ("close", (chance.pick((1000, 4001, 1005)), chance.pick(("", "é", "x" * 124)), now)),
    lambda chance, now: ("stop", (now,)),
    lambda chance, now: ("receive", (b"", now)),
)
"""What a driver or an application does, besides handing on octets."""

LAST: Step = ("take_output", ())


@dataclass
class Script:
    """What happens to an engine: see `servery.websocket.engine.WebSocketEngine` for the first four."""

    limits: Limits
    agreement: Agreement | None
    head: bytes
    spread: float
    steps: list[Step]

    def __str__(self) -> str:
        facts = (self.limits, self.agreement, self.head, self.spread)
        return "\n".join(map(repr, (*facts, *self.steps)))


def random_limits(chance: Chance) -> Limits:
    """Limits that a few messages reach, and some beyond any machine word."""
    return Limits(
        ws_max_size=chance.pick((None, 0, 5, 300, 1 << 20, 1 << 80)),
        ws_max_queue=chance.pick((1, 3, 32, 1 << 80)),
        body_buffer=chance.pick((1, 400, 1 << 16, 1 << 80)),
        ws_ping_interval=chance.pick((None, 5, 20.0)),
        ws_ping_timeout=chance.pick((None, 3, 20.0)),
    )


def cut(data: bytes, chance: Chance) -> list[bytes]:
    """`data` in pieces, of which none is empty; half of the cuts are where the first heads are."""
    most = min(len(data) + 1, 400 if chance.flag() else 65_536)
    cuts = sorted(chance.below(most) for _ in range(chance.pick((0, 0, 1, 2, 4, 8))))
    return [data[a:b] for a, b in pairwise((0, *cuts, len(data))) if a < b]


def random_script(chance: Chance, data: bytes | None = None) -> Script:
    """A script in which the client sends `data`, or a few streams that chance makes."""
    limits, agreement = random_limits(chance), chance.pick(AGREEMENTS)
    count = chance.pick((1, 2, 3, 4)) if data is None else 1
    now, steps = 0.0, []
    for _ in range(count):
        octets = stream(chance, agreement is not None) if data is None else data
        for piece in cut(octets, chance):
            now += chance.pick((0.0, 0.5, 7.0))
            steps.append(("receive", (piece, now)))
            for _ in range(chance.pick((0, 0, 1, 2, 5))):
                calls = _RARE if chance.flag(0.07) else _CALLS
                steps.append(chance.pick(calls)(chance, now))
    head, spread = chance.pick(((b"", 0.0), (b"HEAD", 0.5), (b"", 1.0)))
    return Script(limits, agreement, head, spread, [*steps, LAST])
