"""Options and fixtures that every test module may use."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import pytest
from harness import Running, running

ENGINES = {"python": "servery.http1.engine", "native": "servery._speedups.engine"}
"""What `--engines` accepts, and the module that each name stands for."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engines",
        default=",".join(ENGINES),
        metavar="NAME[,NAME]",
        help="run the tests of engines over these (default: %(default)s); one that is missing is an error",
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
    if "engine_name" in metafunc.fixturenames:
        metafunc.parametrize("engine_name", chosen_engines(metafunc.config), indirect=True)


@pytest.fixture(scope="session")
def engine_name(request: pytest.FixtureRequest) -> str:
    """The engine under test. One that cannot be imported is an error of the test, never a skip."""
    name: str = request.param
    importlib.import_module(ENGINES[name])
    return name


@pytest.fixture(params=("asyncio", "uvloop"))
def loop_kind(request: pytest.FixtureRequest) -> str:
    """Each event loop that the server can run on."""
    kind: str = request.param
    return kind


@pytest.fixture
def serve(loop_kind: str) -> Callable[..., AbstractContextManager[Running]]:
    """`harness.running` on each event loop: ``with serve(app, **settings) as server``."""
    return partial(running, loop=loop_kind)
