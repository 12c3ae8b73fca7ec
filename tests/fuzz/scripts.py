"""One life of a connection as a list of steps, made by chance, and what an engine makes of it.

Two engines that are given the same script must make the same of it: `play` returns all that can be seen from
outside, step by step. The steps are those of a driver and an application that know no order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from itertools import pairwise
from typing import Any

from tracing import make_engine

from fuzz.mutation import broken, upload
from servery.engine import NEVER
from servery.errors import ServeryError
from servery.events import BodyReceived, ConnectionFailed, Event, RequestReceived
from servery.limits import DEFAULTS, Limits

STEPS = 40
"""More steps than this have no script, however many answers its octets deserve."""

SIZES = [name for name, value in asdict(DEFAULTS).items() if type(value) is int or name == "body_size"]
EXTREMES = (0, 1, 2, 3, 2**31, 2**32, 2**32 + 5, 2**63 - 1, 2**63, 2**64 + 3, 10**30)
"""Limits that are numbers of octets or of things, and values that hardly anybody sets."""

Step = tuple[Any, ...]
"""(name of a step, seconds that pass before it, its arguments)."""


@dataclass
class Script:
    """What happens to an engine that has `limits`."""

    limits: Limits
    steps: list[Step]

    def __str__(self) -> str:
        return "\n".join([str(self.limits), *map(repr, self.steps)])


# --- what an application may say, right and wrong ----------------------------------------------------

NAMES: tuple[Any, ...] = (
    *(b"content-type", b"x-a", b"Set-Cookie", b"vary", b"etag", b"X-Frame-Options"),
    *(b"content-length", b"Content-Length", b"CONTENT-LENGTH"),
    *(
        b"connection",
        b"Connection",
        b"transfer-encoding",
        b"date",
        b"Date",
        b"server",
        b"keep-alive",
        b"upgrade",
    ),
    *(b"", b"a b", b"a:", b"\xff", b"n\r\n", b"x" * 300, "text", None, 5, bytearray(b"x-b"), []),
)
VALUES: tuple[Any, ...] = (
    *(b"", b"v", b"text/plain", b"a\tb", b"\x80\xff", b"v" * 300, b"close", b"keep-alive, Close", b"chunked"),
    *(b"0", b"2", b"5", b"05", b"7", b"100", b"1" * 19, b"1" * 20, b"-1", b"+5", b"5,5", b"\xb2"),
    *(
        b" v",
        b"v ",
        b"\tv",
        b"a\nb",
        b"a\rb",
        b"a\x00",
        b"\x7f",
        b"\x1f",
        "text",
        None,
        5,
        bytearray(b"v"),
        [],
    ),
)
GOOD_FIELDS: tuple[list[Any], ...] = (
    [],
    [(b"content-length", b"5")],
    [(b"content-length", b"2"), (b"content-type", b"text/plain")],
    [(b"content-type", b"text/plain"), (b"x-a", b"v"), (b"date", b"d"), (b"server", b"s")],
    [(b"connection", b"close")],
    [(b"content-length", b"0"), (b"content-length", b"0")],
    [(b"content-length", b"5"), (b"Content-Length", b"5"), (b"vary", b"accept")],
)
STATUSES: tuple[Any, ...] = (
    *(200, 200, 200, 204, 304, 404, 999, 299, HTTPStatus.ACCEPTED),
    *(100, 101, 103, 199, 1000, 0, -1, True, 200.0, "200", None, 2**70),
)
CONTENT = (b"", b"ok", b"hello", b"x" * 100, b"y" * 20_000)


def fields(chance: random.Random) -> Any:
    """Response fields: good, bad, or nothing that is a list of fields."""
    way = chance.random()
    if way < 0.5:
        return [tuple(field) for field in chance.choice(GOOD_FIELDS)]
    if way < 0.58:
        return chance.choice(
            (None, 5, b"ab", "ab", [b"ab"], [()], [(b"a",)], [(b"a", b"b", b"c")], {b"a": b"b"})
        )
    made: list[Any] = []
    for _ in range(chance.randint(1, 3)):
        known = chance.random() < 0.7
        name = chance.choice(NAMES[:16] if known else NAMES)
        value = chance.choice(VALUES[:12] if chance.random() < 0.7 else VALUES)
        made.append([name, value] if chance.random() < 0.1 else (name, value))
    return tuple(made) if chance.random() < 0.2 else made


def status(chance: random.Random) -> Any:
    """A status: mostly one that is allowed."""
    return chance.choice(STATUSES[:9] if chance.random() < 0.9 else STATUSES)


def _flag(chance: random.Random, likely: float = 0.5) -> bool:
    return chance.random() < likely


ACTIONS: dict[str, Callable[[random.Random], tuple[Any, ...]]] = {
    "start_response": lambda chance: (status(chance), fields(chance), _flag(chance, 0.2)),
    "send_body": lambda chance: (chance.choice(CONTENT), _flag(chance)),
    "file": lambda chance: (chance.choice((0, 2, 5, 100)), _flag(chance)),
    "send_trailers": lambda chance: (fields(chance), _flag(chance, 0.3)),
    "send_informational": lambda chance: (chance.choice((103, 102, 199, 100, 101, 200, 99)), fields(chance)),
    "answer": lambda chance: (chance.choice((503, 404)), "no\xe9", *([b"a: b\r\n"] if _flag(chance) else [])),
    "continue_body": lambda chance: (),
    "fail_response": lambda chance: (),
    "abandon": lambda chance: (),
}
"""What an application, or the server in its place, may ask for, and arguments for it."""

EVENTS: tuple[str, ...] = ("advance", "expire", "stop", "pause", "resume", "eof")
"""What a driver may tell, besides octets; a script may end with "hand_over", after which there is no HTTP."""


def random_script(chance: random.Random, data: bytes | None = None) -> Script:
    """Broken octets in pieces, and between them what drivers and applications do."""
    uploads = data is None and _flag(chance, 0.2)
    if data is None:
        data = upload(chance) if uploads else broken(chance)
    limits = random_limits(data, chance) if _flag(chance, 0.4) else DEFAULTS
    if uploads:
        limits = replace(limits, drain_size=chance.choice((0, 5, 10, 20)))
    steps: list[Step] = [("stop", 0.0)] if _flag(chance, 0.03) else []
    pieces = _cut(data, chance, often=uploads)
    while pieces or (len(steps) < STEPS and _flag(chance, 0.75)):
        way = chance.random()
        passed = chance.choice((0.0, 0.0, 0.25, 1.0, 7.5)) if _flag(chance, 0.4) else 0.0
        if pieces and (way < 0.6 or not steps or len(steps) >= STEPS):
            steps.append(("receive", passed, pieces.pop(0)))
            if uploads and _flag(chance, 0.2):
                steps += [("pause", 0.0), ("resume", chance.choice((0.0, 0.5, 5.0)))]
        elif way < 0.8:
            steps += _exchange(chance, passed)
        elif way < 0.92:
            steps.append(_action(chance.choice([*ACTIONS]), chance, passed))
        else:
            weights = (4, 2, 1, 4, 4, 1)
            steps.append((chance.choices(EVENTS, weights)[0], passed))
    if _flag(chance, 0.5):
        steps.append((chance.choices(("eof", "hand_over"), (9, 1))[0], 0.0))
    return Script(limits, steps)


def _cut(data: bytes, chance: random.Random, often: bool) -> list[bytes]:
    if _flag(chance, 0.05):
        return [bytes((octet,)) for octet in data[:200]] + ([data[200:]] if len(data) > 200 else [])
    count = chance.choice((1, 4, 8) if often else (0, 0, 0, 1, 1, 2, 4))
    bounds = [0, *sorted(chance.randint(0, len(data)) for _ in range(count)), len(data)]
    return [data[a:b] for a, b in pairwise(bounds) if a < b]


def _exchange(chance: random.Random, passed: float) -> list[Step]:
    """An application that does most things right, so that connections live on."""
    steps: list[Step] = [("continue_body", passed, 0)] if _flag(chance, 0.3) else []
    if _flag(chance, 0.1):
        steps.append(("send_informational", 0.0, 0, 103, fields(chance)))
    given = [tuple(field) for field in chance.choice(GOOD_FIELDS[:5])]
    trailers = _flag(chance, 0.2)
    steps.append(("start_response", 0.0, 0, chance.choice((200, 200, 204, 304)), given, trailers))
    if _flag(chance, 0.3):
        steps.append(("continue_body", 0.0, 0))
    length = dict(given).get(b"content-length")
    size = int(length) if length is not None else chance.choice((0, 5, 20_000))
    cut = chance.randint(0, size)
    for part, more in ((cut, True), (size - cut, False)) if _flag(chance) else ((size, False),):
        file = _flag(chance, 0.2)
        steps.append(("file", 0.0, 0, part, more) if file else ("send_body", 0.0, 0, b"b" * part, more))
        if more and _flag(chance, 0.1):
            return [*steps, (chance.choice(("abandon", "fail_response")), 0.0, 0), ("advance", 0.0)]
    if trailers:
        steps.append(("send_trailers", 0.0, 0, [(b"x-sum", b"1")], False))
    return [*steps, ("advance", 0.0)]


def _action(name: str, chance: random.Random, passed: float) -> Step:
    stream = 0 if _flag(chance, 0.95) else chance.choice((-1, 1, -10))
    return (name, passed, stream, *ACTIONS[name](chance))


def random_limits(data: bytes, chance: random.Random) -> Limits:
    """Limits of which some are so close to the sizes of `data` that they are met, or just not."""
    lines = data.split(b"\r\n")
    head = data.find(b"\r\n\r\n") + 4
    sizes = [len(line) for line in lines] or [0]

    def near(size: int) -> int:
        return max(0, size + chance.randint(-2, 2))

    small = {
        "request_line": near(len(lines[0])),
        "field_count": near(len(lines) - 3),
        "field_size": near(chance.choice(sizes)),
        "head_size": near(head),
        "trailer_size": near(chance.choice(sizes)),
        "chunk_line": near(chance.choice((1, 3, chance.choice(sizes)))),
        "chunk_extensions": chance.randint(0, 12),
        "body_size": chance.choice((None, near(5), near(len(data) - head))),
        "empty_lines": chance.randint(0, 2),
        "read_ahead": chance.choice((0, near(head), near(len(data)))),
        "drain_size": chance.choice((0, near(5), near(len(data) - head))),
        "first_byte_timeout": chance.choice((0.5, 1.0)),
        "head_timeout": chance.choice((0.5, 8.0)),
        "body_timeout": chance.choice((0.5, 1)),
        "body_min_rate": chance.choice((0, 1, 7, 10_000)),
        "keep_alive_timeout": chance.choice((0.0, 1.5, 10)),
        "linger_timeout": chance.choice((0.5, 3.0)),
    }
    chosen = {name: size for name, size in small.items() if _flag(chance, 0.2)}
    if _flag(chance, 0.1):
        chosen[chance.choice(SIZES)] = chance.choice(EXTREMES)
    return replace(DEFAULTS, **chosen)


# --- what an engine makes of it ----------------------------------------------------------------------


def play(name: str, script: Script) -> list[tuple[Any, ...]]:
    """(step, time, events or result or exception, octets, state) of every step, by the engine `name`.

    What no driver does is left out: there is no application before a request, nor after `advance`, which is
    called only once the response is complete.
    """
    engine, now = make_engine(name, script.limits), 0.0
    asked = answered = False
    seen = []
    for step in script.steps:
        kind = step[0]
        now += step[1]
        if kind == "expire" and engine.deadline != NEVER:
            now = max(now, engine.deadline)
        if (kind in ACTIONS and not asked) or (kind == "advance" and not answered):
            continue
        try:
            result = _do(engine, now, kind, step[2:])
            answered = answered or _completes(kind, result)
        except (ServeryError, TypeError, ValueError) as error:
            result = (type(error), str(error))
        if kind == "advance":
            asked = answered = False
        if isinstance(result, list) and any(isinstance(event, RequestReceived) for event in result):
            asked, answered = True, False
        output = b"".join(engine.take_output())
        seen.append((kind, now, result, output, _state(engine)))
    return seen


def _completes(kind: str, result: Any) -> bool:
    """Whether a step that raised nothing has completed the response."""
    if kind in ("answer", "abandon", "fail_response"):
        return True
    return kind in ACTIONS and (result is True or result in ((True, True), (False, True)))


def _do(engine: Any, now: float, name: str, arguments: tuple[Any, ...]) -> Any:
    if name == "receive":
        return merged(engine.receive(arguments[0], now))
    if name == "eof":
        return merged(engine.receive(b"", now))
    if name in ("advance", "expire"):
        return merged(getattr(engine, name)(now))
    if name == "stop":
        return engine.stop(now)
    if name in ("pause", "resume"):
        return engine.body_paused(name == "pause", now)
    if name == "hand_over":
        return engine.hand_over()
    stream = engine.stream + arguments[0]
    if name == "file":
        wanted = engine.reserve_body(stream, *arguments[1:])
        return wanted, engine.end_reserved(stream)
    result = getattr(engine, name)(stream, *arguments[1:])
    # A status may come back as the enumeration's member that the application gave, or as its number.
    return int(result) if name == "fail_response" else result


def _state(engine: Any) -> tuple[Any, ...]:
    return (
        *(engine.deadline, engine.wants_read, engine.half_closed, engine.closing, engine.reset),
        *(engine.stream, engine.content_sent, engine.takes_trailers),
    )


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


def difference(script: Script, first: str = "python", second: str = "native") -> str:
    """Where two engines part on `script`, for a reader; empty if they do not."""
    for number, (one, other) in enumerate(zip(play(first, script), play(second, script), strict=True)):
        if repr(one) != repr(other):  # not only equal: of the same types
            return f"trace line {number} of\n{script}\n{first}: {one}\n{second}: {other}"
    return ""
