"""A loaded configuration as TOML that can be pasted into a file, each line with the source of its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .config import SETTINGS
from .settings import Mode
from .sources import Loaded

WIDEST = 48
"""Longer assignments push their comment aside instead of all others."""


def config_text(loaded: Loaded) -> str:
    """One line for each setting, in the order of the help; a value that TOML cannot say is a comment."""
    lines = [(_assignment(loaded, name), source) for name, source in loaded.sources.items()]
    width = min(max(len(line) for line, _ in lines), WIDEST)
    return "\n".join(f"{line.ljust(width)}  # {source}" for line, source in lines)


def _assignment(loaded: Loaded, name: str) -> str:
    value, setting = getattr(loaded.config, name), SETTINGS[name]
    if value is None:
        # TOML has no null. A default needs none; over another default the word must be read back.
        return f"# {name} is not set" if setting.default is None else f'{name} = "none"'
    if isinstance(setting.kind, Mode):
        value = f"{value:o}"
    return f"{name} = {toml(value)}"


def toml(value: Any) -> str:
    """`value` in TOML's syntax on one line: text, bool, number, tuple or list, mapping."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{"".join(map(_escaped, value))}"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value)


def _escaped(character: str) -> str:
    """ASCII only, so that no terminal and no file encoding can spoil it."""
    if character in '"\\':
        return f"\\{character}"
    if " " <= character <= "~":
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"
