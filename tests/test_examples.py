"""Every example runs as its first line says: a real process, a real socket, stopped by a signal."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from under_test import Way, clean_environment, environment
from websockets.sync.client import connect

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))
ASKED = {
    "hello": ("GET", "/", None, 200, b"Hello, world\n"),
    "starlette_app": ("GET", "/hello/you", None, 200, b"Hello, you\n"),
    "fastapi_app": ("POST", "/orders", b'{"dish": "soup"}', 201, b'{"dish":"soup","count":1}'),
    "django_app": ("GET", "/hello/you/", None, 200, b"Hello, you\n"),
}
"""Example -> method, target, body; status, content of the response."""


class Served:
    """A server process with an example, on a free port, which is stopped at the end of the block."""

    def __init__(self, target: str, *flags: str) -> None:
        command = [sys.executable, "-m", "servery", target, "--port", "0", *flags]
        self.process = subprocess.Popen(
            command,
            cwd=EXAMPLES,
            env=environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.stopping = False

    def stop(self) -> None:
        """Send the stop signal, once: a second one would end the stop at once."""
        if not self.stopping:
            self.process.send_signal(signal.SIGTERM)
        self.stopping = True

    def __enter__(self) -> Served:
        self.port = port_of(self.process)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.process.kill()
        self.stop()
        rest = self.process.communicate()[0]
        assert kind is not None or self.process.returncode == 0, rest


def port_of(process: subprocess.Popen[str]) -> int:
    """The port in the line that says where the server listens."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
            return int(found[1])
    process.communicate()
    raise AssertionError("the server did not start:\n" + "".join(said))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_compiles_and_says_how_to_run_it(path: Path) -> None:
    source = path.read_text("utf-8")
    compile(source, str(path), "exec")
    assert re.search(rf"Run it: (servery {path.stem}:app|python {path.stem}\.py)", source)


def test_every_example_is_run() -> None:
    assert {path.stem for path in FILES} == ASKED.keys() | {"sse", "embed", "websocket"}


@pytest.mark.parametrize("name", ASKED)
def test_example_answers(name: str, way: Way) -> None:
    method, target, body, status, content = ASKED[name]
    with Served(f"{name}:app") as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port)
        with contextlib.closing(connection):
            connection.request(method, target, body, {"content-type": "application/json"} if body else {})
            response = connection.getresponse()
            assert (response.status, response.read()) == (status, content)


def test_stream_of_events_ends_in_order_when_the_server_stops(way: Way) -> None:
    with Served("sse:app", "--timeout-stream-grace", "0") as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port)
        with contextlib.closing(connection):
            connection.request("GET", "/")
            response = connection.getresponse()
            assert response.readline() == b"data: 1\n"
            served.stop()
            assert response.read().endswith(b"event: end\ndata: bye\n\n")


def test_what_one_client_says_all_hear(way: Way) -> None:
    with Served("websocket:app") as served:
        url = f"ws://127.0.0.1:{served.port}"
        with connect(url, proxy=None) as one, connect(url, proxy=None) as two:
            two.send("here")
            assert two.recv() == "here"
            one.send("hello")
            assert two.recv() == "hello"


def test_embedded_server_serves_and_stops() -> None:
    command = [sys.executable, "embed.py"]
    run = subprocess.run(
        command, cwd=EXAMPLES, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert re.search(r"^http://127\.0\.0\.1:\d+/ 200 Hello, world$", run.stdout, re.MULTILINE)
