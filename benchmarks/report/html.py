"""The page: one file, no scripts, nothing loaded from elsewhere, and readable on a phone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..analysis import CPU, P99, RATE, metrics_of, ranking, rows
from . import facts, plots

CSS = (Path(__file__).parent / "page.css").read_text("utf-8")


def table(head: Sequence[str], lines: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table that scrolls by itself where it is too wide. Cells are HTML."""
    titles = "".join(f'<th scope="col">{title}</th>' for title in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in lines)
    return (
        f'<div class="wide {kind}"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def cell_table(cell: Mapping[str, Any], baseline: str) -> str:
    """Medians with their spread, and under each the ratio to the baseline."""
    made = rows(cell, baseline)
    metrics = [metric for metric in metrics_of(cell) if any(row.median(metric) is not None for row in made)]
    if not metrics:
        return ""
    has_rate, has_client = RATE in metrics, any(row.client_share is not None for row in made)
    ranks = {name: str(place) for place, name in enumerate(ranking(made), 1)}
    lines = []
    for row in made:
        line = [escape(row.subject)]
        for metric in metrics:
            ratio = escape(facts.ratio_text(row, metric))
            line.append(f"{escape(facts.value_text(row, metric))}<small>{ratio}</small>")
        line += [ranks.get(row.subject, facts.NOT_TOLD)] if has_rate else []
        line += [facts.share_text(row)] if has_client else []
        lines.append(line)
    head = ["server", *(f"{metric.label}<br>{metric.unit}" for metric in metrics)]
    head += ["rank by rate"] if has_rate else []
    return table(head + (["client CPU"] if has_client else []), lines)


def cell_extras(cell: Mapping[str, Any]) -> str:
    """What the probes found."""
    kind = cell["scenario"]["kind"]
    if kind == "stop":
        found = [[escape(part) for part in row] for row in facts.stop_rows(cell)]
        return table(["server", "the request was answered", "exit status"], found, "words")
    if kind == "timeouts":
        found = [[escape(part) for part in row] for row in facts.timeout_rows(cell)]
        return table(["server", "idle connection", "head that stops", "body that stalls"], found, "words")
    return ""


def cell_marks(cell: Mapping[str, Any], baseline: str) -> str:
    """Everything that is missing, and why."""
    marks = [
        f'<p class="mark"><b>{escape(row.subject)}</b> {escape(mark)}</p>'
        for row in rows(cell, baseline)
        for mark in row.marks
    ]
    for name, excluded in cell["excluded"].items():
        kind = " refused" if excluded["kind"] == "refused" else ""
        word = "refused" if kind else "left out"
        marks.append(f'<p class="mark{kind}"><b>{escape(name)}</b> {word}: {escape(excluded["reason"])}</p>')
    return "".join(marks)


def cell_section(cell: Mapping[str, Any], baseline: str) -> str:
    """One cell of a record."""
    metrics = metrics_of(cell)
    compared = [CPU, RATE, P99] if CPU in metrics else metrics[:1]
    figures = [plots.ratios(cell, baseline, metric) for metric in compared]
    figures += [plots.latency(cell, baseline), plots.memory(cell, baseline)]
    shown = "".join(f"<figure>{figure}</figure>" for figure in figures if figure)
    about = cell["scenario"]["about"]
    return (
        f"<h2>{escape(cell['title'])}</h2>"
        + (f'<p class="quiet">{escape(about)}</p>' if about else "")
        + cell_table(cell, baseline)
        + cell_extras(cell)
        + cell_marks(cell, baseline)
        + f'<div class="plots">{shown}</div>'
    )


def axis_sections(record: Mapping[str, Any]) -> str:
    """For each scenario with several points: its figures over them."""
    by_scenario: dict[str, list[Mapping[str, Any]]] = {}
    for cell in record["cells"]:
        by_scenario.setdefault(cell["scenario"]["name"], []).append(cell)
    parts = []
    for cells in by_scenario.values():
        wanted = [metric for metric in (CPU, RATE, P99) if metric in metrics_of(cells[0])]
        figures = [plots.along_axis(cells, record["baseline"], metric) for metric in wanted]
        shown = "".join(f"<figure>{figure}</figure>" for figure in figures if figure)
        if shown:
            scenario = cells[0]["scenario"]
            title = f"{scenario['title']}, over {scenario['axis']}"
            parts.append(f'<h2>{escape(title)}</h2><div class="plots">{shown}</div>')
    return "".join(parts)


def summary(record: Mapping[str, Any]) -> str:
    """The verdicts, before any figure."""
    told = [[escape(part) for part in line] for line in facts.verdicts(record)]
    if not told:
        return '<p class="mark">Nothing is compared here: there is one server, or no usable trial.</p>'
    return table(["what", "server", f"beside {escape(record['baseline'])}"], told, "words")


def folded(title: str, items: str) -> str:
    """A list that opens on a click; it works without scripts."""
    return f"<details><summary>{title}</summary><ul>{items}</ul></details>"


def environment_section(record: Mapping[str, Any]) -> str:
    """Where and how it was measured, the commands, and who did not take part."""
    pairs = "".join(
        f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.environment(record)
    )
    servers = "".join(f"<li>{escape(facts.subject_line(*item))}</li>" for item in record["subjects"].items())
    lines = "".join(
        f"<li>{escape(cell)}, {escape(subject)}<br><code>{escape(command)}</code></li>"
        for cell, subject, command in facts.commands(record)
    )
    absent = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in facts.not_taking_part())
    command = escape(" ".join(record["command"]))
    return (
        f"<h2>Environment</h2><dl>{pairs}</dl><h3>Servers</h3><ul>{servers}</ul>"
        f"<h3>Commands</h3><p><code>{command}</code></p>"
        f"{folded('The exact command of every server', lines)}"
        f"{folded('Servers that are listed without taking part', absent)}"
    )


HOW_TO_READ = (
    "Ratios are those to the baseline within each trial; their median stands beside a 95 % bootstrap "
    "interval. Where that spans 1, no difference is shown. CPU per request counts every process of the "
    "server, and holds on a busy machine better than a rate does. ± is the median absolute deviation."
)


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """The whole page of one or more results."""
    title = "Benchmarks: " + ", ".join(record["name"] for record in records)
    parts = []
    for record in records:
        remarks = [f"Not to be used: {reason}." for reason in facts.changes(record)]
        if record["interrupted"]:
            remarks.append("The run was interrupted; what was measured is here.")
        many = f"<h1>{escape(record['name'])}</h1>" if len(records) > 1 else ""
        parts.append(
            many
            + "".join(f'<p class="mark">{escape(remark)}</p>' for remark in remarks)
            + summary(record)
            + axis_sections(record)
            + "".join(cell_section(cell, record["baseline"]) for cell in record["cells"])
            + environment_section(record)
        )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{CSS}</style></head><body>'
        f'<h1>{escape(title)}</h1><p class="quiet">{escape(HOW_TO_READ)}</p>{"".join(parts)}</body></html>\n'
    )
