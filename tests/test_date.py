"""Date and Server: fresh, once, the application's own if it has one. Time-outs ignore the wall clock."""

from __future__ import annotations

import email.utils
import re
import threading
import time

import pytest
from harness import read_response
from sample_apps import ok, respond

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
IMF_FIXDATE = re.compile(
    rb"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4}"
    rb" \d\d:\d\d:\d\d GMT"
)


def values(head, name):
    """The values of field `name`."""
    return [line.partition(b": ")[2] for line in head.split(b"\r\n") if line.lower().startswith(name + b": ")]


def date(head):
    """The one Date of a head, as seconds since the epoch."""
    (value,) = values(head, b"date")
    assert IMF_FIXDATE.fullmatch(value)
    return email.utils.parsedate_to_datetime(value.decode()).timestamp()


def test_it_moves_on_while_a_connection_lasts(serve):
    with serve(ok) as server, server.connect() as sock:
        dates = []
        for pause in (0, 1.1):
            threading.Event().wait(pause)
            before = int(time.time())
            sock.sendall(GET)
            dates.append(date(read_response(sock)[0]))
            assert before <= dates[-1] <= time.time()
    assert 1 <= dates[1] - dates[0] <= 3


def test_refusals_have_one_too(serve):
    with serve(ok) as server:
        received = server.raw(b"BAD\r\n\r\n")
    assert abs(date(received) - time.time()) < 3
    assert values(received, b"server") == [b"servery"]


@pytest.mark.parametrize("name", (b"date", b"Date", b"server", b"SERVER"))
def test_the_applications_own_field_wins(serve, name):
    async def app(scope, receive, send):
        await respond(send, headers=[(name, b"mine")])

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET)
        head = read_response(sock)[0]
    assert values(head, name.lower()) == [b"mine"]
    assert len(values(head, b"date")) == len(values(head, b"server")) == 1


def test_both_can_be_switched_off_and_others_added(serve):
    settings = {"date_header": False, "server_header": False, "header": ("X-A: 1", "X-B: 2")}
    with serve(ok, **settings) as server, server.connect() as sock:
        sock.sendall(GET)
        head = read_response(sock)[0]
    assert values(head, b"date") == values(head, b"server") == []
    assert values(head, b"x-a") == [b"1"]
    assert values(head, b"x-b") == [b"2"]


def test_time_outs_do_not_follow_the_wall_clock_but_date_does(serve, monkeypatch):
    true_time = time.time
    with serve(ok, timeout_keep_alive=5) as server, server.connect() as sock:
        for jump in (0, 3600, -3600, 86_400):
            monkeypatch.setattr(time, "time", lambda jump=jump: true_time() + jump)
            sock.sendall(GET)
            head, content, _ = read_response(sock)
            assert content == b"ok"
            assert abs(date(head) - jump - true_time()) < 3
    assert all(0 <= record.access.duration < 5 for record in server.access.records)
