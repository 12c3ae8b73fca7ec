"""The documents state what the code does: defaults, flags, links."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from servery.config import SETTINGS, Config
from servery.limits import DEFAULTS, Limits
from servery.metrics.prometheus import HELP

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def limit_rows(page: str) -> list[list[str]]:
    """The cells of the rows of the table between the limits markers of `page`."""
    text = (ROOT / page).read_text("utf-8").split("<!-- limits -->")[1].split("<!-- /limits -->")[0]
    rows = [line.strip("|").split("|") for line in text.strip().splitlines()[2:]]
    return [[cell.strip().strip("`") for cell in row] for row in rows]


def default_of(flag: str) -> str:
    """The default of a flag as the tables write it: 8192, off, 10 s, 240 octets/s."""
    setting = SETTINGS[flag.removeprefix("--").replace("-", "_")]
    if setting.default is None:
        return "off"
    unit = {"seconds": " s", "bytes per second": " octets/s"}.get(setting.kind.unit, "")
    return f"{setting.default:g}{unit}" if isinstance(setting.default, float) else f"{setting.default}{unit}"


@pytest.mark.parametrize(("page", "column"), [("README.md", 1), ("docs/limits.md", 2)])
def test_table_of_limits_is_whole_and_states_the_defaults(page: str, column: int) -> None:
    rows = limit_rows(page)
    stated = {row[0]: row[column] for row in rows}
    assert len(stated) == len(rows)
    flags = ["--" + name.replace("_", "-") for name, row in SETTINGS.items() if row.limit]
    assert stated == {flag: default_of(flag) for flag in flags}


def test_page_of_limits_names_the_field_that_each_flag_sets() -> None:
    stated = {row[0]: row[1] for row in limit_rows("docs/limits.md")}
    assert set(stated.values()) == {field.name for field in dataclasses.fields(Limits)}
    for flag, field in stated.items():
        name = flag.removeprefix("--").replace("-", "_")
        value = (getattr(DEFAULTS, field) or 0) + 1
        changed = Config(**{name: value})
        others = {other for other in stated.values() if other != field}
        assert getattr(changed.limits, field) == value
        assert all(getattr(changed.limits, other) == getattr(DEFAULTS, other) for other in others)


def test_reference_of_settings_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "build_reference.py"), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


OTHERS = {"env_file", "engines", "check", "ws", "ssl_certfile", "ssl_keyfile", "cacert"}
"""Flags that the pages name and that are not servery's: of uvicorn, pytest, docs/build_reference.py, curl."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_flags_in_the_documents_exist(page: Path) -> None:
    """Those written as code, and those in commands that run servery."""
    text = page.read_text("utf-8")
    code = re.findall(r"`[^`\n]+`", text) + re.findall(r"^.*\bservery \S+:\S+ .*$", text, re.MULTILINE)
    found = {flag for part in code for flag in re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", part)}
    actions = {"config", "print_config", "check_config", "version", "verbose", "help"}
    known = SETTINGS.keys() | {f"no_{name}" for name in SETTINGS} | actions | OTHERS
    if page.name == "benchmarks.md":
        commands = (ROOT / "benchmarks" / "cli.py").read_text("utf-8")
        known |= {flag.replace("-", "_") for flag in re.findall(r'"--([a-z][a-z-]+)"', commands)}
    assert {flag for flag in found if flag.replace("-", "_") not in known} == set()


def test_table_of_metrics_is_whole_and_says_what_the_server_says() -> None:
    text = (ROOT / "docs" / "operations.md").read_text("utf-8").split("<!-- metrics -->")[1]
    rows = [row.strip("|").split("|") for row in text.split("<!-- /metrics -->")[0].strip().splitlines()[2:]]
    assert {row[0].strip(" `"): row[-1].strip() for row in rows} == HELP
