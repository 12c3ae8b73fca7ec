"""One trial: a server started cold, proven, driven or probed, and stopped.

A `Subject` and a `Cell` in, figures out.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import h2, probes, processes
from .adapters import Adapter, Launch
from .environments import Environments
from .loadgen import client
from .machine import Processors
from .paths import HERE
from .scenario import Cell
from .serving import Server, free_port, prove, running
from .verdicts import Refused

CLIENT_BOUND = 0.85
"""Of a processor. A client that used more was the bottleneck, or near enough to it."""
PSS_INTERVAL = 0.5
"""Seconds between two looks at the memory: each makes the kernel walk the server's pages."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is measured, under the name that results give it.

    `directory` and `app` are those of a user's application.
    """

    name: str
    adapter: Adapter
    app: str = ""
    directory: str | Path = HERE / "apps"
    environment: Mapping[str, str] | None = None


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a run is made. Times in seconds."""

    trials: int = 5
    warmup: float = 1.0
    duration: float = 5.0
    client_processes: int = 1
    max_latency_samples: int = 100_000
    timeouts_limit: float = 70.0
    longest_ramp: float = math.inf
    seed: int = 1


class Watch:
    """Processor time and memory of a server between the two ends of the timed interval."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self.peak = self.before = processes.pss(server.pid)
        self.cpu = 0.0
        self.members: list[int] = []
        self.changed = False

    def _look(self) -> None:
        while not self._over.wait(PSS_INTERVAL):
            self.peak = max(self.peak, processes.pss(self._server.pid))

    def begin(self) -> None:
        """The interval begins."""
        self.peak = max(self.peak, processes.pss(self._server.pid))
        self.members = processes.tree(self._server.pid)
        self._looking.start()
        self.cpu = -processes.cpu_seconds(self._server.pid)

    def end(self) -> None:
        """The interval is over."""
        self.cpu += processes.cpu_seconds(self._server.pid)
        self._over.set()
        self._looking.join()
        self.changed = processes.tree(self._server.pid) != self.members
        self.peak = max(self.peak, processes.pss(self._server.pid))


def check_measurement(result: Mapping[str, Any], cell: Cell, watch: Watch) -> list[str]:
    """Faults of a run whose figures are not to be used, in words."""
    faults = [f"{count:,} × {kind}" for kind, count in result["timed"]["failed"].items() if count]
    if not result["timed"]["completed"] and cell.scenario.kind != "hold":
        faults.append("nothing was completed")
    if result["latency"].get("lost"):
        faults.append("more latencies than fit: give --max-latency-samples")
    if watch.changed:
        faults.append("a process of the server ended or came while it was timed")
    kept = cell.scenario.kind in ("http", "echo", "hold") and not cell.scenario.load.get("churn")
    least, wanted = result["connections"].get("least", 0), cell.connections
    warmed_up = result["warmup"].get("connects", 0) > 0  # or they are opened while the interval begins
    if kept and warmed_up and least < wanted and not result["timed"].get("reconnects"):
        faults.append(f"only {least:,} of {wanted:,} connections were established all the time")
    if faults and result["reason"]:
        faults.append(result["reason"])
    return faults


def figures(result: dict[str, Any], cell: Cell, watch: Watch) -> dict[str, Any]:
    """The figures of a trial out of the load generator's result."""
    completed = result["timed"]["completed"]
    share = result["client"]["busiest_share"]
    latency = result["latency"]
    faults = check_measurement(result, cell, watch)
    return {
        "rate": result["rate"],
        "cpu_us": watch.cpu * 1e6 / completed if completed else None,
        "server_share": watch.cpu / result["seconds"],
        **{name: latency.get(name) for name in ("p50_us", "p90_us", "p99_us", "p99_9_us", "max_us")},
        "pss_before": watch.before,
        "pss_peak": watch.peak,
        "client_share": share,
        "client_delay": result["client"].get("delay_share"),
        "client_bound": share > CLIENT_BOUND,
        "faults": faults,
        "load": result,
    }


def _drive(server: Server, cell: Cell, settings: Settings, cpus: Processors) -> dict[str, Any]:
    """Load on a proven server. Raises Refused for a wrong answer."""
    target = {"unix": server.unix} if server.unix else {"port": server.port}
    load = cell.load(settings.warmup, settings.duration, **target)
    changes: dict[str, Any] = {"seed": settings.seed}
    changes["connection_ramp"] = min(load.connection_ramp, settings.longest_ramp)
    changes["warmup"] = min(load.warmup, max(settings.warmup, settings.longest_ramp))
    if load.client_processes == 1:
        changes["client_processes"] = min(settings.client_processes, load.connections)
    if not load.max_latency_samples:
        changes["max_latency_samples"] = settings.max_latency_samples
    load = dataclasses.replace(load, **changes)
    watch = Watch(server)
    try:
        if cell.scenario.kind == "h2":
            result = h2.run(load, cell.streams, cpus.client, watch.begin, watch.end)
        else:
            result = client.run(load, cpus.client, watch.begin, watch.end)
    except client.PreflightError as error:
        raise Refused(f"a wrong answer before anything was timed: {error}") from None
    if server.process.poll() is not None:
        raise Refused(f"the server ended while it was timed, with {server.process.returncode}")
    made = figures(result, cell, watch)
    made["pss_final"] = processes.pss(server.pid)
    if cell.scenario.kind == "hold":
        made["kib_per_connection"] = (made["pss_peak"] - made["pss_before"]) / 1024 / cell.connections
    return made


def launch_of(subject: Subject, cell: Cell, port: int = 0, unix: str = "") -> Launch:
    """What the subject is to serve for a cell."""
    scenario = cell.scenario
    return Launch(
        app=subject.app or f"{scenario.app}:app",
        port=port,
        unix=unix,
        workers=cell.workers,
        wsgi=scenario.is_wsgi,
        websocket=scenario.kind in ("echo", "sessions") or scenario.websocket,
        h2=scenario.kind == "h2",
    )


def run_trial(
    subject: Subject,
    cell: Cell,
    settings: Settings,
    cpus: Processors,
    environments: Environments,
    only_check: bool = False,
) -> dict[str, Any]:
    """Figures of one trial, with ``proof``, ``argv`` and ``started_ms``. Raises CannotServe and Refused.

    With `only_check` the server is started, proven and asked once, and nothing is timed.
    """
    port = free_port()
    path = cell.scenario.path if cell.scenario.kind == "http" else "/"
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
        unix = f"{directory}/s" if cell.scenario.transport == "unix" else ""
        argv = subject.adapter.argv(launch_of(subject, cell, port, unix), environments)
        cores = cpus.for_workers(cell.workers)
        with running(argv, path, port, unix, cores, subject.directory, subject.environment) as server:
            is_asgi, is_ours = not cell.scenario.is_wsgi, not subject.app
            proof = prove(server, subject.adapter, cell.workers, is_asgi, is_ours)
            started = round(server.started * 1000, 2)
            shown = [part.replace(str(port), "PORT").replace(unix or "\0", "SOCKET") for part in argv]
            facts = {
                "started_ms": started,
                "pss_idle": processes.pss(server.pid),
                "proof": proof,
                "argv": shown,
            }
            return facts | (
                _check_answer(server, cell) if only_check else _measure(server, cell, settings, cpus)
            )


def _measure(server: Server, cell: Cell, settings: Settings, cpus: Processors) -> dict[str, Any]:
    """What the kind of the scenario asks for. Raises Refused for a wrong answer."""
    kind = cell.scenario.kind
    if kind == "startup":
        return _check_answer(server, cell) | {"faults": []}
    if kind == "stop":
        return probes.stop(server, cell) | {"faults": []}
    if kind == "timeouts":
        return {"timeouts": probes.timeouts(server, cell, settings.timeouts_limit), "faults": []}
    return _drive(server, cell, settings, cpus)


def _check_answer(server: Server, cell: Cell) -> dict[str, Any]:
    """Asks once, and checks exactly, as the load generator does before it times. Raises Refused."""
    if cell.scenario.kind == "timeouts":
        return {}
    kind = "http" if cell.scenario.kind in ("startup", "stop") else cell.scenario.kind
    target = {"unix": server.unix} if server.unix else {"port": server.port}
    load = dataclasses.replace(
        cell.load(0, 0.01, **target), mode="hold" if kind == "h2" else kind, connections=1, client_processes=1
    )
    load = dataclasses.replace(load, duration=0.01, warmup=0, connection_ramp=0, rate=0, read_rate=0)
    try:
        if kind == "h2":
            h2.preflight(load, f"http://127.0.0.1:{server.port}/")
        else:
            client.run(load)
    except client.PreflightError as error:
        raise Refused(f"a wrong answer: {error}") from None
    return {}
