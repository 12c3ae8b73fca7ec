"""Where the values come from: defaults < TOML file < environment < flags, and which of them won.

Without ``--config`` the table ``[tool.servery]`` of ./pyproject.toml is read if it is there. Every error
begins with the source that has to be changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .config import SETTINGS, Config, changed
from .conflicts import RELOAD_DETAILS, find_conflict
from .errors import ConfigError
from .settings import nearest

PREFIX = "SERVERY_"
BUILD_PREFIX = "SERVERY_BUILD_"
"""Variables of the build, which may still be set when the server runs."""

PROJECT_FILE = "pyproject.toml"
DEFAULT = "default"
COMMAND_LINE = "command line"
"""The source of the application when it is the positional argument."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and, for each of its fields, where the value comes from.

    A source is ``default``, a file such as ``pyproject.toml [tool.servery]``, a variable such as
    ``SERVERY_PORT``, a flag such as ``--port``, or ``command line`` for the application.
    """

    config: Config
    sources: dict[str, str]


def load(argv_values: Mapping[str, object], environ: Mapping[str, str], file: str | None = None) -> Loaded:
    """Merge all sources into a `Config`.

    `argv_values` has only the flags that were given: field name -> text, list of texts, or bool.
    `file` is the path of ``--config``. Raises ConfigError, which names the source, for a file that
    cannot be read, an unknown name, a wrong value, or values that contradict each other.
    """
    values: dict[str, Any] = {name: setting.default for name, setting in SETTINGS.items()}
    sources = dict.fromkeys(SETTINGS, DEFAULT)
    on_purpose: set[str] = set()
    _take_file(values, sources, file)
    for source in (_environment(environ), _flags(argv_values)):
        for name, (label, value) in source.items():
            values[name], sources[name] = value, label
            on_purpose.add(name)
    if not values["reload"]:
        on_purpose -= _set_reload_aside(values, sources, argv_values)
    # A file may spell out defaults, as --print-config does; who gives a flag or a variable means it.
    given = {name for name in changed(values) | on_purpose if values[name] is not None}
    conflict = find_conflict(values, given)
    if conflict:
        origin = ", ".join(f"{name}: {sources[name]}" for name in conflict.fields)
        raise ConfigError(f"{conflict.text} ({origin})")
    return Loaded(Config(**values), sources)


def flag(name: str, value: object = None) -> str:
    """How the flag of field `name` is written, a switch that is False with its ``no-``."""
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"


def _set_reload_aside(
    values: dict[str, Any], sources: dict[str, str], argv: Mapping[str, object]
) -> set[str]:
    """A project may keep its reload settings in a file for the days when --reload is given."""
    aside = {name for name in RELOAD_DETAILS if name not in argv and sources[name] != DEFAULT}
    for name in aside:
        values[name] = SETTINGS[name].default
        sources[name] = f"{DEFAULT} ({sources[name]} is for reload, which is off)"
    return aside


def _flags(argv_values: Mapping[str, object]) -> dict[str, tuple[str, object]]:
    found = {}
    for name, raw in argv_values.items():
        setting = SETTINGS[name]
        label = COMMAND_LINE if name == "app" else flag(name, raw)
        try:
            if isinstance(raw, str):
                value = setting.parse(raw)
            else:
                value = tuple(raw) if isinstance(raw, list) else raw
                setting.check(value)
        except ValueError as error:
            raise ConfigError(f"{label}: {error}") from None
        found[name] = (label, value)
    return found


def _environment(environ: Mapping[str, str]) -> dict[str, tuple[str, object]]:
    found = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable.startswith(BUILD_PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if variable != PREFIX + name.upper() or name not in SETTINGS:
            near = nearest(variable.upper(), [PREFIX + known.upper() for known in SETTINGS])
            raise ConfigError(f"{variable}: there is no such setting{near}{_kubernetes(text)}")
        try:
            found[name] = (variable, SETTINGS[name].parse(text))
        except ValueError as error:
            raise ConfigError(f"{variable}: {error}{_kubernetes(text)}") from None
    return found


def _kubernetes(text: str) -> str:
    """Kubernetes sets NAME_PORT=tcp://... and more in every pod beside a service called NAME."""
    if not text.startswith("tcp://"):
        return ""
    return "; Kubernetes sets it for a service named servery: rename that, or set enableServiceLinks to false"


def _take_file(values: dict[str, Any], sources: dict[str, str], file: str | None) -> None:
    label, table = _read_file(file) if file is not None else _read_project()
    seen: dict[str, str] = {}
    for key, raw in table.items():
        name = key.replace("-", "_")
        if name not in SETTINGS:
            raise ConfigError(f"{label}: there is no setting {key!r}{nearest(name, SETTINGS)}")
        if name in seen:
            raise ConfigError(f"{label}: {seen[name]!r} and {key!r} are the same setting: keep one")
        seen[name] = key
        try:
            values[name] = SETTINGS[name].from_toml(raw)
        except ValueError as error:
            raise ConfigError(f"{label}: {key}: {error}") from None
        sources[name] = label


def _read_project() -> tuple[str, dict[str, Any]]:
    """The table of ./pyproject.toml, empty if there is none."""
    label = f"{PROJECT_FILE} [tool.servery]"
    try:
        with open(PROJECT_FILE, "rb") as stream:
            data = stream.read()
    except FileNotFoundError:
        return label, {}
    except OSError as error:
        raise ConfigError(f"{PROJECT_FILE}: cannot be read: {error.strerror}") from None
    # Most projects do not mention servery there: they need not wait for the TOML parser.
    if b"servery" not in data:
        return label, {}
    return label, _project_table(_parse(PROJECT_FILE, data), label) or {}


def _read_file(path: str) -> tuple[str, dict[str, Any]]:
    """The table of the file that ``--config`` names."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise ConfigError(f"--config: cannot read {path!r}: {error.strerror}") from None
    document = _parse(path, data)
    if os.path.basename(path) != PROJECT_FILE:
        return path, document
    label = f"{path} [tool.servery]"
    table = _project_table(document, label)
    if table is None:
        raise ConfigError(f"--config: {path} has no table [tool.servery]: add it, or name another file")
    return label, table


def _project_table(document: dict[str, Any], label: str) -> dict[str, Any] | None:
    tool = document.get("tool", {})
    table = tool.get("servery") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigError(f"{label}: is not a table: write the settings below a line [tool.servery]")
    return table


def _parse(path: str, data: bytes) -> dict[str, Any]:
    import tomllib  # only where a file is there: it costs some milliseconds

    try:
        return tomllib.loads(data.decode())
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None
