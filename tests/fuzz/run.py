"""Fuzz the head scanner: ``make fuzz``, or with flags of libFuzzer ``make fuzz ARGS="-max_total_time=3600"``.

Builds `scan_fuzzer.c` with clang, AddressSanitizer and UndefinedBehaviorSanitizer, and starts it on the
corpus. What it learns stays in ``.cache/fuzz/learnt``; an input that breaks the scanner is left in
``.cache/fuzz``. Where the compiler is missing and may be installed (root on Debian), it is.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".cache" / "fuzz"
CORE = ROOT / "servery" / "_speedups"
SOURCES = (Path(__file__).with_name("scan_fuzzer.c"), CORE / "scan.c")
SANITIZERS = "-fsanitize=fuzzer,address,undefined"
FLAGS = ("-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-sanitize-recover=all", SANITIZERS)
SECONDS = 30
"""How long it runs if the caller does not say."""

ORDINARY = b"\x00\x00"
"""Begins a seed: the limits that servery has by default; see `LLVMFuzzerTestOneInput`."""


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


def build() -> Path:
    """The fuzzer."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    program = FOLDER / "scan_fuzzer"
    subprocess.run([compiler(), *FLAGS, f"-I{CORE}", *SOURCES, "-o", program], check=True)
    return program


def seeds() -> Path:
    """The corpus as files."""
    sys.path.insert(0, str(ROOT / "tests"))
    from corpus.http1_cases import CASES

    folder = FOLDER / "seeds"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for case in CASES:
        (folder / case.id).write_bytes(ORDINARY + case.data[:16_384])
    return folder


def main() -> int:
    """Build it and run it; the flags of libFuzzer are those of this program."""
    flags = sys.argv[1:]
    if not any(flag.startswith(("-max_total_time=", "-runs=")) for flag in flags):
        flags.append(f"-max_total_time={SECONDS}")
    learnt = FOLDER / "learnt"
    program = build()
    learnt.mkdir(exist_ok=True)
    place = f"-artifact_prefix={FOLDER}/"
    return subprocess.run([program, place, "-max_len=20000", *flags, learnt, seeds()], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
