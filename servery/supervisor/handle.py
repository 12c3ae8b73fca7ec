"""What the master knows of one worker."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

from .channel import Channel, Message
from .policy import Due, Lifetime
from .runners import Runner


class State(Enum):
    """How far a worker is."""

    STARTING = "is starting"
    SERVING = "serves"
    LEAVING = "is about to end"


class Stage(Enum):
    """How a worker that is about to end is made to; each stage has its deadline."""

    ASKED = "it was asked to, and has promised to end in time"
    STUCK = "its event loop does not turn: it was asked for its stacks"
    ASKED_STUCK = "it has logged its stacks, and was asked to end if it can"
    ABORTED = "it cannot even log its stacks: SIGABRT makes the interpreter print some"


class Question:
    """Something that a worker is asked again and again; numbers rise."""

    __slots__ = ("answered", "asked", "owed_since")

    def __init__(self) -> None:
        self.asked = self.answered = 0
        self.owed_since = 0.0

    def ask(self, number: int, now: float, patience: float) -> bool:
        """It is asked once more; false if the answer has been owed for `patience` seconds already."""
        if self.answered >= self.asked:
            self.owed_since = now
        elif now - self.owed_since >= patience:
            return False
        self.asked = number
        return True

    def answer(self, number: int, now: float) -> None:
        """An answer has come."""
        self.answered, self.owed_since = number, now


class Worker:
    """One worker, from its start until it has been waited for."""

    def __init__(
        self, runner: Runner, slot: int, generation: int, channel: Channel, started: float, lifetime: Lifetime
    ) -> None:
        self.runner = runner
        self.slot = slot
        self.generation = generation
        """Of the configuration that it runs."""
        self.channel = channel
        self.started = started
        self.lifetime = lifetime
        self.state = State.STARTING
        self.counts: dict[str, int] = {}
        """Its counters, as of its last report."""
        self.silent = 0.0
        """Seconds since it has reported, as far as this process was awake."""
        self.metrics: dict[str, Any] = {}
        """What it has counted, as of its last report of that: see `servery.metrics.counting`."""
        self.counted = started
        """Monotonic seconds of that report."""
        self.described: dict[str, Any] = {}
        """What it had in hand when it was asked last."""
        self.questions: defaultdict[str, Question] = defaultdict(Question)
        """What it is asked for, now and again."""
        self.due: Due | None = None
        """Why it is to be replaced, if it is."""
        self.deadline = float("inf")
        """Monotonic seconds after which a worker that is about to end is made to."""
        self.stage = Stage.ASKED
        self.stacks_logged = False
        self.failure: tuple[str, int] | None = None
        """What it said of its failed start, and its exit code."""

    @property
    def pid(self) -> int:
        """Its process id, or what stands for it."""
        return self.runner.number

    def hear(self, now: float) -> list[Message] | None:
        """Take in what it has reported; the messages, for who wants to act on them. None at the end."""
        received = self.channel.receive()
        self._take_in(received or (), now)
        return received

    def hear_the_rest(self, now: float) -> None:
        """Take in what it has reported before it ended."""
        self._take_in(self.channel.rest(), now)

    def _take_in(self, messages: Iterable[Message], now: float) -> None:
        for message in messages:
            if "counts" in message:
                self.counts = message["counts"]
                self.silent = 0.0
            if "metrics" in message:
                self.metrics, self.counted = message["metrics"], now
            if "state" in message:
                self.described = message["state"]
            if "answers" in message:
                self.questions[message["answers"]].answer(message["number"], now)
            if "failed" in message:
                self.failure = (message["failed"], message["code"])
            elif "stacks" in message:
                self.stacks_logged = True

    def ask(self, what: str, **more: Any) -> None:
        """Let it do something: see `channel`."""
        self.channel.send({"do": what, **more})

    def ask_for(self, what: str, number: int, now: float, patience: float) -> bool:
        """Ask a question; not if it has owed an answer to this one for `patience` seconds."""
        if not self.questions[what].ask(number, now, patience):
            return False
        self.ask(what, number=number)
        return True

    def has_answered(self, what: str, number: int) -> bool:
        """Whether it has answered a question."""
        return self.questions[what].answered >= number

    def state_for_successor(self) -> dict[str, Any]:
        """What another program in this process needs to go on with the worker."""
        return {
            "pid": self.pid,
            "fd": self.channel.fileno(),
            "unread": self.channel.unread.decode(),
            "slot": self.slot,
            "generation": self.generation,
            "started": self.started,
            "state": self.state.name,
            "metrics": self.metrics,
            "counted": self.counted,
            "deadline": None if self.deadline == float("inf") else self.deadline,
        }


def how_ended(code: int) -> str:
    """The end of a worker in words that follow its name; less than 0 is a signal."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
