"""The C files that read what peers send, under sanitizers, against naive readers: `fuzz/*_fuzzer.c`.

A short and repeatable run of what ``make fuzz`` does for as long as one likes; here with the C compiler that
builds the core, and for each of the code paths that this machine has.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from corpus.http1_cases import CASES
from fuzz.chance import Chance
from fuzz.frames import stream
from fuzz.inputs import run_inputs
from fuzz.mutation import broken, composed
from fuzz.run import ORDINARY, PLACES

MUTANTS = 30_000
STREAMS = 12_000

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the flags are those of gcc and clang")


def requests() -> list[bytes]:
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


def streams() -> list[bytes]:
    """What clients send, under the default limit and others, from the start of a message or its middle."""
    made = []
    for number in range(STREAMS):
        chance = Chance.numbered("frames", number)
        place = bytes((chance.below(8), chance.below(3), chance.octet()))
        data = stream(chance, place[0] & 1 == 1)
        made.append((chance.pick(PLACES) if chance.flag() else place) + data[chance.pick((0, 0, 0, 1, 7)) :])
    return made


@pytest.mark.parametrize("path", ["vectors", "scalar"])
def test_scanner_agrees_with_a_naive_reader(tmp_path: Path, path: str) -> None:
    run_inputs(tmp_path, "scan", requests(), *(["-DSV_SCALAR"] if path == "scalar" else []))


def test_reader_of_frames_agrees_with_a_naive_one(tmp_path: Path) -> None:
    run_inputs(tmp_path, "frames", streams())
