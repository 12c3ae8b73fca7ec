"""A C target of the fuzzers on known inputs, under the sanitizers of the compiler that builds the core."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

from fuzz.run import CORE, HERE

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FLAGS = ("-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", *SANITIZERS)


def run_inputs(folder: Path, name: str, inputs: list[bytes], *defines: str) -> None:
    """Build ``NAME_fuzzer.c`` with ``NAME.c`` of the core in `folder`; all `inputs` must go through it."""
    program = folder / name
    compiler = sysconfig.get_config_var("CC").split()
    sources = [HERE / "run_inputs.c", HERE / f"{name}_fuzzer.c", CORE / f"{name}.c"]
    subprocess.run([*compiler, *FLAGS, *defines, f"-I{CORE}", *sources, "-o", program], check=True)
    records = b"".join(len(data).to_bytes(4, "big") + data for data in inputs)
    done = subprocess.run([program], input=records, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert int(done.stdout) == len(inputs)
