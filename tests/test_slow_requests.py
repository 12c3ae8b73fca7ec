"""--slow-request-log: requests without a response after a time are logged, with where they wait."""

from __future__ import annotations

import asyncio
import time

from harness import eventually, read_response, reset
from sample_apps import body, respond, start

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"


class Waiting:
    """Waits in a function of its own until it is let go."""

    def __init__(self):
        self.gate = asyncio.Event()

    async def __call__(self, scope, receive, send):
        if scope["path"] == "/quick":
            await respond(send)
        elif scope["path"] == "/stream":
            await start(send)
            await body(send, b"x", more=True)
            await self.waits_here()
            await body(send)
        elif scope["path"] == "/blocks":
            time.sleep(0.5)
            await respond(send)
        else:
            await self.waits_here()
            await respond(send)

    async def waits_here(self):
        await self.gate.wait()


def slow(server) -> list[str]:
    return [line for line in server.errors.lines(30) if line.startswith("slow request: ")]


def test_a_slow_request_is_told_once_with_its_stack(serve):
    app = Waiting()
    with serve(app, slow_request_log=0.2) as server, server.connect() as sock, server.connect() as other:
        sock.sendall(GET % b"x?%22y")
        other.sendall(GET % b"quick")
        assert read_response(other)[0].startswith(b"HTTP/1.1 200")
        eventually(lambda: slow(server))
        armed = server.service.slow.armed
        eventually(lambda: server.service.slow.armed > armed + 0.2)  # it has looked again
        server.call(app.gate.set)
        assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        (line,) = slow(server)
        (access,) = [record.access for record in server.access.records if record.access.target != b"/quick"]
    assert "GET /x?%22y (" in line
    assert access.request_id in line
    assert "in waits_here" in line
    assert "await self.gate.wait()" in line


def test_a_stream_that_has_begun_is_not_slow(serve):
    app = Waiting()
    with serve(app, slow_request_log=0.1) as server, server.connect() as sock:
        sock.sendall(GET % b"stream")
        sock.recv(10)
        armed = server.service.slow.armed
        eventually(lambda: server.service.slow.armed > armed + 0.3)
        server.call(app.gate.set)
        server.access.wait(1)
        assert slow(server) == []


def test_one_that_blocks_the_loop_is_told_when_it_is_over(serve):
    with serve(Waiting(), slow_request_log=0.3) as server, server.connect() as sock:
        sock.sendall(GET % b"blocks")
        assert read_response(sock)[0].startswith(b"HTTP/1.1 200")
        (line,) = eventually(lambda: slow(server))
    assert "GET /blocks (" in line
    assert "held up the event loop" in line


def test_one_whose_client_has_left_is_still_told_only_once(serve):
    app = Waiting()
    with serve(app, slow_request_log=0.2) as server:
        sock = server.connect()
        sock.sendall(GET % b"x")
        eventually(lambda: slow(server))
        reset(sock)
        server.access.wait(1)
        armed = server.service.slow.armed
        eventually(lambda: server.service.slow.armed > armed + 0.2)
        assert len(slow(server)) == 1
        server.call(app.gate.set)
