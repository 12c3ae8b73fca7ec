"""HTTP/2 without TLS, driven by h2load (Debian: nghttp2-client) and checked by curl before it is timed."""

from __future__ import annotations

import hashlib
import math
import os
import resource
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from .loadgen.client import Load, LoadError, PreflightError
from .verdicts import CannotServe


def preflight(load: Load, url: str) -> None:
    """One request by curl with prior knowledge.

    Raises PreflightError, or CannotServe without an HTTP/2 curl.
    """
    curl = shutil.which("curl")
    if (
        curl is None
        or "HTTP2" not in subprocess.run([curl, "--version"], capture_output=True, text=True).stdout
    ):
        raise CannotServe("no curl that speaks HTTP/2 on this machine")
    command = [curl, "--silent", "--show-error", "--http2-prior-knowledge", "--max-time", "10"]
    made = subprocess.run(
        [*command, "--write-out", "\n%{http_code} %{http_version}", url], capture_output=True
    )
    body, _, facts = made.stdout.rpartition(b"\n")
    expect = load.expect
    if made.returncode or facts != b"%d 2" % expect.status:
        raise PreflightError(
            f"HTTP/2: {facts.decode(errors='replace')} {made.stderr.decode(errors='replace').strip()}"
        )
    if expect.sha256 is not None and hashlib.sha256(body).hexdigest() != expect.sha256:
        raise PreflightError(f"HTTP/2: another body than expected; it began {body[:100]!r}")


def _h2load(load: Load, streams: int, url: str, seconds: int, log: str, cpus: Collection[int] | None) -> None:
    """One run, its requests logged."""
    program = shutil.which("h2load")
    if program is None:
        raise CannotServe("no h2load on this machine (Debian: nghttp2-client)")
    command = [program, "-t", "1", "-c", str(load.connections), "-m", str(streams), "-D", str(seconds)]
    pin = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
    made = subprocess.run(
        [*command, f"--log-file={log}", url],
        capture_output=True,
        text=True,
        preexec_fn=pin,
        timeout=seconds + 30,
    )
    if made.returncode:
        raise LoadError(f"h2load ended with {made.returncode}: {made.stderr.strip()[-300:]}")


def _result(lines: list[str], load: Load, seconds: int, cpu: float) -> dict[str, Any]:
    """The same shape as the load generator's.

    A line of the log: start, status or -1, latency in microseconds.
    """
    rows = [line.split("\t") for line in lines]
    statuses = Counter(row[1] for row in rows)
    latencies = sorted(float(row[2]) for row in rows if row[1] == str(load.expect.status))
    completed = len(latencies)
    failed = dict.fromkeys(("connect", "ports", "timeout", "protocol", "length", "fields", "body"), 0)
    failed["reset"] = statuses.pop("-1", 0)
    failed["status"] = sum(statuses.values()) - completed

    def at(quantile: float) -> float:
        return latencies[min(completed - 1, int(quantile * completed))] if latencies else 0.0

    return {
        "seconds": seconds,
        "rate": completed / seconds,
        "timed": {"completed": completed, "failed": failed, "statuses": dict(statuses)},
        "warmup": {"failed": {}},
        "connections": {"wanted": load.connections},
        "reason": "",
        "latency": {
            **{name: at(value) for name, value in (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99))},
            "p99_9_us": at(0.999),
            "max_us": at(1),
            "seen": completed,
            "kept": completed,
            "curve": [[round(step / 100, 2), at(step / 100)] for step in range(1, 100)]
            + [[0.999, at(0.999)]],
        },
        "client": {
            "processes": 1,
            "cpu_seconds": cpu,
            "cpu_share": cpu / seconds,
            "busiest_share": cpu / seconds,
        },
    }


def run(
    load: Load,
    streams: int,
    cpus: Collection[int] | None,
    on_begin: Callable[[], None],
    on_end: Callable[[], None],
) -> dict[str, Any]:
    """As `loadgen.client.run`.

    Warm-up and timed load are two runs of h2load, and so two sets of connections.
    """
    url = f"http://127.0.0.1:{load.port}/"
    preflight(load, url)
    seconds = math.ceil(load.duration)  # h2load takes whole seconds
    with tempfile.NamedTemporaryFile("r") as log:
        if load.warmup:
            _h2load(load, streams, url, math.ceil(load.warmup), os.devnull, cpus)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        on_begin()
        _h2load(load, streams, url, seconds, log.name, cpus)
        on_end()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return _result(log.read().splitlines(), load, seconds, cpu)
