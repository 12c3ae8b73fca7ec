"""Is the load generator right?

The same server, driven in turns by it, by wrk and by h2load, where these are installed.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .fixtures import expectation, request
from .loadgen.build import build
from .loadgen.client import Load, run
from .machine import Processors
from .rotation import order
from .serving import Server, free_port, running

WORK = 40
"""Microseconds that the server spends on each answer: it is the bottleneck, whichever client drives it."""
AGREE = 0.05
"""Part by which the median rates may differ."""


@contextmanager
def _floor(cpus: Processors) -> Iterator[Server]:
    port = free_port()
    with running([str(build("floor")), str(port), str(WORK)], "/", port, cpus=cpus.server[:1]) as server:
        yield server


def _pinned(command: list[str], cpus: Processors) -> str:
    pin = ["taskset", "-c", ",".join(map(str, cpus.client))] if shutil.which("taskset") else []
    return subprocess.run([*pin, *command], capture_output=True, text=True, check=True).stdout


def check(
    cpus: Processors, trials: int, seconds: float, connections: int, say: Callable[[str], None]
) -> bool:
    """Says the rates of each and how they compare; false if one differs by more than `AGREE`."""
    expect = expectation({"body": {"repeat": "x", "times": 1024}})
    whole = round(max(1.0, seconds))

    def loadgen(port: int) -> float:
        load = Load(
            request("GET", "/", {}), port=port, connections=connections, duration=whole, expect=expect
        )
        rate: float = run(load, cpus.client)["rate"]
        return rate

    def wrk(port: int) -> float:
        command = ["wrk", "-t1", f"-c{connections}", f"-d{whole}s", f"http://127.0.0.1:{port}/"]
        return float(re.search(r"Requests/sec:\s+([\d.]+)", _pinned(command, cpus))[1])  # type: ignore[index]

    def h2load(port: int) -> float:
        command = ["h2load", "--h1", "-t1", f"-c{connections}", f"-D{whole}", f"http://127.0.0.1:{port}/"]
        return float(re.search(r"([\d.]+) req/s", _pinned(command, cpus))[1])  # type: ignore[index]

    programs = {"loadgen": loadgen, "wrk": wrk, "h2load": h2load}
    present = [name for name in programs if name == "loadgen" or shutil.which(name)]
    rates: dict[str, list[float]] = {name: [] for name in present}
    with _floor(cpus) as server:
        for trial in range(trials):
            for name in order(present, trial):
                rates[name].append(programs[name](server.port))
                time.sleep(0.1)
    agree = True
    for name in present:
        ratio = statistics.median(
            mine / theirs for mine, theirs in zip(rates["loadgen"], rates[name], strict=True)
        )
        agree &= abs(ratio - 1) <= AGREE
        say(f"{name:8} {statistics.median(rates[name]):>12,.0f} requests/s   loadgen ×{ratio:.3f}")
    return agree
