"""The summary for a repository: tables, reasons, environment; no plots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..analysis import CPU, P99, PSS, RATE, metrics_of, rows
from . import facts


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table; the first column is text, the others are figures."""
    cleaned = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    marks = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, marks, *cleaned]) + "\n"


def cell_section(cell: Mapping[str, Any], baseline: str) -> str:
    """One cell: the figures that are compared most, and everything that is missing."""
    made = rows(cell, baseline)
    kept = metrics_of(cell) if CPU not in metrics_of(cell) else (CPU, RATE, P99, PSS)
    metrics = [metric for metric in kept if any(row.median(metric) is not None for row in made)]
    parts = [f"## {cell['title']}\n"]
    if metrics:
        lines = [
            [row.subject]
            + [
                f"{facts.value_text(row, metric)} {facts.ratio_text(row, metric)}".strip()
                for metric in metrics
            ]
            for row in made
        ]
        parts.append(table(["server", *(f"{metric.label}, {metric.unit}" for metric in metrics)], lines))
    if cell["scenario"]["kind"] == "stop":
        parts.append(table(["server", "answered", "exit status"], facts.stop_rows(cell)))
    if cell["scenario"]["kind"] == "timeouts":
        head = ["server", "idle connection", "head that stops", "body that stalls"]
        parts.append(table(head, facts.timeout_rows(cell)))
    marks = [f"- {row.subject}: {mark}" for row in made for mark in row.marks]
    marks += [f"- {name}, {entry['kind']}: {entry['reason']}" for name, entry in cell["excluded"].items()]
    return "\n".join([*parts, *marks, ""] if marks else parts)


def summary(records: Sequence[Mapping[str, Any]]) -> str:
    """The whole text of one or more results."""
    parts = []
    for record in records:
        parts.append(
            f"# {record['name']}\n\nRatios (×) are those to {record['baseline']} within each trial, with a "
            "95 % bootstrap interval in brackets; ± is the median absolute deviation.\n"
        )
        if record["interrupted"]:
            parts.append("The run was interrupted; what was measured is here.\n")
        parts += [f"Not to be used: {reason}.\n" for reason in facts.changes(record)]
        parts += [cell_section(cell, record["baseline"]) for cell in record["cells"]]
        parts.append("## Environment\n")
        parts.append(table(["what", "value"], facts.environment(record)).replace("---:", "---"))
        parts.append("".join(f"- {facts.subject_line(*item)}\n" for item in record["subjects"].items()))
        parts.append(f"```sh\n{' '.join(record['command'])}\n```\n")
    return "\n".join(parts)
