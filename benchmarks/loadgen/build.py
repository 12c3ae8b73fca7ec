"""Compiles the load generator into the cache, under a name that is a hash of its sources and flags."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from pathlib import Path

from ..paths import cache

HERE = Path(__file__).resolve().parent
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
PARTS = {
    "loadgen": [
        *("main.c", "options.c", "worker.c", "connection.c", "response.c", "frames.c", "samples.c"),
        *("sha256.c", "preflight.c", "output.c"),
    ],
    "floor": ["floor.c"],
    "parts.so": ["parts.c", "response.c", "samples.c", "sha256.c", "frames.c"],
}
"""What can be built, and of what. `parts.so` is for tests of the parts."""


class BuildError(Exception):
    """The C compiler is missing or failed; the text says what to do."""


def _compiler() -> list[str]:
    """The command of the C compiler: $CC, or the first usual one that is installed."""
    if asked := os.environ.get("CC"):
        return shlex.split(asked)
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    raise BuildError("no C compiler: install one (Debian: gcc libc6-dev) or name it in $CC")


def sources_hash() -> str:
    """Of every source of the load generator; results record it."""
    digest = hashlib.sha256()
    for path in sorted([*HERE.glob("*.c"), *HERE.glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def build(name: str = "loadgen") -> Path:
    """The path of a built part; it is compiled unless that was done before. Raises BuildError."""
    extra = ["-shared", "-fPIC"] if name.endswith(".so") else []
    key = hashlib.sha256(" ".join([sources_hash(), *FLAGS, *extra]).encode()).hexdigest()[:16]
    target = cache() / f"{key}-{name}"
    if target.exists():
        return target
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    command = [
        *_compiler(),
        *FLAGS,
        *extra,
        *(str(HERE / part) for part in PARTS[name]),
        "-o",
        str(unfinished),
    ]
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{command[0]}: {error.strerror}; name a C compiler in $CC") from error
    if made.returncode:
        raise BuildError(f"the C compiler failed on {name}:\n{made.stderr}")
    unfinished.replace(target)
    return target
