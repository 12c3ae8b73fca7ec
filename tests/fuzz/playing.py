"""What an engine makes of a script, and where two engines part on it.

Two engines that are given the same script must make the same of it: all that can be seen from outside is
compared, step by step. What no driver does is left out: there is no application before a request, nor after
`advance`, which is called only once the response is complete; `end_reserved` follows `reserve_body`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from under_test import ENGINES

from fuzz.scripts import ACTIONS, Script, Step
from servery.engine import NEVER
from servery.errors import ServeryError
from servery.events import BodyReceived, ConnectionFailed, Event, RequestReceived
from servery.limits import Limits

Seen = tuple[Any, ...]
Taken = tuple[Any, list[bytes], Seen]
"""(events or result or exception, octets, state) after a step; `Seen` is the same and more, for comparing."""

_STATE = attrgetter(
    *("deadline", "wants_read", "half_closed", "closing", "reset", "stream", "content_sent", "takes_trailers")
)
_classes: dict[str, Any] = {}


def _engine(name: str, limits: Limits) -> Any:
    """`tracing.make_engine`, but some thousands of times a second."""
    if name not in _classes:
        _classes[name] = importlib.import_module(ENGINES[name]).Http1Engine
    return _classes[name](limits, _stamp, 0.0)


def _stamp(has: int) -> bytes:
    """Says what the engine asked for."""
    return b"stamp: %d\r\n" % has


class Players:
    """Engines that go through the same script side by side. `now` is the time of their last step."""

    __slots__ = ("_answered", "_asked", "_engines", "_reserved", "now")

    def __init__(self, names: tuple[str, ...], limits: Limits) -> None:
        self._engines = [_engine(name, limits) for name in names]
        self.now = 0.0
        self._asked = self._answered = self._reserved = False

    def take(self, step: Step) -> list[Taken]:
        """What each engine makes of `step`; nothing if no driver would take it."""
        kind = step[0]
        self.now += step[1]
        if kind in ACTIONS:
            if not self._asked or (kind == "end_reserved" and not self._reserved):
                return []
        elif kind == "advance":
            if not self._answered:
                return []
        elif kind == "expire" and self._engines[0].deadline != NEVER:
            self.now = max(self.now, self._engines[0].deadline)
        now, do = self.now, _DRIVER.get(kind, _act)
        taken: list[Taken] = []
        for engine in self._engines:
            try:
                result = do(engine, now, step)
            except (ServeryError, TypeError, ValueError) as error:
                result = (type(error), str(error))
            output = engine.take_output()
            assert all(output), "an empty part was queued"
            taken.append((result, output, _STATE(engine)))
        if kind != "receive" or taken[0][0]:
            self._note(kind, taken[0][0])
        return taken

    def _note(self, kind: str, result: Any) -> None:
        """What the first engine has made of a step says what may come next."""
        if kind in ACTIONS:
            raised = type(result) is tuple and isinstance(result[0], type)
            self._answered = self._answered or (not raised and (kind in _ENDS or result in _COMPLETE))
            self._reserved = self._reserved or (not raised and kind == "reserve_body")
        elif kind == "advance":
            self._asked = self._answered = False
        if type(result) is list:
            for event in result:
                if type(event) is RequestReceived:
                    self._asked, self._answered = True, False


_COMPLETE = (True, (True, True), (False, True))
_ENDS = frozenset(("answer", "abandon", "fail_response"))
"""What steps return, and steps that return nothing, when they complete the response."""

_DRIVER: dict[str, Callable[[Any, float, Step], Any]] = {
    "receive": lambda engine, now, step: engine.receive(step[2], now),
    "eof": lambda engine, now, step: engine.receive(b"", now),
    "advance": lambda engine, now, step: engine.advance(now),
    "expire": lambda engine, now, step: engine.expire(now),
    "stop": lambda engine, now, step: engine.stop(now),
    "pause": lambda engine, now, step: engine.body_paused(True, now),
    "resume": lambda engine, now, step: engine.body_paused(False, now),
    "hand_over": lambda engine, now, step: engine.hand_over(),
}


def _act(engine: Any, now: float, step: Step) -> Any:
    """The application's calls."""
    kind, stream = step[0], engine.stream + step[2]
    if kind == "file":
        wanted = engine.reserve_body(stream, *step[3:])
        return wanted, engine.end_reserved(stream)
    result = getattr(engine, kind)(stream, *step[3:])
    # A status may come back as the enumeration's member that the application gave, or as its number.
    return int(result) if kind == "fail_response" else result


def play(name: str, script: Script) -> list[Seen]:
    """(step, time, events or result or exception, octets, state) of every step that `name` takes."""
    players = Players((name,), script.limits)
    return [(step[0], players.now, *_plain(taken)) for step in script.steps for taken in players.take(step)]


def _plain(taken: Taken) -> Seen:
    result, output, state = taken
    return merged(result) if type(result) is list else result, b"".join(output), state


def merged(events: list[Event]) -> list[Any]:
    """The events as plain values, with neighbouring parts of a body in one."""
    plain: list[Any] = []
    for event in events:
        if isinstance(event, BodyReceived) and plain and isinstance(plain[-1], BodyReceived):
            last = plain[-1]
            plain[-1] = BodyReceived(event.stream, last.data + event.data, event.more, event.trailers)
        elif isinstance(event, ConnectionFailed):
            error = event.error
            facts = (event.stream, event.request_line, event.replied)
            plain.append((type(error), error.status, error.reason, *facts))
        else:
            plain.append(event)
    return plain


def difference(script: Script, names: tuple[str, ...] = tuple(ENGINES)) -> str:
    """Where engines part on `script`, for a reader; empty if they do not.

    They share tables of what was seen before: the first of `names` is the one that fills them.
    """
    players = Players(names, script.limits)
    for step in script.steps:
        taken = players.take(step)
        if taken and not _same(*taken):
            seen = "\n".join(f"{name}: {_plain(one)}" for name, one in zip(names, taken, strict=True))
            return f"step {step[0]!r} at {players.now} of\n{script}\n{seen}"
    return ""


def _same(one: Taken, other: Taken) -> bool:
    """Whether two steps look the same: not only equal, but of the same types."""
    (result, output, state), (result_, output_, state_) = one, other
    if state != state_ or (output != output_ and b"".join(output) != b"".join(output_)):
        return False
    if type(result) is not type(result_) or [*map(type, state)] != [*map(type, state_)]:
        return False
    if result == result_ and (not result or repr(result) == repr(result_)):
        return True
    return type(result) is list and repr(merged(result)) == repr(merged(result_))
