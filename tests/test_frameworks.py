"""Real frameworks behind a real server, exercised by httpx over one kept connection and over many.

The applications stand in `apps/`. They are served in a thread, with each parser on a loop of its own, and
Django, whose settings are global, in a process. What curl makes of them is in `test_curl.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness import WAIT, reset
from subjects import LIFESPAN, TESTS, Subject, in_thread, sha256, subject_of
from under_test import Way

pytestmark = pytest.mark.shared_server

CONTENT = os.urandom(1 << 20)


@pytest.fixture(scope="module", params=[*LIFESPAN, "django"])
def subject(request: pytest.FixtureRequest, way: Way) -> Iterator[Subject]:
    """Every framework."""
    yield from subject_of(request.param, way)


@pytest.fixture
def own(request: pytest.FixtureRequest, way: Way) -> Iterator[Subject]:
    """The framework that the mark of a test names."""
    yield from subject_of(request.param, way)


def only(framework: str) -> Any:
    """Mark a test as being about one framework."""
    return pytest.mark.parametrize("own", [framework], indirect=True)


# --- every framework ---------------------------------------------------------------------------------


def test_path_and_query_are_decoded_once_and_the_state_of_the_lifespan_is_seen(subject: Subject) -> None:
    response = subject.client.get("/hello/J%C3%BCrgen%2520", params={"mark": "!&"})
    assert (response.status_code, response.text) == (200, "Hello, Jürgen%20!&")
    assert response.headers["content-type"].startswith("text/")
    assert response.headers["server"] == "servery"


def test_one_connection_serves_many_requests_of_every_method(subject: Subject) -> None:
    methods = ["GET", "POST", "PUT", "DELETE"] * 5
    content = {"POST": b"x" * 1000, "PUT": b""}
    answers = [subject.client.request(way, "/client", content=content.get(way)).json() for way in methods]
    assert [answer[0] for answer in answers] == methods
    assert len({answer[1] for answer in answers}) == 1


def test_head_has_the_length_of_get_and_no_content(subject: Subject) -> None:
    get = subject.client.get("/hello/you")
    head = subject.client.head("/hello/you")
    if head.status_code == 405:  # FastAPI and Litestar route no HEAD by themselves
        assert subject.framework in ("fastapi", "litestar")
    else:
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == get.headers["content-length"] == "10"
    assert subject.client.get("/hello/you").text == "Hello, you"


def test_streamed_upload_arrives_whole_and_in_parts(subject: Subject) -> None:
    def parts() -> Iterator[bytes]:
        yield b""
        for at in range(0, len(CONTENT), 40_000):
            yield CONTENT[at : at + 40_000]

    answer = subject.client.post("/echo", content=parts()).json()
    assert answer["sha256"] == sha256(CONTENT)
    assert answer["parts"] > 1


def test_upload_with_a_length_arrives_whole(subject: Subject) -> None:
    assert subject.client.post("/echo", content=CONTENT).json()["sha256"] == sha256(CONTENT)
    assert subject.client.post("/echo", content=b"").json() == {"sha256": sha256(b""), "parts": 0}


def test_multipart_file_arrives_whole(subject: Subject) -> None:
    answer = subject.client.post("/upload", files={"file": ("blob.bin", CONTENT)}).json()
    assert answer == {"name": "blob.bin", "sha256": sha256(CONTENT)}


def test_streamed_response_leaves_as_it_is_made(subject: Subject) -> None:
    with subject.client.stream("GET", "/stream") as response:
        assert response.headers["transfer-encoding"] == "chunked"
        parts = response.iter_raw()
        assert next(parts) == b"first"  # the rest is not made before this one is here
        assert subject.other.post("/release").status_code == 204
        assert b"".join(parts) == b" and " + b"last" * 50_000
    assert subject.client.get("/hello/you").status_code == 200


def test_endless_response_ends_when_the_client_leaves(subject: Subject) -> None:
    with (
        httpx.Client(base_url=subject.url, trust_env=False) as client,
        client.stream("GET", "/forever") as response,
    ):
        assert next(response.iter_raw()).startswith(b"tick")
    assert subject.happened() == "left"


def test_failing_application_gives_500_and_the_connection_goes_on(subject: Subject) -> None:
    before = subject.client.get("/client").json()[1]
    response = subject.client.get("/error")
    assert (response.status_code, b"on purpose" in response.content) == (500, False)
    assert subject.client.get("/client").json()[1] == before
    if subject.server is not None and subject.framework in ("starlette", "fastapi"):  # these raise it again
        [record] = [record for record in subject.server.errors.records if record.exc_info]
        assert "on purpose" in str(record.exc_info[1])
        subject.server.errors.records.remove(record)


def test_many_requests_at_once(subject: Subject) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, 100_000, 10_000):
            yield CONTENT[at : at + 10_000]

    async def ask(client: httpx.AsyncClient, number: int) -> None:
        answer = await client.get(f"/hello/{number}")
        assert answer.text == f"Hello, {number}"
        answer = await client.post("/echo", content=parts())
        assert answer.json()["sha256"] == sha256(CONTENT[:100_000])

    async def main() -> None:
        async with httpx.AsyncClient(base_url=subject.url, timeout=WAIT, trust_env=False) as client:
            await asyncio.gather(*(ask(client, number) for number in range(20)))

    asyncio.run(main())


def test_server_logged_no_error_of_its_own(subject: Subject) -> None:
    """The last of those above: whatever clients did was nothing to complain about."""
    if subject.server is not None:
        assert subject.server.errors.lines(30) == []


# --- Starlette ---------------------------------------------------------------------------------------


@only("starlette")
def test_background_task_runs_after_the_response_has_arrived(own: Subject) -> None:
    response = own.client.get("/background")
    assert (response.status_code, response.text) == (202, "accepted")
    assert own.client.get("/client").status_code == 200  # the connection does not wait for it
    own.other.post("/release")
    assert own.happened() == "done in the background"


@only("starlette")
def test_waiting_request_sees_that_its_client_has_left(own: Subject) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(own.url + "/patient", timeout=0.1, trust_env=False)
    assert own.happened() == "disconnected"


@only("starlette")
def test_file_is_sent_by_path(own: Subject, tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(CONTENT)
    response = own.client.get(f"/file/{path}")
    assert (response.status_code, response.content == CONTENT) == (200, True)
    assert response.headers["x-pathsend"] == "{}"
    assert response.headers["content-length"] == str(len(CONTENT))
    head = own.client.head(f"/file/{path}")
    assert (head.content, head.headers["content-length"]) == (b"", str(len(CONTENT)))
    path.write_bytes(b"")
    assert own.client.get(f"/file/{path}").content == b""
    assert own.client.get(f"/file/{tmp_path}/none").status_code == 500
    assert own.client.get("/hello/you").status_code == 200
    assert own.server is not None
    own.server.errors.records.clear()


@only("starlette")
@pytest.mark.parametrize(
    ("wanted", "status", "start", "end"),
    [
        ("bytes=0-9", 206, 0, 10),
        ("bytes=1000000-", 206, 1_000_000, 1 << 20),
        ("bytes=-5", 206, (1 << 20) - 5, 1 << 20),
        ("bytes=0-", 206, 0, 1 << 20),
        ("bytes=2000000-", 416, 0, 0),
    ],
)
def test_range_of_a_file(
    own: Subject, tmp_path: Path, wanted: str, status: int, start: int, end: int
) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(CONTENT)
    response = own.client.get(f"/file/{path}", headers={"range": wanted})
    assert response.status_code == status
    if status == 206:
        assert response.headers["content-range"] == f"bytes {start}-{end - 1}/{len(CONTENT)}"
        assert response.content == CONTENT[start:end]


@only("starlette")
def test_several_ranges_and_a_file_not_modified(own: Subject, tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(CONTENT)
    response = own.client.get(f"/file/{path}", headers={"range": "bytes=0-3,100-103"})
    assert response.status_code == 206
    assert CONTENT[:4] in response.content
    assert CONTENT[100:104] in response.content
    static = own.client.get("/static/starlette_app.py")
    assert static.content == (TESTS / "apps" / "starlette_app.py").read_bytes()
    again = own.client.get("/static/starlette_app.py", headers={"if-none-match": static.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert own.client.get("/hello/you").status_code == 200


@only("starlette")
def test_subscriber_gets_events_and_its_leaving_ends_them(own: Subject) -> None:
    with (
        httpx.Client(base_url=own.url, trust_env=False) as client,
        client.stream("GET", "/events") as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line, _ in zip(response.iter_lines(), range(8), strict=False)]
    assert [line for line in lines if line.startswith("data")] == ["data: number 1", "data: number 2"]
    assert own.happened() == "unsubscribed"


def test_endless_events_do_not_hold_up_the_stop(way: Way) -> None:
    settings = {"timeout_stream_grace": 0.05, "timeout_graceful_shutdown": WAIT}
    client = httpx.Client(timeout=WAIT, trust_env=False)
    with in_thread("starlette", way, **settings) as server, client:
        with client.stream("GET", f"{server.url}/events") as response:
            lines = response.iter_lines()
            assert next(lines) == "id: 1"
            server.server.should_exit = True
            assert any(line.startswith("data") for line in lines)  # goes on, and comes to an end
        assert server.thread is not None
        server.thread.join(WAIT)
    assert server.errors.lines(30) == []
    assert server.server.exit_code == 0


@only("starlette")
def test_upload_that_breaks_off_is_no_error_of_the_application(own: Subject) -> None:
    server = own.server
    assert server is not None
    for length in (b"content-length: 1000", b"transfer-encoding: chunked"):
        with server.connect() as sock:
            sock.sendall(b"POST /echo HTTP/1.1\r\nhost: x\r\n" + length + b"\r\n\r\n5\r\nhello\r\n")
    with server.connect() as sock:
        sock.sendall(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n")
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        reset(sock)
    server.access.wait(3)
    assert server.errors.lines(30) == []


# --- FastAPI -----------------------------------------------------------------------------------------


@only("fastapi")
def test_body_is_checked_and_a_dependency_is_closed(own: Subject) -> None:
    made = own.client.post("/orders", json={"dish": "soup"})
    assert (made.status_code, made.json()) == (201, {"dish": "soup", "count": 1})
    assert made.headers["x-middleware"] == "was here"
    refused = own.client.post("/orders", json={"count": "many"})
    assert refused.status_code == 422
    assert {tuple(fault["loc"]) for fault in refused.json()["detail"]} == {
        ("body", "dish"),
        ("body", "count"),
    }
    assert own.client.get("/resource").json() == {"resource": "open"}
    assert own.happened() == "closed"


@only("fastapi")
def test_background_task_and_endpoint_in_a_thread(own: Subject) -> None:
    assert own.client.get("/background").status_code == 202
    assert own.happened() == "done in the background"
    own.client.get("/loop")
    assert own.client.get("/thread").json() is True


@only("fastapi")
def test_middleware_around_an_endless_response_ends_with_it(own: Subject) -> None:
    with (
        httpx.Client(base_url=own.url, trust_env=False) as client,
        client.stream("GET", "/forever") as response,
    ):
        assert response.headers["x-middleware"] == "was here"
        assert next(response.iter_raw()).startswith(b"tick")
    assert own.happened() == "left"
    assert own.server is not None
    assert own.server.errors.lines(30) == []


# --- Litestar and Quart ------------------------------------------------------------------------------


@only("litestar")
def test_finite_events_come_whole(own: Subject) -> None:
    response = own.client.get("/events")
    assert response.headers["content-type"].startswith("text/event-stream")
    data = [line for line in response.text.splitlines() if line.startswith("data")]
    assert data == ["data: number 1", "data: number 2", "data: number 3"]


@pytest.mark.parametrize("own", ["litestar", "quart"], indirect=True)
def test_background_task_is_done(own: Subject) -> None:
    response = own.client.get("/background")
    assert (response.status_code, response.text) == (202, "accepted")
    assert own.happened() == "done in the background"


# --- Django ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def django(way: Way) -> Iterator[Subject]:
    """Django in a process of its own."""
    yield from subject_of("django", way)


def test_synchronous_view_runs_in_a_thread(django: Subject) -> None:
    assert django.client.get("/thread").json() is True


def test_view_is_cancelled_when_its_client_leaves(django: Subject) -> None:
    with django.leaving() as client, pytest.raises(httpx.ReadTimeout):
        client.get("/slow", timeout=0.2)
    assert django.happened() == "begun"
    assert django.happened() == "cancelled"


def test_file_response_of_django(django: Subject) -> None:
    content = (TESTS / "apps" / "django_app.py").read_bytes()
    response = django.client.get("/file")
    assert (response.status_code, response.content) == (200, content)
    head = django.client.head("/file")
    assert (head.content, head.headers["content-length"]) == (b"", str(len(content)))
