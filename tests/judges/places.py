"""Where the judges live: sdists and environments under ``.cache/judges``, and the Python that one wants."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CACHE = ROOT / ".cache" / "judges"


class NotRun(Exception):
    """A suite cannot be run; the text says what is missing."""


def call(command: list[str | Path], what: str) -> None:
    """Run `command` quietly. Raises `NotRun` with the end of what it said."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise NotRun(f"{what} failed: {(done.stderr or done.stdout).strip()[-500:]}")


def sdist(name: str, version: str) -> Path:
    """The unpacked sdist, downloaded if it is not there yet. Raises `NotRun`."""
    unpacked = CACHE / f"{name}-{version}"
    if not unpacked.exists():
        print(f"downloading the sdist of {name} {version}", flush=True)
        archives = CACHE / "sdists"
        options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--dest", archives]
        call([sys.executable, "-m", "pip", "download", *options, f"{name}=={version}"], "pip download")
        unpacking = CACHE / "unpacking"
        shutil.rmtree(unpacking, ignore_errors=True)
        with tarfile.open(archives / f"{name}-{version}.tar.gz") as archive:
            if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(unpacking)
        (unpacking / unpacked.name).rename(unpacked)
    return unpacked


def environment(name: str, python: str, requirements: list[str]) -> Path:
    """The interpreter of an environment with `requirements`, made anew if they changed. Raises `NotRun`."""
    folder = CACHE / f"venv-{name}"
    wanted = "\n".join([os.path.realpath(python), *requirements])
    stamp = folder / "stamp.txt"
    interpreter = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not stamp.exists() or stamp.read_text("utf-8") != wanted:
        print(f"making the environment of {name}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        call([python, "-m", "venv", folder], "making a virtual environment")
        call([interpreter, "-m", "pip", "install", "--quiet", *requirements], "pip install")
        stamp.write_text(wanted, "utf-8")
    return interpreter


def python313() -> str:
    """A Python 3.13: ``PYTHON313``, else on PATH, else pyenv's. Raises `NotRun`."""
    for candidate in _candidates():
        if _version(candidate) == "3.13":
            return candidate
    if "PYTHON313" in os.environ:
        raise NotRun(f"needs Python 3.13, and PYTHON313={os.environ['PYTHON313']} is none")
    raise NotRun("needs Python 3.13: none on PATH or under pyenv; name one in the variable PYTHON313")


def _candidates() -> Iterator[str]:
    if "PYTHON313" in os.environ:
        yield os.environ["PYTHON313"]
        return
    yield sys.executable
    if found := shutil.which("python3.13"):
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for path in sorted(pyenv.glob("versions/3.13*/bin/python3.13"), reverse=True):
        yield str(path)


def _version(python: str) -> str:
    """``3.13`` of a Python that runs; pyenv puts names on PATH that do not."""
    command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
