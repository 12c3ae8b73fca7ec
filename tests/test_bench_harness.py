"""The harness on real servers: what is refused, what is left out, and the whole of it in small."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench_parts import ROOT

from benchmarks import record
from benchmarks.adapters import Launch, adapter_named, all_adapters, listed_only, servery_with
from benchmarks.analysis import CPU, rows
from benchmarks.cli import main
from benchmarks.commands import SMOKE_SCENARIOS
from benchmarks.environments import Environments, clean_environment, pins
from benchmarks.fixtures import FIELD_SETS
from benchmarks.machine import processors
from benchmarks.processes import cpu_seconds, pss, tree
from benchmarks.report.markdown import summary
from benchmarks.run import Run, refusals
from benchmarks.scenario import Cell, ScenarioError, all_scenarios, read_scenario, select
from benchmarks.sides import users_scenario
from benchmarks.studies import all_studies
from benchmarks.trial import Settings, Subject, run_trial
from benchmarks.verdicts import CannotServe, Refused

SHORT = Settings(trials=1, warmup=0.05, duration=0.2)
SCENARIOS = all_scenarios()
NOWHERE = Environments(Path("/nonexistent"))


def cell(name: str) -> Cell:
    (found,) = select([name], SCENARIOS)
    return found


def attempt(adapter, name: str = "immediate@2", **changes: object) -> dict[str, object]:
    subject = Subject(adapter.name, dataclasses.replace(adapter, **changes))
    return run_trial(subject, cell(name), SHORT, processors(), NOWHERE)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_is_whole(name: str) -> None:
    for one in SCENARIOS[name].cells():
        assert one.request().startswith((b"GET ", b"POST "))
        assert one.load(1, 1, port=1).seconds >= 2 or name == "http-idle"
        assert (ROOT / "benchmarks" / "apps" / f"{one.scenario.app}.py").exists()


def test_field_sets_have_the_numbers_that_scenarios_promise() -> None:
    assert cell("browser").request().count(b": ") == 15
    assert cell("fields").request().count(b": ") == 32
    assert set(FIELD_SETS) == {"plain", "browser", "many"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('title = "t"\nspeed = 1', "unknown speed"),
        ('title = "t"\n[load]\nspeed = 1', r"unknown \[load\] speed"),
        ('title = "t"\nkind = "none"', "kind must be"),
        ('title = "t"\naxis = "colour"\npoints = [1]', "axis must be"),
        ('title = "t"\naxis = "connections"\npoints = [1]\n[load]\nconnections = 2', "is the axis"),
    ],
)
def test_a_scenario_that_cannot_work_says_what_to_change(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(ScenarioError, match=word):
        read_scenario(tmp_path / "s.toml")


@pytest.mark.parametrize("name", ["none", "immediate@x", "browser@3"])
def test_a_name_that_is_no_scenario_is_an_error(name: str) -> None:
    with pytest.raises(ScenarioError):
        select([name], SCENARIOS)


def test_every_study_can_be_run() -> None:
    known = {*all_adapters(), "servery-python", "servery-native"}
    for study in all_studies().values():
        for part in study.parts:
            assert set(part.servers) <= known
            assert select(list(part.scenarios), SCENARIOS)


@pytest.mark.parametrize("name", all_adapters())
def test_an_adapter_serves_a_scenario_or_says_why_not(name: str, tmp_path: Path) -> None:
    """The flags of every launch are there, and nothing is left unfilled."""
    adapter = dataclasses.replace(all_adapters()[name], asks_help=False)
    (tmp_path / "bin").mkdir()
    for program in ("python", Path(adapter.command[0]).name):
        (tmp_path / "bin" / program).touch()
    environments = Environments(tmp_path, str(tmp_path / "bin" / "python"))
    for launch in (
        Launch("m:a", 1),
        Launch("m:a", 1, wsgi=True),
        Launch("m:a", 1, unix="/u"),
        Launch("m:a", 1, h2=True),
    ):
        reason, argv = "", []
        try:
            argv = adapter.argv(launch, environments)
        except CannotServe as error:
            reason = str(error)
        assert bool(reason) != bool(argv)
        assert not re.search(r"[{}]", " ".join(argv))


def test_a_server_that_is_not_there_is_left_out() -> None:
    with pytest.raises(CannotServe, match="env create waitress"):
        all_adapters()["waitress"].argv(Launch("m:a", 1, wsgi=True), NOWHERE)
    with pytest.raises(CannotServe, match="last release"):
        adapter_named(next(iter(listed_only())))


def test_flags_that_this_servery_does_not_have_are_a_reason_and_not_a_failure() -> None:
    adapter = servery_with(["--warp-speed"])
    with pytest.raises(CannotServe, match="no --warp-speed"):
        adapter.argv(Launch("m:a", 1), NOWHERE)


def test_versions_are_pinned() -> None:
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", pin) for wanted in pins().values() for pin in wanted)
    assert {adapter.environment for adapter in all_adapters().values()} <= {*pins(), "servery", "floor"}


def test_no_variable_changes_a_server_behind_its_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVERY_PARSER", "native")
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    assert not {"SERVERY_PARSER", "WEB_CONCURRENCY"} & set(clean_environment())


@pytest.mark.parametrize(
    "name",
    [
        "immediate@2",
        "post-64k",
        "file-128k",
        "stream-large",
        "ws-sessions",
        "unix",
        "ws-idle@3",
        "wait-open@50",
    ],
)
def test_a_trial_measures_the_server_and_finds_no_fault(name: str) -> None:
    found = run_trial(
        Subject("n", adapter_named("servery-native")),
        cell(name),
        dataclasses.replace(SHORT, longest_ramp=0.1),
        processors(),
        NOWHERE,
    )
    assert found["faults"] == []
    assert found["started_ms"] > 0
    assert found["pss_peak"] >= found["pss_before"] > 2**20
    assert found["proof"]["loop"].startswith("asyncio.")
    assert "PORT" in found["argv"] or "SOCKET" in found["argv"]
    assert name == "ws-idle@3" or found["cpu_us"] > 0


def test_a_missing_native_piece_is_refused_before_anything_is_timed() -> None:
    with pytest.raises(Refused, match="not loaded: httptools; a native piece"):
        attempt(adapter_named("servery-python"), loaded=("httptools",))


def test_a_changed_flag_is_refused() -> None:
    python = adapter_named("servery-python")
    with pytest.raises(Refused, match="does not say parser=native"):
        attempt(python, says="parser=native")
    with pytest.raises(Refused, match="the event loop is 'asyncio"):
        attempt(python, loop="uvloop.")
    with pytest.raises(Refused, match="loaded although not asked for: uvloop"):
        attempt(adapter_named("servery-python-transport-uvloop"), absent=("uvloop",))


def test_a_wrong_body_is_refused() -> None:
    scenario = dataclasses.replace(SCENARIOS["immediate"], expect={"body": "something else"})
    with pytest.raises(Refused, match="a wrong answer.*length"):
        run_trial(
            Subject("s", adapter_named("servery-python")), Cell(scenario, 1), SHORT, processors(), NOWHERE
        )


def test_a_server_that_does_not_start_is_refused_with_its_last_words() -> None:
    adapter = dataclasses.replace(adapter_named("servery-python"), after=("--port", "1000000"))
    with pytest.raises(Refused, match="ended with 2.*port"):
        attempt(adapter)


def test_what_is_refused_is_told_and_nothing_of_it_reported(tmp_path: Path) -> None:
    good = adapter_named("servery-python")
    subjects = [Subject("good", good), Subject("bad", dataclasses.replace(good, says="parser=native"))]
    made = record.new_record("r", ["c"], subjects, SHORT, processors(), NOWHERE)
    Run(made, subjects, [cell("immediate@2")], SHORT, processors(), NOWHERE).make(lambda: None)
    assert [line.partition(": ")[0] for line in refusals(made)] == ["immediate@2, bad"]
    assert [row.subject for row in rows(made["cells"][0], "good")] == ["good"]
    record.write(made, tmp_path / "r.json")
    assert record.read(tmp_path / "r.json") == json.loads(json.dumps(made))


def test_the_product_is_what_the_environment_imports(tmp_path: Path) -> None:
    package = tmp_path / "servery"
    package.mkdir()
    (package / "__init__.py").write_text("")

    class Elsewhere(Environments):
        def product(self) -> Path:
            return package

    before = record.hashes(Elsewhere())
    assert before["product"] != record.hashes(NOWHERE)["product"]
    (package / "late.so").write_bytes(b"compiled anew")
    after = record.hashes(Elsewhere())
    assert [name for name in before if before[name] != after[name]] == ["product"]


def test_a_run_during_which_the_product_changed_is_refused() -> None:
    subjects = [Subject("good", adapter_named("servery-python"))]
    made = record.new_record("r", ["c"], subjects, SHORT, processors(), NOWHERE)
    assert refusals(made) == []
    made["changed"] = ["product"]
    assert refusals(made) == ["the product changed while it was measured"]
    assert "Not to be used: the product changed" in summary([made])


def test_processor_time_and_memory_are_those_of_the_whole_tree() -> None:
    burn = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    child = f"subprocess.run([sys.executable, '-c', {burn!r}])"
    code = f"import subprocess, sys\n{burn}{child}\nprint(flush=True)\ninput()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        assert 0.6 <= cpu_seconds(process.pid) < 1.5
        assert tree(process.pid) == [process.pid]
        assert pss(process.pid) > 2**20
    finally:
        process.communicate(b"\n")


APP = """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    status = 200 if scope["path"].startswith("/hello") else 404
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})
"""


def test_ab_of_an_application_outside_the_checkout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    out = tmp_path / "ab.json"
    options = [
        "--app",
        "shop:app",
        "--app-dir",
        str(tmp_path),
        "--path",
        "/hello/x",
        "--smoke",
        "--out",
        str(out),
    ]
    assert main(["ab", "--a", "--parser python", "--b", "--parser native", *options]) == 0
    made = record.read(out)
    assert made["subjects"].keys() == {"A: --parser python", "B: --parser native"}
    assert "checked exactly" in capsys.readouterr().out
    (found,) = made["cells"]
    assert all(trial["faults"] == [] for trial in found["trials"])
    assert rows(found, made["baseline"])[1].comparisons[CPU.key].trials == 2
    page = out.with_suffix(".html").read_text("utf-8")
    assert page.count("<svg") >= 3
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)
    assert "shop:app /hello/x" in out.with_suffix(".md").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "changes", "word"),
    [
        ("servery-python", {"loaded": ("uvloop",)}, "not loaded: uvloop"),
        ("servery-native-reactor-uvloop", {"absent": ("uvloop",)}, "not asked for: uvloop"),
    ],
)
def test_pieces_are_proven_behind_an_application_of_the_users(tmp_path, name, changes, word) -> None:
    (tmp_path / "shop3.py").write_text(APP)
    adapter = dataclasses.replace(adapter_named(name), **changes)
    scenario = users_scenario("shop3:app", "/hello", 1, "GET", False)
    subject = Subject("s", adapter, "shop3:app", tmp_path)
    with pytest.raises(Refused, match=word):
        run_trial(subject, Cell(scenario, 1), SHORT, processors(), NOWHERE)


def test_ab_of_a_path_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop2.py").write_text(APP)
    options = ["--app", "shop2:app", "--app-dir", str(tmp_path), "--path", "/none", "--smoke"]
    assert main(["ab", "--a", "", "--b", "", *options]) == 1
    assert "answers 404" in capsys.readouterr().err


def test_the_smoke_run_uses_the_whole_machinery() -> None:
    kinds = {cell.scenario.kind for cell in select(list(SMOKE_SCENARIOS), SCENARIOS)}
    assert kinds == {"http", "echo", "hold", "stop", "startup"}


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    command = [sys.executable, "-m", "benchmarks", "run", "immediate@1,2", "--servers", "servery-python"]
    options = ["--trials", "50", "--duration", "0.1", "--warmup", "0", "--out", str(out)]
    process = subprocess.Popen(
        [*command, *options], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        for line in process.stderr:
            if "trial 2" in line:
                break
        os.kill(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, output
    made = record.read(out)
    assert made["interrupted"]
    assert len(made["cells"][0]["trials"]) >= 1
    assert "interrupted" in out.with_suffix(".html").read_text("utf-8")


def test_compare_and_report_read_results_from_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.json"
    options = [
        "--servers",
        "servery-python",
        "--duration",
        "0.1",
        "--warmup",
        "0",
        "--trials",
        "1",
        "--no-report",
    ]
    assert main(["run", "immediate@1", *options, "--out", str(out)]) == 0
    assert main(["compare", str(out), str(out)]) == 0
    assert "server CPU per request: 1.000" in capsys.readouterr().out
    assert main(["report", str(out), str(out)]) == 0
    assert (tmp_path / "r.html").exists()
    (tmp_path / "broken.json").write_text("{}")
    assert main(["report", str(tmp_path / "broken.json")]) == 2
    assert "not a result" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [["run"], ["run", "none"], ["run", "json", "--servers", "none"], ["run", "json", "--server-cpus", "x"]],
    ids=str,
)
def test_what_cannot_work_is_said_in_words(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith("benchmarks: ")
