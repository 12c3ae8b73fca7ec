"""Studies: TOML files that name the runs which repeat a published measurement; each is one command."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from .paths import STUDIES


@dataclasses.dataclass(frozen=True)
class Part:
    """One run of a study; its result is named ``STUDY-NAME``."""

    name: str
    scenarios: tuple[str, ...]
    servers: tuple[str, ...]
    trials: int
    duration: float = 5.0
    warmup: float = 1.0
    client_processes: int = 1


@dataclasses.dataclass(frozen=True)
class Study:
    """One file."""

    name: str
    title: str
    about: str
    parts: tuple[Part, ...]


def _part(table: dict[str, Any]) -> Part:
    scenarios, servers = tuple(table.pop("scenarios")), tuple(table.pop("servers"))
    return Part(scenarios=scenarios, servers=servers, **table)


def read_study(path: Path) -> Study:
    """The study in a file. Raises TypeError for unknown keys."""
    table = tomllib.loads(path.read_text("utf-8"))
    parts = [_part(part) for part in table["run"]]
    return Study(path.stem, table["title"], table.get("about", ""), tuple(parts))


def all_studies() -> dict[str, Study]:
    """Every study, by name."""
    return {path.stem: read_study(path) for path in sorted(STUDIES.glob("*.toml"))}
