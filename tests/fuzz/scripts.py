"""One life of a connection as a list of steps, made by chance: octets, time, and an application's calls.

The steps are those of a driver and an application that know no order. `fuzz.playing` says what an engine
makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from http import HTTPStatus
from itertools import pairwise
from typing import Any

from fuzz.chance import Chance
from fuzz.mutation import broken, composed, upload
from servery.limits import DEFAULTS, Limits

STEPS = 40
"""More steps than this have no script, however many answers its octets deserve."""

BYTEWISE = 60
"""So many octets in a row are fed one by one at most, wherever they stand."""

VALUES = asdict(DEFAULTS)
SIZES = [name for name, value in VALUES.items() if type(value) is int or name == "body_size"]
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


class Octets(bytes):
    """An application may have a class of its own for this."""


class Listed(list[Any]):
    """And for this."""


NAMES: tuple[Any, ...] = (
    *(b"content-type", b"x-a", b"Set-Cookie", b"vary", b"etag", b"X-Frame-Options"),
    *(b"content-length", b"Content-Length", b"CONTENT-LENGTH"),
    *(b"connection", b"Connection", b"transfer-encoding", b"date", b"Date", b"server", b"Server"),
    *(b"keep-alive", b"upgrade", b"Content-Type", b"trailer", Octets(b"x-c"), Octets(b"content-length")),
    *(b"", b"a b", b"a:", b"\xff", b"n\r\n", b"x" * 300, "text", None, 5, bytearray(b"x-b"), []),
)
VALUES_SENT: tuple[Any, ...] = (
    *(b"", b"v", b"text/plain", b"a\tb", b"\x80\xff", b"v" * 300, b"close", b"keep-alive, Close", b"chunked"),
    *(b"0", b"2", b"5", b"05", b"7", b"100", b"1" * 19, b"1" * 20, b"-1", b"+5", b"5,5", b"\xb2"),
    *(b" v", b"v ", b"\tv", b"v\t", b" ", b"\t", b"a\nb", b"a\rb", b"a\x00", b"\x7f", b"\x1f"),
    *("text", None, 5, bytearray(b"v"), [], Octets(b"v"), Octets(b"5")),
)
GOOD_FIELDS: tuple[list[Any], ...] = (
    [],
    [(b"content-length", b"5")],
    [(b"content-length", b"2"), (b"content-type", b"text/plain")],
    [(b"content-type", b"text/plain"), (b"x-a", b"v"), (b"date", b"d"), (b"server", b"s")],
    [(b"connection", b"close")],
    [(b"content-length", b"0"), (b"content-length", b"0")],
    [(b"content-length", b"5"), (b"Content-Length", b"5"), (b"vary", b"accept")],
    [(b"content-length", b"5"), (b"content-length", b"2")],
    [(b"x-a", b"v"), (b"content-length", b"16384"), (b"x-b", b"w")],
)
STRANGE_FIELDS: tuple[Any, ...] = (
    *(None, 5, b"ab", "ab", [b"ab"], [()], [(b"a",)], [(b"a", b"b", b"c")], {b"a": b"b"}),
    *({b"x-a": b"b"}.items(), Listed([(b"x-a", b"v")]), [Listed([b"x-a", b"v"])], [[b"x-a", b"v"]]),
    *(((b"x-a", b"v"), (b"vary", b"v")), [None], [(b"x-a", b"v"), None], [(b"x-a", b"v"), ([], b"v")]),
)
STATUSES: tuple[Any, ...] = (
    *(200, 200, 200, 204, 304, 404, 999, 299, HTTPStatus.ACCEPTED),
    *(100, 101, 103, 199, 1000, 0, -1, True, 200.0, "200", None, 2**70),
)
CONTENT = (b"", b"ok", b"hello", b"x" * 100, b"j" * 16_383, b"j" * 16_384, b"y" * 20_000)


def fields(chance: Chance) -> Any:
    """Response fields: good, bad, or nothing that is a list of fields."""
    way = chance.octet()
    if way < 112:
        return chance.pick(GOOD_FIELDS)
    if way < 144:
        return chance.pick(STRANGE_FIELDS)
    made: list[Any] = []
    for _ in range(1 + chance.below(3)):
        if chance.flag(0.1):
            name: Any = b"x-%d" % chance.below(5000)  # one that was not seen before, or long ago
        else:
            name = chance.pick(NAMES[:16] if chance.flag(0.7) else NAMES)
        value = chance.pick(VALUES_SENT[:12] if chance.flag(0.7) else VALUES_SENT)
        made.append([name, value] if chance.flag(0.05) else (name, value))
    return tuple(made) if chance.flag(0.1) else made


def status(chance: Chance) -> Any:
    """A status: mostly one that is allowed."""
    return chance.pick(STATUSES if chance.flag(0.1) else STATUSES[:9])


def _answer(chance: Chance) -> tuple[Any, ...]:
    extra = chance.pick(((), (), (b"a: b\r\n",)))
    return (chance.pick((503, 404, 500, 426)), chance.pick(("no\xe9", "busy", "")), *extra)


ACTIONS: dict[str, Callable[[Chance], tuple[Any, ...]]] = {
    "start_response": lambda chance: (status(chance), fields(chance), chance.flag(0.2)),
    "send_body": lambda chance: (chance.pick(CONTENT), chance.flag()),
    "file": lambda chance: (chance.pick((0, 2, 5, 100, 16_384)), chance.flag()),
    "reserve_body": lambda chance: (chance.pick((0, 2, 5, 100, 2**40)), chance.flag()),
    "end_reserved": lambda chance: (),
    "send_trailers": lambda chance: (fields(chance), chance.flag(0.3)),
    "send_informational": lambda chance: (chance.pick((103, 102, 199, 100, 101, 200, 99)), fields(chance)),
    "answer": _answer,
    "continue_body": lambda chance: (),
    "fail_response": lambda chance: (),
    "abandon": lambda chance: (),
}
"""What an application, or the server in its place, may ask for, and arguments for it. "file" is the two steps
behind it in one."""

_NAMED = tuple(ACTIONS)

EVENTS = ("advance", "expire", "stop", "pause", "resume", "eof")
"""What a driver may tell, besides octets; a script may end with "hand_over", after which there is no HTTP."""

_OFTEN = (*EVENTS, *EVENTS, *("advance",) * 2, *("pause", "resume") * 2, "advance", "expire")

_PASSED = (0.0, 0.0, 0.0, 0.1, 0.25, 1.0, 7.5)


def random_script(chance: Chance, data: bytes | None = None) -> Script:
    """Octets in pieces, `data` or broken ones, and between them what drivers and applications do."""
    uploads = False
    if data is None:
        way = chance.octet()
        uploads = way > 204
        data = upload(chance) if uploads else composed(chance) if way > 140 else broken(chance)
    limits = random_limits(data, chance, uploads)
    return Script(limits, _Author(chance, data, uploads).write())


class _Author:
    """Writes the steps of a script with `data`; of `uploads` the small pieces are what matters."""

    def __init__(self, chance: Chance, data: bytes, uploads: bool) -> None:
        self._chance = chance
        self._data = data
        self._uploads = uploads
        self._steps: list[Step] = []
        self._pieces = _cut(data, chance, often=uploads)
        self._fed = 0
        self._due = 1  # answers: one more than there are heads, since some applications know no order

    def write(self) -> list[Step]:
        """The steps. Until there is no chance left, each of them is likely to be followed by another one."""
        chance, steps, pieces = self._chance, self._steps, self._pieces
        flag, octet = chance.flag, chance.octet
        if flag(0.03):
            steps.append(("stop", 0.0))
        while pieces or (len(steps) < STEPS and flag(0.75)):
            way = octet()
            passed = chance.pick(_PASSED) if flag(0.3) else 0.0
            if pieces and (way < 154 or not steps or len(steps) >= STEPS):
                self._receive(passed)
            elif way < 205 and self._due:
                self._due -= 1
                self._exchange(passed)
            elif way < 235:
                steps.append(self._action(passed))
            else:
                steps.append((chance.pick(_OFTEN), passed))
        if flag():
            steps.append(("hand_over" if flag(0.1) else "eof", 0.0))
        return steps

    def _receive(self, passed: float) -> None:
        piece = self._pieces.pop()
        self._steps.append(("receive", passed, piece))
        end = self._fed + len(piece)
        self._due += self._data.count(b"\r\n\r\n", max(0, self._fed - 3), end)
        self._fed = end
        if self._uploads and self._chance.flag(0.2):
            self._steps += [("pause", 0.0), ("resume", self._chance.pick((0.0, 0.5, 5.0)))]

    def _exchange(self, passed: float) -> None:
        """An application that does most things right, so that connections live on."""
        chance, steps = self._chance, self._steps
        flag = chance.flag
        if flag(0.3):
            steps.append(("continue_body", passed, 0))
            passed = 0.0
        if flag(0.1):
            steps.append(("send_informational", 0.0, 0, 103, fields(chance)))
        given = chance.pick(GOOD_FIELDS[:5])
        trailers = flag(0.2)
        steps.append(("start_response", passed, 0, chance.pick((200, 200, 204, 304)), given, trailers))
        if flag(0.2):
            steps.append(("continue_body", 0.0, 0))
        length = dict(given).get(b"content-length")
        if not self._content(int(length) if length is not None else chance.pick((0, 5, 5, 20_000))):
            return
        if trailers:
            for more in (True, False) if flag(0.3) else (False,):
                steps.append(("send_trailers", 0.0, 0, [(b"x-sum", b"1")], more))
        steps.append(("advance", 0.0))

    def _content(self, size: int) -> bool:
        """The parts of the content, and what may come between them; whether they are all there."""
        chance, steps = self._chance, self._steps
        cuts = [chance.below(size + 1) for _ in range(chance.pick((0, 0, 0, 1, 1, 3)))]
        for start, end in pairwise((0, *sorted(cuts), size)):
            part, more = end - start, end < size
            file = chance.flag(0.2)
            steps.append(("file", 0.0, 0, part, more) if file else ("send_body", 0.0, 0, b"b" * part, more))
            if more and chance.flag(0.25):
                way = chance.octet()
                if way < 96 and self._pieces:
                    self._receive(0.0)
                elif way < 160:
                    steps.append((chance.pick(("eof", "expire", "stop")), 0.0))
                elif way < 208:
                    return False
                else:
                    steps += ((chance.pick(("abandon", "fail_response")), 0.0, 0), ("advance", 0.0))
                    return False
        return True

    def _action(self, passed: float) -> Step:
        name = self._chance.pick(_NAMED)
        stream = self._chance.pick((-1, 1, -10)) if self._chance.flag(0.05) else 0
        return (name, passed, stream, *ACTIONS[name](self._chance))


def _cut(data: bytes, chance: Chance, often: bool) -> list[bytes]:
    """Pieces of `data`, the last one first."""
    size = len(data)
    if chance.flag(0.04):
        begin = chance.below(size + 1)
        bounds = [0, *range(begin, min(begin + BYTEWISE, size)), size]
    else:
        count = chance.pick((1, 4, 8) if often else (0, 0, 0, 1, 1, 2, 4))
        bounds = [0, *sorted(chance.below(size + 1) for _ in range(count)), size]
    return [data[a:b] for a, b in pairwise(bounds) if a < b][::-1]


# --- limits ------------------------------------------------------------------------------------------


def _measures(data: bytes) -> tuple[int, list[int], int]:
    """Where the head of `data` ends, the sizes of its lines, and how many octets stand behind the head."""
    head = data.find(b"\r\n\r\n") + 4
    return head, [len(line) for line in data.split(b"\r\n")], len(data) - head


_NEAR: dict[str, Callable[[Chance, int, list[int], int], int]] = {
    "request_line": lambda chance, head, lines, rest: lines[0],
    "field_count": lambda chance, head, lines, rest: len(lines) - 3,
    "field_size": lambda chance, head, lines, rest: lines[chance.below(len(lines))],
    "head_size": lambda chance, head, lines, rest: head,
    "trailer_size": lambda chance, head, lines, rest: lines[chance.below(len(lines))],
    "chunk_line": lambda chance, head, lines, rest: chance.pick((1, 3, lines[chance.below(len(lines))])),
    "body_size": lambda chance, head, lines, rest: chance.pick((5, rest)),
    "read_ahead": lambda chance, head, lines, rest: chance.pick((0, head, head + rest)),
    "drain_size": lambda chance, head, lines, rest: chance.pick((0, 5, rest)),
}
"""Limits that are met by octets, or just not: a size, to which a few octets are added, or from it taken."""

_SMALL: dict[str, tuple[Any, ...]] = {
    "chunk_extensions": tuple(range(13)),
    "empty_lines": (0, 1, 2),
    "first_byte_timeout": (0.5, 1.0),
    "head_timeout": (0.5, 8.0),
    "body_timeout": (0.5, 1),
    "body_min_rate": (0, 1, 7, 10_000),
    "keep_alive_timeout": (0.0, 1.5, 10),
    "linger_timeout": (0.5, 3.0),
}
"""Limits that a script meets by itself."""

_LIMITS = (*_NEAR, *_SMALL)


def random_limits(data: bytes, chance: Chance, uploads: bool) -> Limits:
    """The defaults, or limits of which some are met by the sizes of `data`, or just not."""
    chosen: dict[str, Any] = {}
    if chance.flag(0.4):
        measures = _measures(data)
        for _ in range(1 + chance.below(5)):
            name = chance.pick(_LIMITS)
            if name in _NEAR:
                chosen[name] = max(0, _NEAR[name](chance, *measures) + chance.pick((0, -1, 1, -2, 2)))
            else:
                chosen[name] = chance.pick(_SMALL[name])
        if chance.flag(0.1):
            chosen[chance.pick(SIZES)] = chance.pick(EXTREMES)
    if uploads:
        chosen["drain_size"] = chance.pick((0, 5, 10, 20))
    return Limits(**(VALUES | chosen)) if chosen else DEFAULTS
