"""Feed both engines the same broken requests at random, and stop where they part.

    python tests/fuzz/differential.py [COUNT] [--seed NUMBER]

Prints the rate, and the script that the engines disagree on; exits with 1 then. Input NUMBER of a seed is
always the same: ``--only NUMBER`` runs that one alone.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.scripts import difference, random_script

REPORT = 20_000
"""Inputs between two lines of progress."""


def check(seed: int, number: int) -> str:
    """Where the engines part on input `number` of `seed`; empty if they do not."""
    return difference(random_script(random.Random(f"{seed} {number}")))


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=100_000, help="inputs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, metavar="NUMBER")
    options = parser.parse_args()
    numbers = range(options.count) if options.only is None else [options.only]
    begun = time.perf_counter()
    for number in numbers:
        if found := check(options.seed, number):
            print(f"seed {options.seed}, input {number}: the engines differ at {found}")
            return 1
        if (number + 1) % REPORT == 0:
            rate = (number + 1) / (time.perf_counter() - begun)
            print(f"{number + 1:,} inputs, {rate:,.0f} a second", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
