"""Fuzz the compiled core with libFuzzer: ``make fuzz``, or ``make fuzz ARGS="TARGET FLAGS"``.

``scanner`` (the default) and ``frames`` are the head scanner and the reader of frames in C alone, against
naive readers: `scan_fuzzer.c`, `frames_fuzzer.c`. ``engine`` and ``websocket`` are whole compiled engines
against their references: `engine_fuzzer`. All are built with clang, AddressSanitizer and
UndefinedBehaviorSanitizer, and start from the corpus, or from frames made by chance. FLAGS are those of
libFuzzer, such as ``-max_total_time=3600``. What a target learns stays in ``.cache/fuzz/TARGET``; an input
that breaks it is left in ``.cache/fuzz``. Where the compiler is missing and may be installed (root on
Debian), it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import shake_128
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from corpus.http1_cases import CASES

from fuzz.chance import CHOICES, Chance
from fuzz.frames import LATE, stream
from fuzz.mutation import FIELDS, ODD

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDER = ROOT / ".cache" / "fuzz"
CORE = ROOT / "servery" / "_speedups"
SANITIZERS = "-fsanitize=fuzzer,address,undefined"
FLAGS = ("-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-sanitize-recover=all", SANITIZERS)
ENGINE_FLAGS = "-g1 -O1 -fno-sanitize-recover=all -fsanitize=fuzzer-no-link,address,undefined"
ASAN = "detect_leaks=0:quarantine_size_mb=32:malloc_context_size=5"
"""Python leaves much behind at its end. Little freed memory is kept: libFuzzer takes 2 GiB for a leak."""

SECONDS = 30
"""How long a target runs if the caller does not say."""

LONGEST = 16_384
"""Octets of a seed."""

ORDINARY = b"\x00\x00"
"""Begins a seed for the scanner: the limits that servery has by default; see `LLVMFuzzerTestOneInput`."""

PLACES = (b"\x00\x00\x00", b"\x01\x01\x00")
"""Begin a seed for the reader of frames: without and with compression, at the start, under the default
limit."""

STREAMS = 300
"""Seeds made of frames."""


def compiler() -> str:
    """The clang of this machine that has libFuzzer."""
    for name in ("clang", *(f"clang-{version}" for version in range(22, 13, -1))):
        if shutil.which(name) and _links(name):
            return name
    subprocess.run([ROOT / ".ci" / "apt", "clang-14", "libclang-rt-14-dev"], check=True)
    return "clang-14"


def _links(name: str) -> bool:
    target = "int LLVMFuzzerTestOneInput(const char *data, long size) { return data == 0 && size; }"
    command = [name, SANITIZERS, "-x", "c", "-", "-o", "/dev/null"]
    return subprocess.run(command, input=target, text=True, capture_output=True, check=False).returncode == 0


# --- the targets: how each is started ------------------------------------------------------------------


Command = list[str | Path]


def in_c(name: str) -> Command:
    """A C file of the core, named `name`, and the naive reader as one program."""
    program = FOLDER / f"{name}_fuzzer"
    sources = (HERE / f"{name}_fuzzer.c", CORE / f"{name}.c")
    subprocess.run([compiler(), *FLAGS, f"-I{CORE}", *sources, "-o", program], check=True)
    return [program, "-max_len=20000"]


def in_python(name: str, words: tuple[bytes, ...]) -> Command:
    """Python with atheris, which brings a libFuzzer that has AddressSanitizer in it."""
    import atheris

    preload = Path(atheris.path()) / "asan_with_fuzzer.so"
    set_up = ["env", f"LD_PRELOAD={preload}", f"ASAN_OPTIONS={ASAN}"]
    program = [sys.executable, HERE / "engine_fuzzer.py", name, "--core", instrumented_core()]
    return [*set_up, *program, "-max_len=1200", f"-dict={write_dictionary(FOLDER, words)}"]


def instrumented_core() -> Path:
    """The compiled core with sanitizers and counters for libFuzzer, in a folder of its own."""
    folder = FOLDER / "core"
    sources = [
        ROOT / "setup.py",
        *(path for path in CORE.iterdir() if path.suffix in (".pyx", ".pxd", ".c", ".h")),
    ]
    newest = max(path.stat().st_mtime for path in sources)
    if not any(made.stat().st_mtime > newest for made in folder.rglob("engine.*.so")):
        clang = compiler()
        environment = {**os.environ, "CC": clang, "LDSHARED": f"{clang} -shared", "CFLAGS": ENGINE_FLAGS}
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", folder]
        command += ["--build-temp", FOLDER / "objects"]
        environment["SERVERY_BUILD_NATIVE"] = "require"
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
    return folder


def write_dictionary(folder: Path, words: tuple[bytes, ...]) -> Path:
    """What libFuzzer may put into an input in one go."""
    lines = ["".join(f"\\x{octet:02x}" for octet in word) for word in words]
    dictionary = folder / "dictionary"
    dictionary.write_text("".join(f'"{line}"\n' for line in lines), "ascii")
    return dictionary


# --- their seeds: what each starts from ------------------------------------------------------------------


def requests() -> Iterator[tuple[str, bytes]]:
    """The corpus, by name."""
    return ((case.id, case.data[:LONGEST]) for case in CASES)


def streams() -> Iterator[tuple[str, bytes]]:
    """What clients of WebSockets send."""
    for number in range(STREAMS):
        yield str(number), stream(Chance.numbered("seeds", number), number % 2 == 1)[:LONGEST]


def chosen(data: bytes) -> list[bytes]:
    """`data` at once with nothing done about it, and some other way."""
    return [data + bytes(CHOICES), data + shake_128(data).digest(CHOICES)]


class Target(NamedTuple):
    """How a target is built and run; what its seeds are made of, and how."""

    command: Callable[[], Command]
    material: Callable[[], Iterator[tuple[str, bytes]]]
    seeds: Callable[[bytes], list[bytes]]


REQUEST_WORDS = (*ODD, *(b"%b: %b\r\n" % field for field in FIELDS))
FRAME_WORDS = tuple(
    {data[:LATE] for _, data in streams()} | {bytes((first, 128)) for first in (0, 1, 2, 128, 129, 130, 136)}
)
TARGETS = {
    "scanner": Target(partial(in_c, "scan"), requests, lambda data: [ORDINARY + data]),
    "frames": Target(partial(in_c, "frames"), streams, lambda data: [place + data for place in PLACES]),
    "engine": Target(partial(in_python, "engine", REQUEST_WORDS), requests, chosen),
    "websocket": Target(partial(in_python, "websocket", FRAME_WORDS), streams, chosen),
}


def seeds(target: str, top: Path = FOLDER) -> Path:
    """The seeds as files, in a folder of their own below `top`."""
    folder = top / f"{target}-seeds"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in TARGETS[target].material():
        for number, seed in enumerate(TARGETS[target].seeds(data)):
            (folder / f"{name}-{number}").write_bytes(seed)
    return folder


def main() -> int:
    """Build a target and run it."""
    target = sys.argv[1] if sys.argv[1:2] and not sys.argv[1].startswith("-") else "scanner"
    if target not in TARGETS:
        raise SystemExit(f"{target!r} is no target; choose from {', '.join(TARGETS)}")
    flags = [flag for flag in sys.argv[1:] if flag != target]
    if not any(flag.startswith(("-max_total_time=", "-runs=")) for flag in flags):
        flags.append(f"-max_total_time={SECONDS}")
    learnt = FOLDER / target
    learnt.mkdir(parents=True, exist_ok=True)
    program = TARGETS[target].command()
    place = f"-artifact_prefix={FOLDER}/"
    return subprocess.run([*program, place, *flags, learnt, seeds(target)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
