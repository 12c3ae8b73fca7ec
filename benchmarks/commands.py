"""What each command of the command line does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from . import checks, record, sides
from .adapters import Launch, adapter_named, all_adapters, listed_only
from .analysis import CPU, metrics_of, rows
from .compare import compare as compare_records
from .environments import Environments, pins
from .machine import Processors
from .paths import RESULTS
from .progress import clock
from .report import facts, markdown
from .run import Run, refusals
from .scenario import Cell, ScenarioError, all_scenarios, select
from .studies import Study, all_studies
from .trial import Settings, Subject
from .verdicts import CannotServe

DEFAULT_SERVERS = ("servery-python", "servery-native", "uvicorn-portable", "uvicorn-native")
DEFAULT_WSGI_SERVERS = ("servery-python", "servery-native", "gunicorn-sync", "gunicorn-gthread", "waitress")
SMOKE_SERVERS = ("servery-python", "servery-native")
SMOKE_SCENARIOS = (
    "immediate@1,8",
    "post-1k",
    "stream-small",
    "churn",
    "ws-echo@1",
    "ws-idle@20",
    "stop",
    "startup",
)


def _say(text: str = "") -> None:
    print(text, flush=True)


def subjects_named(names: Sequence[str]) -> list[Subject]:
    """By the adapters' names.

    Raises ScenarioError for an unknown one, CannotServe for one that is only listed.
    """
    found = []
    for name in names:
        try:
            adapter = adapter_named(name)
        except KeyError:
            raise ScenarioError(f"no server {name!r}; `python -m benchmarks list` names them") from None
        found.append(Subject(name, adapter))
    return found


def show(arguments: argparse.Namespace) -> int:
    """``list``."""
    environments = Environments(arguments.envs, arguments.python)
    _say("scenarios")
    for scenario in all_scenarios().values():
        points = f"  {scenario.axis}: {', '.join(map(str, scenario.points))}" if scenario.axis else ""
        _say(f"  {scenario.name:20} {scenario.title}{points}")
    _say("\nservers")
    for name, adapter in all_adapters().items():
        _say(f"  {name:34} {_state(adapter, environments)}")
    for name, reason in listed_only().items():
        _say(f"  {name:34} takes no part: {reason}")
    _say("\nstudies")
    for study in all_studies().values():
        _say(f"  {study.name:20} {study.title}")
    return 0


def _state(adapter: Any, environments: Environments) -> str:
    """Installed or not, and what it cannot serve."""
    try:
        environments.bin(adapter.environment)
    except CannotServe as reason:
        return str(reason)
    launches = {
        "WSGI": Launch("a:b", wsgi=True),
        "ASGI": Launch("a:b"),
        "HTTP/2": Launch("a:b", wsgi="asgi" not in adapter.extras, h2=True),
        "workers": Launch("a:b", wsgi="asgi" not in adapter.extras, workers=2),
    }
    lacks = []
    for word, launch in launches.items():
        try:
            adapter.argv(launch, environments)
        except CannotServe as reason:
            lacks.append(f"{word}: {reason}")
    return "installed" + (f"; without {'; '.join(lacks)}" if lacks else "")


def measure(
    name: str,
    subjects: Sequence[Subject],
    cells: Sequence[Cell],
    settings: Settings,
    arguments: argparse.Namespace,
    out: Path,
    with_report: bool = True,
) -> dict[str, Any]:
    """One run from beginning to end, on the processors and in the environments that `arguments` name: its
    result is in `out`, with a page and a summary beside it.
    """
    cpus = arguments.processors
    environments = Environments(arguments.envs, arguments.python)
    made = record.new_record(name, arguments.command_line, subjects, settings, cpus, environments)
    run = Run(made, subjects, cells, settings, cpus, environments)
    _say(f"{name}: about {clock(run.planned)}")
    run.make(lambda: record.write(made, out))
    after = record.hashes(environments)
    made["changed"] = [name for name, value in made["hashes"].items() if after.get(name) != value]
    record.write(made, out)
    tell(made)
    _say(f"\n{out}")
    if with_report:
        write_report([made], out.with_suffix(".html"), out.with_suffix(".md"))
    return made


def tell(made: dict[str, Any]) -> None:
    """The figures that matter most, as text."""
    for cell in made["cells"]:
        _say(f"\n{cell['title']}")
        metrics = metrics_of(cell)
        shown = metrics[:3] if CPU in metrics else metrics
        for row in rows(cell, made["baseline"]) if shown else []:
            told = [f"{metric.label} {facts.value_text(row, metric)} {metric.unit}" for metric in shown]
            _say(f"  {row.subject:34} {' · '.join(told)}")
            for metric in shown[:1]:
                if metric.key in row.comparisons:
                    verdict = row.comparisons[metric.key].verdict
                    _say(f"  {'':34} {facts.ratio_text(row, metric)} of {made['baseline']}: {verdict}")
            for mark in row.marks:
                _say(f"  {'':34} {mark}")
        for line in [*facts.stop_rows(cell), *facts.timeout_rows(cell)]:
            _say(f"  {line[0]:34} {' · '.join(line[1:])}")
        for name, excluded in cell["excluded"].items():
            _say(f"  {name:34} {excluded['kind']}: {excluded['reason']}")


def write_report(records: Sequence[dict[str, Any]], html: Path, text: Path) -> None:
    """Both forms. Without matplotlib there is no page, and that is said."""
    text.write_text(markdown.summary(records), "utf-8")
    _say(str(text))
    try:
        from .report.html import page
    except ImportError as error:
        _say(f"no page: {error}; python -m pip install --group benchmarks")
        return
    html.write_text(page(records), "utf-8")
    _say(str(html))


def _local(name: str) -> Path:
    return RESULTS / "local" / f"{name}-{datetime.now():%Y%m%d-%H%M%S}.json"


def _exit_code(made: dict[str, Any]) -> int:
    if made["interrupted"]:
        return 130
    refused = refusals(made)
    for line in refused:
        print(f"refused: {line}", file=sys.stderr)
    return 1 if refused else 0


def run(arguments: argparse.Namespace) -> int:
    """``run``."""
    scenarios = all_scenarios()
    names = arguments.scenarios or (SMOKE_SCENARIOS if arguments.smoke else ())
    if not names:
        raise ScenarioError("name a scenario; `python -m benchmarks list` shows them")
    cells = select(list(names), scenarios)
    servers = arguments.servers.split(",") if arguments.servers else _default_servers(cells, arguments.smoke)
    if servers == ["all"]:
        servers = [name for name in all_adapters() if name != "floor"]
    if arguments.baseline:
        servers = [arguments.baseline, *(name for name in servers if name != arguments.baseline)]
    subjects = subjects_named(servers)
    if len({subject.adapter.name for subject in subjects}) < len(subjects):
        raise ScenarioError("a server is named twice; `ab` compares one with itself")
    label = "smoke" if arguments.smoke else "+".join(dict.fromkeys(cell.scenario.name for cell in cells))[:40]
    return _measure_one(label, subjects, cells, arguments)


def _measure_one(
    label: str, subjects: Sequence[Subject], cells: Sequence[Cell], arguments: argparse.Namespace
) -> int:
    """What ``run`` and ``ab`` end with."""
    out = arguments.out or _local(label)
    made = measure(label, subjects, cells, arguments.settings, arguments, out, not arguments.no_report)
    return _exit_code(made)


def _default_servers(cells: Sequence[Cell], smoke: bool) -> list[str]:
    if smoke:
        return list(SMOKE_SERVERS)
    if all(cell.scenario.is_wsgi for cell in cells):
        return list(DEFAULT_WSGI_SERVERS)
    return list(DEFAULT_SERVERS)


def ab(arguments: argparse.Namespace) -> int:
    """``ab``."""
    environments = Environments(arguments.envs, arguments.python)
    try:
        pairs = [sides.side(arguments.a, "A"), sides.side(arguments.b, "B")]
    except KeyError as error:
        raise ScenarioError(
            f"no server {error}; give flags of servery, or one of `python -m benchmarks list`"
        ) from None
    if arguments.app:
        subjects = [sides.users_subject(*pair, arguments.app, arguments.app_dir) for pair in pairs]
        scenario = sides.users_scenario(
            arguments.app, arguments.path, arguments.connections, arguments.method, arguments.wsgi
        )
        scenario, remark = sides.learn(scenario, subjects[0], environments)
        _say(f"{arguments.app} {arguments.path}: {remark}")
        cells = [Cell(scenario, 1)]
    else:
        subjects = [Subject(*pair) for pair in pairs]
        cells = select([arguments.scenario], all_scenarios())
    return _measure_one("ab", subjects, cells, arguments)


def study(arguments: argparse.Namespace) -> int:
    """``study``."""
    studies = all_studies()
    if unknown := [name for name in arguments.names if name not in studies]:
        raise ScenarioError(f"no study {unknown[0]!r}; these are: {', '.join(studies)}")
    chosen = [studies[name] for name in arguments.names] if arguments.names else list(studies.values())
    if arguments.estimate or not arguments.names:
        for one in chosen:
            _say(f"{one.name:16} {clock(_seconds(one, arguments)):>8}  {one.title}")
        return 0
    return max(_make_study(one, arguments) for one in chosen)


def _runs(one: Study, arguments: argparse.Namespace) -> list[tuple[Any, list[Subject], list[Cell], Settings]]:
    """The parts of a study, with trials and duration as its file or the command line has them."""
    names = [part.name for part in one.parts]
    if arguments.part and arguments.part not in names:
        raise ScenarioError(f"study {one.name} has no part {arguments.part!r}; these are: {', '.join(names)}")
    scenarios = all_scenarios()
    return [
        (
            part,
            subjects_named(part.servers),
            select(list(part.scenarios), scenarios),
            Settings(
                arguments.study_trials or part.trials,
                part.warmup,
                arguments.study_duration or part.duration,
                part.client_processes,
            ),
        )
        for part in one.parts
        if not arguments.part or part.name == arguments.part
    ]


def _seconds(one: Study, arguments: argparse.Namespace) -> float:
    """As planned, were no server left out."""
    nowhere = Processors((), ())
    return sum(
        Run({}, subjects, cells, settings, nowhere, Environments()).planned
        for _, subjects, cells, settings in _runs(one, arguments)
    )


def _make_study(one: Study, arguments: argparse.Namespace) -> int:
    results = arguments.results or RESULTS
    codes = []
    made = []
    for part, subjects, cells, settings in _runs(one, arguments):
        name = f"{one.name}-{part.name}"
        made.append(measure(name, subjects, cells, settings, arguments, results / f"{name}.json", False))
        codes.append(_exit_code(made[-1]))
        stem = name if arguments.part else one.name
        write_report(made, results / f"{stem}.html", results / f"{stem}.md")
        if made[-1]["interrupted"]:
            break
    return max(codes)


def compare(arguments: argparse.Namespace) -> int:
    """``compare``."""
    old, new = record.read(arguments.old), record.read(arguments.new)
    lines, refused = compare_records(old, new, arguments.allow.split(","))
    for line in lines:
        _say(line)
    for reason in refused:
        print(f"refused: {reason}", file=sys.stderr)
    return 1 if refused else 0


def report(arguments: argparse.Namespace) -> int:
    """``report``."""
    records = [record.read(path) for path in arguments.results]
    first = arguments.results[0]
    write_report(
        records, arguments.html or first.with_suffix(".html"), arguments.markdown or first.with_suffix(".md")
    )
    return 0


def env(arguments: argparse.Namespace) -> int:
    """``env``. An environment that cannot be made is no reason to leave out the others."""
    environments = Environments(arguments.envs, arguments.python)
    known = [*pins(), "servery"]
    if unknown := [name for name in arguments.names if name not in known]:
        raise ScenarioError(f"no environment {unknown[0]!r}; these are: {', '.join(known)}")
    names = arguments.names or (list(pins()) if arguments.action == "create" else known)
    failed = []
    for name in names:
        if arguments.action == "list":
            _say(f"{name:12} {', '.join(pins().get(name, ['this checkout']))}")
            continue
        _say(f"{name}: {', '.join(pins().get(name, ['this checkout']))}")
        try:
            environments.create(name, arguments.base)
        except OSError as error:
            raise ValueError(f"{name}: {error}") from None
        except Exception as error:
            failed.append(name)
            _say(f"{name}: could not be made: {error}")
    return 1 if failed else 0


def check(arguments: argparse.Namespace) -> int:
    """``check``."""
    settings = arguments.settings
    agree = checks.check(
        arguments.processors, settings.trials, settings.duration, arguments.connections, _say
    )
    return 0 if agree else 1
