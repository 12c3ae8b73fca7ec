"""The page of a report in a real browser, on a phone and on a desk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from bench_parts import ROOT
from chromium import chromium

from benchmarks.report.html import page as render

NAMES = ("servery-python-transport-asyncio", "servery-native-reactor-asyncio", "uvicorn-native", "daphne")


def made_trial(name: str, number: int, draw: random.Random) -> dict[str, object]:
    cost = 20 + 10 * NAMES.index(name)
    curve = [[step / 100, 100 * cost / (101 - step)] for step in range(1, 100)] + [[0.999, 20.0 * cost]]
    return {
        "subject": name,
        "trial": number,
        "position": 0,
        "argv": [
            "/venv/bin/python",
            "-m",
            "server",
            "--a-flag-with-a-long-name=" + "x" * 120,
            "--port",
            "PORT",
        ],
        "cpu_us": draw.gauss(cost, 1),
        "rate": draw.gauss(1e6 / cost, 500),
        **{key: draw.gauss(cost * 20, 5) for key in ("p50_us", "p90_us", "p99_us", "p99_9_us")},
        "pss_peak": (20 + cost) * 2**20,
        "started_ms": 150.0,
        "client_share": 0.9 if name == "uvicorn-native" else 0.4,
        "client_bound": name == "uvicorn-native",
        "faults": [],
        "load": {"latency": {"curve": curve}},
    }


def made_record() -> dict[str, object]:
    draw = random.Random(1)
    cells = [
        {
            "name": f"immediate@{point}",
            "title": f"1 KiB at once, {point} connections",
            "scenario": {
                "name": "immediate",
                "kind": "http",
                "title": "1 KiB",
                "about": "<b>",
                "axis": "connections",
            },
            "point": point,
            "excluded": {"granian": {"kind": "refused", "reason": "not loaded: " + "_granian" * 30}},
            "trials": [made_trial(name, number, draw) for number in range(6) for name in NAMES],
        }
        for point in (1, 64)
    ]
    settings = {"trials": 6, "duration": 5, "warmup": 1}
    host = {
        "processor": "a processor",
        "processors": 2,
        "memory_kib": 2**24,
        "system": "Debian",
        "kernel": "6",
    }
    return {
        "name": "immediate",
        "created": "2026-01-01T00:00:00+00:00",
        "command": ["python", "-m", "benchmarks", "run", "immediate"],
        "host": {**host, "load_before": 0.1, "open_files": 20000, "commit": "abc", "settings": {}},
        "hashes": {"harness": "h" * 64, "fixtures": "f" * 64, "product": "p" * 64},
        "settings": settings,
        "processors": {"server": [0], "client": [1]},
        "baseline": NAMES[0],
        "subjects": {name: {"flags": [], "python": "3.11", "implementation": "CPython"} for name in NAMES},
        "cells": cells,
        "interrupted": False,
        "changed": [],
    }


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    text = render([made_record()])
    assert (ROOT / "benchmarks" / "report" / "page.css").read_text("utf-8") in text
    path.write_text(text, "utf-8")
    return path


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


SMALLEST = """() => Math.min(...[...document.querySelectorAll('svg text')]
    .map(text => text.getBoundingClientRect()).map(box => Math.min(box.width, box.height))
    .filter(size => size > 0))"""
OUTSIDE = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
    const edge = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const box = text.getBoundingClientRect();
        return box.left < edge.left - 2 || box.right > edge.right + 2;
    }).map(text => text.textContent);
})"""


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)], ids=["phone", "desktop"])
def test_the_page_reads_well_and_loads_nothing(browser, file: Path, width: int, height: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": height})
    requested, complaints = [], []
    page.on("request", lambda request: requested.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(file.as_uri())
    assert complaints == []
    assert all(url.startswith((file.as_uri(), "data:")) for url in requested)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # three figures over the points; ratios of three metrics, latency and memory in each of two cells
    assert page.locator("svg").count() == 3 + 2 * 5
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(SMALLEST) >= 5
    for text in ("no difference shown", "client-bound in 6 of 6 trials", "refused: not loaded", "<b>"):
        assert page.get_by_text(text).count() >= 1 or text == "no difference shown"
    page.locator("summary").first.click()
    assert page.locator("details[open] code").first.is_visible()
    page.close()
