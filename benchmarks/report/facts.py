"""What both forms of the report say in words: cells of tables, verdicts, the environment, reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..adapters import listed_only
from ..analysis import CPU, Metric, Row, metrics_of, rows

NOT_TOLD = "–"


def value_text(row: Row, metric: Metric) -> str:
    """Median, and how much it spreads: ``43.21 ±1.2 %``."""
    middle, spread = row.median(metric), row.spread(metric)
    if middle is None:
        return NOT_TOLD
    return metric.text(middle) + (f" ±{spread * 100:.1f} %" if spread is not None and row.trials > 1 else "")


def ratio_text(row: Row, metric: Metric) -> str:
    """Ratio to the baseline with its interval; nothing for the baseline itself."""
    compared = row.comparisons.get(metric.key)
    if compared is None:
        return ""
    interval = compared.interval
    return f"×{compared.median:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")


def share_text(row: Row) -> str:
    """Processor time of the busiest process of the client, as a part of the wall clock."""
    return NOT_TOLD if row.client_share is None else f"{row.client_share:.2f}"


def verdicts(record: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Title of a cell, server, verdict: on the one figure that each cell is about."""
    for cell in record["cells"]:
        metrics = metrics_of(cell)
        for metric in [CPU] if CPU in metrics else metrics[:1]:
            for row in rows(cell, record["baseline"]):
                if metric.key in row.comparisons:
                    verdict = row.comparisons[metric.key].verdict
                    yield cell["title"], row.subject, f"{metric.label}: {verdict}"


def changes(record: Mapping[str, Any]) -> list[str]:
    """What became another while it was measured, in words."""
    return [f"the {name} changed while it was measured" for name in record["changed"]]


def environment(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and value of what the figures depend on."""
    host, settings = record["host"], record["settings"]
    return [
        ("measured", record["created"]),
        ("processor", f"{host['processor']}, {host['processors']} logical"),
        ("memory", f"{host['memory_kib'] / 2**20:.0f} GiB"),
        ("system", f"{host['system']}, Linux {host['kernel']}"),
        ("server on processors", _numbers(record["processors"]["server"])),
        ("client on processors", _numbers(record["processors"]["client"]) + _shared(record["processors"])),
        ("load of the machine before", f"{host['load_before']:.2f}"),
        (
            "trials",
            f"{settings['trials']} of {settings['duration']:g} s after {settings['warmup']:g} s of warm-up",
        ),
        ("open files allowed", f"{host['open_files']:,}"),
        ("baseline", record["baseline"]),
        ("checkout", host["commit"] or "not a git checkout"),
        *((f"hash of the {name}", value[:16]) for name, value in record["hashes"].items()),
        *((name.rpartition("/")[2], value) for name, value in host["settings"].items() if value),
    ]


def _shared(sets: Mapping[str, list[int]]) -> str:
    return ", shared with the server" if set(sets["server"]) & set(sets["client"]) else ""


def _numbers(values: list[int]) -> str:
    return ", ".join(map(str, values))


def subject_line(name: str, entry: Mapping[str, Any]) -> str:
    """Versions, Python and GIL of a server."""
    if "missing" in entry:
        return f"{name}: {entry['missing']}"
    versions = ", ".join(
        f"{package} {version}" for package, version in sorted(entry.get("versions", {}).items())
    )
    python = f"{entry.get('implementation')} {entry.get('python')}" if entry.get("python") else ""
    gil = "" if entry.get("gil", True) else " without the GIL"
    return f"{name}: {', '.join(part for part in (python + gil, versions) if part) or 'compiled C'}"


def exclusions(record: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Cell, server, kind, reason: everything that was asked for and is not reported."""
    return [
        (cell["name"], name, excluded["kind"], excluded["reason"])
        for cell in record["cells"]
        for name, excluded in cell["excluded"].items()
    ]


def not_taking_part() -> list[tuple[str, str]]:
    """Servers that no run has, and why."""
    return sorted(listed_only().items())


def commands(record: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Cell, server, and the exact command line; PORT and SOCKET stand for what differs between trials."""
    found: dict[tuple[str, str], str] = {}
    for cell in record["cells"]:
        for trial in cell["trials"]:
            if "argv" in trial:
                found.setdefault((cell["name"], trial["subject"]), " ".join(map(_quoted, trial["argv"])))
    return [(cell, subject, command) for (cell, subject), command in found.items()]


def _quoted(part: str) -> str:
    return f'"{part}"' if " " in part or not part else part


def timeout_rows(cell: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Server, and what became of the idle connection, the slow head and the stalled body; the first trial
    of each.
    """
    made: dict[str, tuple[str, str, str, str]] = {}
    for trial in cell["trials"]:
        if "timeouts" not in trial or trial["subject"] in cell["excluded"]:
            continue
        told = [_timeout_text(trial["timeouts"][key]) for key in ("idle", "slow_head", "stalled_body")]
        made.setdefault(trial["subject"], (trial["subject"], told[0], told[1], told[2]))
    return list(made.values())


def _timeout_text(entry: Mapping[str, Any]) -> str:
    status = f", answered {entry['status']}" if entry["status"] else ""
    return (f"closed after {entry['closed_s']:.1f} s" if entry["closed_s"] is not None else "kept") + status


def stop_rows(cell: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Server, in how many trials the request was answered, and exit statuses."""
    made = []
    for name in dict.fromkeys(trial["subject"] for trial in cell["trials"]):
        trials = [trial for trial in cell["trials"] if trial["subject"] == name and "answered" in trial]
        if name in cell["excluded"] or not trials:
            continue
        answered = sum(trial["answered"] for trial in trials)
        codes = ", ".join(
            sorted({"killed" if t["exit_code"] is None else str(t["exit_code"]) for t in trials})
        )
        made.append((name, f"{answered} of {len(trials)}", codes))
    return made
