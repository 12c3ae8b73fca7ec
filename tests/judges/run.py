"""Runs the outside suites against this checkout and says what came of them: `make judges`.

Everything is downloaded from the package index into ``.cache/judges`` and stays there; the suites
themselves speak to 127.0.0.1 alone. Exit code 0: nothing failed that `explained.toml` does not explain. 1:
something did, or an explanation is out of date. 2: nothing failed, but a suite was not run.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from places import CACHE, HERE, NotRun
from rules import first_rule, is_named
from suites import SUITES, Outcomes

COLUMNS = ("passed", "failed", "explained", "left out", "skipped")


@dataclass
class Verdict:
    """What came of one suite: `counts` by column, `faults` to print, `reasons` for what did not pass."""

    suite: str
    not_run: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)


def judge(suite: str, outcomes: Outcomes, explained: list[dict[str, Any]]) -> Verdict:
    """Sort the outcomes into the columns; a test that an explanation names and that passes is a fault too."""
    verdict = Verdict(suite)
    if not outcomes:
        verdict.faults.append("no test was found")
    for test, result in outcomes.items():
        outcome, reason = result["outcome"], result["reason"]
        rule = first_rule(explained, test)
        if outcome == "failed" and rule is not None:
            outcome, reason = "explained", rule["reason"]
        elif outcome == "xfailed":
            outcome = "passed"
        verdict.counts[outcome] += 1
        if outcome == "failed":
            last = reason.strip().splitlines()[-1:] or ["no reason given"]
            verdict.faults.append(f"{test}: {last[0][:300]}")
        elif outcome != "passed":
            verdict.reasons[f"{outcome}: {reason}"] += 1
    verdict.faults += out_of_date(outcomes, explained)
    return verdict


def out_of_date(outcomes: Outcomes, explained: list[dict[str, Any]]) -> list[str]:
    """Names in `explained` under which nothing fails."""
    failed = [test for test, result in outcomes.items() if result["outcome"] == "failed"]
    names = [name for rule in explained for name in rule["tests"]]
    return [
        f"{name}: explained, but it does not fail; take it out of explained.toml"
        for name in names
        if not any(is_named(test, [name]) for test in failed)
    ]


def run(suite: str, known: dict[str, Any]) -> Verdict:
    """Run one suite."""
    print(f"running {suite}", flush=True)
    mine = {kind: [rule for rule in known.get(kind, ()) if rule["suite"] == suite] for kind in known}
    try:
        outcomes = SUITES[suite](mine.get("left_out", []))
    except NotRun as reason:
        return Verdict(suite, not_run=str(reason))
    return judge(suite, outcomes, mine.get("explained", []))


def show(verdicts: list[Verdict]) -> None:
    """Print the table, then what is behind its numbers."""
    for verdict in verdicts:
        for reason, count in sorted(verdict.reasons.items()):
            print(f"{verdict.suite}: {count:4} {reason}")
    for verdict in verdicts:
        for fault in verdict.faults:
            print(f"{verdict.suite}: FAULT {fault}")
    print("\n" + f"{'suite':16}" + "".join(f"{column:>11}" for column in COLUMNS))
    for verdict in verdicts:
        cells = "".join(f"{verdict.counts[column]:>11}" for column in COLUMNS)
        print(f"{verdict.suite:16}" + (f"  not run: {verdict.not_run}" if verdict.not_run else cells))


def main() -> int:
    """Run what was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"one of {', '.join(SUITES)}; default: all"
    )
    chosen = parser.parse_args().suites or list(SUITES)
    if unknown := set(chosen) - set(SUITES):
        parser.error(f"no suite named {min(unknown)}; choose from {', '.join(SUITES)}")
    known = tomllib.loads((HERE / "explained.toml").read_text("utf-8"))
    CACHE.mkdir(parents=True, exist_ok=True)
    verdicts = [run(suite, known) for suite in chosen]
    show(verdicts)
    if any(verdict.faults for verdict in verdicts):
        return 1
    return 2 if any(verdict.not_run for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
