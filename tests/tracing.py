"""An engine under a small application of its own, and all that can be seen of it from outside.

Two traces of the same octets must be equal however the octets were cut. Only what the contract in
`servery.engine` names is used, so that every engine can be traced.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from under_test import ENGINES

from servery.errors import RemoteProtocolError
from servery.events import BodyReceived, ConnectionFailed, Event, Headers, PeerClosed, RequestReceived
from servery.limits import DEFAULTS, Limits

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"
"""How each response of the traced application begins."""

BYTEWISE = 70_000
"""More octets than any head may have: what follows is dropped, and need not be fed one by one."""


def make_engine(name: str, limits: Limits = DEFAULTS, now: float = 0.0) -> Any:
    """A new engine, by its name in ``--engines``, that sends no Date and no Server."""
    return importlib.import_module(ENGINES[name]).Http1Engine(limits, lambda has: b"", now)


@dataclass
class Seen:
    """One request as the application gets it, its body in one piece."""

    event: RequestReceived
    body: bytes
    complete: bool
    trailers: Headers


@dataclass
class Trace:
    """What came out of an engine.

    `failures` are (class, status, reason, stream, request line, status sent); `left` says that EOF was
    reported while a request was in progress. `state` is what the driver was told before the peer's EOF,
    `ended` the same after it: (wants_read, half_closed, closing, reset, deadline).
    """

    requests: list[Seen] = field(default_factory=list)
    failures: list[tuple[type[RemoteProtocolError], int, str, int, Any, int]] = field(default_factory=list)
    left: bool = False
    output: bytes = b""
    state: tuple[Any, ...] = ()
    ended: tuple[Any, ...] = ()


class Tracer:
    """Feeds an engine and answers each request with 200 once its body is complete.

    At once, or, if `late`, not before `answer` is called, so that all that was pipelined has to wait.
    """

    def __init__(self, engine: Any, late: bool = False) -> None:
        self.engine = engine
        self.late = late
        self.trace = Trace()
        self._answered = 0

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Give the engine `pieces`, one after the other, all at the time 0."""
        for piece in pieces:
            self.take(self.engine.receive(piece, 0.0))
            if not self.late:
                self.answer()
            self._take_output()

    def answer(self) -> None:
        """Answer what is complete, and what comes up behind it."""
        trace, engine = self.trace, self.engine
        while len(trace.requests) > self._answered and trace.requests[-1].complete:
            self._answered += 1
            engine.start_response(self._answered, 200, [(b"content-length", b"2")], False)
            assert engine.send_body(self._answered, b"ok", False)
            self.take(engine.advance(0.0))
        self._take_output()

    def take(self, events: list[Event]) -> None:
        """Write down `events`."""
        trace = self.trace
        for event in events:
            if isinstance(event, RequestReceived):
                assert event.stream == len(trace.requests) + 1
                trace.requests.append(Seen(event, b"", event.complete, []))
            elif isinstance(event, BodyReceived):
                seen = trace.requests[event.stream - 1]
                assert event.stream == len(trace.requests)
                assert not seen.complete, "content after the end of a body"
                seen.body += event.data
                seen.complete = not event.more
                seen.trailers = event.trailers
            elif isinstance(event, ConnectionFailed):
                error = event.error
                facts = (error.status, error.reason, event.stream, event.request_line, event.replied)
                trace.failures.append((type(error), *facts))
            else:
                assert isinstance(event, PeerClosed)
                trace.left = True

    def state(self) -> tuple[Any, ...]:
        """What the driver must do now."""
        engine = self.engine
        return (engine.wants_read, engine.half_closed, engine.closing, engine.reset, engine.deadline)

    def _take_output(self) -> None:
        output = self.engine.take_output()
        assert all(part and type(part) is bytes for part in output)
        self.trace.output += b"".join(output)


def trace(
    name: str,
    data: bytes,
    cuts: Iterable[int] = (),
    *,
    late: bool = False,
    eof: bool = False,
    limits: Limits = DEFAULTS,
) -> Trace:
    """The trace of `data`, cut at `cuts`; `eof` adds the peer's EOF."""
    tracer = Tracer(make_engine(name, limits), late)
    tracer.feed(pieces(data, cuts))
    if late and not eof:
        tracer.answer()
    tracer.trace.state = tracer.state()
    if eof:
        tracer.feed([b""])
        tracer.answer()
    tracer.trace.ended = tracer.state()
    return tracer.trace


def sure_trace(name: str, data: bytes, **limits: Any) -> Trace:
    """The trace of `data` under `limits`, which must not depend on how it is cut."""
    chosen = replace(DEFAULTS, **limits)
    whole = trace(name, data, limits=chosen)
    for way, cuts in cuttings(data, "sure").items():
        assert trace(name, data, cuts, limits=chosen) == whole, way
    return whole


def served(name: str, data: bytes, **limits: Any) -> list[Seen]:
    """The requests in `data`, all of them good."""
    whole = sure_trace(name, data, **limits)
    assert whole.failures == []
    assert all(request.complete for request in whole.requests)
    return whole.requests


def refused(name: str, data: bytes, **limits: Any) -> tuple[type[RemoteProtocolError], int, str]:
    """(class, status, reason) of the refusal of `data`, which is one request."""
    whole = sure_trace(name, data, **limits)
    assert not any(request.complete for request in whole.requests)
    [(kind, status, reason, _, _, replied)] = whole.failures
    assert replied == status
    return kind, status, reason


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """`data` cut at `cuts`, which ascend; no piece is empty."""
    bounds = [0, *(cut for cut in cuts if 0 < cut < len(data)), len(data)]
    return [data[a:b] for a, b in pairwise(bounds) if a < b]


def cuttings(data: bytes, seed: str, bytewise: int = 1000) -> dict[str, list[int]]:
    """Ways of cutting `data`, each by its name: the same for the same `seed`.

    Only the first `bytewise` octets are fed one by one, and only those lines that end among them.
    """
    chance = random.Random(seed)
    count = len(data)
    ways = {
        "whole": [],
        "by octet": list(range(1, min(count, bytewise))),
        "by line": [at + 1 for at, octet in enumerate(data[:bytewise]) if octet == 10],
    }
    for number in range(4):
        ways[f"at random {number}"] = random_cuts(count, chance)
    return ways


def random_cuts(count: int, chance: random.Random) -> list[int]:
    """One to eight places inside of `count` octets; half of the time near the start, where the heads are."""
    end = min(count, 400) if chance.random() < 0.5 else count
    return sorted(chance.sample(range(1, end), min(end - 1, chance.randint(1, 8))))
