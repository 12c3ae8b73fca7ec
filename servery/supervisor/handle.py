"""What the master knows of one worker."""

from __future__ import annotations

import signal
from enum import Enum
from typing import Any

from .channel import Channel, Message
from .policy import Lifetime
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
        self.due: str | None = None
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

    def hear(self) -> list[Message] | None:
        """Take in what it has reported; the messages, for who wants to act on them. None at the end."""
        received = self.channel.receive()
        for message in received or ():
            if "counts" in message:
                self.counts = message["counts"]
                self.silent = 0.0
            elif "failed" in message:
                self.failure = (message["failed"], message["code"])
            elif "stacks" in message:
                self.stacks_logged = True
        return received

    def ask(self, what: str, **more: Any) -> None:
        """Let it do something: see `channel`."""
        self.channel.send({"do": what, **more})

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
