"""Plots as SVG text, by matplotlib: narrow enough that a phone need not shrink them."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from ..analysis import PSS, Metric, Row, curve, rows

WIDTH = 4.7
"""Inches: with its margins about the 390 CSS pixels of a phone."""
BETTER, WORSE, NEITHER = "#0a7f62", "#b8450f", "#6b7280"
LINES = ("#1d4ed8", "#b8450f", "#0a7f62", "#8b1fa9", "#a16207", "#0e7490", "#be123c", "#4b5563")
MARKERS = "osD^vP*X"
LABEL = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
"""Behind a name, so that no line runs through it."""
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "benchmarks",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9ca3af",
    "axes.grid": True,
    "grid.color": "#e5e7eb",
    "legend.frameon": False,
    "legend.fontsize": 8,
}


LEFT, LEFT_WITH_TICKS, RIGHT, TOP, BOTTOM, LEGEND_LINE = 0.12, 0.58, 0.12, 0.34, 0.52, 0.19
"""Margins in inches: given, since a layout engine that finds them draws every figure several times."""


def _figure(plot_height: float, title: str, has_ticks: bool = False, names: int = 0) -> tuple[Figure, Axes]:
    """A figure whose plot is `plot_height` inches high, with room for ticks at its left and names below."""
    bottom = BOTTOM + LEGEND_LINE * names
    height = TOP + plot_height + bottom
    figure = Figure(figsize=(WIDTH, height))
    left = LEFT_WITH_TICKS if has_ticks else LEFT
    figure.subplots_adjust(left / WIDTH, bottom / height, 1 - RIGHT / WIDTH, 1 - TOP / height)
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=9.5, fontweight="bold")
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure: Figure, description: str) -> str:
    """The figure's <svg>, which takes the width that it is given and says what it shows."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _colour(row: Row, metric: Metric) -> str:
    compared = row.comparisons[metric.key]
    if compared.interval is None or compared.interval[0] <= 1 <= compared.interval[1]:
        return NEITHER
    return BETTER if (compared.median > 1) == metric.higher_is_better else WORSE


def ratios(cell: Mapping[str, Any], baseline: str, metric: Metric) -> str:
    """Ratio to the baseline of each server, with its interval; nothing if there is none."""
    shown = [row for row in rows(cell, baseline) if metric.key in row.comparisons]
    if not shown:
        return ""
    with matplotlib.rc_context(STYLE):
        figure, axes = _figure(0.42 * len(shown), f"{metric.label}, ratio")
        for place, row in enumerate(reversed(shown)):
            compared, colour = row.comparisons[metric.key], _colour(row, metric)
            if compared.interval:
                axes.plot(
                    compared.interval, (place, place), color=colour, linewidth=2.2, solid_capstyle="butt"
                )
            axes.plot(compared.median, place, "o", color=colour, markersize=6)
            axes.annotate(
                f"{row.subject}  ×{compared.median:.2f}",
                (0.01, place + 0.2),
                xycoords=("axes fraction", "data"),
                fontsize=8.5,
                va="bottom",
                bbox=LABEL,
            )
        axes.axvline(1, color="#111827", linewidth=1)
        axes.set_xscale("log")
        axes.set_ylim(-0.5, len(shown) - 0.25)
        axes.set_yticks([])
        axes.grid(axis="y", visible=False)
        _choose_ticks(axes)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        direction = "more" if metric.higher_is_better else "less"
        axes.set_xlabel(f"1 is {baseline}; {direction} is better", fontsize=8.5)
        told = ", ".join(f"{row.subject} {row.comparisons[metric.key].median:.2f}" for row in shown)
        return _svg(figure, f"{metric.label}, ratio to {baseline}: {told}")


def _choose_ticks(axes: Axes) -> None:
    """Round numbers where the axis spans little; else 1, 2 and 5 of each decade, or its beginnings alone."""
    low, high = axes.get_xlim()
    if high / low < 4:
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_minor_locator(NullLocator())
    elif high / low < 40:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_minor_formatter(NullFormatter())


def latency(cell: Mapping[str, Any], baseline: str) -> str:
    """Latency by quantile, on axes that show the tail; nothing if there is none."""
    curves = [(row.subject, curve(cell, row.subject)) for row in rows(cell, baseline)]
    curves = [(name, [point for point in points if point[0] <= 0.9999]) for name, points in curves if points]
    if not curves:
        return ""
    with matplotlib.rc_context(STYLE):
        figure, axes = _figure(1.9, "latency by quantile", True, len(curves))
        for number, (name, points) in enumerate(curves):
            nines = [-math.log10(1 - quantile) for quantile, _ in points]
            axes.plot(
                nines, [value for _, value in points], color=LINES[number % 8], linewidth=1.6, label=name
            )
        ticks = (0.5, 0.9, 0.99, 0.999)
        axes.set_xticks([-math.log10(1 - tick) for tick in ticks], [f"{tick * 100:g} %" for tick in ticks])
        axes.set_yscale("log")
        axes.set_ylabel("ms")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        figure.legend(loc="lower left", ncols=1, borderaxespad=0.2, labelspacing=0.25)
        return _svg(figure, "latency by quantile of " + ", ".join(name for name, _ in curves))


def memory(cell: Mapping[str, Any], baseline: str) -> str:
    """Peak PSS of each server; nothing if it was not measured."""
    shown = [(row.subject, row.median(PSS)) for row in rows(cell, baseline)]
    known = [(name, value / 2**20) for name, value in shown if value is not None]
    if not known:
        return ""
    with matplotlib.rc_context(STYLE):
        figure, axes = _figure(0.42 * len(known), "peak memory of all processes, PSS in MiB")
        for place, (name, value) in enumerate(reversed(known)):
            axes.barh(place, value, height=0.3, color="#1d4ed8")
            axes.annotate(
                f"{name}  {value:.1f}", (0.01, place + 0.22), xycoords=("axes fraction", "data"), fontsize=8.5
            )
        axes.set_ylim(-0.4, len(known) - 0.3)
        axes.set_yticks([])
        axes.grid(axis="y", visible=False)
        return _svg(figure, "peak memory: " + ", ".join(f"{name} {value:.1f} MiB" for name, value in known))


def along_axis(cells: Sequence[Mapping[str, Any]], baseline: str, metric: Metric) -> str:
    """A metric of each server over the points of a scenario; nothing if there are fewer than two points."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for cell in cells:
        for row in rows(cell, baseline):
            value = row.median(metric)
            if value is not None:
                lines.setdefault(row.subject, []).append((cell["point"], value * metric.scale))
    if len(cells) < 2 or not lines:
        return ""
    points = sorted({cell["point"] for cell in cells})
    with matplotlib.rc_context(STYLE):
        figure, axes = _figure(1.9, f"{metric.label} ({metric.unit})", True, len(lines))
        for number, (name, values) in enumerate(lines.items()):
            xs, ys = zip(*sorted(values), strict=True)
            axes.plot(xs, ys, MARKERS[number % 8] + "-", color=LINES[number % 8], markersize=4, label=name)
        axes.set_xscale("log")
        axes.set_xticks(points, [f"{point:,}" for point in points])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(cells[0]["scenario"]["axis"])
        axes.set_ylim(bottom=0)
        figure.legend(loc="lower left", ncols=1, borderaxespad=0.2, labelspacing=0.25)
        return _svg(figure, f"{metric.label} of {', '.join(lines)} over {cells[0]['scenario']['axis']}")
