"""The servers: how each is started, and what proves that it runs as asked.

The data stand in adapters.toml.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .environments import Environments
from .loadgen.build import build
from .paths import HERE
from .verdicts import CannotServe

MEANINGS = {
    "asgi": "no ASGI",
    "wsgi": "no WSGI",
    "unix": "no Unix sockets",
    "workers": "one process only",
    "h2": "no HTTP/2 without TLS",
    "websocket": "no WebSockets",
}
"""What an adapter may have, and the reason that is given where it says no other."""


@dataclasses.dataclass(frozen=True)
class Launch:
    """What a server is to serve, and where."""

    app: str
    port: int = 0
    unix: str = ""
    workers: int = 1
    wsgi: bool = False
    websocket: bool = False
    h2: bool = False

    def needs(self) -> list[str]:
        """The keys of an adapter that this takes."""
        wanted = {
            "asgi": not self.wsgi,
            "wsgi": self.wsgi,
            "unix": bool(self.unix),
            "workers": self.workers > 1,
            "websocket": self.websocket,
            "h2": self.h2,
        }
        return [key for key, is_wanted in wanted.items() if is_wanted]


@dataclasses.dataclass(frozen=True)
class Adapter:
    """One server in one configuration; the fields are the keys of adapters.toml."""

    name: str
    environment: str
    command: tuple[str, ...]
    flags: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    extras: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    without: Mapping[str, str] = dataclasses.field(default_factory=dict)
    loop: str = ""
    loaded: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    says: str = ""
    asks_help: bool = False
    proofless: bool = False

    def parts(self, launch: Launch) -> list[str]:
        """The flags that `launch` adds. Raises CannotServe."""
        parts: list[str] = []
        for key in launch.needs():
            if key not in self.extras:
                raise CannotServe(self.without.get(key, MEANINGS[key]))
            parts += self.extras[key]
        return parts + ([] if launch.unix else list(self.extras["tcp"]))

    def argv(self, launch: Launch, environments: Environments) -> list[str]:
        """The command line. Raises CannotServe if the server is not there or has not what `launch` needs."""
        if "root" in self.without and os.geteuid() == 0:
            raise CannotServe(self.without["root"])
        parts = [*self.flags, *self.parts(launch)]
        bin_directory = environments.bin(self.environment)
        if self.asks_help:
            missing_in_help(str(bin_directory / "python"), tuple(parts))
        module, _, name = launch.app.partition(":")
        values = dataclasses.asdict(launch) | {"bin": bin_directory, "module": module, "name": name}
        if self.environment == "floor":
            values["floor"] = build("floor")
        argv = [part.format(**values) for part in (*self.command, *parts, *self.after)]
        if not Path(argv[0]).exists():
            raise CannotServe(f"not installed here: python -m benchmarks env create {self.environment}")
        return argv


def said_of(flags: Sequence[str]) -> str:
    """What servery's start-up line must say if these are its flags, as words separated by blanks."""
    told = {"--parser": "parser", "--io": "io", "--loop": "loop", "--workers": "workers"}
    words = [part for flag in flags for part in flag.split("=", 1)]
    pairs = itertools.pairwise(words)
    return " ".join(f"{told[flag]}={value}" for flag, value in pairs if flag in told)


@functools.cache
def _help_of(python: str) -> str:
    """servery's --help under this Python."""
    command = [python, "-m", "servery", "--help"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise CannotServe(f"{' '.join(command)} fails: {made.stderr.strip()[-200:]}")
    return made.stdout


def missing_in_help(python: str, parts: tuple[str, ...]) -> None:
    """Raises CannotServe for a flag, or a value of --interface, that this servery does not have."""
    text = _help_of(python)
    for position, part in enumerate(parts):
        if (
            part.startswith("--")
            and f"{part} " not in text
            and f"{part}\n" not in text
            and f"{part}," not in text
        ):
            raise CannotServe(f"this servery has no {part}")
        if (
            part == "--interface"
            and parts[position + 1] not in text.split("--interface", 1)[1].split("\n", 1)[0]
        ):
            raise CannotServe(f"this servery has no --interface {parts[position + 1]}")


def _adapter(name: str, tables: Mapping[str, Any]) -> Adapter:
    """The adapter of a table, with what it inherits."""
    table = dict(tables[name])
    if "inherits" in table:
        parent = dict(tables[table.pop("inherits")])
        parent.pop("abstract", None)
        table = parent | table | {"without": parent.get("without", {}) | table.get("without", {})}
    extras = {key: tuple(table.pop(key)) for key in [*MEANINGS, "tcp"] if key in table}
    table = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return Adapter(name=name, extras=extras, **table)


@functools.cache
def _tables(path: Path = HERE / "adapters.toml") -> dict[str, Any]:
    """adapters.toml."""
    return tomllib.loads(path.read_text("utf-8"))


def all_adapters() -> dict[str, Adapter]:
    """Those that take part, by name."""
    tables = _tables()
    return {
        name: _adapter(name, tables)
        for name, table in tables.items()
        if "out" not in table and not table.get("abstract")
    }


def servery_with(flags: Sequence[str]) -> Adapter:
    """servery with flags of the user's; its start-up line must say what they ask for."""
    tables = _tables()
    plain = dict(tables["servery"])
    plain.pop("abstract")
    return dataclasses.replace(
        _adapter("servery", {"servery": plain}), flags=tuple(flags), says=said_of(flags) or "servery"
    )


def listed_only() -> dict[str, str]:
    """Servers that do not take part, with the reason."""
    return {name: table["out"] for name, table in _tables().items() if "out" in table}


ALIASES = {
    "servery-python": "servery-python-transport-asyncio",
    "servery-native": "servery-native-reactor-asyncio",
    "uvicorn": "uvicorn-native",
    "hypercorn": "hypercorn-uvloop",
}
"""Short names for what is asked for most."""


def adapter_named(name: str) -> Adapter:
    """By its name or an alias.

    Raises CannotServe for one that is only listed, KeyError for an unknown name.
    """
    if name in listed_only():
        raise CannotServe(listed_only()[name])
    return all_adapters()[ALIASES.get(name, name)]
