"""curl against frameworks on a real server: uploads of every kind, 100 (Continue), ranges, HTTP/1.0."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import WAIT
from subjects import Subject, in_thread, sha256, subject_of
from under_test import Way

pytestmark = pytest.mark.shared_server

CONTENT = os.urandom(3 << 20)
CURL = ("curl", "--disable", "--silent", "--noproxy", "*", "--max-time", "20")


@pytest.fixture(scope="module", params=["starlette", "django"])
def subject(request: pytest.FixtureRequest, way: Way) -> Iterator[Subject]:
    """The applications that curl asks."""
    yield from subject_of(request.param, way)


@pytest.fixture(scope="module")
def blob(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of `CONTENT`."""
    path = tmp_path_factory.mktemp("curl") / "blob.bin"
    path.write_bytes(CONTENT)
    return path


def curl(*arguments: str | Path, stdin: bytes = b"") -> tuple[bytes, str]:
    """(what curl wrote to stdout, what it said with ``--verbose``); it must succeed."""
    command = [
        "curl",
        "--disable",
        "--silent",
        "--show-error",
        "--verbose",
        "--noproxy",
        "*",
        "--max-time",
        "20",
    ]
    done = subprocess.run([*command, *arguments], input=stdin, capture_output=True, check=False)
    said = done.stderr.decode("utf-8", "replace")
    assert done.returncode == 0, said
    return done.stdout, said


def digest(output: bytes) -> str:
    """The hash that ``/echo`` answers with."""
    answer: str = json.loads(output)["sha256"]
    return answer


def test_binary_data_with_a_length(subject: Subject, blob: Path) -> None:
    output, _ = curl("--data-binary", f"@{blob}", "-H", "expect:", f"{subject.url}/echo")
    assert digest(output) == sha256(CONTENT)


def test_upload_waits_for_100_and_gets_it(subject: Subject, blob: Path) -> None:
    expect = ("-H", "expect: 100-continue", "--expect100-timeout", str(WAIT))
    output, said = curl(*expect, "--data-binary", f"@{blob}", f"{subject.url}/echo")
    assert "HTTP/1.1 100 Continue" in said
    assert "timeout" not in said
    assert digest(output) == sha256(CONTENT)


def test_upload_that_the_application_does_not_read_is_never_sent(subject: Subject, blob: Path) -> None:
    expect = ("-H", "expect: 100-continue", "--expect100-timeout", str(WAIT))
    form = ("--write-out", "%{http_code} %{size_upload}", "--output", os.devnull)
    output, said = curl(*expect, *form, "--data-binary", f"@{blob}", f"{subject.url}/nothing-here")
    if subject.framework == "django":  # it reads every body before it looks for a view
        assert output == b"404 %d" % len(CONTENT)
    else:
        assert output == b"404 0"
        assert "100 Continue" not in said


def test_chunked_upload_from_a_pipe(subject: Subject) -> None:
    output, said = curl("-X", "POST", "-T", "-", f"{subject.url}/echo", stdin=CONTENT)
    assert "transfer-encoding: chunked" in said.lower()
    assert digest(output) == sha256(CONTENT)


def test_multipart_form(subject: Subject, blob: Path) -> None:
    output, _ = curl("-F", f"file=@{blob}", f"{subject.url}/upload")
    assert json.loads(output) == {"name": "blob.bin", "sha256": sha256(CONTENT)}


def test_head(subject: Subject) -> None:
    output, said = curl("--head", f"{subject.url}/hello/you")
    assert output.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\ncontent-length: 10\r\n" in output.lower()
    assert "left intact" in said


def test_several_requests_share_a_connection(subject: Subject) -> None:
    targets = [f"{subject.url}/hello/{number}" for number in range(5)]
    output, _ = curl("--write-out", " %{num_connects}\n", *targets)
    assert output.decode().splitlines() == [f"Hello, {number} {int(number == 0)}" for number in range(5)]


def test_http_1_0_gets_a_response_that_ends_with_the_connection(subject: Subject) -> None:
    output, said = curl("--http1.0", f"{subject.url}/hello/you")
    assert output == b"Hello, you"
    assert "connection: close" in said.lower()
    command = [*CURL, "--no-buffer", "--include", "--http1.0", f"{subject.url}/stream"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as stream:
        received = b""
        while b"first" not in received:
            part = stream.read1()
            assert part
            received += part
        assert subject.client.post("/release").status_code == 204
        received += stream.read()
    assert process.wait(WAIT) == 0
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert body == b"first and " + b"last" * 50_000


def test_http_1_0_keeps_the_connection_if_asked(subject: Subject) -> None:
    targets = [f"{subject.url}/hello/{number}" for number in range(3)]
    output, said = curl("--http1.0", "-H", "connection: keep-alive", "-w", " %{num_connects}\n", *targets)
    assert output.decode().splitlines() == ["Hello, 0 1", "Hello, 1 0", "Hello, 2 0"]
    assert "< connection: keep-alive" in said.lower()


def test_absolute_target(subject: Subject) -> None:
    target = subject.url.replace("http://", "HTTP://") + "/hello/you"
    output, _ = curl("--request-target", target, "-H", "host: ignored.example", f"{subject.url}/other")
    assert output == b"Hello, you"


def test_range_of_a_file(blob: Path, way: Way) -> None:
    with in_thread("starlette", way) as server:
        output, said = curl("--range", "1000000-1999999", f"{server.url}/file/{blob}")
        assert output == CONTENT[1_000_000:2_000_000]
        assert f"content-range: bytes 1000000-1999999/{len(CONTENT)}" in said.lower()
        output, _ = curl("--limit-rate", "20M", f"{server.url}/file/{blob}")
        assert output == CONTENT


def test_unix_socket(tmp_path: Path, way: Way) -> None:
    path = tmp_path / "s"
    with in_thread("starlette", way, uds=str(path)):
        output, _ = curl("--unix-socket", path, "http://any.example/hello/you?mark=!")
    assert output == b"Hello, you!"


def test_endless_response_that_curl_gives_up(subject: Subject) -> None:
    command = [*CURL, "--max-time", "0.3", f"{subject.url}/forever"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 28  # curl's own time-out
    assert done.stdout.startswith(b"ticktick")
    assert subject.happened() == "left"
