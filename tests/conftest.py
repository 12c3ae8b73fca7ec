"""Options and fixtures that every test module may use."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from zlib import crc32

import pytest
from harness import Running, running
from under_test import ENGINES, IOS, Way, chosen, ways

# benchmarks/ measures by what Linux tells of processes.
collect_ignore_glob = [] if sys.platform == "linux" else ["test_bench_*"]

MISSING_IS_AN_ERROR = "run servers with these (default: %(default)s); one that is missing is an error"


def pytest_addoption(parser: pytest.Parser) -> None:
    for option, names in (("--engines", ENGINES), ("--io", IOS)):
        parser.addoption(option, default=",".join(names), metavar="NAME[,NAME]", help=MISSING_IS_AN_ERROR)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "shared_server: the tests of the module share their servers, and so their ways"
    )
    config.addinivalue_line(
        "markers", "any_way: about processes, not connections: one of the ways is enough, each in its turn"
    )
    chosen_names(config, "--engines", ENGINES)
    chosen_names(config, "--io", IOS)


def chosen_names(config: pytest.Config, option: str, known: Collection[str]) -> list[str]:
    """The names that `option` gives, in order, each once; an unknown name ends the run."""
    names = list(dict.fromkeys(name.strip() for name in config.getoption(option).split(",")))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise pytest.UsageError(f"{option}: unknown {unknown[0]!r}; choose from {', '.join(known)}")
    return names


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    engines = chosen_names(metafunc.config, "--engines", ENGINES)
    if "engine_name" in metafunc.fixturenames:
        metafunc.parametrize("engine_name", engines, indirect=True)
    if "way" in metafunc.fixturenames:
        shared = metafunc.definition.get_closest_marker("shared_server")
        name = metafunc.module.__name__ if shared else metafunc.function.__name__
        runs = ways(name, engines, chosen_names(metafunc.config, "--io", IOS))
        if metafunc.definition.get_closest_marker("any_way"):
            runs = [runs[crc32(name.encode()) // len(runs) % len(runs)]]
        metafunc.parametrize("way", runs, ids=str, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What compares the engines is left out of a run that has only one of them.

    The longest tests come first, so that nobody waits for them alone at the end.
    """
    items.sort(key=lambda item: item.path.name != "test_packaging.py")
    if len(chosen_names(config, "--engines", ENGINES)) < len(ENGINES):
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


@pytest.fixture(scope="module")
def way(request: pytest.FixtureRequest) -> Way:
    """How the servers of the test run: see `under_test.ways`. What is not built is an error, never a skip."""
    way: Way = request.param
    way.must_be_built()
    return way


@pytest.fixture(autouse=True)
def way_of_this_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Servers that the test starts, in its process or outside, run in its `way`."""
    if "way" not in request.fixturenames:
        yield
        return
    with chosen(request.getfixturevalue("way")):
        yield


@pytest.fixture
def no_collector() -> Iterator[None]:
    """The cyclic garbage collector is off: what goes away goes by reference counts alone.

    Nothing older than the test is looked at by whoever asks the collector what there is.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.fixture
def serve(way: Way) -> Callable[..., AbstractContextManager[Running]]:
    """`harness.running` in each way: ``with serve(app, **settings) as server``."""
    return running
