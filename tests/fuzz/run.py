"""Fuzz the compiled core with libFuzzer: ``make fuzz``, or ``make fuzz ARGS="TARGET FLAGS"``.

``scanner`` (the default) is the head scanner in C alone against a naive reader: `scan_fuzzer.c`. ``engine``
is the whole compiled engine against its reference: `engine_fuzzer`. Both are built with clang,
AddressSanitizer and UndefinedBehaviorSanitizer, and start from the corpus. FLAGS are those of libFuzzer, such
as ``-max_total_time=3600``. What a target learns stays in ``.cache/fuzz/TARGET``; an input that breaks it is
left in ``.cache/fuzz``. Where the compiler is missing and may be installed (root on Debian), it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import shake_128
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from corpus.http1_cases import CASES

from fuzz.chance import CHOICES
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

ORDINARY = b"\x00\x00"
"""Begins a seed for the scanner: the limits that servery has by default; see `LLVMFuzzerTestOneInput`."""


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


def scanner() -> list[str | Path]:
    """The scanner and the naive reader as one program."""
    program = FOLDER / "scan_fuzzer"
    sources = (HERE / "scan_fuzzer.c", CORE / "scan.c")
    subprocess.run([compiler(), *FLAGS, f"-I{CORE}", *sources, "-o", program], check=True)
    return [program, "-max_len=20000"]


def engine() -> list[str | Path]:
    """Python with atheris, which brings a libFuzzer that has AddressSanitizer in it."""
    import atheris

    preload = Path(atheris.path()) / "asan_with_fuzzer.so"
    set_up = ["env", f"LD_PRELOAD={preload}", f"ASAN_OPTIONS={ASAN}"]
    program = [sys.executable, HERE / "engine_fuzzer.py", "--core", instrumented_core()]
    return [*set_up, *program, "-max_len=1200", f"-dict={write_dictionary(FOLDER)}"]


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


def write_dictionary(folder: Path) -> Path:
    """What libFuzzer may put into a request in one go."""
    words = [*ODD, *(b"%b: %b\r\n" % field for field in FIELDS)]
    lines = ["".join(f"\\x{octet:02x}" for octet in word) for word in words]
    dictionary = folder / "dictionary"
    dictionary.write_text("".join(f'"{line}"\n' for line in lines), "ascii")
    return dictionary


def engine_seeds(data: bytes) -> list[bytes]:
    """`data` at once with nothing done about it, and some other way."""
    return [data + bytes(CHOICES), data + shake_128(data).digest(CHOICES)]


TARGETS: dict[str, tuple[Callable[[], list[str | Path]], Callable[[bytes], list[bytes]]]] = {
    "scanner": (scanner, lambda data: [ORDINARY + data]),
    "engine": (engine, engine_seeds),
}
"""How each target is built, and its seeds for one case of the corpus."""


def seeds(target: str, top: Path = FOLDER) -> Path:
    """The corpus as files, in a folder of its own below `top`."""
    folder = top / f"{target}-seeds"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for case in CASES:
        for number, seed in enumerate(TARGETS[target][1](case.data[:16_384])):
            (folder / f"{case.id}-{number}").write_bytes(seed)
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
    program = TARGETS[target][0]()
    place = f"-artifact_prefix={FOLDER}/"
    return subprocess.run([*program, place, *flags, learnt, seeds(target)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
