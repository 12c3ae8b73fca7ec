"""Where things stand in the checkout, and where the harness may write."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SCENARIOS = HERE / "scenarios"
STUDIES = HERE / "studies"
RESULTS = HERE / "results"
ENVIRONMENTS = HERE / ".envs"
"""Default of ``--envs``: one virtual environment for each peer."""


def cache() -> Path:
    """A directory for what can be made again: the load generator, files that are served, logs of servers."""
    path = Path(os.environ.get("BENCHMARKS_CACHE", ROOT / ".cache" / "benchmarks"))
    path.mkdir(parents=True, exist_ok=True)
    return path
