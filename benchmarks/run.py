"""A run: every cell, every trial, every server in its turn.

Nothing is timed before every server was proven.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from . import record as records
from .environments import Environments
from .loadgen.client import LoadError
from .machine import Processors
from .progress import Progress
from .report.facts import changes
from .rotation import order
from .scenario import Cell
from .trial import Settings, Subject, run_trial
from .verdicts import CannotServe, Refused

COLD_START = 1.5
"""Seconds that starting and stopping a server are expected to take, for the time left."""


def seconds_of(cell: Cell, settings: Settings) -> float:
    """About how long one trial of a cell takes."""
    kind = cell.scenario.kind
    if kind in ("startup", "stop", "timeouts"):
        return COLD_START + {"startup": 0.0, "stop": 2.0, "timeouts": settings.timeouts_limit}[kind]
    return COLD_START + cell.load(settings.warmup, settings.duration, port=1).seconds


class Run:
    """Makes the trials and fills `record`, which is whole at every moment."""

    def __init__(
        self,
        record: dict[str, Any],
        subjects: Sequence[Subject],
        cells: Sequence[Cell],
        settings: Settings,
        cpus: Processors,
        environments: Environments,
    ) -> None:
        self.record = record
        self._subjects = subjects
        self._cells = cells
        self._settings = settings
        self._cpus = cpus
        self._environments = environments
        planned = sum(seconds_of(cell, settings) for cell in cells) * settings.trials * len(subjects)
        steps = len(cells) * settings.trials * len(subjects)
        self.planned = planned + COLD_START * len(cells) * len(subjects)
        self.progress = Progress(steps, self.planned / max(1, steps))

    def make(self, save: Callable[[], None]) -> None:
        """All of it. `save` is called after each cell; Ctrl+C ends the run, and what was measured is kept.

        Meanwhile this process, which watches the server, keeps off the server's processors.
        """
        usual = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._cpus.client)
        try:
            for cell in self._cells:
                entry = records.new_cell(cell)
                self.record["cells"].append(entry)
                self._make_cell(cell, entry)
                save()
        except KeyboardInterrupt:
            self.record["interrupted"] = True
        finally:
            os.sched_setaffinity(0, usual)
            self.progress.end()
            save()

    def _make_cell(self, cell: Cell, entry: dict[str, Any]) -> None:
        for subject in self._subjects:
            self.progress.show(f"{cell.name}: is {subject.name} what was asked for?")
            self._attempt(subject, cell, entry, None, 0)
        for trial in range(self._settings.trials):
            able = [subject for subject in self._subjects if subject.name not in entry["excluded"]]
            self.progress.step(len(self._subjects) - len(able))
            for position, subject in enumerate(order(able, trial)):
                self.progress.show(f"{cell.name} · {subject.name} · trial {trial + 1}")
                self._attempt(subject, cell, entry, trial, position)
                self.progress.step()

    def _attempt(
        self, subject: Subject, cell: Cell, entry: dict[str, Any], trial: int | None, position: int
    ) -> None:
        """One trial, or with `trial` None the proof before all of them.

        What fails is noted with its reason.
        """
        try:
            try:
                made = run_trial(
                    subject, cell, self._settings, self._cpus, self._environments, only_check=trial is None
                )
            except LoadError as error:
                made = {"faults": [f"the load generator failed: {error}"]}
        except CannotServe as reason:
            entry["excluded"][subject.name] = {"kind": "cannot serve", "reason": str(reason)}
        except Refused as reason:
            entry["excluded"][subject.name] = {"kind": "refused", "reason": str(reason)}
        else:
            if trial is not None:
                entry["trials"].append(
                    {"subject": subject.name, "trial": trial, "position": position, **made}
                )


def refusals(record: dict[str, Any]) -> list[str]:
    """``cell, server: reason`` for what was refused: not for what a server simply does not have. A run during
    which something changed is refused as a whole.
    """
    return changes(record) + [
        f"{cell['name']}, {name}: {excluded['reason']}"
        for cell in record["cells"]
        for name, excluded in cell["excluded"].items()
        if excluded["kind"] == "refused"
    ]
