"""What a WebSocket engine makes of a script, and where two engines part on it, or one of them on two cuts.

Everything that can be seen from outside is compared after each step: what it gave or raised, the state that
the driver acts upon, the counts that the log shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from websocket_subjects import ENGINES, chosen, engine_class

from fuzz.taking import taken
from fuzz.websocket_scripts import LAST, Script
from servery.events import Event, MessageReceived, WebSocketFailed
from servery.limits import Limits
from servery.websocket.deflate import Deflater, DeflateSettings, Inflater

Seen = tuple[Any, ...]
"""(step, result or exception, state and counts)."""

_STATE = attrgetter(
    *("wants_read", "half_closed", "closing", "reset", "deadline"),
    *("messages_received", "messages_sent", "octets_received", "octets_sent"),
)


def _engine(script: Script) -> Any:
    pair: tuple[Any, ...] = (None, None)
    if script.agreement is not None:
        pair = Deflater(script.agreement, DeflateSettings(min_size=10)), Inflater(script.agreement)
    return engine_class()(script.limits, 0.0, script.head, *pair, script.spread)


def _plain(event: Event) -> Any:
    """Errors have no equality, and octets of one class are equal to those of another."""
    if isinstance(event, WebSocketFailed):
        return type(event), type(event.error), event.error.status, event.error.reason
    if isinstance(event, MessageReceived):
        return type(event), type(event.data), event.data
    return event


def play(name: str, script: Script) -> list[Seen]:
    """What `name` makes of every step."""
    with chosen(name):
        engine = _engine(script)
    return [(step[0], taken(engine, step, _plain), _STATE(engine)) for step in script.steps]


def difference(script: Script) -> str:
    """Where the engines part on `script`, for a reader; empty if they do not."""
    taken = {name: play(name, script) for name in ENGINES}
    expected, found = taken.values()
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one != other or repr(one) != repr(other):
            seen = "\n".join(f"{name}: {steps[number]}" for name, steps in taken.items())
            return f"step {number} of\n{script}\n{seen}"
    return ""


# --- every cut ---------------------------------------------------------------------------------------


def _outcome(name: str, script: Script, parts: Iterable[bytes]) -> Seen:
    """(events, octets written, state and counts) after `parts`, that come at the same time."""
    steps = [*(("receive", (part, 1.0)) for part in parts), LAST]
    script = Script(script.limits, script.agreement, script.head, script.spread, steps)
    *received, (_, output, state) = play(name, script)
    return [event for _, events, _ in received for event in events], b"".join(output), state


def cut_difference(data: bytes, limits: Limits, agreement: Any = None) -> str:
    """Where something depends on how `data` is cut, or on who reads it: in two at every place, and octet by
    octet.

    Text that is compressed, no UTF-8 and too long is refused for what is seen first: with compression only
    the engines are compared.
    """
    script = Script(limits, agreement, b"", 0.0, [])
    whole = _outcome("python", script, [data])
    cuttings = [[data], *([data[:at], data[at:]] for at in range(1, len(data)))]
    cuttings.append([data[at : at + 1] for at in range(len(data))])
    for parts in cuttings:
        expected, found = (_outcome(name, script, parts) for name in ENGINES)
        if expected != found or (agreement is None and found != whole):
            return (
                f"{len(parts)} parts, the first of {len(parts[0])} octets, of {data!r}, {limits}, {agreement}"
            )
    return ""
