"""The applications in `apps/`, served: in a thread of the test process, or in a process of their own."""

from __future__ import annotations

import hashlib
import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from harness import WAIT, Running, running
from under_test import Way

TESTS = Path(__file__).resolve().parent
LIFESPAN = ("starlette", "fastapi", "litestar", "quart")
"""Frameworks that take lifespan events; Django refuses them, and is served without."""


class Subject:
    """A framework that is served: `client` keeps one connection, `other` is for what comes meanwhile."""

    def __init__(self, framework: str, url: str, server: Running | None) -> None:
        self.framework = framework
        self.url = url
        self.server = server
        settings: dict[str, Any] = {"base_url": url, "timeout": WAIT, "trust_env": False}
        self.client = httpx.Client(**settings)
        self.other = httpx.Client(**settings)

    def leaving(self) -> httpx.Client:
        """A client of its own, whose end closes the connection."""
        return httpx.Client(base_url=self.url, timeout=WAIT, trust_env=False)

    def happened(self) -> str:
        """What the application says next of what it did without a client to tell."""
        return self.other.get("/happened").text


@contextmanager
def in_thread(framework: str, way: Way, **settings: Any) -> Iterator[Running]:
    """Serve the framework's application in a thread, with its lifespan on, and see that it has shut down."""
    ended = threading.Event()
    app = importlib.import_module(f"apps.{framework}_app").make(ended)
    with running(app, lifespan="on", **way.settings, **settings) as server:
        yield server
        assert not ended.is_set() or server.server.should_exit
    assert ended.is_set()


@contextmanager
def in_process(framework: str, way: Way) -> Iterator[str]:
    """The URL of the framework's application in a process of its own, which must stop in order."""
    target = (f"apps.{framework}_app:make", "--factory")
    command = [sys.executable, "-m", "servery", *target, "--port", "0", *way.flags]
    process = subprocess.Popen(
        command, cwd=TESTS, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    with process.stderr as log:
        line = log.readline()
        drain = threading.Thread(target=log.read, daemon=True)
        drain.start()
        try:
            assert "http://" in line, line
            yield line.split()[-1]
        finally:
            process.terminate()
            code = process.wait(WAIT)
            drain.join(WAIT)
    assert code == 0


def subject_of(framework: str, way: Way) -> Iterator[Subject]:
    """Serve the framework, hand it out, and close its clients and the server: the body of a fixture."""
    if framework in LIFESPAN:
        with in_thread(framework, way) as server:
            yield from _closing(Subject(framework, server.url, server))
    else:
        with in_process(framework, way) as url:
            yield from _closing(Subject(framework, url, None))


def _closing(subject: Subject) -> Iterator[Subject]:
    with subject.client, subject.other:
        yield subject


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
