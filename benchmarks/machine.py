"""The machine of a run, and which of its processors serve and which drive."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

KERNEL_SETTINGS = (
    "net/core/somaxconn",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_max_syn_backlog",
    "net/ipv4/tcp_tw_reuse",
    "net/ipv4/tcp_syncookies",
)
"""Those that runs with many connections depend on."""


@dataclasses.dataclass(frozen=True)
class Processors:
    """Disjoint sets; a server of one worker gets one processor, unless its set was given."""

    server: tuple[int, ...]
    client: tuple[int, ...]
    given: bool = False

    def for_workers(self, workers: int) -> tuple[int, ...]:
        """Those that a server with so many workers runs on."""
        return self.server if self.given else self.server[:workers]


def read_set(text: str) -> tuple[int, ...]:
    """``0-2,5`` as numbers. Raises ValueError."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return tuple(sorted(numbers))


def processors(server: str = "", client: str = "") -> Processors:
    """As given, or: the last quarter of the processors, at least one, drives, and the others serve.

    Sets that overlap have to be given both: the client then takes time from the server, and the
    report says so.
    Raises ValueError if a given set is malformed or not available, or one that is given overlaps the rest.
    """
    available = tuple(sorted(os.sched_getaffinity(0)))
    clients = read_set(client) if client else available[-max(1, len(available) // 4) :]
    servers = (
        read_set(server) if server else tuple(cpu for cpu in available if cpu not in clients) or available
    )
    if strange := set(servers + clients) - set(available):
        raise ValueError(
            f"processor {min(strange)} is not available; these are: {','.join(map(str, available))}"
        )
    if set(servers) & set(clients) and len(available) > 1 and not (server and client):
        raise ValueError(
            "server and client would share processors: give both --server-cpus and --client-cpus"
        )
    return Processors(servers, clients, bool(server))


def _first(pattern: str, path: str) -> str:
    """The first match in a file of the kernel's, or nothing."""
    try:
        found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        return ""
    return found[1].strip() if found else ""


def _commit(root: Path) -> str:
    """The commit of a checkout, with a mark if files are changed; nothing outside git."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def host_facts(root: Path) -> dict[str, Any]:
    """What a result has to say about where it was measured. `root` is the checkout."""
    return {
        "processor": _first(r"^model name\s*:\s*(.*)$", "/proc/cpuinfo") or platform.machine(),
        "processors": os.cpu_count(),
        "memory_kib": int(_first(r"^MemTotal:\s+(\d+)", "/proc/meminfo") or 0),
        "kernel": platform.release(),
        "system": _first(r'^PRETTY_NAME="(.*)"', "/etc/os-release") or platform.system(),
        "settings": {name: _first(r"(.*)", f"/proc/sys/{name}") for name in KERNEL_SETTINGS},
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "load_before": os.getloadavg()[0],
        "harness_python": sys.version.split()[0],
        "commit": _commit(root),
    }
