"""Every case of the corpus through a real socket, on a real server: what client, application and log see.

One server for each way serves all cases; one after the other, for two would share their loggers. Its
log is complete only when it has stopped, so the number of lines is looked at once more at the end.
"""

from __future__ import annotations

import json
import logging
import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from corpus.http1_cases import CASES, Accepted, Case
from harness import Running, eventually, read_to_end, running
from tracing import pieces, random_cuts
from under_test import Way

pytestmark = pytest.mark.shared_server

LAST = b"GET /last HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
"""Ends a connection that would be kept, and shows that it was usable."""

OCTETS = 400
"""Cases of at most so many octets are also sent octet by octet."""


@dataclass
class Call:
    """One call of the application, by what it was given."""

    method: bytes
    target: bytes
    version: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    complete: bool = False


@dataclass
class Wire:
    """A server, the calls of its application by the port of the client, and what its clients saw so far.

    `responses` is how many were read, `refused` the calls for requests whose body was cut or wrong.
    """

    server: Running
    calls: dict[int, list[Call]]
    responses: int = 0
    refused: list[Call] = field(default_factory=list)


def recorder(calls: dict[int, list[Call]]) -> Callable[..., Any]:
    """An application that writes down what it gets, and answers when it has all of it.

    A WebSocket is denied with the same answer: its handshake is a request like others.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        headers = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
        method = scope.get("method", "GET").encode("latin-1")
        call = Call(method, target, scope["http_version"].encode(), headers)
        opens = scope["type"] == "websocket"
        calls.setdefault(scope["client"][1], []).append(call)
        while not call.complete:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            call.body += message.get("body", b"")
            call.complete = not message.get("more_body", False)
        number = len(calls[scope["client"][1]])
        text = json.dumps({"number": number}).encode()
        length = (b"content-length", b"%d" % len(text))
        response = "websocket.http.response" if opens else "http.response"
        await send({"type": f"{response}.start", "status": 200, "headers": [length]})
        await send({"type": f"{response}.body", "body": text})

    return app


@pytest.fixture(scope="module")
def wire(way: Way) -> Iterator[Wire]:
    """The server for one way. What must not happen had not happened when it has stopped."""
    calls: dict[int, list[Call]] = {}
    with running(recorder(calls), **way.settings, log_level="debug") as server:
        wire = Wire(server, calls)
        yield wire
    assert len(server.access.records) == wire.responses
    assert calls == {}
    assert not any(call.complete for call in wire.refused)


@dataclass
class Answer:
    """One response as the client reads it."""

    status: int
    head: bytes
    body: bytes

    @property
    def closes(self) -> bool:
        return b"\r\nconnection: close\r\n" in self.head


def answers(received: bytes, methods: list[bytes]) -> list[Answer]:
    """The final responses in `received`, to the last octet; `methods` are those of the requests."""
    found: list[Answer] = []
    while received:
        head, end, received = received.partition(b"\r\n\r\n")
        assert end, head
        if head == b"HTTP/1.1 100 Continue":
            continue
        head += b"\r\n"
        length = int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])
        if methods[len(found) : len(found) + 1] == [b"HEAD"]:
            length = 0
        assert len(received) >= length, "a response was cut"
        found.append(Answer(int(head[9:12]), head, received[:length]))
        received = received[length:]
    return found


def exchange(
    wire: Wire, data: bytes, cuts: list[int], shut: bool
) -> tuple[list[Answer], list[Call], list[Any]]:
    """What the client read, what the application saw, and what was logged, of one connection.

    The client writes everything before it reads; neither may end in a reset.
    """
    log = wire.server.access.records
    begin = len(log)
    with wire.server.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        port = sock.getsockname()[1]
        for piece in pieces(data, cuts):
            sock.sendall(piece)
        if shut:
            sock.shutdown(socket.SHUT_WR)
        received = read_to_end(sock)
    wire.server.call(lambda: None)  # a refusal may overtake the start of the application: let it be called
    calls = wire.calls.pop(port, [])
    found = answers(received, [call.method for call in calls])
    wire.responses += len(found)

    def lines() -> list[Any]:
        return [record.access for record in log[begin:] if record.access.client[1] == port]

    eventually(lambda: len(lines()) >= len(found), "an access line for each response")
    return found, calls, lines()


def check(case: Case, found: list[Answer], calls: list[Call], log: list[Any], appended: bool) -> None:
    """Whether client, application and log saw an outcome that `case` allows."""
    assert [line.status for line in log] == [answer.status for answer in found]
    assert not {call.target for call in calls} & set(case.never)
    if case.accept is not None and (case.reject is None or any(call.complete for call in calls)):
        if appended and case.accept.keep_alive:
            last = calls.pop()
            assert (last.target, last.complete) == (b"/last", True)
            assert found.pop().status == 200
            assert log.pop().target == b"/last"
        check_accepted(case.accept, found, calls, log)
    else:
        check_refused(case, found, calls, log)


def check_accepted(expected: Accepted, found: list[Answer], calls: list[Call], log: list[Any]) -> None:
    first = calls[0]
    assert (first.method, first.version, first.body) == (expected.method, expected.version, expected.body)
    if expected.target.startswith(b"/") and not expected.target.endswith(b"?"):
        assert first.target == expected.target
    host = (b"host", expected.authority)
    allowed = [expected.headers, expected.headers_alt]
    if expected.authority is not None:  # the host of an absolute target takes the place of the field
        allowed = [[host if field[0] == b"host" else field for field in expected.headers]]
    assert first.headers in allowed
    assert log[0].target == expected.target
    assert len(calls) == expected.requests
    assert all(call.complete for call in calls)
    if expected.all is not None:
        assert [(call.method, call.target, call.body) for call in calls] == expected.all
    for number, answer in enumerate(found[: expected.requests], 1):
        assert answer.status == 200
        body = b"" if calls[number - 1].method == b"HEAD" else json.dumps({"number": number}).encode()
        assert answer.body == body
    if expected.then_reject is None:
        assert len(found) == expected.requests
    else:
        [refusal] = found[expected.requests :]
        assert refusal.status in expected.then_reject
    assert [answer.closes for answer in found[:-1]] == [False] * (len(found) - 1)
    assert found[-1].closes is not expected.keep_alive


def check_refused(case: Case, found: list[Answer], calls: list[Call], log: list[Any]) -> None:
    assert case.reject is not None
    if case.stage == "head":
        assert calls == []
    assert not any(call.complete for call in calls)
    if case.may_close_silently and not found:
        return
    [refusal] = found
    assert refusal.status in case.reject
    assert refusal.closes
    assert refusal.body.decode("ascii").strip().isprintable()


def ways(case: Case) -> Iterator[tuple[bytes, list[int], bool]]:
    """What is sent: the octets, where they are cut, and whether the client half-closes after them."""
    is_kept = case.accept is not None and case.accept.keep_alive and not case.eof
    data = case.data + LAST if is_kept else case.data
    yield data, [], case.eof
    chance = random.Random(case.id)
    yield data, random_cuts(len(data), chance), case.eof
    if len(case.data) <= OCTETS:
        yield case.data, list(range(1, len(case.data))), case.eof or is_kept


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_client_application_and_log_agree(case: Case, wire: Wire) -> None:
    for data, cuts, shut in ways(case):
        found, calls, log = exchange(wire, data, cuts, shut)
        check(case, found, calls, log, appended=data != case.data)
        if not any(call.complete for call in calls):
            wire.refused += calls
    assert wire.server.errors.lines(logging.WARNING) == []


def test_cases_share_a_connection(wire: Wire) -> None:
    """All requests that keep the connection, one behind the other on one connection."""
    kept = [case for case in CASES if case.accept and not case.reject and case.accept.keep_alive]
    data = b"".join(case.data for case in kept) + LAST
    cuts = sorted(random.Random(1).sample(range(1, len(data)), 60))
    found, calls, log = exchange(wire, data, cuts, shut=False)
    count = 1 + sum(case.accept.requests for case in kept if case.accept)
    assert [answer.status for answer in found] == [line.status for line in log] == [200] * count
    assert [answer.closes for answer in found] == [False] * (count - 1) + [True]
    assert len(calls) == count
    assert b"".join(call.body for call in calls) == b"".join(
        body
        for case in kept
        if case.accept
        for _, _, body in case.accept.all or [(b"", b"", case.accept.body)]
    )
