"""How many workers ``--workers auto`` means: one for each processor that this process may use.

Affinity and the quota of control groups (version 2 and 1) count, so that a container which may use two of 64
processors gets two workers. A quota of one and a half is two workers: one could not use it up.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def usable_cpus() -> int:
    """Processors that this process may use at a time, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = cgroup_quota()
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def cgroup_quota(groups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> float | None:
    """The least quota, in processors, of this process's control group and those above it; None without."""
    try:
        lines = own.read_text().splitlines()
    except OSError:  # not Linux
        return None
    quotas: list[float] = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            quotas += _along(groups, path, _version_2)
        elif "cpu" in controllers.split(","):
            quotas += _along(groups / "cpu", path, _version_1)
    return min(quotas, default=None)


def _along(root: Path, path: str, read: Callable[[Path], float | None]) -> list[float]:
    """The quotas of the group `path` below `root` and of all above it.

    In a container `root` may be the group itself, and `path` lead nowhere: what is missing has no quota.
    """
    folder = root / path.lstrip("/")
    folders = [folder, *folder.parents]
    found = [read(each) for each in folders[: folders.index(root) + 1]]
    return [quota for quota in found if quota is not None]


def _version_2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _version_1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 else None
