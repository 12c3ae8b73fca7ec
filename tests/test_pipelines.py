"""What is ready leaves: a response although the next request waits, a part of one although the rest does.

To write several responses in one go is a saving that nobody may notice: whenever the server has nothing to
do, a client has got whatever was sent to it.
"""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
from harness import WAIT, eventually, read_response, read_to_end, statuses
from sample_apps import body, read_body, respond, start

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /%b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"


class Waiting:
    """Answers at once, or waits in the place that the path names until `go`; `waiting` tells that it does."""

    def __init__(self):
        self.waiting = threading.Event()
        self.finished = threading.Event()
        self._go = None
        self._loop = None

    def go(self):
        """Let it go on."""
        assert self.waiting.wait(WAIT)
        self._loop.call_soon_threadsafe(self._go.set)

    async def __call__(self, scope, receive, send):
        if scope["path"] == "/":
            await respond(send, b"first")
            return
        self._loop, self._go = asyncio.get_running_loop(), asyncio.Event()
        await getattr(self, scope["path"][1:])(receive, send)
        self.finished.set()

    async def wait(self):
        """Until `go`."""
        self.waiting.set()
        await self._go.wait()

    async def at_once(self, receive, send):
        await self.wait()
        await respond(send, b"second")

    async def later(self, receive, send):
        for _ in range(3):
            await asyncio.sleep(0)
        await self.wait()
        await respond(send, b"second")

    async def in_receive(self, receive, send):
        self.waiting.set()
        await read_body(receive)
        await respond(send, b"second")

    async def in_a_task(self, receive, send):
        async with asyncio.TaskGroup() as group:
            group.create_task(self.wait())
        await respond(send, b"second")

    async def in_a_thread(self, receive, send):
        waited = threading.Event()
        self._go.set = waited.set
        self.waiting.set()
        await asyncio.to_thread(waited.wait, WAIT)
        await respond(send, b"second")

    async def begun(self, receive, send):
        await start(send, 200, [(b"content-length", b"6")])
        await self.wait()
        await body(send, b"second")

    async def hinting(self, receive, send):
        await send({"type": "http.response.early_hint", "links": [b"</a>"]})
        await self.wait()
        await respond(send, b"second")


PLACES = ("at_once", "later", "in_a_task", "in_a_thread", "begun", "hinting")


@pytest.mark.parametrize("count", (1, 2, 40))
@pytest.mark.parametrize("place", PLACES)
def test_a_response_does_not_wait_for_the_next(serve, place, count):
    app = Waiting()
    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET % b"" * count + GET % place.encode())
        rest = b""
        for _ in range(count):
            _, content, rest = read_response(sock, rest)
            assert content == b"first"
        app.go()
        head, content, rest = read_response(sock, rest)
        if place == "hinting":
            assert head.startswith(b"HTTP/1.1 103 ")
            _, content, rest = read_response(sock, rest)
        assert (content, rest) == (b"second", b"")
    assert server.errors.lines(30) == []


@pytest.mark.parametrize("expects", (False, True))
def test_a_response_does_not_wait_for_the_body_of_the_next(serve, expects):
    app = Waiting()
    request = POST % b"in_receive"
    if expects:
        request = request.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET % b"" + request + (b"" if expects else b"he"))
        _, content, rest = read_response(sock)
        assert content == b"first"
        if expects:
            head, _, rest = read_response(sock, rest)
            assert head == b"HTTP/1.1 100 Continue"
        sock.sendall(b"hello" if expects else b"llo")
        assert read_response(sock, rest)[1] == b"second"
    assert server.errors.lines(30) == []


@pytest.mark.parametrize("rest", (b"G", b"GET / HTTP/1.1\r\nHost: a\r\n", b"\r\n"))
def test_a_response_does_not_wait_for_the_rest_of_a_head(serve, rest):
    with serve(Waiting()) as server, server.connect() as sock:
        sock.sendall(GET % b"" * 2 + rest)
        _, content, after = read_response(sock)
        assert content == b"first"
        assert read_response(sock, after)[1] == b"first"


@pytest.mark.parametrize("count", (1, 3, 40))
@pytest.mark.parametrize(
    "refused", (b"BAD\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/9.9\r\nHost: a\r\n\r\n")
)
def test_responses_come_before_a_refusal(serve, refused, count):
    with serve(Waiting()) as server:
        received = server.raw(GET % b"" * count + refused + GET % b"")
    found = statuses(received)
    assert found[:count] == [b"200"] * count
    assert len(found) == count + 1
    assert found[-1] in (b"400", b"505")


def test_responses_come_before_a_refusal_for_lack_of_room(serve):
    app = Waiting()
    with serve(app, limit_concurrency=1) as server, server.connect() as sock, server.connect() as other:
        sock.sendall(GET % b"at_once")
        assert app.waiting.wait(WAIT)
        other.sendall(GET % b"" * 2)
        _, _, rest = read_response(other)
        assert read_response(other, rest)[0].startswith(b"HTTP/1.1 503 ")
        app.go()
        read_response(sock)


def test_a_response_does_not_wait_for_a_failure(serve):
    async def app(scope, receive, send):
        if scope["path"] == "/":
            await respond(send, b"first")
        elif scope["path"] == "/raise":
            raise ZeroDivisionError
        elif scope["path"] == "/cut":
            await start(send, 200, [(b"content-length", b"10")])
            await body(send, b"part", True)
            raise ZeroDivisionError

    with serve(app) as server:
        received = server.raw(
            GET % b"" + GET % b"raise" + GET % b"" + GET % b"return" + GET % b"" + GET % b"cut"
        )
    assert statuses(received) == [b"200", b"500"] * 2 + [b"200"] * 2
    assert received.endswith(b"part")


@pytest.mark.parametrize("place", ("at_once", "begun"))
def test_a_response_arrives_although_the_server_stops(serve, place):
    app = Waiting()
    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET % b"" + GET % place.encode())
        assert app.waiting.wait(WAIT)
        server.server.should_exit = True
        _, content, rest = read_response(sock)
        assert content == b"first"
        app.go()
        _, content, _ = read_response(sock, rest)
        assert content == b"second"
        assert sock.recv(1) == b""
    assert server.errors.lines(30) == []


@pytest.mark.parametrize("place", PLACES)
def test_a_client_that_has_sent_everything_gets_everything(serve, place):
    app = Waiting()
    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET % b"" + GET % place.encode())
        sock.shutdown(socket.SHUT_WR)
        _, content, rest = read_response(sock)
        assert content == b"first"
        app.go()
        assert (rest + read_to_end(sock)).endswith(b"second")
    assert app.finished.wait(WAIT)


def test_a_response_that_another_task_ends(serve):
    """While the application itself waits for something else, and the next request is there already."""
    app = Waiting()

    async def answering(scope, receive, send):
        if scope["path"] == "/":
            await asyncio.create_task(respond(send, b"first"))
        elif scope["path"] == "/callback":
            loop = asyncio.get_running_loop()
            done = loop.create_future()
            loop.call_soon(by_hand, send, done)
            await done
        else:
            await app(scope, receive, send)

    def by_hand(send, done):
        for message in (
            {"type": "http.response.start", "status": 200},
            {"type": "http.response.body", "body": b"by hand"},
        ):
            with pytest.raises(StopIteration):
                send(message).send(None)
        done.set_result(None)

    with serve(answering) as server, server.connect() as sock:
        sock.sendall(GET % b"" + GET % b"callback" + GET % b"at_once")
        _, content, rest = read_response(sock)
        assert content == b"first"
        _, content, rest = read_response(sock, rest)
        assert content == b"by hand"
        app.go()
        assert read_response(sock, rest)[1] == b"second"


# --- parts ----------------------------------------------------------------------------------------


async def sleeping(send):
    await body(send, b"part", True)


async def in_a_task(send):
    await asyncio.create_task(body(send, b"part", True))


async def in_a_group(send):
    async with asyncio.TaskGroup() as group:
        group.create_task(body(send, b"part", True))


async def from_a_thread(send):
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(
        lambda: asyncio.run_coroutine_threadsafe(body(send, b"part", True), loop).result(WAIT)
    )


async def in_a_callback(send):
    def by_hand():
        with pytest.raises(StopIteration):
            send({"type": "http.response.body", "body": b"part", "more_body": True}).send(None)

    asyncio.get_running_loop().call_soon(by_hand)


async def in_a_task_that_goes_on(send):
    async def going_on():
        await body(send, b"part", True)
        await asyncio.sleep(WAIT)

    tasks.add(asyncio.create_task(going_on()))


async def nothing_and_a_part(send):
    await body(send, b"", True)
    await body(send, b"part", True)
    await body(send, b"", True)


tasks = set()
SENDERS = (
    sleeping,
    in_a_task,
    in_a_group,
    from_a_thread,
    in_a_callback,
    in_a_task_that_goes_on,
    nothing_and_a_part,
)


@pytest.mark.parametrize("pipelined", (False, True), ids=("alone", "pipelined"))
@pytest.mark.parametrize("sender", SENDERS, ids=[sender.__name__ for sender in SENDERS])
def test_a_part_does_not_wait_for_the_rest(serve, sender, pipelined):
    events = []

    async def app(scope, receive, send):
        await start(send)
        await sender(send)
        events.append((asyncio.get_running_loop(), asyncio.Event()))
        await events[-1][1].wait()
        await body(send, b"rest")
        while tasks:
            tasks.pop().cancel()

    with serve(app) as server, server.connect() as sock:
        sock.sendall(GET % b"" * (1 + pipelined))
        received = b""
        for number in range(1 + pipelined):
            while not received.endswith(b"part\r\n"):
                received += sock.recv(65536)
            eventually(lambda number=number: len(events) > number)
            loop, event = events[number]
            loop.call_soon_threadsafe(event.set)
            _, content, received = read_response(sock, received)
            assert content == b"4\r\npart\r\n4\r\nrest\r\n"
        assert received == b""
    assert server.errors.lines(30) == []


def test_parts_leave_together_at_the_latest_when_they_are_much(serve):
    """Without waiting in between: nothing is lost, and nothing is out of order."""

    async def app(scope, receive, send):
        await start(send)
        for number in range(1000):
            await body(send, b"%04d" % number * 100, True)
        await body(send)

    with serve(app) as server, server.connect() as sock:
        for _ in range(3):
            sock.sendall(GET % b"")
            assert read_response(sock)[1] == b"".join(
                b"190\r\n%b\r\n" % (b"%04d" % number * 100) for number in range(1000)
            )
    assert server.errors.lines(30) == []


@pytest.mark.parametrize("size", (1, 20_000, 1_000_000))
@pytest.mark.parametrize("fields", ([], [b"content-length"]), ids=("chunks", "length"))
def test_an_end_without_content(serve, size, fields):
    """The connection is closed after it: an empty part at the end must not wait to be written."""

    async def app(scope, receive, send):
        await start(send, 200, [(name, b"%d" % size) for name in fields])
        await body(send, b"", True)
        await body(send, b"x" * size, True)
        await body(send, b"", True)
        await body(send)

    with serve(app) as server:
        received = server.raw(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") % b"")
    assert received.count(b"x") == size
