"""Workers that accept from one socket: nobody takes all that comes."""

from __future__ import annotations

import contextlib
import os
import sys
from array import array
from collections import Counter

import pytest
from harness import eventually, read_response
from process import ServerProcess

from servery.drivers import balance
from servery.drivers.balance import Balance, Loads
from servery.drivers.room import Both, Room
from servery.supervisor.board import SLOTS, Board, open_board

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Loop:
    """The timers of an event loop, and its clock."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        self.timers = []
        monkeypatch.setattr(balance, "monotonic", lambda: self.now)

    def call_later(self, delay, function):
        self.timers.append((self.now + delay, function))
        return self

    def cancel(self):
        self.timers.clear()

    def turn(self, seconds):
        """Let time pass."""
        self.now += seconds
        due = [function for when, function in self.timers if when <= self.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        for function in due:
            function()


class Acceptor:
    """Counts how often it was told to hold."""

    held = 0

    def hold(self):
        self.held += 1

    def release(self):
        self.held -= 1


@pytest.fixture
def loop(monkeypatch):
    return Loop(monkeypatch)


def make(loop, counts, slot=1):
    """A balance in a slot of `counts`, and its acceptor."""
    made, acceptor = Balance(Loads(memoryview(counts), slot), loop), Acceptor()
    made.join(acceptor)
    return made, acceptor


def counts(*values):
    """Connections of the workers; None where there is no worker."""
    return array("q", [len(values), *(0 if value is None else value + 1 for value in values), 1])


# --- the rule ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fewest", "most"), ((0, 1), (1, 2), (7, 8), (8, 10), (80, 91)))
def test_one_more_than_others_and_an_eighth_is_tolerated(loop, fewest, most):
    numbers = counts(0, None, fewest, fewest + 5)
    made, acceptor = make(loop, numbers)
    for _ in range(most):
        made.take()
        assert acceptor.held == 0
    made.take()
    assert acceptor.held == 1
    loop.turn(balance.TURN)
    assert acceptor.held == 0
    assert numbers[1] == most + 2


def test_others_who_take_nothing_in_their_turn_are_not_waited_for_again_at_once(loop):
    numbers = counts(0, 0)
    made, acceptor = make(loop, numbers)
    made.take()
    made.take()
    assert acceptor.held == 1
    loop.turn(balance.TURN)
    made.take()
    assert acceptor.held == 0
    loop.turn(balance.PATIENCE)
    made.take()
    assert acceptor.held == 1
    loop.turn(balance.TURN)
    numbers[2] += 1  # it has taken one
    made.take()
    assert acceptor.held == 1


def test_who_is_alone_never_waits(loop):
    made, acceptor = make(loop, counts(0, None, None))
    for _ in range(100):
        made.take()
    assert acceptor.held == 0


def test_nobody_waits_for_a_worker_that_stops(loop):
    numbers = counts(0, 0)
    made, acceptor = make(loop, numbers)
    for _ in range(2):
        made.take()
    assert acceptor.held == 1
    made.close()
    assert (numbers[1], acceptor.held, loop.timers) == (0, 0, [])
    made.give()
    made.take()  # who has connected before is accepted all the same
    assert (numbers[1], acceptor.held) == (0, 0)


def test_with_a_limit_on_connections_both_hold(loop):
    numbers = counts(0, 0)
    acceptor = Acceptor()
    both = Both(Room(2), Balance(Loads(memoryview(numbers), 1), loop))
    both.join(acceptor)
    both.take()
    both.take()
    assert acceptor.held == 2
    loop.turn(balance.TURN)
    assert acceptor.held == 1
    both.give()
    assert (acceptor.held, numbers[1]) == (0, 2)
    both.close()


# --- the memory --------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="workers do without")
def test_the_memory_is_shared_by_its_descriptor():
    mine = open_board(for_spawned=True)
    assert mine is not None
    other = Board(mine.descriptor)
    counts, slot = other.loads(3)
    counts[slot] = 7
    assert mine.loads(0).counts[slot] == 7
    mine.clear(3)
    assert counts[slot] == 0
    for wide, slots in ((3, 4), (0, 4), (SLOTS - 1, SLOTS), (SLOTS, SLOTS)):
        mine.widen(wide)
        assert counts[0] == slots
    counts, slot = mine.loads(SLOTS - 1)
    counts[slot] = 1
    assert mine.loads(SLOTS) is None
    mine.clear(SLOTS)
    os.close(mine.descriptor)


# --- with workers ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("begun_by", ("fork", "spawn"))
def test_connections_that_are_opened_at_once_are_shared(way, tmp_path, begun_by):
    """As a proxy does it, which keeps them then."""
    source = "async def app(scope, receive, send):\n    await respond(send, b'%d' % os.getpid())\n"
    flags = ("--workers", "2", "--worker-start", begun_by, "--lifespan", "off", "--no-access-log")
    with (
        ServerProcess(tmp_path, source, *flags, "--timeout-linger", "0.2") as server,
        contextlib.ExitStack() as stack,
    ):
        answered = Counter()

        def shared():
            socks = [stack.enter_context(server.connect()) for _ in range(8)]
            for sock in socks:
                sock.sendall(GET)
                answered[read_response(sock)[1]] += 1
            return len(answered) == 2 and 3 * min(answered.values()) >= max(answered.values())

        eventually(shared)
        stack.close()
        victim = int(answered.most_common(1)[0][0])
        os.kill(victim, 9)  # what it has left in the memory holds up nobody
        server.wait_for(f"worker {victim} was killed")

        def both():
            with server.connect() as sock:
                sock.sendall(GET)
                answered[read_response(sock)[1]] += 1
            return len(answered) == 3

        eventually(both)
        assert server.stop() == 0
