"""What builds make: the sdist; from it the wheel with the compiled core, the pure one, what a failure leaves.

Offline: the environment of the tests has setuptools and Cython.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = "servery/_speedups"
FACTS = f"{CORE}/build.json"
PARTS = (
    "servery",
    "wheels",
    "benchmarks",
    "docs",
    "examples",
    ".ci",
    "tests/conftest.py",
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
)
HTTP2 = ("hpack", "http2", "http2_connection")
TYPED = ("engine", "websocket", "tally", "records", "reactor", "connection", "shared", *HTTP2)
MODULES = (*TYPED, "calls", "http_cycle", "websocket_cycle")
GENERATED = (
    *(f"{module}.c" for module in MODULES),
    "build.json",
    "engine.cpython-399-somewhere.so",
    "engine.cp399-win_amd64.pyd",
)
SOURCES = {f"{module}.{kind}" for module in MODULES for kind in ("pyx", "pxd")}
SOURCES |= {f"{module}.pyi" for module in TYPED}
SOURCES |= {"scan.c", "scan.h", "poll.c", "poll.h", "frames.c", "frames.h", "__init__.py"}
PIP = (sys.executable, "-W", "ignore", "-m", "pip", "--disable-pip-version-check")
OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation", "--quiet")
SURROUNDINGS = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("SERVERY_", "PYTHON", "COVERAGE")) and name not in ("CC", "CFLAGS")
}
SOON = {"CFLAGS": "-O0"}
"""A compiler that has not to think; what it makes is not measured."""


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command, cwd=cwd, env=SURROUNDINGS | environment, capture_output=True, text=True, check=False
    )


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    """What it printed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_of_checkout(folder: Path) -> Path:
    """The checkout as somebody has it who has already built there: with generated files about."""
    for name in (*PARTS, *(path.name for path in ROOT.glob("*.md")), "LICENSE", "Makefile"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            left_out = shutil.ignore_patterns("*.so", "*.pyd", ".envs")
            shutil.copytree(ROOT / name, folder / name, ignore=left_out)
        else:
            shutil.copy(ROOT / name, folder / name)
    for name in GENERATED:
        (folder / CORE / name).write_text("left by an earlier build")
    return folder


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of a used checkout."""
    checkout = copy_of_checkout(tmp_path_factory.mktemp("checkout"))
    succeeded(
        run(sys.executable, "-c", "import setuptools.build_meta as b; b.build_sdist('out')", cwd=checkout)
    )
    [path] = (checkout / "out").iterdir()
    return path


@pytest.fixture
def sources(sdist: Path, tmp_path: Path) -> Path:
    """The sdist, unpacked for one build."""
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(tmp_path)
    [folder] = tmp_path.iterdir()
    return folder


def wheel_from(sources: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel into the folder ``out``."""
    return run(*PIP, "wheel", *OFFLINE, "--wheel-dir", "out", ".", cwd=sources, **environment)


def built(sources: Path, **environment: str) -> Path:
    """The wheel, which must come about."""
    succeeded(wheel_from(sources, **environment))
    [path] = (sources / "out").iterdir()
    return path


def facts_in(wheel: Path) -> dict[str, str]:
    """What the build wrote down."""
    with zipfile.ZipFile(wheel) as archive:
        facts: dict[str, str] = json.loads(archive.read(FACTS))
    return facts


def proven(wheel: Path, sources: Path) -> str:
    """What `wheels/check_wheel.py` of the sdist says of the wheel."""
    return succeeded(run(sys.executable, "-I", sources / "wheels" / "check_wheel.py", wheel, cwd=sources))


def no_compiler(sources: Path) -> dict[str, str]:
    """A compiler that compiles nothing; reason: ``the C compiler failed``."""
    (sources / CORE / "scan.c").write_text("#error nothing compiles here\n")
    return {"CC": shutil.which("false") or ""}


def no_cython(sources: Path) -> dict[str, str]:
    """A Cython that cannot be imported; reason: ``Cython, which the build needs``."""
    (sources / "hidden" / "Cython").mkdir(parents=True)
    (sources / "hidden" / "Cython" / "__init__.py").write_text("raise ImportError('hidden')")
    return {"PYTHONPATH": str(sources / "hidden")}


def no_translation(sources: Path) -> dict[str, str]:
    """A source that Cython does not understand; reason: ``CompileError: servery/_speedups/engine.pyx``."""
    (sources / CORE / "engine.pyx").write_text("def (:\n")
    return {}


FAULTS = (no_compiler, no_cython, no_translation)
"""Each breaks the sources, and returns variables for the build."""


def reason(fault: Callable[..., object]) -> str:
    """How the build words it, from the docstring of the fault."""
    return (fault.__doc__ or "").split("``")[1]


# --- the sdist ---------------------------------------------------------------------------------------


def test_sdist_has_the_sources_of_the_core_and_nothing_generated(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name.removeprefix(f"{CORE}/") for name in names if name.startswith(f"{CORE}/")} == SOURCES
    needed = {
        "setup.py",
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "Makefile",
        ".ci/run",
        "tests/conftest.py",
        "benchmarks/loadgen/main.c",
        "benchmarks/scenarios/immediate.toml",
    }
    assert needed | {"wheels/check_wheel.py", "wheels/build_local.py", "wheels/README.md"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyd", ".pyc"))]


# --- wheels ------------------------------------------------------------------------------------------


@pytest.mark.timeout(240)  # it compiles all of the core, and serves with the wheel in every way
def test_required_core_makes_a_wheel_for_this_platform(sources: Path) -> None:
    wheel = built(sources, SERVERY_BUILD_NATIVE="require", SERVERY_BUILD_HTTP2="require", **SOON)
    assert not wheel.name.endswith("-none-any.whl")
    assert facts_in(wheel)["native"] == "built"
    said = proven(wheel, sources)
    assert "--parser native --io reactor: a live server says so and answers" in said
    assert "--parser native --io reactor --h2c: a live server speaks HTTP/2" in said
    assert "without the compiled core: --parser native exits with 2" in said
    assert SOON["CFLAGS"] in said
    assert "without the compiled core: --io reactor exits with 2" in said
    assert not [module for module in MODULES if (sources / CORE / f"{module}.c").exists()]


def test_a_core_without_http2_says_so(sources: Path) -> None:
    script = "import setup_parts, json; print(json.dumps(setup_parts.said))"
    (sources / "setup_parts.py").write_text(
        "import runpy, setuptools\n"
        "kept = {}\n"
        "setuptools.setup = lambda **words: kept.update(words)\n"
        "made = runpy.run_path('setup.py')\n"
        "command = type('Command', (), {'failure': '', 'extensions': []})()\n"
        "said = [made['BuildFacts']._native(None, command), [one.name for one in kept['ext_modules']]]\n"
    )
    run_here = partial(run, sys.executable, "-W", "ignore", "-c", script, cwd=sources)
    without, names = json.loads(succeeded(run_here(SERVERY_BUILD_HTTP2="no")))
    assert without == "built, without HTTP/2 (not asked for)"
    with_it, more = json.loads(succeeded(run_here(SERVERY_BUILD_HTTP2="require")))
    assert with_it == "built"
    assert {name.rpartition(".")[2] for name in set(more) - set(names)} == set(HTTP2)


def test_core_that_is_not_wanted_makes_a_pure_wheel(sources: Path) -> None:
    wheel = built(sources, SERVERY_BUILD_NATIVE="no")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert facts_in(wheel)["native"] == "not asked for (SERVERY_BUILD_NATIVE=no)"
    assert "without the compiled core: --parser native exits with 2" in proven(wheel, sources)


@pytest.mark.parametrize("fault", [no_cython, no_translation])
def test_what_cannot_be_compiled_becomes_a_pure_wheel_that_says_so(sources: Path, fault) -> None:
    wheel = built(sources, **fault(sources))
    assert wheel.name.endswith("-py3-none-any.whl")
    assert facts_in(wheel)["native"].startswith(f"failed: {reason(fault)}")


def test_install_without_a_compiler_works(sources: Path) -> None:
    wheel = built(sources, SERVERY_BUILD_NATIVE="auto", **no_compiler(sources))
    assert wheel.name.endswith("-py3-none-any.whl")
    assert facts_in(wheel)["native"].startswith(f"failed: {reason(no_compiler)}")
    said = proven(wheel, sources)
    assert "without the compiled core: --parser native exits with 2" in said
    assert "--parser python --io transport: a live server says so and answers" in said


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_required_and_cannot_be_compiled_fails(sources: Path, fault) -> None:
    done = wheel_from(sources, SERVERY_BUILD_NATIVE="require", **fault(sources))
    assert done.returncode != 0
    assert f"SERVERY_BUILD_NATIVE=require: {reason(fault)}" in done.stderr
    assert not [*sources.glob("out/*")]


@pytest.mark.parametrize(
    ("name", "value"),
    [("SERVERY_BUILD_NATIVE", "yes"), ("SERVERY_BUILD_TRACE", ""), ("SERVERY_BUILD_HTTP2", "1")],
)
def test_a_switch_takes_its_own_words_only(sources: Path, name: str, value: str) -> None:
    done = run(sys.executable, "setup.py", "--version", cwd=sources, **{name: value})
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name}={value!r} is not one of ")


# --- editable ----------------------------------------------------------------------------------------


def test_editable_install_forgets_the_core_that_it_was_told_to_leave_out(sources: Path) -> None:
    stale = [sources / CORE / f"{module}{EXTENSION_SUFFIXES[0]}" for module in MODULES]
    for path in stale:
        path.write_text("left by an earlier build")
    build = "import setuptools.build_meta as b; b.build_editable('out')"
    succeeded(run(sys.executable, "-W", "ignore", "-c", build, cwd=sources, SERVERY_BUILD_NATIVE="no"))
    assert not [path for path in stale if path.exists()]
    assert json.loads((sources / FACTS).read_text())["native"] == "not asked for (SERVERY_BUILD_NATIVE=no)"
