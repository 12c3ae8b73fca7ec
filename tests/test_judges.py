"""How the verdict on an outside suite is reached. The suites themselves run with `make judges`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "judges"))

import run as judges
from places import NotRun
from rules import first_rule, is_named

RULE: dict[str, Any] = {"suite": "s", "tests": ["file::known", "file::many[*"], "reason": "because"}


def outcome(kind: str) -> dict[str, str]:
    return {"outcome": kind, "reason": f"why {kind}\nlast line"}


def test_every_outcome_has_its_column() -> None:
    kinds = {"a": "passed", "b": "left out", "c": "skipped", "d": "xfailed", "file::known": "failed"}
    kinds["file::many[1]"] = "failed"
    verdict = judges.judge("s", {test: outcome(kind) for test, kind in kinds.items()}, [RULE])
    assert verdict.counts == {"passed": 2, "left out": 1, "skipped": 1, "explained": 2}
    assert verdict.faults == []
    assert verdict.reasons["explained: because"] == 2


def test_failure_that_nobody_explains_is_a_fault() -> None:
    verdict = judges.judge("s", {"file::other": outcome("failed")}, [])
    assert verdict.counts == {"failed": 1}
    assert verdict.faults == ["file::other: last line"]


def test_explanation_of_what_does_not_fail_is_a_fault() -> None:
    verdict = judges.judge(
        "s", {"file::known": outcome("passed"), "file::many[1]": outcome("failed")}, [RULE]
    )
    assert verdict.faults == ["file::known: explained, but it does not fail; take it out of explained.toml"]


def test_suite_without_tests_is_a_fault() -> None:
    assert judges.judge("s", {}, []).faults == ["no test was found"]


def test_names_are_exact_unless_they_end_in_a_star() -> None:
    assert is_named("file::many[1]", RULE["tests"])
    assert not is_named("file::known[1]", RULE["tests"])
    rules: list[dict[str, Any]] = [{"fixtures": ["tls"]}, {"markers": ["network"]}]
    assert first_rule(rules, "x", ["tls"]) is rules[0]
    assert first_rule(rules, "x", [], ["network"]) is rules[1]
    assert first_rule(rules, "x") is None


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [({"a": outcome("passed")}, 0), ({"a": outcome("failed")}, 1), (None, 2)],
)
def test_exit_code_says_what_happened(
    outcomes: Any, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def suite(rules: Any) -> Any:
        if outcomes is None:
            raise NotRun("it lacks something")
        return outcomes

    monkeypatch.setitem(judges.SUITES, "tiny", suite)
    monkeypatch.setattr(sys, "argv", ["run.py", "tiny"])
    assert judges.main() == code
    assert ("not run: it lacks something" in capsys.readouterr().out) == (code == 2)


def test_every_rule_names_a_suite_and_gives_a_reason() -> None:
    known = judges.tomllib.loads((judges.HERE / "explained.toml").read_text("utf-8"))
    assert known.keys() == {"left_out", "explained"}
    for rule in known["left_out"] + known["explained"]:
        assert rule["suite"] in judges.SUITES
        assert rule["reason"]
        assert rule.keys() <= {"suite", "reason", "tests", "fixtures", "markers"}
    assert all("tests" in rule for rule in known["explained"])
