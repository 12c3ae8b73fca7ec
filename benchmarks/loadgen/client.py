"""Runs the load generator: a `Load` in, its JSON out; someone looks on when the timed interval begins and
ends.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Collection
from typing import Any

from .build import build

SPARE_SECONDS = 30
"""Beyond the planned length of a run, after which the load generator is taken to hang."""


class LoadError(Exception):
    """The load generator itself failed; the text is its own."""


class PreflightError(Exception):
    """The server's answer is not the expected one, so that nothing was timed."""


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What each answer has to be. Of `None` and of fields that are not named nothing is expected."""

    status: int = 200
    length: int | None = None
    sha256: str | None = None
    fields: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class Load:
    """One run. Times are in seconds, rates per second; the names are those of the program's options."""

    request: bytes
    port: int | None = None
    unix: str | None = None
    mode: str = "http"
    websocket: bool = False
    connections: int = 1
    client_processes: int = 1
    pipeline: int = 1
    churn: bool = False
    rate: float = 0
    warmup: float = 0
    duration: float = 1
    persistent_warmup: bool = True
    connection_ramp: float = 0
    timeout: float = 10
    read_rate: float = 0
    message: str = ""
    messages: int = 1
    check_every: int = 64
    max_latency_samples: int = 0
    seed: int = 1
    sources: int = 0
    expect: Expectation = Expectation()

    @property
    def seconds(self) -> float:
        """How long the run takes."""
        ramps = 1 if self.persistent_warmup or not self.warmup else 2
        return ramps * self.connection_ramp + self.warmup + self.duration

    def options(self) -> list[str]:
        """Options of the program, without the file of the request; what stands at its default is left out."""
        options = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in ("request", "expect") or (
                value == field.default and field.name != "persistent_warmup"
            ):
                continue
            flag = "--" + field.name.replace("_", "-")
            if isinstance(value, bool):
                options += [flag] if value else []
            else:
                options += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
        expect = self.expect
        options += ["--expect-status", str(expect.status)]
        options += ["--expect-length", str(expect.length)] if expect.length is not None else []
        options += ["--expect-sha256", expect.sha256] if expect.sha256 is not None else []
        return options + [
            part for name, value in expect.fields for part in ("--expect-field", f"{name}: {value}")
        ]


def nothing() -> None:
    """For those who need not look on."""


def run(
    load: Load,
    cpus: Collection[int] | None = None,
    on_begin: Callable[[], None] = nothing,
    on_end: Callable[[], None] = nothing,
) -> dict[str, Any]:
    """The program's result, as it wrote it.

    `on_begin` and `on_end` are called at the ends of the timed interval.

    Raises PreflightError if the server answered wrongly before anything was timed, LoadError if the program
    failed.
    """
    with tempfile.NamedTemporaryFile() as file:
        file.write(load.request)
        file.flush()
        command = [str(build()), "--request", file.name, *load.options()]
        pin = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=pin
        ) as process:
            try:
                result = _follow(process, on_begin, on_end)
                _, errors = process.communicate(timeout=SPARE_SECONDS)
            finally:
                process.kill()
    if result is None:
        raise LoadError(errors.strip() or f"the load generator ended with {process.returncode}")
    return result


def _follow(
    process: subprocess.Popen[str], on_begin: Callable[[], None], on_end: Callable[[], None]
) -> dict[str, Any] | None:
    """The line with the result, when it comes; None at the end of all lines."""
    assert process.stdout is not None
    for line in process.stdout:
        event: dict[str, Any] = json.loads(line)
        if event["event"] == "timed":
            on_begin()
        elif event["event"] == "ended":
            on_end()
        elif event["event"] == "refused":
            raise PreflightError(
                f"{event['fault']}: status {event['status']}, {event['length']} octets of body; "
                f"the answer began {event['answer'][:300]!r}"
            )
        else:
            return event
    return None
