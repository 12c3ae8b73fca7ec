"""The layers hold: no module of servery imports what its layer may not know. See ARCHITECTURE.md."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "servery"

LEAVES = frozenset({"errors", "limits", "events", "engine", "grammar", "_version"})

ALLOWED: dict[str, frozenset[str]] = {
    "__init__": frozenset({"api", "config", "server"}) | LEAVES,
    "__main__": frozenset({"cli"}),
    "api": frozenset({"apps", "config", "server", "supervisor"}) | LEAVES,
    "cli": frozenset(
        {
            "config",
            "settings",
            "sources",
            "show",
            "streams",
            "supervisor",
            "server",
            "selection",
            "apps",
            "leaving",
            "failures",
            "tls",
            "admin",
        }
    )
    | LEAVES,
    "supervisor": frozenset(
        {"server", "selection", "apps", "drivers", "sockets", "addresses", "config", "logs", "leaving"}
        | {"failures", "listening", "conflicts", "streams", "admin", "metrics", "tls"}
    )
    | LEAVES,
    "server": frozenset(
        {"selection", "services", "drivers", "asgi", "apps", "sockets", "addresses", "logs", "config"}
        | {"leaving", "tls", "listening", "stopping", "admin", "streams"}
    )
    | LEAVES,
    "services": frozenset({"selection", "drivers", "apps", "logs", "config", "proxies", "metrics"}) | LEAVES,
    "proxies": frozenset({"asgi"}) | LEAVES,
    "metrics": LEAVES,
    "admin": frozenset(
        {"config", "sources", "selection", "drivers", "asgi", "sockets", "addresses", "metrics"}
    )
    | LEAVES,
    "tls": frozenset({"config", "rules"}) | LEAVES,
    "listening": frozenset({"config", "drivers", "sockets", "tls"}) | LEAVES,
    "stopping": frozenset({"drivers", "sockets"}) | LEAVES,
    "selection": frozenset({"http1", "http2", "websocket", "drivers", "metrics", "config", "_speedups"})
    | LEAVES,
    "_speedups": frozenset({"http1", "http2", "websocket", "asgi", "drivers", "addresses", "metrics"})
    | LEAVES,
    "drivers": frozenset({"asgi", "addresses", "logs", "proxies", "metrics", "leaving"}) | LEAVES,
    "asgi": LEAVES,
    "http1": LEAVES,
    "http2": LEAVES,
    "websocket": LEAVES,
    "settings": LEAVES,
    "rules": LEAVES,
    "conflicts": frozenset({"rules"}) | LEAVES,
    "config": frozenset({"settings", "rows", "rules", "conflicts"}) | LEAVES,
    "rows": frozenset({"settings"}) | LEAVES,
    "sources": frozenset({"config", "settings", "rules", "conflicts"}) | LEAVES,
    "show": frozenset({"config", "settings", "sources"}) | LEAVES,
    "apps": frozenset({"config", "settings", "failures"}) | LEAVES,
    "logs": frozenset({"config", "streams"}) | LEAVES,
    "addresses": frozenset({"config"}) | LEAVES,
    "sockets": frozenset({"config", "addresses", "inherited"}) | LEAVES,
    "inherited": frozenset({"addresses"}) | LEAVES,
    "leaving": frozenset({"streams"}) | LEAVES,
    "failures": frozenset({"streams"}) | LEAVES,
    "streams": LEAVES,
    "demo": frozenset({"_version"}),
} | dict.fromkeys(LEAVES, LEAVES)
"""Who may import whom, by the first name below servery. A package may always import itself."""

ACCESS_LOG = frozenset({"AccessLog", "AccessRecord", "WebSocketTraffic", "escape"})
"""What of `logs` a driver may know: enough to say what it served, not how logging is set up."""

SANS_IO = LEAVES | {"http1", "http2", "websocket"}
NO_IO = frozenset({"asyncio", "trio", "socket", "ssl", "threading", "logging", "os", "time", "select"})
"""Bytes in, events out, time as an argument: what waits, reads a clock or owns a socket is not for these."""

NO_LOOP = frozenset({"asyncio", "trio", "socket", "ssl", "select", "threading"})
"""Not for `asgi`: one cycle serves every event loop."""

FOREIGN: dict[str, frozenset[str]] = {
    "selection": frozenset({"uvloop"}),
    "server": frozenset({"uvloop"}),
    "supervisor": frozenset({"watchfiles", "setproctitle"}),
    "tls": frozenset({"cryptography"}),
    "http2": frozenset({"h2", "hpack"}),
}
"""Optional packages, and who may import them, inside a function only: a bare install has none of them."""


@dataclass(frozen=True)
class Edge:
    """One import: `unit` (first name below servery) of `module` imports `target`."""

    module: str
    line: int
    target: str
    """Dotted: ``servery.limits.DEFAULTS`` or ``asyncio``; for `from a import b` it is ``a.b``."""
    in_function: bool

    @property
    def unit(self) -> str:
        return unit_of(self.module)

    @property
    def where(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def unit_of(module: str) -> str:
    """``servery.http1.parser`` -> ``http1``; ``servery`` -> ``__init__``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def edges_of(source: str, module: str, is_package: bool) -> Iterator[Edge]:
    """Every import in `source`, wherever it stands; relative ones resolved."""
    package = module.split(".") if is_package else module.split(".")[:-1]

    def walk(node: ast.AST, in_function: bool) -> Iterator[Edge]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for name in child.names:
                    yield Edge(module, child.lineno, name.name, in_function)
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) - child.level + 1] if child.level else []
                stem = ".".join([*base, *([child.module] if child.module else [])])
                for name in child.names:
                    yield Edge(module, child.lineno, f"{stem}.{name.name}", in_function)
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from walk(child, in_function or inside)

    yield from walk(ast.parse(source), False)


def faults_of(edge: Edge) -> Iterator[str]:
    """What is wrong with one import, in words; nothing if it is allowed."""
    root = edge.target.split(".")[0]
    if root == "servery":
        unit = target_unit(edge.target)
        allowed = ALLOWED.get(edge.unit)
        if allowed is None:
            yield f"{edge.where}: give `{edge.unit}` a line in ALLOWED"
        elif unit != edge.unit and unit not in allowed:
            yield f"{edge.where}: `{edge.unit}` may not know `{unit}`"
        if edge.unit == "drivers" and unit == "logs" and edge.target.split(".")[-1] not in ACCESS_LOG:
            yield f"{edge.where}: of logs a driver may know {', '.join(sorted(ACCESS_LOG))} and nothing else"
        if unit == "_speedups" and not edge.in_function:
            yield f"{edge.where}: the compiled core is imported inside a function, when it is asked for"
        return
    if edge.unit in SANS_IO and root in NO_IO:
        yield f"{edge.where}: `{edge.unit}` does no I/O and reads no clock"
    if edge.unit == "asgi" and root in NO_LOOP:
        yield f"{edge.where}: a cycle waits only on the wake-up that its port makes"
    if root not in sys.stdlib_module_names:
        if root not in FOREIGN.get(edge.unit, frozenset()):
            yield f"{edge.where}: servery has no dependencies"
        elif not edge.in_function:
            yield f"{edge.where}: an optional package is imported inside the function that needs it"


def target_unit(target: str) -> str:
    """The unit that a name below servery belongs to: `servery.run` is one of the package's own names."""
    unit = unit_of(target)
    is_module = (PACKAGE / f"{unit}.py").exists() or (PACKAGE / unit).is_dir()
    return unit if is_module or unit in ALLOWED or unit == "_speedups" else "__init__"


def modules() -> list[tuple[str, Path]]:
    """(dotted name, file) of all of servery."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = [*path.relative_to(PACKAGE.parent).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append((name, path))
    return found


MODULES = modules()


@pytest.mark.parametrize(("module", "path"), MODULES, ids=[name for name, _ in MODULES])
def test_module_imports_only_what_its_layer_may_know(module: str, path: Path) -> None:
    edges = edges_of(path.read_text("utf-8"), module, path.name == "__init__.py")
    assert [fault for edge in edges for fault in faults_of(edge)] == []


def test_compiled_modules_import_only_what_their_layer_may_know() -> None:
    """Cython's sources are not Python's: their imports of servery all stand in lines of one form."""
    sources = {path.name: path.read_text("utf-8") for path in (PACKAGE / "_speedups").glob("*.py[xi]")}
    assert {"engine.pyx", "websocket.pyx", "reactor.pyx", "connection.pyx"} <= sources.keys()
    found = 0
    for name, source in sources.items():
        imported = re.findall(
            r"^\s*(?:from|import) (?:\.\.|servery\.)([\w.]*)(?: c?import (\w+))?", source, re.M
        )
        units = {module.split(".")[0] or names for module, names in imported}
        assert units <= ALLOWED["_speedups"], name
        found += len(imported)
    assert found > len(sources)


def test_only_selection_names_the_compiled_core() -> None:
    named = [name for name, path in MODULES if "_speedups" in path.read_text("utf-8")]
    assert [name for name in named if unit_of(name) not in ("selection", "_speedups")] == []


def test_engines_have_nothing_to_wait_for() -> None:
    """Only `engine.py` may write ``async``: it declares what a cycle waits on."""
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    found = [
        f"{name}:{getattr(node, 'lineno', 0)}"
        for name, path in MODULES
        if unit_of(name) in SANS_IO - {"engine"}
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, waiting)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("servery.errors", "import os"),
        ("servery.limits", "from time import monotonic"),
        ("servery.http1.engine", "def f():\n    import asyncio"),
        ("servery.http1.engine", "from ..asgi.scope import build"),
        ("servery.http1.engine", "from .. import config"),
        ("servery.http1.engine", "from .. import run"),
        ("servery.asgi.scope", "from ..drivers import asyncio_driver"),
        ("servery.asgi.scope", "import servery.http1.parser"),
        ("servery.asgi.http_cycle", "import asyncio"),
        ("servery.drivers.asyncio_driver", "from ..http1.engine import Http1Engine"),
        ("servery.drivers.asyncio_driver", "from ..logs import configure"),
        ("servery.drivers.asyncio_driver", "from ..logs.setup import LogSettings"),
        ("servery.drivers.asyncio_driver", "from .. import logs"),
        ("servery.config", "from .server import Server"),
        ("servery.demo.app", "from ..limits import DEFAULTS"),
        ("servery.selection", "import uvloop"),
        ("servery.selection", "from . import _speedups"),
        ("servery.config", "def f():\n    import uvloop"),
        ("servery.apps", "if True:\n    import starlette"),
        ("servery.newcomer", "from .limits import DEFAULTS"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str) -> None:
    (edge,) = edges_of(source, module, is_package=False)
    assert list(faults_of(edge))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("servery.http1.engine", "from ..events import Event"),
        ("servery.http1.engine", "from .parser import parse_head"),
        ("servery.http1.engine", "import re"),
        ("servery.drivers.asyncio_driver", "from ..logs import AccessRecord"),
        ("servery.selection", "def f():\n    import uvloop"),
        ("servery.selection", "def f():\n    from . import _speedups"),
        ("servery.server", "from . import selection"),
        ("servery.cli", "from servery._version import __version__"),
    ],
)
def test_a_right_import_is_let_through(module: str, source: str) -> None:
    (edge,) = edges_of(source, module, is_package=False)
    assert list(faults_of(edge)) == []
