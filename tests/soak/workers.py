"""A long run of two workers that are reloaded, killed, upgraded and recycled under constant load.

``python tests/soak/workers.py --seconds 120 --parser native --io reactor``: 2,000 requests per second from
four clients; SIGHUP every 10 s, ``kill -9`` of a random worker every 7 s, one SIGUSR2, recycling after 500
requests; four WebSockets all the time; the metrics of all workers are read once a second. Prints the counts.
Fails if any request was refused or cut that was not inside a killed worker, a WebSocket ended with another
code than 1012, a scrape was not answered, a counter fell, or the requests that the server has counted are not
those of its clients, but for what killed workers knew alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from churn import churn
from under_test import WAYS, chosen


def main() -> int:
    """Parse the arguments, run, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rate", type=int, default=2000, help="requests per second of all clients")
    parser.add_argument("--max-requests", type=int, default=500)
    parser.add_argument("--parser", default="python")
    parser.add_argument("--io", default="transport")
    parser.add_argument("--loop", default="asyncio")
    options = parser.parse_args()
    every = {"reload": 10.0, "kill": 7.0, "upgrade": max(options.seconds * 0.6, 1.0)}
    flags = ("--limit-max-requests", str(options.max_requests), "--timeout-linger", "2")
    with tempfile.TemporaryDirectory() as folder, chosen(WAYS[options.parser, options.io, options.loop]):
        outcome = churn(Path(folder), options.seconds, *flags, rate=options.rate, every=every, say=print)
    print(outcome)
    right = not (outcome.faults or outcome.miscounted) and set(outcome.closed) <= {1012}
    right = right and outcome.exit_code == 0
    print("as it should be" if right else "NOT as it should be")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
