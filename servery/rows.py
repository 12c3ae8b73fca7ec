"""How a row of the table of settings is written: a field of a dataclass that carries it."""

from __future__ import annotations

import dataclasses
from typing import Any

from .limits import DEFAULTS
from .settings import Kind, Setting, Whole

BYTES = Whole(1, unit="bytes")
BYTES_OR_ZERO = Whole(0, unit="bytes")


def row(default: object, group: str, kind: Kind, help: str, **more: Any) -> Any:
    """A dataclass field that carries its row of the table; `more` are further fields of `Setting`."""
    more.setdefault("nullable", default is None)
    setting = Setting(default=default, kind=kind, group=group, help=help, **more)
    return dataclasses.field(default=default, metadata={"setting": setting})


def limit(name: str, group: str, kind: Kind, help: str, **more: Any) -> Any:
    """The row of a setting that fills one field of `Limits`: default and reason stand there."""
    why = f"see servery.limits.Limits.{name}"
    return row(getattr(DEFAULTS, name), group, kind, help, why=why, limit=name, **more)
