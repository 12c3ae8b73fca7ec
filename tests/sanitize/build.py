"""A checkout of its own whose compiled core has sanitizers in it, and the environment in which it runs.

Below ``.cache/sanitize``: ``tree`` is a copy of this checkout, ``venv`` has that copy installed, ``reports``
is where the processes that run it write what they find. The compiler is the one that builds Python's
extensions here, with AddressSanitizer and UndefinedBehaviorSanitizer. Their runtime has to be loaded before
Python, which knows nothing of them: so ``venv/bin/python`` is a script that starts Python with it, and Python
then forgets it, since curl, browsers and compilers may not live with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".cache" / "sanitize"
TREE = FOLDER / "tree"
VENV = FOLDER / "venv"
REPORTS = FOLDER / "reports"
PYTHON = VENV / "bin" / "python"
LEFT_OUT = shutil.ignore_patterns(
    *(".git", ".cache", ".venv", ".*_cache", ".hypothesis", "build", "dist", "wheelhouse", "*.egg-info"),
    *("__pycache__", "*.so", "*.pyd", "build.json"),
)
"""What a clean checkout would not have."""

COMPILER = sysconfig.get_config_var("CC").split()[0]
FLAGS = "-g1 -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
OPTIONS = "quarantine_size_mb=64:malloc_context_size=20"


def build() -> None:
    """Make all of it anew, except what is installed from elsewhere."""
    shutil.rmtree(TREE, ignore_errors=True)
    shutil.copytree(ROOT, TREE, ignore=LEFT_OUT)
    install = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    installed, wanted = VENV / "installed", (ROOT / "pyproject.toml").read_text("utf-8")
    if not installed.exists() or installed.read_text("utf-8") != wanted:
        shutil.rmtree(VENV, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([*install, "--upgrade", "pip>=25.1"], check=True)
        subprocess.run([*install, "--group", f"{ROOT}/pyproject.toml:test"], check=True)
        _preload()
        installed.write_text(wanted, "utf-8")
    flags = {"CC": COMPILER, "CFLAGS": FLAGS, "LDFLAGS": FLAGS, "ASAN_OPTIONS": "detect_leaks=0"}
    flags |= {"SERVERY_BUILD_NATIVE": "require", "SERVERY_BUILD_HTTP2": "require", "PYTHONWARNINGS": "ignore"}
    subprocess.run([*install, "--no-deps", "--editable", TREE], check=True, env={**os.environ, **flags})


def _preload() -> None:
    """Have the Python of the venv start with the sanitizers' runtime, but not what it starts in its turn."""
    runtime = f"{_library('libasan.so')} {_library('libubsan.so')}"
    real = PYTHON.resolve()
    for link in PYTHON.parent.glob("python*"):
        link.unlink()
        link.symlink_to(PYTHON)
    PYTHON.unlink()
    PYTHON.write_text(f'#!/bin/bash\nLD_PRELOAD="{runtime}" exec -a "$0" {real} "$@"\n', "utf-8")
    PYTHON.chmod(0o755)
    [packages] = VENV.glob("lib/python*/site-packages")
    (packages / "sitecustomize.py").write_text('import os\n\nos.environ.pop("LD_PRELOAD", None)\n', "utf-8")


def environment(**options: int) -> dict[str, str]:
    """What the Python of the venv needs, besides; `options` are more of AddressSanitizer's.

    Python's own allocator is switched off: it would hide what happens inside of its arenas.
    """
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    more = "".join(f":{name}={value}" for name, value in options.items())
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("SERVERY_")},
        "ASAN_OPTIONS": f"{OPTIONS}:log_path={REPORTS}/asan{more}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={REPORTS}/ubsan",
        "PYTHONMALLOC": "malloc",
    }


def reports() -> list[str]:
    """What the sanitizers of all processes have written down."""
    return [path.read_text("utf-8", "replace") for path in sorted(REPORTS.iterdir())]


def _library(name: str) -> str:
    """The runtime that the compiler links: what it knows by this name, or what this name's file points to."""
    found = subprocess.run([COMPILER, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = Path(found.stdout.strip())
    if not path.is_absolute():
        raise SystemExit(f"{COMPILER} has no {name}: install its sanitizers (Debian: gcc and its libgcc-dev)")
    return str(path.resolve())
