"""Options and fixtures that every test module may use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest
from harness import Running, running
from under_test import ENGINES, LOOPS, chosen, pairs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engines",
        default=",".join(ENGINES),
        metavar="NAME[,NAME]",
        help="run engines and servers with these (default: %(default)s); one that is missing is an error",
    )


def pytest_configure(config: pytest.Config) -> None:
    chosen_engines(config)


def chosen_engines(config: pytest.Config) -> list[str]:
    """The engines of `--engines`, in order, each once; an unknown name ends the run."""
    names = list(dict.fromkeys(name.strip() for name in config.getoption("--engines").split(",")))
    unknown = [name for name in names if name not in ENGINES]
    if unknown:
        raise pytest.UsageError(f"--engines: unknown {unknown[0]!r}; choose from {', '.join(ENGINES)}")
    return names


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    engines, asked = chosen_engines(metafunc.config), metafunc.fixturenames
    if "engine_name" in asked:
        metafunc.parametrize("engine_name", engines, indirect=True)
    if "parser" in asked and "loop_kind" in asked:
        ways = pairs(metafunc.function.__name__, engines)
        metafunc.parametrize(("parser", "loop_kind"), ways, indirect=True)
    elif "parser" in asked:
        metafunc.parametrize("parser", engines, indirect=True)
    elif "loop_kind" in asked:
        metafunc.parametrize("loop_kind", LOOPS, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What compares the engines is left out of a run that has only one of them."""
    if len(chosen_engines(config)) < len(ENGINES):
        left_out = [item for item in items if "both_engines" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def both_engines() -> None:
    """For tests that compare the engines with each other."""
    for module in ENGINES.values():
        importlib.import_module(module)


@pytest.fixture(scope="session")
def engine_name(request: pytest.FixtureRequest) -> str:
    """The engine under test. One that cannot be imported is an error of the test, never a skip."""
    name: str = request.param
    importlib.import_module(ENGINES[name])
    return name


@pytest.fixture
def parser(request: pytest.FixtureRequest) -> Iterator[str]:
    """The parser of the servers that the test starts, in its process or outside; see `under_test.pairs`."""
    importlib.import_module(ENGINES[request.param])
    with chosen(request.param) as name:
        yield name


@pytest.fixture
def loop_kind(request: pytest.FixtureRequest) -> str:
    """Each event loop that the server can run on."""
    kind: str = request.param
    return kind


@pytest.fixture
def serve(parser: str, loop_kind: str) -> Callable[..., AbstractContextManager[Running]]:
    """`harness.running` with each parser and on each loop: ``with serve(app, **settings) as server``."""
    return partial(running, loop=loop_kind)
