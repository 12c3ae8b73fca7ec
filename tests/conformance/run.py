"""The Autobahn suite for WebSocket servers against this checkout, with each parser: `make conformance`.

The suite needs Python 2.7 (``PYTHON27``, or one on PATH or under pyenv) and is installed into
``.cache/conformance``. Arguments are its cases, such as ``"1.*" 12.1.1``; default: all of them. Exit code 0:
every case went as the suite wants it; 1: one did not; 2: the suite could not be run.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "conformance"
PARSERS = ("python", "native")
GOOD = ("OK", "NON-STRICT", "INFORMATIONAL")
COLUMNS = (*GOOD, "UNIMPLEMENTED", "FAILED")
GROUPS = {
    "1": "framing",
    "2": "pings and pongs",
    "3": "reserved bits",
    "4": "opcodes",
    "5": "fragmentation",
    "6": "UTF-8",
    "7": "closing",
    "9": "limits",
    "10": "misc",
    "12": "compression",
    "13": "compression parameters",
}

REQUIREMENTS = Path(__file__).with_name("requirements.txt")

VIRTUALENV = "virtualenv==20.21.1"
"""The last one that makes environments for Python 2.7."""


class NotRun(Exception):
    """The suite cannot be run; the text says what is missing."""


def call(command: list[str | Path], what: str) -> str:
    """Run `command` quietly; returns what it said. Raises `NotRun` with the end of that."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise NotRun(f"{what} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout + done.stderr


def python27() -> str:
    """A Python 2.7. Raises `NotRun`."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [os.environ.get("PYTHON27", ""), *map(str, pyenv.glob("versions/2.7*/bin/python2.7"))]
    for candidate in [*candidates, shutil.which("python2.7") or ""]:
        if candidate and Path(candidate).exists():
            return candidate
    raise NotRun("needs Python 2.7: none on PATH or under pyenv; name one in the variable PYTHON27")


def wstest() -> Path:
    """The suite's command, installed if it is not there yet. Raises `NotRun`."""
    folder = CACHE / "suite"
    stamp = folder / "stamp.txt"
    wanted = REQUIREMENTS.read_text("utf-8")
    if not stamp.exists() or stamp.read_text("utf-8") != wanted:
        print("installing the suite, which takes a minute or two", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        maker = CACHE / "virtualenv"
        call([sys.executable, "-m", "venv", maker], "making a virtual environment")
        call([maker / "bin/python", "-m", "pip", "install", "--quiet", VIRTUALENV], "pip install virtualenv")
        call([maker / "bin/virtualenv", "--quiet", "-p", python27(), folder], "virtualenv")
        call([folder / "bin/pip", "install", "--quiet", "-r", REQUIREMENTS], "pip install")
        stamp.write_text(wanted, "utf-8")
    return folder / "bin/wstest"


@contextmanager
def served(parser: str) -> Iterator[int]:
    """A server with `parser` that echoes; yields its port. Raises `NotRun`."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    flags = [
        "--parser",
        parser,
        "--ws-max-size",
        "33554432",
        "--no-access-log",
        "--fd",
        str(listening.fileno()),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "servery", "echo:app", "--app-dir", Path(__file__).parent, *flags],
        pass_fds=[listening.fileno()],
        stderr=subprocess.PIPE,
        text=True,
    )
    listening.close()
    assert process.stderr is not None
    with process.stderr as said:
        line = said.readline()
        if f"parser={parser} " not in line:
            raise NotRun(f"the server with --parser {parser} did not start: {line}{said.read()}")
        try:
            yield port
        finally:
            process.terminate()
            process.wait()


def run(command: Path, parser: str, cases: list[str]) -> dict[str, Any]:
    """Case -> result. Raises `NotRun`."""
    reports = CACHE / "reports" / parser
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    with served(parser) as port:
        plan = {
            "outdir": str(reports),
            "options": {"failByDrop": False},
            "servers": [{"agent": parser, "url": f"ws://127.0.0.1:{port}"}],
            "cases": cases,
            "exclude-cases": [],
            "exclude-agent-cases": {},
        }
        (reports / "plan.json").write_text(json.dumps(plan), "utf-8")
        said = call([command, "-m", "fuzzingclient", "-s", reports / "plan.json"], "the suite")
    if not (reports / "index.json").exists():
        raise NotRun(f"the suite has written no report: {said.strip()[-500:]}")
    results: dict[str, Any] = json.loads((reports / "index.json").read_text("utf-8"))[parser]
    return results


def verdict(result: dict[str, Any]) -> str:
    """The worse of how a case and its closing went."""
    ways = (result["behavior"], result["behaviorClose"])
    bad = [way for way in ways if way not in GOOD]
    return "UNIMPLEMENTED" if ways[0] == "UNIMPLEMENTED" else "FAILED" if bad else str(ways[0])


def show(results: dict[str, Any]) -> int:
    """Print a table for each parser; returns how many cases did not go well."""
    faults = 0
    for agent in PARSERS:
        cases = {case: verdict(result) for case, result in results[agent].items()}
        table: dict[str, Counter[str]] = {}
        for case, way in cases.items():
            table.setdefault(case.split(".")[0], Counter())[way] += 1
        print(f"\n{'parser=' + agent:32}" + "".join(f"{column:>15}" for column in COLUMNS))
        for group in sorted(table, key=int):
            name = f"{group:>2} {GROUPS.get(group, '')}"
            print(f"{name:32}" + "".join(f"{table[group][column]:>15}" for column in COLUMNS))
        for column in COLUMNS[1:2] + COLUMNS[3:]:
            named = [case for case, way in cases.items() if way == column]
            if named:
                print(
                    f"{column}: {' '.join(sorted(named, key=lambda case: [int(n) for n in case.split('.')]))}"
                )
        faults += sum(way not in GOOD for way in cases.values())
    print(f"\nThe suite's own reports: {CACHE / 'reports'}/*/index.html")
    return faults


def main() -> int:
    """Run the cases that the arguments name; returns the exit code."""
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        command, cases = wstest(), sys.argv[1:] or ["*"]
        with ThreadPoolExecutor() as pool:  # beside each other: most of the time is the suite's own
            results = dict(
                zip(PARSERS, pool.map(lambda parser: run(command, parser, cases), PARSERS), strict=True)
            )
    except NotRun as reason:
        print(f"not run: {reason}", file=sys.stderr)
        return 2
    return 1 if show(results) else 0


if __name__ == "__main__":
    sys.exit(main())
