"""The load generator against servers whose every octet is known."""

from __future__ import annotations

import dataclasses
import hashlib
import time

import pytest
from bench_parts import answering, requests_on

from benchmarks.loadgen.client import Expectation, Load, LoadError, PreflightError, run

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
BODY = b"0123456789" * 20
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 200\r\n\r\n" + BODY
SHORT = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno"
OTHER = WHOLE.replace(b"0123", b"3210")
EXACT = Expectation(200, len(BODY), hashlib.sha256(BODY).hexdigest(), (("content-type", "text/plain"),))
WITHOUT_FAULT = dict.fromkeys(
    ("connect", "ports", "reset", "timeout", "protocol", "status", "length", "fields", "body"), 0
)


def load(port: int, **changes: object) -> Load:
    base = Load(REQUEST, port=port, connections=4, duration=0.2, expect=EXACT, check_every=1)
    return dataclasses.replace(base, **changes)


def always(answer: bytes):
    """A server that gives the same answer to everything, on connections that are kept."""

    def serve(sock, number: int) -> None:
        for _ in requests_on(sock):
            sock.sendall(answer)

    return serve


def after_the_first(answer: bytes):
    """The right answer on the first connection, which is that of the preflight; then `answer`."""

    def serve(sock, number: int) -> None:
        for _ in requests_on(sock):
            sock.sendall(answer if number else WHOLE)

    return serve


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED += b"64\r\n" + BODY[:100] + b"\r\n64\r\n" + BODY[100:] + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED], ids=["length", "chunked"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"pipeline": 8}, {"churn": True}, {"client_processes": 2}, {"rate": 200.0}, {"warmup": 0.1}],
    ids=str,
)
def test_every_way_of_asking_counts_exactly(answer, changes):
    with answering(always(answer)) as port:
        result = run(load(port, **changes))
    timed = result["timed"]
    assert timed["failed"] == WITHOUT_FAULT
    assert timed["statuses"] == {"200": timed["completed"]}
    assert timed["checked"] == timed["completed"] > 0
    assert timed["body_octets"] == len(BODY) * timed["completed"]
    assert result["latency"]["kept"] == result["latency"]["seen"] <= timed["completed"] + result["unfinished"]
    assert result["latency"]["p50_us"] <= result["latency"]["p99_us"] <= result["latency"]["max_us"]
    assert result["connections"]["served"] == 4 or "rate" in changes
    assert timed["reconnects"] == 0


def test_a_body_until_close_costs_a_connection_each():
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"

    def serve(sock, number: int) -> None:
        for _ in requests_on(sock):
            sock.sendall(head + BODY)
            return

    with answering(serve) as port:
        timed = run(load(port))["timed"]
    assert timed["failed"] == WITHOUT_FAULT
    assert timed["reconnects"] == timed["completed"] > 0


def test_a_server_that_announces_the_close_is_followed_without_a_fault():
    answer = WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)

    def serve(sock, number: int) -> None:
        for _ in requests_on(sock):
            sock.sendall(answer)
            return

    with answering(serve) as port:
        timed = run(load(port))["timed"]
    assert timed["failed"] == WITHOUT_FAULT
    assert timed["reconnects"] > 0


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (WHOLE.replace(b"200 OK", b"503 No"), "status"),
        (SHORT, "length"),
        (OTHER, "body"),
        (WHOLE.replace(b"text/plain", b"text/html!"), "fields"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "protocol"),
        (WHOLE + b"more", "protocol"),
    ],
    ids=["status", "length", "body", "fields", "malformed", "too much"],
)
def test_each_fault_has_its_own_count(answer, kind):
    with answering(after_the_first(answer)) as port:
        result = run(load(port))
    failed = result["timed"]["failed"]
    assert failed.pop(kind) > 0
    assert kind == "protocol" or set(failed.values()) == {0}
    if kind == "status":
        assert set(result["timed"]["statuses"]) == {"503"}
        assert result["timed"]["completed"] == 0
    assert (result["reason"] != "") == (kind == "protocol")


def test_a_close_where_an_answer_was_due_is_a_reset():
    def serve(sock, number: int) -> None:
        for head in requests_on(sock):
            if number:
                sock.sendall(WHOLE[:40])
                return
            sock.sendall(WHOLE)
            assert head

    with answering(serve) as port:
        failed = run(load(port))["timed"]["failed"]
    assert failed["reset"] > 0
    assert failed["reset"] == sum(failed.values())


def test_an_answer_that_does_not_come_is_a_time_out():
    def serve(sock, number: int) -> None:
        for _ in requests_on(sock):
            if number == 0:
                sock.sendall(WHOLE)

    with answering(serve) as port:
        result = run(load(port, timeout=0.2, duration=0.6))
    assert result["timed"]["failed"]["timeout"] >= 4
    assert result["timed"]["completed"] == 0


def test_a_server_that_is_gone_is_a_connect_error():
    with answering(always(WHOLE), accepted=20) as port:
        result = run(load(port, churn=True))
        assert result["timed"]["failed"]["connect"] > 0
        with pytest.raises(PreflightError, match="no connection"):
            run(load(port))


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (SHORT, "length"),
        (OTHER, "body"),
        (WHOLE.replace(b"200 OK", b"404 No"), "status 404"),
        (b"huh\r\n\r\n", "status line"),
    ],
    ids=["length", "body", "status", "malformed"],
)
def test_a_wrong_answer_is_refused_before_anything_is_timed(answer, word):
    with answering(always(answer)) as port, pytest.raises(PreflightError, match=word):
        run(load(port), on_begin=lambda: pytest.fail("it was timed"))


def test_the_open_loop_counts_from_the_intended_start():
    """The server stalls for 0.3 s: a closed loop would see one slow answer, this sees all that were due."""
    stalled = []

    def serve(sock, number: int) -> None:
        for _ in requests_on(sock):
            if number == 1 and not stalled:
                stalled.append(number)
                time.sleep(0.3)
            sock.sendall(WHOLE)

    with answering(serve) as port:
        result = run(load(port, connections=1, rate=200.0, duration=0.8))
    assert result["latency"]["seen"] >= 159
    assert result["latency"]["p90_us"] > 100_000


def test_connections_are_ramped_counted_and_spread_over_addresses():
    sources = set()

    def serve(sock, number: int) -> None:
        sources.add(sock.getpeername()[0])
        for _ in requests_on(sock):
            sock.sendall(WHOLE)

    with answering(serve) as port:
        result = run(load(port, connections=40, connection_ramp=0.3, sources=5, warmup=0.1))
    found = result["connections"]
    assert (found["begin"], found["least"], found["most"], found["end"]) == (40, 40, 40, 40)
    assert found["served"] == 40
    assert result["warmup"]["connects"] == 40
    assert len(sources - {"127.0.0.1"}) == 5


def test_a_warm_up_that_does_not_persist_opens_connections_again():
    with answering(always(WHOLE)) as port:
        result = run(load(port, warmup=0.2, persistent_warmup=False))
    assert result["warmup"]["connects"] == 4
    assert result["timed"]["connects"] == 4
    assert result["timed"]["failed"] == WITHOUT_FAULT


def test_the_reservoir_bounds_what_is_kept():
    with answering(always(WHOLE)) as port:
        latency = run(load(port, max_latency_samples=64))["latency"]
    assert latency["kept"] <= 64 < latency["seen"]


def test_slow_readers_take_no_more_than_they_may():
    body = b"s" * 20_000
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + body
    expect = Expectation(200, len(body), hashlib.sha256(body).hexdigest())
    with answering(always(answer)) as port:
        result = run(load(port, read_rate=100_000.0, connections=2, expect=expect, duration=0.8))
    assert result["timed"]["failed"] == WITHOUT_FAULT
    assert result["timed"]["completed"] >= 1
    assert result["timed"]["read_octets"] <= 2 * 100_000 * 0.8 * 1.2


def test_bodies_of_requests_arrive_whole():
    sizes = set()

    def serve(sock, number: int) -> None:
        data = b""
        while piece := sock.recv(65536):
            data += piece
            while b"\r\n\r\n" in data and len(data) >= data.index(b"\r\n\r\n") + 4 + 300_000:
                end = data.index(b"\r\n\r\n") + 4 + 300_000
                sizes.add(data[:end].count(b"p"))
                data = data[end:]
                sock.sendall(WHOLE)

    request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + b"p" * 300_000
    with answering(serve) as port:
        result = run(load(port, request=request))
    assert result["timed"]["failed"] == WITHOUT_FAULT
    assert sizes == {300_000}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"pipeline": 2, "churn": True}, "--pipeline goes with"),
        ({"pipeline": 2, "rate": 5.0}, "--pipeline goes with"),
        ({"client_processes": 5}, "--client-processes 5"),
        ({"mode": "nothing"}, "--mode nothing"),
        ({"max_latency_samples": 31}, "at least 32"),
        ({"connections": 10**7}, "open files"),
        ({"request": b""}, "empty"),
    ],
    ids=str,
)
def test_what_cannot_work_is_said(changes, word):
    with pytest.raises(LoadError, match=word):
        run(load(9, **changes))
