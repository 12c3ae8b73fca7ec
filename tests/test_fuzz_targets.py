"""The coverage-guided fuzzing of the engines: a short and repeatable run of ``make fuzz ARGS=engine``.

Here with the compiled core that is installed, so that only the reference guides the search; `test_scan.py` is
the same for the scanner.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.run import HERE, seeds, write_dictionary

RUNS = 4000
PLACE = (sys.platform, platform.machine(), sys.implementation.name)
HAS_ATHERIS = PLACE == ("linux", "x86_64", "cpython") and sys.version_info < (3, 15)


@pytest.mark.skipif(not HAS_ATHERIS, reason="there is no atheris for this platform")
def test_libfuzzer_finds_no_difference(tmp_path: Path) -> None:
    flags = ["-seed=1", f"-runs={RUNS}", "-max_len=1200", f"-dict={write_dictionary(tmp_path)}"]
    program = [sys.executable, HERE / "engine_fuzzer.py", f"-artifact_prefix={tmp_path}/", *flags]
    learnt = tmp_path / "learnt"
    learnt.mkdir()
    command = [*program, learnt, seeds("engine", tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert f"Done {RUNS} runs" in done.stderr
    assert any(learnt.iterdir()), "nothing was learnt: the search is not guided"
