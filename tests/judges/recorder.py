"""A pytest plugin for suites of others: where servery listens, what to leave out, what came of it.

Loaded with ``-p recorder`` by `run.py`. ``JUDGE_PLAN`` names a JSON file with `urls` (server name -> URL,
for the suites' own fixtures), `left_out` (a list of rules, see `rules.py`) and `report` (the path of the
JSON that is written at the end: test id -> outcome and reason).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from rules import first_rule

PLAN: dict[str, Any] = json.loads(Path(os.environ["JUDGE_PLAN"]).read_text("utf-8"))
OUTCOMES: dict[str, dict[str, str]] = {}


@pytest.fixture(scope="session")
def docker_services() -> dict[str, str]:
    """In place of a fixture that starts containers: servery is already there."""
    urls: dict[str, str] = PLAN["urls"]
    return urls


@pytest.hookimpl(tryfirst=True)
def pytest_plugin_registered(plugin: object) -> None:
    """A suite's conftest comes in: tell it where the servers are, before pytest reads its fixtures."""
    if hasattr(plugin, "docker_services"):
        plugin.docker_services = docker_services
    for name, framework in getattr(plugin, "FRAMEWORKS", {}).items():
        framework["port"] = int(PLAN["urls"][name].rpartition(":")[2])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the rules say, and remember it."""
    chosen, left_out = [], []
    for item in items:
        markers = [marker.name for marker in item.iter_markers()]
        rule = first_rule(PLAN["left_out"], item.nodeid, getattr(item, "fixturenames", ()), markers)
        if rule is None:
            chosen.append(item)
        else:
            left_out.append(item)
            OUTCOMES[item.nodeid] = {"outcome": "left out", "reason": rule["reason"]}
    items[:] = chosen
    config.hook.pytest_deselected(items=left_out)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The call decides, unless set-up or tear-down fail."""
    if report.when == "call" or report.outcome != "passed":
        outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        OUTCOMES[report.nodeid] = {"outcome": outcome, "reason": reason}


def pytest_sessionfinish() -> None:
    """Write the report."""
    Path(PLAN["report"]).write_text(json.dumps(OUTCOMES, indent=1), "utf-8")
