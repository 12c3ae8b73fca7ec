"""Two results of the same measurement, made at different times: what has changed, if they may be compared
at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .analysis import metrics_of, values_of
from .stats import compare_runs


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """What differs besides the product, by name, in words. The product's own tree is meant to differ."""
    found = {}
    for name in ("processor", "processors", "kernel"):
        if old["host"][name] != new["host"][name]:
            found["host"] = f"{name}: {old['host'][name]} and {new['host'][name]}"
    for name in ("harness", "fixtures"):
        if old["hashes"][name] != new["hashes"][name]:
            found[name] = f"the {name} differ: {old['hashes'][name][:12]} and {new['hashes'][name][:12]}"
    for name in ("warmup", "duration", "client_processes"):
        if old["settings"][name] != new["settings"][name]:
            found["settings"] = f"{name}: {old['settings'][name]} and {new['settings'][name]}"
    if old["processors"] != new["processors"]:
        found["processors"] = f"{old['processors']} and {new['processors']}"
    for name in old["subjects"].keys() & new["subjects"].keys():
        before, after = old["subjects"][name], new["subjects"][name]
        for key, word in (("flags", "flags"), ("python", "python"), ("gil", "python")):
            if before.get(key) != after.get(key):
                found[word] = f"{key} of {name}: {before.get(key)} and {after.get(key)}"
    return found


def compare(
    old: Mapping[str, Any], new: Mapping[str, Any], allowed: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """Lines of a report, and reasons to refuse it; of the two one is empty.

    The runs were not made in turns, so that a change of the machine between them is not told apart from a
    change of the product: the interval is of the ratio of medians, and wider than that of a run with both.
    """
    refused = [text for name, text in sorted(differences(old, new).items()) if name not in allowed]
    if refused:
        return [], refused
    lines = []
    before = {cell["name"]: cell for cell in old["cells"]}
    for cell in new["cells"]:
        for name in new["subjects"]:
            if cell["name"] not in before or name not in old["subjects"]:
                continue
            for metric in metrics_of(cell):
                ratio = compare_runs(
                    list(values_of(cell, name, metric).values()),
                    list(values_of(before[cell["name"]], name, metric).values()),
                )
                if ratio is not None:
                    interval = (
                        f" [{ratio.interval[0]:.3f}, {ratio.interval[1]:.3f}]" if ratio.interval else ""
                    )
                    figure = f"{ratio.median:.3f}{interval}  {ratio.verdict}"
                    lines.append(f"{cell['name']}  {name}  {metric.label}: {figure}")
    return lines or ["nothing that both results measured"], []
