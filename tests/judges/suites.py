"""The outside suites: what each needs, and how it is pointed at servery.

A suite is a function that returns ``{test id: {"outcome": ..., "reason": ...}}``. It raises `NotRun` if it
cannot be run.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from places import CACHE, HERE, NotRun, environment, python313, sdist
from serving import Served, surroundings

Rules = list[dict[str, Any]]
Outcomes = dict[str, dict[str, str]]

GUNICORN = ("gunicorn", "27.0.1")
HTTPX = ("httpx", "0.28.1")
LONGEST = 600.0

COMPLIANCE_NEEDS = [
    *("pytest==9.2.0", "pytest-asyncio==1.5.0", "packaging==26.4", "httpx[http2]==0.28.1"),
    *("websockets==17.4", "starlette==1.10.0", "fastapi==0.165.0", "python-multipart==0.0.34"),
]
FRAMEWORKS_NEED = [
    *("pytest==9.2.0", "pytest-asyncio==1.5.0", "httpx==0.28.1", "websockets==17.4"),
    *("django==6.1.3", "channels==4.3.2", "fastapi==0.165.0", "starlette==1.10.0"),
    *("quart==0.23.1", "litestar==2.25.0", "blacksheep==2.6.4"),
]
HTTPX_NEEDS = [
    *("pytest==8.3.4", "trio==0.27.0", "trustme==1.1.0", "cryptography==44.0.1", "chardet==5.2.0"),
    *(
        "anyio==4.8.0",
        "click==8.1.8",
        "rich==13.9.4",
        "zstandard==0.23.0",
        "httpx[brotli,cli,http2,socks]==0.28.1",
    ),
]
"""Of the suite's own time: it makes errors of all warnings, and detects encodings as its chardet did."""


def run_pytest(
    suite: str,
    python: Path,
    folder: Path,
    *options: str,
    urls: dict[str, str],
    rules: Rules,
    paths: list[Path],
) -> Outcomes:
    """Run pytest in `folder` with the recorder; its output goes to a file beside the report."""
    report, plan = CACHE / f"{suite}.report.json", CACHE / f"{suite}.plan.json"
    report.unlink(missing_ok=True)
    plan.write_text(json.dumps({"urls": urls, "left_out": rules, "report": str(report)}), "utf-8")
    command = [python, "-m", "pytest", "-p", "recorder", "-p", "no:cacheprovider", *options]
    with (CACHE / f"{suite}.output.txt").open("wb") as output:
        try:
            subprocess.run(
                command,
                cwd=folder,
                env={**surroundings(HERE, *paths), "JUDGE_PLAN": str(plan)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=LONGEST,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotRun(f"not done after {LONGEST:g} s: see {output.name}") from None
    if not report.exists():
        raise NotRun(f"pytest came to no end: see {output.name}")
    outcomes: Outcomes = json.loads(report.read_text("utf-8"))
    return outcomes


def stops(servers: dict[str, Served]) -> Outcomes:
    """One more test for each server: that it stopped when told to, with exit code 0."""
    return {
        f"stop of {name}": {
            "outcome": "passed" if server.exit_code == 0 else "failed",
            "reason": f"exit code {server.exit_code}: see {server.log}",
        }
        for name, server in servers.items()
    }


def request_files(rules: Rules) -> Outcomes:
    """gunicorn's ``tests/requests`` read by our engine, without a socket."""
    source = sdist(*GUNICORN)
    python = environment("compliance", sys.executable, COMPLIANCE_NEEDS)
    report = CACHE / "request-files.report.json"
    report.unlink(missing_ok=True)
    done = subprocess.run(
        [python, HERE / "corpus.py", report],
        env=surroundings(source, source / "tests"),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotRun(f"the files could not be read: {done.stderr.strip()[-500:]}")
    found: dict[str, str] = json.loads(report.read_text("utf-8"))
    return {
        test: {"outcome": "failed" if fault else "passed", "reason": fault} for test, fault in found.items()
    }


def compliance(rules: Rules) -> Outcomes:
    """gunicorn's ASGI compliance suite; a second server stands where its nginx would."""
    folder = sdist(*GUNICORN) / "tests" / "docker" / "asgi_compliance"
    python = environment("compliance", sys.executable, COMPLIANCE_NEEDS)
    servers = {
        name: Served(
            python,
            "apps.main_app:app",
            log=CACHE / f"compliance.{name}.log",
            cwd=folder,
            paths=[],
            lifespan="on",
        )
        for name in ("gunicorn_http", "nginx_http")
    }
    options = ("-c", os.devnull, "--rootdir", ".", "-o", "asyncio_mode=auto", ".")
    with ExitStack() as stack:
        urls = {name: stack.enter_context(server).url for name, server in servers.items()}
        outcomes = run_pytest("compliance", python, folder, *options, urls=urls, rules=rules, paths=[])
    return outcomes | stops(servers)


FRAMEWORKS = {
    "django": "asgi:application",
    "fastapi": "app:app",
    "starlette": "app:app",
    "quart": "app:app",
    "litestar": "app:app",
    "blacksheep": "app:app",
}


def frameworks(rules: Rules) -> Outcomes:
    """gunicorn's matrix: the same tests over six frameworks, each served by a process of its own."""
    python = environment("frameworks", python313(), FRAMEWORKS_NEED)
    folder = sdist(*GUNICORN) / "tests" / "docker" / "asgi_framework_compat"
    servers = {
        name: Served(
            python,
            target,
            log=CACHE / f"frameworks.{name}.log",
            cwd=folder,
            paths=[folder / "frameworks", folder / "frameworks" / f"{name}_app"],
            lifespan="auto",
        )
        for name, target in FRAMEWORKS.items()
    }
    with ExitStack() as stack:
        urls = {name: stack.enter_context(server).url for name, server in servers.items()}
        outcomes = run_pytest(
            "frameworks", python, folder, "--skip-docker-check", urls=urls, rules=rules, paths=[]
        )
    return outcomes | stops(servers)


def httpx(rules: Rules) -> Outcomes:
    """httpx's own suite, with servery where it has uvicorn. It speaks to port 8000, which must be free."""
    folder = sdist(*HTTPX)
    python = environment("httpx", sys.executable, HTTPX_NEEDS)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", 8000))
        except OSError as error:
            raise NotRun(f"the suite needs port 8000 of 127.0.0.1: {error.strerror}") from None
    return run_pytest("httpx", python, folder, "-p", "httpx_server", urls={}, rules=rules, paths=[])


SUITES: dict[str, Callable[[Rules], Outcomes]] = {
    "request-files": request_files,
    "compliance": compliance,
    "frameworks": frameworks,
    "httpx": httpx,
}
