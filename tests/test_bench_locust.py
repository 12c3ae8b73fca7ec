"""The scenarios under Locust, where it has wheels: pyproject.toml says the same."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys

import pytest
from bench_parts import ROOT, answering, requests_on

HAS_WHEELS = sys.version_info < (3, 15)
BODY = b"x" * 1024
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n"


def locust(port: int, scenario: str) -> subprocess.CompletedProcess[str]:
    """A second with two users; its standard output is statistics in JSON."""
    command = [sys.executable, "-m", "locust", "-f", str(ROOT / "benchmarks" / "locustfile.py"), "--headless"]
    options = ["--users", "2", "--spawn-rate", "2", "--run-time", "1s", "--stop-timeout", "2", "--json"]
    return subprocess.run(
        [*command, *options, "--host", f"http://127.0.0.1:{port}"],
        env={**os.environ, "SCENARIO": scenario},
        capture_output=True,
        text=True,
        check=False,
    )


@contextlib.contextmanager
def serving(answer: bytes):
    def serve(sock, number: int) -> None:
        for _ in requests_on(sock):
            sock.sendall(answer)

    with answering(serve) as port:
        yield port


@pytest.mark.skipif(not HAS_WHEELS, reason="Locust has no wheels for this Python")
@pytest.mark.parametrize(("body", "code"), [(BODY, 0), (b"y" * 1024, 1)], ids=["right", "wrong"])
def test_every_answer_is_checked(body: bytes, code: int) -> None:
    with serving(WHOLE + body) as port:
        made = locust(port, "immediate")
    assert made.returncode == code, made.stderr
    (found,) = json.loads(made.stdout)
    assert found["num_requests"] > 0
    assert found["num_failures"] == (found["num_requests"] if code else 0)


@pytest.mark.skipif(not HAS_WHEELS, reason="Locust has no wheels for this Python")
def test_an_unknown_scenario_is_an_error_that_names_those_that_are() -> None:
    made = locust(9, "none")
    assert made.returncode != 0
    assert "choose one of" in made.stdout + made.stderr
