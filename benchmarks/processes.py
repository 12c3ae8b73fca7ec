"""What a tree of processes has used, from Linux's /proc and its per-process clocks."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name of the command: state, parent, ..."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                children.setdefault(int(_stat(int(entry.name))[1]), []).append(int(entry.name))
            except (OSError, IndexError):
                continue  # it ended meanwhile
    found = [pid]
    for known in found:
        found += children.get(known, [])
    return found


def cpu_seconds(pid: int) -> float:
    """Processor time of the tree, with that of children that were waited for.

    The clock of each process counts nanoseconds; /proc/PID/stat alone would count ticks of ten milliseconds.
    """
    total = 0.0
    for member in tree(pid):
        try:
            total += time.clock_gettime(
                ~member << 3 | 2
            )  # CPUCLOCK_SCHED of the whole process: linux/posix-timers.h
            fields = _stat(member)
        except OSError:
            continue
        total += (int(fields[13]) + int(fields[14])) / TICK
    return total


def pss(pid: int) -> int:
    """Proportional set size of the tree, in octets: shared pages count once, divided among those that share
    them.
    """
    total = 0
    for member in tree(pid):
        try:
            text = (PROC / str(member) / "smaps_rollup").read_text()
        except OSError:
            continue
        total += int(re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)[1]) * 1024  # type: ignore[index]
    return total


def mapped_files(pid: int) -> set[str]:
    """Paths of the files that the tree has mapped: its compiled modules are among them."""
    found = set()
    for member in tree(pid):
        try:
            lines = (PROC / str(member) / "maps").read_text().splitlines()
        except OSError:
            continue
        found |= {line.split(maxsplit=5)[5] for line in lines if "/" in line}
    return found


def threads(pid: int) -> int:
    """Threads of the tree."""
    count = 0
    for member in tree(pid):
        try:
            count += len(list((PROC / str(member) / "task").iterdir()))
        except OSError:
            continue
    return count
