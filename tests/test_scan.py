"""The head scanner in C, under sanitizers, against the naive reader in `fuzz/scan_fuzzer.c`.

A short and repeatable run of what ``make fuzz`` does for as long as one likes; here with the C compiler that
builds the core, and for each of the code paths that this machine has.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from corpus.http1_cases import CASES
from fuzz.chance import Chance
from fuzz.mutation import broken, composed
from fuzz.run import CORE, ORDINARY

FUZZ = Path(__file__).with_name("fuzz")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FLAGS = ("-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", *SANITIZERS)
MUTANTS = 30_000


def inputs() -> list[bytes]:
    """The corpus under the default limits, and mutants of it under random ones."""
    limits = [
        bytes((most, count)) for most in (0, 128, 133, 140, 150, 255) for count in (0, 128, 200, 201, 203)
    ]
    mutants = []
    for number in range(MUTANTS):
        chance = Chance.numbered("scan", number)
        limit = chance.pick((ORDINARY, chance.pick(limits)))
        mutants.append(limit + (composed(chance) if chance.flag(0.3) else broken(chance)))
    return [*(ORDINARY + case.data for case in CASES), *mutants]


@pytest.mark.skipif(sys.platform == "win32", reason="the flags are those of gcc and clang")
@pytest.mark.parametrize("path", ["vectors", "scalar"])
def test_scanner_agrees_with_a_naive_reader(tmp_path: Path, path: str) -> None:
    program = tmp_path / "scan"
    compiler = sysconfig.get_config_var("CC").split()
    plain = ["-DSV_SCALAR"] if path == "scalar" else []
    sources = [FUZZ / "scan_inputs.c", FUZZ / "scan_fuzzer.c", CORE / "scan.c"]
    subprocess.run([*compiler, *FLAGS, *plain, f"-I{CORE}", *sources, "-o", program], check=True)
    records = [len(data).to_bytes(4, "big") + data for data in inputs()]
    done = subprocess.run([program], input=b"".join(records), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert int(done.stdout) == len(records)
