"""What a user installs: the pure wheel of this checkout, alone in an empty environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WAIT = 20.0
ASK = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1]) as response:
    print(response.status, response.headers["server"])
"""
SOURCES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
SURROUNDINGS = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("SERVERY_", "PYTHON", "COVERAGE"))
} | {"SERVERY_BUILD_NATIVE": "no"}


def run(*command: str | Path, cwd: Path) -> str:
    """What a command that must succeed writes."""
    done = subprocess.run(command, cwd=cwd, env=SURROUNDINGS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy, so that the checkout stays as it is, and without a package index."""
    copy = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "servery", copy / "servery", ignore=shutil.ignore_patterns("__pycache__"))
    for name in SOURCES:
        shutil.copy(ROOT / name, copy)
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", "out"]
    run(sys.executable, "-W", "ignore", "-m", "pip", "wheel", *options, ".", cwd=copy)
    [path] = (copy / "out").iterdir()
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment in which nothing but the wheel was installed; it has no pip."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    interpreter = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        interpreter,
        "install",
        "--no-index",
        "--quiet",
        wheel,
        cwd=folder,
    )
    return interpreter


def test_wheel_is_pure_and_holds_every_module_and_the_marks_of_a_package(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [metadata] = [archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "servery").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources
    assert "servery/py.typed" in names
    assert any(name.startswith("servery/demo/") and name.endswith(".html") for name in names)
    assert {name.split("/")[0].rpartition(".")[2] for name in names} == {"servery", "dist-info"}
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert all("extra ==" in line for line in required)


def test_nothing_else_is_installed(python: Path) -> None:
    listed = run(
        sys.executable, "-m", "pip", "--python", python, "list", "--format", "json", cwd=python.parent
    )
    assert [package["name"] for package in json.loads(listed)] == ["servery"]


def test_installed_command_and_module_say_the_same_version(python: Path) -> None:
    version = run(python, "-I", "-m", "servery", "--version", cwd=python.parent)
    assert run(python.parent / "servery", "--version", cwd=python.parent) == version
    assert version.startswith("servery ")


def test_installed_server_serves_and_stops(python: Path, tmp_path: Path) -> None:
    command = [python.parent / "servery", "servery.demo:app", "--port", "0", "--lifespan", "on"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=SURROUNDINGS, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert " http://127.0.0.1:" in line, line
        assert run(python, "-I", "-c", ASK, line.split()[-1], cwd=tmp_path) == "200 servery\n"
    finally:
        process.terminate()
        process.communicate(timeout=WAIT)
    assert process.returncode == 0
