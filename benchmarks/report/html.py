"""The page: one file, no scripts, nothing loaded from elsewhere, and readable on a phone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from ..analysis import CPU, P99, RATE, metrics_of, ranking, rows
from . import facts, plots

CSS = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; font: 16px/1.5 system-ui, sans-serif; color: #111827; background: #fff; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 2.5rem 0 .5rem; border-top: 1px solid #d1d5db; padding-top: 1rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p { margin: .5rem 0; }
.quiet { color: #4b5563; }
.wide { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; text-align: right; border-bottom: 1px solid #e5e7eb; white-space: nowrap; vertical-align: top; }
th { font-weight: 600; color: #374151; }
td small { display: block; color: #4b5563; }
tr > :first-child { text-align: left; position: sticky; left: 0; background: #fff; }
.words td, .words th { text-align: left; white-space: normal; min-width: 7rem; overflow-wrap: anywhere; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; align-items: start; }
figure { margin: 0; }
svg { display: block; width: 100%; max-width: 30rem; height: auto; }
.mark { background: #fef3c7; border-left: 4px solid #d97706; padding: .4rem .7rem; margin: .4rem 0; overflow-wrap: anywhere; }
.refused { background: #fee2e2; border-left-color: #b91c1c; }
ul { padding-left: 1.2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; font-size: .875rem; margin: .5rem 0; }
dt { color: #4b5563; }
dd { margin: 0; overflow-wrap: anywhere; }
code { font: .8125rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
details { margin: .75rem 0; }
summary { cursor: pointer; }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } th, td { padding: .3rem .5rem; } }
"""


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
    ranks = {name: str(place) for place, name in enumerate(ranking(made), 1)}
    lines = []
    for row in made:
        figures = [
            f"{escape(facts.value_text(row, metric))}<small>{escape(facts.ratio_text(row, metric))}</small>"
            for metric in metrics
        ]
        rank = [ranks.get(row.subject, facts.NOT_TOLD)] if RATE in metrics else []
        share = [f"{row.client_share:.2f}"] if row.client_share is not None else []
        lines.append([escape(row.subject), *figures, *rank, *share])
    head = [f"{metric.label}<br>{metric.unit}" for metric in metrics]
    tail = (["rank by rate"] if RATE in metrics else []) + (
        ["client CPU"] if len(lines[0]) > len(head) + 2 else []
    )
    if any(row.client_share is not None for row in made) and "client CPU" not in tail:
        tail.append("client CPU")
    return table(["server", *head, *tail], lines)


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
    figures = [
        plots.ratios(cell, baseline, metric) for metric in (CPU, RATE, P99) if metric in metrics_of(cell)
    ]
    figures += (
        [plots.ratios(cell, baseline, metrics_of(cell)[0])]
        if CPU not in metrics_of(cell)[:1] and metrics_of(cell)
        else []
    )
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
    by_cell: dict[str, list[str]] = {}
    for title, verdict in facts.verdicts(record):
        by_cell.setdefault(title, []).append(verdict)
    if not by_cell:
        return '<p class="mark">Nothing is compared here: there is one server, or no usable trial.</p>'
    return "".join(
        f"<h3>{escape(title)}</h3><ul>{''.join(f'<li>{escape(verdict)}</li>' for verdict in told)}</ul>"
        for title, told in by_cell.items()
    )


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
        f"<details><summary>The exact command of every server</summary><ul>{lines}</ul></details>"
        f"<details><summary>Servers that are listed without taking part</summary><ul>{absent}</ul></details>"
    )


HOW_TO_READ = (
    "Ratios are those to the baseline within each trial; their median stands beside a 95 % bootstrap interval. Where the "
    "interval spans 1, no difference is shown. CPU per request counts every process of the server and holds on a busy "
    "machine better than requests per second do. ± is the median absolute deviation."
)


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """The whole page of one or more results."""
    title = "Benchmarks: " + ", ".join(record["name"] for record in records)
    parts = []
    for record in records:
        interrupted = (
            '<p class="mark">The run was interrupted; what was measured is here.</p>'
            if record["interrupted"]
            else ""
        )
        many = f"<h1>{escape(record['name'])}</h1>" if len(records) > 1 else ""
        parts.append(
            many
            + interrupted
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
