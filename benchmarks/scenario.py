"""Scenarios: TOML files that say what is served, what is asked, and which one thing varies."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import fixtures
from .loadgen.client import Load
from .paths import SCENARIOS

KINDS = ("http", "echo", "sessions", "hold", "h2", "stop", "startup", "timeouts")
AXES = ("connections", "workers", "streams", "rate")
TOP = {
    "title",
    "about",
    "app",
    "kind",
    "axis",
    "points",
    "path",
    "transport",
    "websocket",
    "request",
    "expect",
    "load",
}
REQUEST = {"method", "fields", "body", "body_size", "extra"}
LOAD = {field.name for field in dataclasses.fields(Load)} - {
    "request",
    "port",
    "unix",
    "mode",
    "websocket",
    "expect",
}


class ScenarioError(Exception):
    """A scenario, or the name of one, that cannot work; the text says what to change."""


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One file. `points` are the values of `axis`; a scenario with one point has no axis."""

    name: str
    title: str
    about: str
    app: str
    kind: str
    axis: str
    points: tuple[int, ...]
    path: str = "/"
    transport: str = "tcp"
    websocket: bool = False
    request: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    expect: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    load: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def is_wsgi(self) -> bool:
        """Is it served by WSGI?"""
        return self.app in ("plain_wsgi", "flask_app")

    def cells(self) -> list[Cell]:
        """One for each point."""
        return [Cell(self, point) for point in self.points]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A scenario at one point of its axis: what is measured at a time."""

    scenario: Scenario
    point: int

    @property
    def name(self) -> str:
        """``scenario@point``, or the scenario's name if nothing varies in it."""
        return f"{self.scenario.name}@{self.point}" if self.scenario.axis else self.scenario.name

    @property
    def title(self) -> str:
        """For people."""
        unit = {
            "connections": "connections",
            "workers": "workers",
            "streams": "streams",
            "rate": "requests/s",
        }
        axis = self.scenario.axis
        return f"{self.scenario.title}, {self.point:,} {unit[axis]}" if axis else self.scenario.title

    @property
    def workers(self) -> int:
        """Worker processes of the server."""
        return self.point if self.scenario.axis == "workers" else 1

    @property
    def streams(self) -> int:
        """Concurrent streams on each HTTP/2 connection."""
        return self.point if self.scenario.axis == "streams" else 1

    @property
    def connections(self) -> int:
        """Of the load."""
        return (
            self.point
            if self.scenario.axis == "connections"
            else int(self.scenario.load.get("connections", 1))
        )

    def request(self) -> bytes:
        """The octets of the request, or of the handshake."""
        scenario, table = self.scenario, self.scenario.request
        fields = {**fixtures.FIELD_SETS[table.get("fields", "plain")], **table.get("extra", {})}
        if scenario.kind in ("echo", "sessions") or scenario.websocket:
            fields |= fixtures.HANDSHAKE
        if scenario.load.get("churn"):
            fields |= {"Connection": "close"}
        body = str(table.get("body", "b" * int(table.get("body_size", 0)))).encode()
        return fixtures.request(table.get("method", "GET"), scenario.path, fields, body)

    def load(self, warmup: float, duration: float, **address: Any) -> Load:
        """What the load generator is told: ``port`` or ``unix`` in `address`."""
        scenario = self.scenario
        given = {**scenario.load, "connections": self.connections}
        if scenario.axis == "rate":
            given["rate"] = float(self.point)
        expect = fixtures.expectation(scenario.expect)
        if scenario.kind in ("echo", "sessions") or scenario.websocket:
            expect = dataclasses.replace(
                expect, status=101, fields=(fixtures.ACCEPT,), length=None, sha256=None
            )
        return Load(
            request=self.request(),
            mode=scenario.kind,
            websocket=scenario.websocket,
            expect=expect,
            **{"warmup": warmup, "duration": duration, **given, **address},
        )


def _check(name: str, table: Mapping[str, Any]) -> None:
    """Raises ScenarioError for unknown keys and values."""
    for keys, known, where in (
        (table, TOP, ""),
        (table.get("request", {}), REQUEST, "[request] "),
        (table.get("load", {}), LOAD, "[load] "),
    ):
        if unknown := set(keys) - known:
            raise ScenarioError(
                f"{name}.toml: unknown {where}{min(unknown)}; known: {', '.join(sorted(known))}"
            )
    if table.get("kind", "http") not in KINDS:
        raise ScenarioError(f"{name}.toml: kind must be one of {', '.join(KINDS)}")
    axis = table.get("axis", "")
    if axis and (axis not in AXES or not table.get("points")):
        raise ScenarioError(f"{name}.toml: axis must be one of {', '.join(AXES)}, and have points")
    if axis in table.get("load", {}):
        raise ScenarioError(f"{name}.toml: {axis} is the axis: give it in points, not in [load]")


def read_scenario(path: Path) -> Scenario:
    """The scenario in a file. Raises ScenarioError."""
    table = tomllib.loads(path.read_text("utf-8"))
    name = path.stem
    _check(name, table)
    return Scenario(
        name=name,
        title=table["title"],
        about=table.get("about", ""),
        app=table.get("app", "plain_asgi"),
        kind=table.get("kind", "http"),
        axis=table.get("axis", ""),
        points=tuple(table.get("points", (1,))),
        path=table.get("path", "/"),
        transport=table.get("transport", "tcp"),
        websocket=table.get("websocket", False),
        request=table.get("request", {}),
        expect=table.get("expect", {}),
        load=table.get("load", {}),
    )


def all_scenarios(directory: Path = SCENARIOS) -> dict[str, Scenario]:
    """Every scenario, by name."""
    return {path.stem: read_scenario(path) for path in sorted(directory.glob("*.toml"))}


def select(names: list[str], scenarios: Mapping[str, Scenario]) -> list[Cell]:
    """The cells that ``name`` (all points) and ``name@8,64`` (these) choose, in order.

    Raises ScenarioError.
    """
    cells = []
    for wanted in names:
        name, _, points = wanted.partition("@")
        if name not in scenarios:
            raise ScenarioError(f"no scenario {name!r}; `python -m benchmarks list` names them")
        scenario = scenarios[name]
        if not points:
            cells += scenario.cells()
            continue
        try:
            cells += [Cell(scenario, int(point)) for point in points.split(",")]
        except ValueError:
            raise ScenarioError(f"{wanted}: after @ come numbers, separated by commas") from None
        if not scenario.axis:
            raise ScenarioError(f"{wanted}: nothing varies in {name}, so that it has no points")
    return cells
