"""Feed both engines the same broken requests, or frames, at random, and stop where they part.

    python tests/fuzz/differential.py [COUNT] [--of websocket|http2] [--seed NUMBER] [--jobs PROCESSES]

``--of`` says which engines: those of HTTP/1, or those of WebSockets or of HTTP/2, whose frames are also fed
cut in two at every place, now and then.

Prints the rate, and the script that the engines disagree on; exits with 1 then. Input NUMBER of a seed is
always the same, however many processes there are: ``--first NUMBER`` begins with that one, and a COUNT of 1
ends there. Only what the engines remember of earlier inputs (lines and names seen before) is then missing.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from under_test import ENGINES

from fuzz import http2_playing, http2_scripts, websocket_playing, websocket_scripts
from fuzz.chance import Chance
from fuzz.frames import stream
from fuzz.playing import difference
from fuzz.scripts import random_script

BATCH = 25_000
"""Numbers in a row that one process takes; then there is a line of progress."""

ORDERS = (tuple(ENGINES), tuple(reversed(ENGINES)))
"""Who comes first, by turns: the second engine finds in the tables what the first one has put there."""


def check(seed: int, number: int) -> str:
    """Where the engines part on input `number` of `seed`; empty if they do not."""
    return difference(random_script(Chance.numbered(seed, number)), ORDERS[number % 2])


EVERY_CUT = 64
"""One of so many inputs for WebSockets is short, and cut at every place."""
SHORT = 300


def check_websocket(seed: int, number: int) -> str:
    """The same for the engines of WebSockets."""
    chance = Chance.numbered(f"websocket {seed}", number)
    if number % EVERY_CUT:
        return websocket_playing.difference(websocket_scripts.random_script(chance))
    limits, agreement = websocket_scripts.random_limits(chance), chance.pick(websocket_scripts.AGREEMENTS)
    octets = stream(chance, agreement is not None)[:SHORT]
    return websocket_playing.cut_difference(octets, limits, agreement)


def check_http2(seed: int, number: int) -> str:
    """The same for the engines of HTTP/2."""
    chance = Chance.numbered(f"http2 {seed}", number)
    script = http2_scripts.random_script(chance)
    if number % EVERY_CUT:
        return http2_playing.difference(script)
    octets = b"".join(arguments[0] for name, arguments in script.steps if name == "receive")[:SHORT]
    return http2_playing.cut_difference(octets, script.limits)


CHECKS: dict[str, Callable[[int, int], str]] = {
    "http1": check,
    "websocket": check_websocket,
    "http2": check_http2,
}
"""What ``--of`` accepts."""

Task = tuple[str, int, range]


def check_range(task: Task) -> tuple[int, str]:
    """(inputs, what was found) for a check, a seed and some of its numbers; it ends where something is
    found."""
    name, seed, numbers = task
    gc.collect()
    gc.disable()  # looking for cycles that hardly any input makes takes a tenth of the time
    for number in numbers:
        if found := CHECKS[name](seed, number):
            return number - numbers.start + 1, f"seed {seed}, input {number}: the engines differ at {found}"
    return len(numbers), ""


def results(tasks: list[Task], jobs: int) -> Iterator[tuple[int, str]]:
    """What `check_range` returns for `tasks`, which `jobs` processes share."""
    if jobs == 1:
        yield from map(check_range, tasks)
        return
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap_unordered(check_range, tasks)


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=100_000, help="inputs (default: %(default)s)")
    parser.add_argument("--of", choices=CHECKS, default="http1", help="which engines (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, metavar="NUMBER")
    parser.add_argument("--jobs", type=int, default=1, metavar="PROCESSES")
    options = parser.parse_args()
    end = options.first + options.count
    starts = range(options.first, end, BATCH)
    tasks = [(options.of, options.seed, range(start, min(start + BATCH, end))) for start in starts]
    begun, done = time.perf_counter(), 0
    for count, found in results(tasks, options.jobs):
        if found:
            print(found)
            return 1
        done += count
        print(f"{done:,} inputs, {done / (time.perf_counter() - begun):,.0f} a second", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
