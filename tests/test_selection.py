"""selection.py: which engine runs, what is imported for it, and what is said when it cannot run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from harness import running
from sample_apps import respond
from under_test import ENGINES, clean_environment

from servery import Config, ConfigError
from servery.limits import DEFAULTS
from servery.selection import build_facts, select

ROOT = Path(__file__).resolve().parents[1]
FILE = f"engine{EXTENSION_SUFFIXES[0]}"
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
IMPORTED = """
import sys
from servery.config import Config
from servery.limits import DEFAULTS
from servery.selection import select
select(Config(parser=sys.argv[1])).engine_factory(DEFAULTS, lambda: b"")(0.0)
print([name in sys.modules for name in ("servery._speedups", "servery._speedups.engine")])
"""


def python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run an interpreter that finds servery in `cwd`."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.fixture
def without(tmp_path: Path) -> Path:
    """A folder with the package, but without its compiled core and without word of how it was built."""
    leave = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "build.json")
    shutil.copytree(ROOT / "servery", tmp_path / "servery", ignore=leave)
    return tmp_path


def refusal(folder: Path, *flags: str) -> str:
    """What the command says that refuses to serve."""
    done = python("-m", "servery", "servery.demo:app", "--port", "0", *flags, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("servery: error: --")
    return done.stderr


# --- what runs ---------------------------------------------------------------------------------------


def test_the_engine_that_was_asked_for_is_made(parser: str) -> None:
    selection = select(Config(parser=parser))
    engine = selection.engine_factory(DEFAULTS, lambda: b"")(0.0)
    assert type(engine).__module__ == ENGINES[parser]
    assert str(selection) == f"parser={parser} io=transport loop=asyncio"


def test_a_server_says_which_parser_runs_and_answers(parser: str) -> None:
    async def app(scope, receive, send):
        await respond(send, scope["extensions"]["servery"]["runs"].encode())

    with running(app, parser=parser) as server:
        answer = server.raw(REQUEST)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert f"\r\n\r\nparser={parser} io=transport ".encode() in answer


def test_the_compiled_core_is_imported_only_when_it_is_asked_for() -> None:
    assert python("-c", IMPORTED, "native").stdout == "[True, True]\n"
    assert python("-c", IMPORTED, "python").stdout == "[False, False]\n"


# --- what cannot run ---------------------------------------------------------------------------------


def test_the_reactor_is_not_built_yet(parser: str) -> None:
    with pytest.raises(ConfigError, match="^--io reactor is not built yet: .* use --io transport$"):
        select(Config(parser=parser, io="reactor"))


def test_a_missing_core_is_refused_with_what_to_do(without: Path) -> None:
    said = refusal(without, "--parser", "native")
    assert "No module named 'servery._speedups.engine'" in said
    assert f"{without / 'servery' / '_speedups' / FILE} (missing)" in said
    assert "not built: these are sources that no build has touched" in said
    assert "SERVERY_BUILD_NATIVE=require python -m pip install " in said
    assert "--parser python" in said


def test_the_refusal_says_how_the_install_was_built(without: Path) -> None:
    facts = {"native": "not asked for (SERVERY_BUILD_NATIVE=no)"}
    (without / "servery" / "_speedups" / "build.json").write_text(json.dumps(facts))
    assert "compiled core: not asked for (SERVERY_BUILD_NATIVE=no)\n" in refusal(
        without, "--parser", "native"
    )
    facts = {"native": "failed: no compiler", "python": "3.11.0", "platform": "Linux"}
    (without / "servery" / "_speedups" / "build.json").write_text(json.dumps(facts))
    assert "compiled core: failed: no compiler; Python 3.11.0, Linux\n" in refusal(
        without, "--parser", "native"
    )


def test_a_core_for_another_python_and_a_broken_one_are_named(without: Path) -> None:
    (without / "servery" / "_speedups" / "engine.other-abi.so").touch()
    assert "(missing; built for another Python: engine.other-abi.so)" in refusal(
        without, "--parser", "native"
    )
    (without / "servery" / "_speedups" / FILE).write_bytes(b"not a library")
    assert f"{FILE} (there)\n" in refusal(without, "--parser", "native")


def test_checking_the_configuration_finds_it_too(without: Path) -> None:
    assert "needs the compiled core" in refusal(without, "--check-config", "--parser", "native")
    assert "not built yet" in refusal(without, "--check-config", "--io", "reactor")


# --- what is said of an install ----------------------------------------------------------------------


def test_facts_of_an_install_with_the_core() -> None:
    facts = build_facts()
    assert facts["parsers"] == ["python", "native"]
    assert facts["native_missing"] is None
    assert Path(facts["native"]["file"]).name == FILE
    assert {"cython", "compiler", "flags", "scan"} <= facts["native"].keys()
    assert "unknown" not in facts["native"].values()


def test_facts_of_an_install_without_it(without: Path) -> None:
    done = python("-m", "servery", "--version", "--verbose", cwd=without)
    facts = json.loads(done.stdout)
    assert (facts["parsers"], facts["native"]) == (["python"], None)
    assert "no build has touched" in facts["native_missing"]
