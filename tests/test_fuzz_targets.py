"""The coverage-guided fuzzing of the engines: a short and repeatable run of ``make fuzz ARGS=engine``, and of
the same with ``websocket``.

Here with the compiled core that is installed, so that only the reference guides the search; `test_scan.py` is
the same for what is C.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.run import FRAME_WORDS, HERE, REQUEST_WORDS, seeds, write_dictionary

RUNS = {"engine": 4000, "websocket": 3000}
WORDS = {"engine": REQUEST_WORDS, "websocket": FRAME_WORDS}
PLACE = (sys.platform, platform.machine(), sys.implementation.name)
HAS_ATHERIS = PLACE == ("linux", "x86_64", "cpython") and sys.version_info < (3, 15)


@pytest.mark.skipif(not HAS_ATHERIS, reason="there is no atheris for this platform")
@pytest.mark.parametrize("target", RUNS)
def test_libfuzzer_finds_no_difference(tmp_path: Path, target: str) -> None:
    dictionary = write_dictionary(tmp_path, WORDS[target])
    flags = ["-seed=1", f"-runs={RUNS[target]}", "-max_len=1200", f"-dict={dictionary}"]
    program = [sys.executable, HERE / "engine_fuzzer.py", target, f"-artifact_prefix={tmp_path}/", *flags]
    learnt = tmp_path / "learnt"
    learnt.mkdir()
    command = [*program, learnt, seeds(target, tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert f"Done {RUNS[target]} runs" in done.stderr
    assert any(learnt.iterdir()), "nothing was learnt: the search is not guided"
