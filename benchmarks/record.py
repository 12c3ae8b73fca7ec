"""Results on disk: JSON with everything that is needed to judge them, or to make them again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .environments import Environments
from .fixtures import fixtures_hash
from .machine import Processors, host_facts
from .paths import HERE, ROOT
from .scenario import Cell
from .trial import Settings, Subject

SCHEMA = 1


class RecordError(Exception):
    """A file that is no result of this harness."""


def tree_hash(paths: Iterable[Path], base: Path) -> str:
    """Of names below `base` and contents, in order of the names."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.relative_to(base).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def hashes(environments: Environments) -> dict[str, str]:
    """Of the harness with its load generator, of what is served and asked, and of the servery that serves.

    The last is what its environment imports, wherever that is, with the compiled modules.
    """
    sources = (".py", ".toml", ".css", ".c", ".h")
    parts = [path for path in HERE.rglob("*") if path.suffix in sources]
    parts = [
        path
        for path in parts
        if not {"apps", "scenarios", "results", ".envs"} & set(path.relative_to(HERE).parts)
    ]
    made = {"harness": tree_hash(parts, ROOT), "fixtures": fixtures_hash()}
    folder = environments.product()
    if folder is not None:
        product = [path for path in folder.rglob("*") if path.suffix in (".py", ".so", ".pyd")]
        made["product"] = tree_hash(product, folder)
    return made


def subject_facts(subject: Subject, environments: Environments) -> dict[str, Any]:
    """Of one server: its flags, and the versions and Python of its environment, as far as it is installed."""
    adapter = subject.adapter
    entry: dict[str, Any] = {"adapter": adapter.name, "flags": list(adapter.flags)}
    if subject.app:
        entry["app"] = subject.app
    try:
        facts = environments.facts(adapter.environment)
    except Exception as error:
        return entry | {"missing": str(error)}
    entry["versions"] = environments.versions(adapter.environment)
    return entry | {key: facts.get(key) for key in ("python", "implementation", "gil", "free_threaded_build")}


def new_record(
    name: str,
    command: Sequence[str],
    subjects: Sequence[Subject],
    settings: Settings,
    cpus: Processors,
    environments: Environments,
) -> dict[str, Any]:
    """A record without cells. The first subject is the baseline."""
    return {
        "schema": SCHEMA,
        "name": name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "host": host_facts(ROOT),
        "hashes": hashes(environments),
        "settings": {key: value for key, value in dataclasses.asdict(settings).items() if value != math.inf},
        "processors": {"server": list(cpus.server), "client": list(cpus.client)},
        "baseline": subjects[0].name,
        "subjects": {subject.name: subject_facts(subject, environments) for subject in subjects},
        "cells": [],
        "interrupted": False,
        "changed": [],
    }


def new_cell(cell: Cell) -> dict[str, Any]:
    """A cell without trials."""
    scenario = cell.scenario
    return {
        "name": cell.name,
        "title": cell.title,
        "scenario": {**dataclasses.asdict(scenario), "points": list(scenario.points)},
        "point": cell.point,
        "excluded": {},
        "trials": [],
    }


def write(record: Mapping[str, Any], path: Path) -> None:
    """Writes a result whole, or leaves what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(record, indent=None, separators=(",", ":")) + "\n", "utf-8")
    unfinished.replace(path)


def read(path: Path) -> dict[str, Any]:
    """A result. Raises RecordError."""
    try:
        record: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: {error}") from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise RecordError(f"{path}: not a result of this harness (schema {SCHEMA})")
    return record
