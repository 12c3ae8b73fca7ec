"""The house style that a tool can check: sizes, docstrings, and no notes of unfinished work."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = sorted(path for path in (ROOT / "benchmarks").rglob("*.py") if ".envs" not in path.parts)
MODULES = [*sorted((ROOT / "servery").rglob("*.py")), *TOOLS]

MODULE_LINES = 400
FUNCTION_LINES = 40
EXCUSE = re.compile(r"# long: \S+")
"""`# long: REASON` in the first five lines of a file, or on the line of a `def`, lifts the bound there."""

UNFINISHED = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")))

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def too_long(source: str) -> Iterator[str]:
    """The module and the functions in `source` that are longer than a reader's screen, unexcused."""
    lines = source.splitlines()
    if len(lines) > MODULE_LINES and not any(EXCUSE.search(line) for line in lines[:5]):
        yield f"module: {len(lines)} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, FunctionNode):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES and not EXCUSE.search(lines[node.lineno - 1]):
                yield f"line {node.lineno}: {node.name}: {length} lines"


def contract_names() -> frozenset[str]:
    """Methods that are documented once: in the contracts of engine.py, and by asyncio for its callbacks."""
    tree = ast.parse((ROOT / "servery" / "engine.py").read_text("utf-8"))
    own = {node.name for node in ast.walk(tree) if isinstance(node, FunctionNode) and ast.get_docstring(node)}
    return frozenset(own | set(dir(asyncio.BufferedProtocol) + dir(asyncio.Protocol)))


CONTRACTS = contract_names()


def is_described_elsewhere(node: ast.ClassDef | FunctionNode) -> bool:
    """A setter (its getter is documented), or a property of a protocol (its class is)."""
    marks = {
        mark.attr if isinstance(mark, ast.Attribute) else getattr(mark, "id", "")
        for mark in node.decorator_list
    }
    return "setter" in marks or ("property" in marks and ast.unparse(node.body) == "...")


def undocumented(source: str) -> Iterator[str]:
    """Public modules, classes, functions and methods of `source` without a docstring."""
    tree = ast.parse(source)
    if tree.body and not ast.get_docstring(tree):
        yield "module"
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def inherited(node: ast.ClassDef) -> set[str]:
        """Methods that a base class in the same module documents."""
        bases = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
        own = {child.name for base in bases for child in base.body if isinstance(child, FunctionNode)}
        return own.union(*(inherited(base) for base in bases))

    def walk(node: ast.Module | ast.ClassDef) -> Iterator[str]:
        documented = CONTRACTS | inherited(node) if isinstance(node, ast.ClassDef) else frozenset()
        for child in node.body:
            if not isinstance(child, ast.ClassDef | FunctionNode) or child.name.startswith("_"):
                continue
            is_contract = child.name in documented
            if not (ast.get_docstring(child) or is_contract or is_described_elsewhere(child)):
                yield f"line {child.lineno}: {child.name}"
            if isinstance(child, ast.ClassDef):
                yield from walk(child)

    yield from walk(tree)


def names(paths: list[Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths]


@pytest.mark.parametrize("path", MODULES, ids=names(MODULES))
def test_module_and_functions_fit_on_a_screen(path: Path) -> None:
    assert list(too_long(path.read_text("utf-8"))) == []


@pytest.mark.parametrize("path", MODULES, ids=names(MODULES))
def test_public_names_are_documented(path: Path) -> None:
    assert list(undocumented(path.read_text("utf-8"))) == []


def test_nothing_is_marked_as_unfinished() -> None:
    sources = [
        path
        for top in ("servery", "tests", "examples", "docs", "benchmarks")
        for path in (ROOT / top).rglob("*.py")
    ]
    marked = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert marked == []


def test_long_code_is_found_and_an_excuse_is_heard() -> None:
    body = "    pass\n" * FUNCTION_LINES
    assert list(too_long("def f():\n" + body)) == ["line 1: f: 41 lines"]
    assert list(too_long("def f():  # long: one table\n" + body)) == []
    assert list(too_long("def f():  # long:\n" + body)) == ["line 1: f: 41 lines"]
    assert list(too_long("x = 1\n" * (MODULE_LINES + 1))) == ["module: 401 lines"]
    assert list(too_long("# long: one table\n" + "x = 1\n" * MODULE_LINES)) == []


def test_missing_docstrings_are_found() -> None:
    assert list(undocumented("x = 1")) == ["module"]
    assert list(undocumented('"""D."""\ndef f(): ...')) == ["line 2: f"]
    assert list(undocumented('"""D."""\nclass C:\n    """D."""\n    def m(self): ...')) == ["line 4: m"]
    assert list(undocumented('"""D."""\nclass _C:\n    def m(self): ...')) == []
    assert list(undocumented('"""D."""\nclass C:\n    """D."""\n    def receive(self): ...')) == []
    base = '"""D."""\nclass B:\n    """D."""\n    def m(self):\n        """D."""\n'
    assert list(undocumented(base + 'class C(B):\n    """D."""\n    def m(self): ...')) == []
    assert list(undocumented(base + 'class C(B):\n    """D."""\n    def n(self): ...')) == ["line 8: n"]
