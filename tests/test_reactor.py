"""The readiness reactor, from Python: what protocols are told, and what peers see. Real sockets and files."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import fcntl
import gc
import importlib
import os
import resource
import socket
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from harness import WAIT, new_loop, reset
from under_test import LOOPS

from servery.drivers import transports
from servery.errors import LocalProtocolError

if TYPE_CHECKING:
    from servery._speedups.reactor import Transport

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no reactor there")

FAMILIES = ("tcp", "ipv6", "unix")
BLOCK = bytes(range(256)) * 256
SPINS = 40
"""Turns of the loop in which something must not happen, or not more than a few times."""


class Protocol(asyncio.Protocol):
    """Writes down what it is told."""

    def __init__(self, keep_open: bool = True) -> None:
        self.said: list[str] = []
        self.data = b""
        self.error: BaseException | None = None
        self.keep_open = keep_open
        self.file_error: BaseException | None = None
        self.inside = False
        self._waiting: list[asyncio.Future[None]] = []

    def say(self, what: str) -> None:
        self.said.append(what)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until `condition` holds, which something that this protocol is told makes true."""
        while not condition():
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    async def told(self, what: str) -> None:
        """Wait until this was told."""
        await self.until(lambda: what in self.said)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.say("made")

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        self.data += data
        self.say("data")

    def eof_received(self) -> bool:
        self.say("eof")
        return self.keep_open

    def connection_lost(self, exc: BaseException | None) -> None:
        assert not self.inside, "from inside of a service"
        assert "lost" not in self.said
        self.error = exc
        self.say("lost")

    def pause_writing(self) -> None:
        self.say("pause")

    def resume_writing(self) -> None:
        self.say("resume")

    def file_sent(self, error: BaseException | None) -> None:
        assert not self.inside, "from inside of a service"
        self.file_error = error
        self.say("file")


class Echo(Protocol):
    """Sends back what it gets, no faster than it is taken."""

    most = 0

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)
        self.most = max(self.most, self.transport.get_write_buffer_size())
        super().data_received(data)

    def pause_writing(self) -> None:
        self.transport.pause_reading()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.transport.resume_reading()
        super().resume_writing()


class World:
    """A loop, a reactor in it, and whatever the loop's exception handler was told."""

    def __init__(self, kind: str) -> None:
        self.native = importlib.import_module("servery._speedups.reactor")
        self.loop = new_loop(kind)
        self.context = contextvars.Context()
        self.complaints: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, told: self.complaints.append(told))
        self.reactor = self.native.Reactor(self.loop, self.context)
        self.sockets: list[socket.socket] = []

    def run(self, scene: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(asyncio.wait_for(scene, WAIT))

    def close(self) -> None:
        self.reactor.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
        for sock in self.sockets:
            sock.close()

    def keep(self, sock: socket.socket) -> socket.socket:
        """Non-blocking, and closed at the end."""
        sock.setblocking(False)
        self.sockets.append(sock)
        return sock

    def listen(self, family: str, folder: Path | None = None, host: str = "") -> socket.socket:
        """A listening socket."""
        if family == "unix":
            sock = socket.socket(socket.AF_UNIX)
            sock.bind(str(folder / "listening") if folder else "")
            sock.listen(1000)
        else:
            kind, here = (socket.AF_INET6, "::1") if family == "ipv6" else (socket.AF_INET, "127.0.0.1")
            sock = socket.create_server((host or here, 0), family=kind, backlog=1000)
        return self.keep(sock)

    def pair(
        self, protocol: Any, family: str = "tcp", small: bool = False
    ) -> tuple[Transport, socket.socket]:
        """A started transport and the socket at the other end, both with small buffers if `small`."""
        if family == "unix":
            ours, theirs = socket.socketpair()
        else:
            with self.listen(family) as listening:
                theirs = socket.socket(listening.family)
                if small:
                    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
                    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
                theirs.connect(listening.getsockname())
                listening.setblocking(True)
                ours, _ = listening.accept()
        ours.setblocking(False)
        transport = self.native.Transport(self.reactor, ours.detach(), protocol)
        transport.start()
        return transport, self.keep(theirs)

    def complaint(self) -> dict[str, Any]:
        """The only one; it is taken."""
        (told,) = self.complaints
        self.complaints.clear()
        return told

    async def receive(self, sock: socket.socket, size: int = 1 << 40) -> bytes:
        """`size` octets, or all up to EOF."""
        got = bytearray()
        while len(got) < size and (data := await self.loop.sock_recv(sock, min(65536, size - len(got)))):
            got += data
        return bytes(got)

    async def quiet(self) -> None:
        """The reactor has nothing to do, but for what is still on its way: it is not called in every turn."""
        before = self.reactor.turns
        await spin(SPINS)
        assert self.reactor.turns - before < SPINS // 4


async def spin(times: int = SPINS) -> None:
    """Let the loop turn."""
    for _ in range(times):
        await asyncio.sleep(0)


@pytest.fixture(params=LOOPS)
def loop_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(loop_kind: str, both_engines: None) -> Iterator[World]:
    """Afterwards no descriptor is left, and no word to the exception handler that the test did not take."""
    new_loop(loop_kind).close()  # the first one opens descriptors that stay
    before = psutil.Process().num_fds()
    world = World(loop_kind)
    yield world
    world.close()
    assert world.complaints == []
    world.context = contextvars.Context()
    assert psutil.Process().num_fds() == before


def blocked(transport: Transport) -> bytes:
    """Fill the kernel's buffers, and queue something; what was written."""
    written = b""
    while not transport.get_write_buffer_size():
        transport.write(BLOCK)
        written += BLOCK
    return written


# --- reading and writing -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_echo_through_a_slow_reader_keeps_to_the_water_marks(world: World, family: str) -> None:
    protocol = Echo()
    payload = os.urandom(5_000_000)

    async def main() -> None:
        transport, peer = world.pair(protocol, family, small=True)
        transport.set_write_buffer_limits(high=100_000)
        sending = asyncio.ensure_future(world.loop.sock_sendall(peer, payload))
        await protocol.told("pause")
        await spin()
        assert await world.receive(peer, len(payload)) == payload
        await sending
        assert transport.get_write_buffer_size() == 0
        await world.quiet()

    world.run(main())
    assert protocol.data == payload
    turns = [what for what in protocol.said if what in ("pause", "resume")]
    assert turns == ["pause", "resume"] * (len(turns) // 2)
    assert 100_000 < protocol.most <= 100_000 + 65_536


def test_marks_are_those_of_asyncio(world: World) -> None:
    async def main() -> None:
        transport, _ = world.pair(protocol)
        assert transport.get_write_buffer_limits() == (16_384, 65_536)
        transport.set_write_buffer_limits(high=100)
        assert transport.get_write_buffer_limits() == (25, 100)
        transport.set_write_buffer_limits(low=100)
        assert transport.get_write_buffer_limits() == (100, 400)
        with pytest.raises(ValueError, match="must be >= low"):
            transport.set_write_buffer_limits(high=1, low=2)
        with pytest.raises(ValueError, match="must be >= 0"):
            transport.set_write_buffer_limits(high=1, low=-1)
        transport.set_write_buffer_limits()
        transport.write(b"x")
        assert protocol.said == ["made"]

    protocol = Protocol()
    world.run(main())


def test_a_lower_mark_pauses_at_once_and_an_empty_queue_resumes(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, small=True)
        transport.set_write_buffer_limits(high=1 << 30)
        written = blocked(transport)
        assert "pause" not in protocol.said
        transport.set_write_buffer_limits(high=0)
        assert protocol.said[-1] == "pause"
        assert await world.receive(peer, len(written)) == written
        await protocol.told("resume")
        assert transport.get_write_buffer_size() == 0

    protocol = Protocol()
    world.run(main())


@pytest.mark.parametrize("small", [False, True], ids=["taken at once", "queued"])
def test_many_parts_keep_their_order(world: World, small: bool) -> None:
    parts = [bytes([at % 251]) * (at * 7 % 6000) for at in range(500)]

    async def main() -> None:
        transport, peer = world.pair(protocol, small=small)
        transport.writelines([b"", b""])
        transport.writelines(iter(parts[:200]))
        transport.writelines([bytearray(part) for part in parts[200:300]])
        for part in parts[300:]:
            transport.write(memoryview(part))
        transport.writelines([])
        assert bool(transport.get_write_buffer_size()) == small
        transport.close()
        assert await world.receive(peer) == b"".join(parts)
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())
    assert protocol.error is None


def test_wrong_use_of_write_is_told(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(Protocol())
        for wrong in ("text", None, 5, [b"x"]):
            with pytest.raises(TypeError, match="bytes-like"):
                transport.write(wrong)
        with pytest.raises(TypeError, match="bytes-like"):
            transport.writelines([b"x", "text"])
        transport.write(b"")
        transport.write_eof()
        for write in (lambda: transport.write(b"x"), lambda: transport.writelines([b"x"])):
            with pytest.raises(RuntimeError, match="after write_eof"):
                write()
        with pytest.raises(RuntimeError, match="after write_eof"):
            transport.send_file(0, 0, 1)
        assert await world.receive(peer) == b""
        for offset, count in ((-1, 1), (0, -1)):
            with pytest.raises(ValueError, match="not in any file"):
                transport.send_file(0, offset, count)
        with pytest.raises(RuntimeError, match="already"):
            transport.__init__(world.reactor, 0, None)

    world.run(main())


def test_reading_pauses_and_goes_on(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol)
        assert transport.is_reading()
        transport.pause_reading()
        transport.pause_reading()
        assert not transport.is_reading()
        await world.loop.sock_sendall(peer, b"first")
        await world.quiet()
        assert protocol.data == b""
        transport.resume_reading()
        transport.pause_reading()
        transport.resume_reading()
        await protocol.until(lambda: protocol.data == b"first")
        await world.quiet()

    protocol = Protocol()
    world.run(main())


def test_a_buffered_protocol_is_given_pieces_that_fit(world: World) -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(1000)
            self.got = b""
            self.end: asyncio.Future[None] = world.loop.create_future()

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.got += self.buffer[:nbytes]

        def eof_received(self) -> None:
            self.end.set_result(None)

    async def main() -> None:
        _, peer = world.pair(protocol)
        await world.loop.sock_sendall(peer, BLOCK)
        peer.shutdown(socket.SHUT_WR)
        await protocol.end
        assert protocol.got == BLOCK

    protocol = Buffered()
    world.run(main())


def test_streams_of_asyncio_run_on_it(world: World) -> None:
    async def main() -> None:
        reader = asyncio.StreamReader(loop=world.loop)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, peer = world.pair(protocol, small=True)
        writer = asyncio.StreamWriter(transport, protocol, reader, world.loop)
        receiving = asyncio.ensure_future(world.receive(peer))
        for _ in range(10):
            writer.write(BLOCK)
            await writer.drain()
        await world.loop.sock_sendall(peer, b"a line\n")
        assert await reader.readline() == b"a line\n"
        writer.close()
        await writer.wait_closed()
        assert await receiving == BLOCK * 10

    world.run(main())


def test_protocols_can_be_changed(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(first)
        assert transport.get_protocol() is first
        transport.set_protocol(second)
        await world.loop.sock_sendall(peer, b"x")
        await second.told("data")
        transport.abort()
        await second.told("lost")
        assert transport.get_protocol() is None

    first, second = Protocol(), Protocol()
    world.run(main())
    assert first.said == ["made"]


def test_a_transport_can_hand_its_descriptor_on(world: World) -> None:
    """From inside of what it tells its protocol, too: another one goes on in the same batch."""

    class Handing(Protocol):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            fd = self.transport.detach()
            heirs.append(world.native.Transport(world.reactor, fd, second))
            heirs[0].start()

    async def main() -> None:
        transport, peer = world.pair(first)
        await world.loop.sock_sendall(peer, b"x")
        await second.told("made")
        assert transport.is_closing()
        assert transport.fileno() == -1
        with pytest.raises(RuntimeError, match="closed"):
            transport.detach()
        transport.write(b"nowhere")
        transport.abort()
        await world.loop.sock_sendall(peer, b"y")
        await second.until(lambda: second.data == b"y")
        heirs[0].write(b"z")
        assert await world.receive(peer, 1) == b"z"
        heirs[0].abort()
        await second.told("lost")

    first, second = Handing(), Protocol()
    heirs: list[Transport] = []
    world.run(main())
    assert first.said == ["made", "data"]


def test_a_transport_keeps_its_descriptor_while_something_is_queued(world: World) -> None:
    async def main() -> None:
        transport, _ = world.pair(protocol, small=True)
        blocked(transport)
        with pytest.raises(RuntimeError, match="something to send"):
            transport.detach()
        transport.abort()
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())


def test_what_is_known_of_the_connection(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol)
        assert transport.get_extra_info("socket") is not None
        sock = transport.get_extra_info("socket")
        assert isinstance(sock, asyncio.trsock.TransportSocket)
        assert sock.gettimeout() == 0.0
        assert sock.fileno() == transport.fileno() > 0
        assert sock.getpeername() == peer.getsockname()
        assert transport.get_extra_info("sslcontext") is None
        assert transport.get_extra_info("cipher", "none") == "none"
        assert transport.can_write_eof()
        assert "open" in repr(transport)
        transport.close()
        assert "closed" in repr(transport)
        await protocol.told("lost")
        assert sock.fileno() == transport.fileno() == -1
        again, _ = world.pair(Protocol())
        again.abort()
        assert again.get_extra_info("socket", "none") == "none"

    protocol = Protocol()
    world.run(main())
    assert repr(world.reactor) == "<Reactor watching 0>"


# --- half-closed, and closed ---------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_peer_that_has_finished_still_reads(world: World, family: str) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, family)
        await world.loop.sock_sendall(peer, b"question")
        peer.shutdown(socket.SHUT_WR)
        await protocol.told("eof")
        await world.quiet()
        assert not transport.is_closing()
        transport.write(b"answer")
        assert await world.receive(peer, 6) == b"answer"
        transport.close()
        assert await world.receive(peer) == b""
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())
    assert (protocol.data, protocol.error) == (b"question", None)


def test_a_protocol_that_does_not_care_is_closed_at_eof(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, small=True)
        written = blocked(transport)
        peer.shutdown(socket.SHUT_WR)
        await protocol.told("eof")
        assert transport.is_closing()
        await world.quiet()
        assert await world.receive(peer) == written
        await protocol.told("lost")

    protocol = Protocol(keep_open=False)
    world.run(main())
    assert protocol.error is None


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("queued", [False, True], ids=["nothing queued", "queued"])
def test_our_end_comes_after_what_is_queued_and_reading_goes_on(
    world: World, family: str, queued: bool
) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, family, small=True)
        written = blocked(transport) if queued else b""
        transport.write_eof()
        transport.write_eof()
        assert await world.receive(peer) == written
        await world.quiet()
        await world.loop.sock_sendall(peer, b"last words")
        await protocol.told("data")
        await world.quiet()
        peer.close()
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())
    assert (protocol.data, protocol.error) == (b"last words", None)
    assert "eof" in protocol.said


@pytest.mark.parametrize("family", FAMILIES)
def test_both_ends_end_the_connection(world: World, family: str) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, family)
        peer.shutdown(socket.SHUT_WR)
        await protocol.told("eof")
        transport.write_eof()
        assert "lost" not in protocol.said
        await protocol.told("lost")
        assert transport.is_closing()

    protocol = Protocol()
    world.run(main())
    assert protocol.error is None


@pytest.mark.parametrize("family", FAMILIES)
def test_closing_sends_what_is_queued_and_reads_no_more(world: World, family: str) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, family, small=True)
        written = blocked(transport)
        transport.close()
        transport.close()
        transport.resume_reading()
        assert not transport.is_reading()
        await world.quiet()
        assert await world.receive(peer) == written
        await protocol.told("lost")
        transport.write(b"ignored")
        transport.writelines([b"ignored"])
        assert not transport.send_file(0, 0, 1)
        transport.write_eof()
        transport.abort()
        transport.resume_reading()

    protocol = Protocol()
    world.run(main())
    assert protocol.error is None


def test_what_comes_while_closing_is_left_alone(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, small=True)
        blocked(transport)
        transport.close()
        await world.loop.sock_sendall(peer, b"late")
        await world.quiet()
        assert protocol.data == b""
        reset(peer)
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())
    assert isinstance(protocol.error, ConnectionResetError)


@pytest.mark.parametrize("family", FAMILIES)
def test_aborting_drops_what_is_queued(world: World, family: str) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, family, small=True)
        written = blocked(transport)
        protocol.inside = True
        transport.abort()
        transport.abort()
        protocol.inside = False
        assert (transport.get_write_buffer_size(), transport.is_closing()) == (0, True)
        await protocol.told("lost")
        assert len(await world.receive(peer)) < len(written)

    protocol = Protocol()
    world.run(main())
    assert protocol.error is None


def test_a_transport_can_be_reset_by_way_of_its_socket(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol)
        transports.reset(transport)
        with pytest.raises(ConnectionResetError):
            await world.receive(peer)
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())


def test_the_end_is_told_in_the_context_of_the_reactor(world: World) -> None:
    mark: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="none")
    seen = []

    class Looking(Protocol):
        def data_received(self, data: bytes) -> None:
            seen.append(mark.get())
            mark.set("of a callback")
            super().data_received(data)

        def connection_lost(self, exc: BaseException | None) -> None:
            seen.append(mark.get())
            super().connection_lost(exc)

    async def main() -> None:
        mark.set("of a request")
        transport, peer = world.pair(protocol)
        await world.loop.sock_sendall(peer, b"x")
        await protocol.told("data")
        transport.abort()
        await protocol.told("lost")

    protocol = Looking()
    world.run(main())
    assert seen == ["none", "none"]


# --- connections that break ----------------------------------------------------------------------------


def test_a_reset_is_seen_at_once_even_while_reading_is_paused(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol)
        transport.pause_reading()
        await world.loop.sock_sendall(peer, b"never read")
        await world.quiet()
        reset(peer)
        await protocol.told("lost")
        transport.write(b"ignored")

    protocol = Protocol()
    world.run(main())
    assert isinstance(protocol.error, ConnectionResetError)
    assert protocol.data == b""


def test_octets_before_a_reset_are_delivered(world: World) -> None:
    async def main() -> None:
        _, peer = world.pair(protocol)
        peer.setblocking(True)
        peer.sendall(BLOCK[:30_000])  # more might still be with the peer, and go with it
        reset(peer)
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())
    assert protocol.data == BLOCK[:30_000]
    assert isinstance(protocol.error, ConnectionResetError)


def test_a_reset_after_the_end_is_seen(world: World) -> None:
    async def main() -> None:
        _, peer = world.pair(protocol)
        peer.shutdown(socket.SHUT_WR)
        await protocol.told("eof")
        await world.quiet()
        reset(peer)
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())
    assert isinstance(protocol.error, ConnectionError)


@pytest.mark.parametrize("queued", [False, True], ids=["directly", "from the queue"])
def test_a_write_that_fails_raises_nothing_and_ends_the_connection(world: World, queued: bool) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, "unix")
        if queued:
            blocked(transport)
        peer.close()
        if not queued:
            transport.write(b"x")
            assert transport.is_closing()
            transport.writelines([b"x"])
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())
    assert isinstance(protocol.error, ConnectionError)
    assert protocol.said.count("lost") == 1


def test_several_parts_that_cannot_be_written_end_the_connection(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, "unix")
        peer.close()
        transport.writelines([b"x", b"y"])
        assert transport.is_closing()
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())
    assert isinstance(protocol.error, BrokenPipeError)


def test_a_peer_that_is_gone_leaves_its_octets_to_a_paused_reader(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, "unix")
        transport.pause_reading()
        await world.loop.sock_sendall(peer, b"testament")
        peer.close()
        await world.quiet()
        assert protocol.said == ["made"]
        transport.resume_reading()
        await protocol.told("eof")
        await find_out(transport)
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())
    assert protocol.data == b"testament"
    assert protocol.said == ["made", "data", "eof", "lost"]


def test_a_peer_that_is_gone_without_a_word_is_noticed_by_a_paused_reader(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, "unix")
        transport.pause_reading()
        peer.close()
        await find_out(transport)
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())
    assert protocol.said == ["made", "lost"]


async def find_out(transport: Transport) -> None:
    """A local peer that has closed is told of by epoll; where kqueue is, a write finds it out."""
    if sys.platform != "linux":
        transport.write(b"x")


def test_a_paused_reader_is_not_woken_by_the_end(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol)
        transport.pause_reading()
        await world.loop.sock_sendall(peer, b"x")
        peer.shutdown(socket.SHUT_WR)
        await world.quiet()
        transport.write_eof()
        await world.quiet()
        assert protocol.said == ["made"]
        transport.resume_reading()
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())
    assert protocol.said == ["made", "data", "eof", "lost"]


def test_errors_that_no_peer_can_cause_are_told_to_the_loop(world: World) -> None:
    async def main() -> None:
        reading, writing = os.pipe()
        world.native.Transport(world.reactor, reading, protocol).start()
        os.write(writing, b"x")
        await protocol.told("lost")
        os.close(writing)

    protocol = Protocol()
    world.run(main())
    assert isinstance(protocol.error, OSError)
    assert protocol.error.errno == errno.ENOTSOCK
    told = world.complaint()
    assert told["exception"] is protocol.error
    assert told["protocol"] is protocol


# --- one connection and the others ---------------------------------------------------------------------


class Clumsy(Protocol):
    """Raises in the callback that it is told to."""

    def __init__(self, where: str, error: type[BaseException] = ZeroDivisionError) -> None:
        super().__init__()
        self.where, self.raises = where, error

    def say(self, what: str) -> None:
        super().say(what)
        if what == self.where:
            raise self.raises


@pytest.mark.parametrize("where", ["made", "data", "eof"])
def test_an_exception_ends_its_connection_and_no_other(world: World, where: str) -> None:
    async def main() -> None:
        peers = [world.pair(protocol)[1] for protocol in (first, clumsy, last)]
        for peer in peers if where != "made" else (peers[0], peers[2]):
            peer.send(b"x")
            peer.shutdown(socket.SHUT_WR)
        for protocol in (first, last):
            await protocol.told("eof")
        await clumsy.told("lost")
        assert await world.receive(peers[1]) == b""

    first, clumsy, last = Protocol(), Clumsy(where), Protocol()
    world.run(main())
    told = world.complaint()
    assert type(told["exception"]) is ZeroDivisionError
    assert told["protocol"] is clumsy
    assert clumsy.error is told["exception"]
    assert "lost" not in first.said + last.said


@pytest.mark.parametrize("where", ["pause", "resume"])
def test_an_exception_about_water_marks_ends_nothing(world: World, where: str) -> None:
    async def main() -> None:
        transport, peer = world.pair(clumsy, small=True)
        written = blocked(transport)
        transport.set_write_buffer_limits(0)
        transport.close()
        assert await world.receive(peer) == written
        await clumsy.told("lost")

    clumsy = Clumsy(where)
    world.run(main())
    assert where in world.complaint()["message"]
    assert clumsy.error is None


def test_an_exception_about_the_end_is_told(world: World) -> None:
    async def main() -> None:
        transport, _ = world.pair(clumsy)
        transport.abort()
        await clumsy.told("lost")
        await spin(2)
        assert transport.get_protocol() is None

    clumsy = Clumsy("lost")
    world.run(main())
    assert type(world.complaint()["exception"]) is ZeroDivisionError


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_request_to_exit_leaves_the_loop(world: World, error: type[BaseException]) -> None:
    async def main() -> None:
        _, peer = world.pair(Clumsy("data", error))
        _, other = world.pair(protocol)
        for sock in (peer, other):
            sock.send(b"x")
        await asyncio.Event().wait()

    protocol = Protocol()
    with pytest.raises(error):
        world.run(main())
    for task in asyncio.all_tasks(world.loop):
        task.cancel()
    world.run(protocol.told("data"))


def test_a_connection_that_another_one_aborts_in_the_same_batch_is_told_nothing_more(world: World) -> None:
    class Killer(Protocol):
        other: Transport

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.other.abort()

        def connection_lost(self, exc: BaseException | None) -> None:
            super().connection_lost(exc)
            over.set()

    async def main() -> None:
        (one, to_one), (two, to_two) = (world.pair(protocol) for protocol in (first, second))
        first.other, second.other = two, one
        to_one.send(b"x")
        to_two.send(b"x")
        await over.wait()
        await spin()

    over = asyncio.Event()
    first, second = Killer(), Killer()
    world.run(main())
    assert sorted((first.said, second.said)) == [["made", "data"], ["made", "lost"]]


def test_callbacks_of_the_loop_have_their_turn_among_busy_connections(world: World) -> None:
    count, rounds = 100, 20
    turns: list[int] = []
    served: Counter[int] = Counter()

    class Hungry(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            served[world.reactor.turns] += 1

    def tick() -> None:
        turns.append(world.reactor.turns)
        world.loop.call_soon(tick)

    async def main() -> None:
        peers = [world.pair(Hungry(), "unix")[1] for _ in range(count)]
        tick()
        for _ in range(rounds):
            for peer in peers:
                peer.send(b"x")
            await spin(4)
        while sum(served.values()) < count * rounds // 4:
            await spin(1)

    world.run(main())
    assert max(served.values()) <= 64
    assert len(served) > 1
    assert max(after - before for before, after in pairwise(turns)) <= 1


def test_nothing_is_left_of_a_connection_without_the_collector(world: World) -> None:
    references = []

    async def main() -> None:
        protocol = Protocol()
        references.append(weakref.ref(protocol))
        transport, peer = world.pair(protocol, small=True)
        blocked(transport)
        transport.get_extra_info("socket")
        reset(peer)
        await protocol.told("lost")

    gc.collect()
    gc.disable()
    try:
        world.run(main())
        world.run(spin(3))
        assert references[0]() is None
    finally:
        gc.enable()


def test_a_started_transport_needs_nobody_to_keep_it(world: World) -> None:
    async def main() -> None:
        _, peer = world.pair(Echo())
        gc.collect()
        await world.loop.sock_sendall(peer, b"still there")
        assert await world.receive(peer, 11) == b"still there"

    world.run(main())


@pytest.mark.parametrize("lent", [False, True])
def test_a_transport_that_never_started_closes_its_descriptor(world: World, lent: bool) -> None:
    ours, theirs = socket.socketpair()
    world.keep(theirs)
    transports = [world.native.Transport(world.reactor, ours.detach(), Protocol())]
    if lent:
        assert transports[0].get_extra_info("socket") is not None
        with pytest.warns(ResourceWarning):
            transports.clear()
    else:
        transports.clear()
    assert theirs.recv(1) == b""


def test_closing_the_reactor_ends_what_is_left(world: World) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol)
        listener = world.native.Listener(world.reactor, world.listen("tcp"), lambda *_: None, lambda _: None)
        late = world.keep(socket.socket())
        world.reactor.close()
        world.reactor.close()
        await protocol.told("lost")
        assert (transport.fileno(), listener.fileno()) == (-1, -1)
        assert await world.receive(peer) == b""
        ours, theirs = socket.socketpair()
        late.close()
        world.keep(theirs)
        world.native.Transport(world.reactor, ours.detach(), refused).start()
        await refused.told("lost")

    protocol, refused = Protocol(), Protocol()
    world.run(main())
    assert "closed" in str(world.complaint()["exception"])


# --- files ---------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    """Two megabytes, open."""
    path = tmp_path / "file"
    path.write_bytes(BLOCK * 32)
    fd = os.open(path, os.O_RDWR)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("means", ["by the kernel", "by copy"])
def test_files_keep_their_place_among_octets(world: World, file: int, family: str, means: str) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, family, small=True)
        if means == "by copy":
            use_no_sendfile(transport, file)
        transport.set_write_buffer_limits(high=1 << 30)
        protocol.inside = True
        transport.write(b"head ")
        sent = [transport.send_file(file, 1, 2_000_000)]
        transport.write(b" between ")
        sent += [transport.send_file(file, 0, 3), transport.send_file(file, 0, 0)]
        transport.write(b" tail")
        protocol.inside = False
        assert sent == [False, False, False]
        assert 0 < transport.get_write_buffer_size() <= 2_000_022
        await world.quiet()
        transport.close()
        assert await world.receive(peer) == b"head " + content + b" between \0\1\2 tail"
        await protocol.told("lost")
        assert transport.get_write_buffer_size() == 0

    content = (BLOCK * 32)[1:2_000_001]
    protocol = Protocol()
    world.run(main())
    assert protocol.said.count("file") == 3
    assert (protocol.file_error, protocol.error) == (None, None)
    assert os.lseek(file, 0, os.SEEK_CUR) == 0


def use_no_sendfile(transport: Transport, file: int) -> None:
    """The kernel refuses sendfile(2) to what appends."""
    fd = transport.fileno()
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    if sys.platform == "linux":
        with pytest.raises(OSError, match="Invalid argument"):
            os.sendfile(fd, file, 0, 1)


def test_a_small_file_is_sent_at_once(world: World, file: int) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol)
        assert transport.send_file(file, 5, 1000)
        assert transport.send_file(file, 0, 0)
        transport.close()
        assert await world.receive(peer) == BLOCK[5:1005]

    protocol = Protocol()
    world.run(main())
    assert "file" not in protocol.said


def test_a_long_file_leaves_turns_to_others(world: World, file: int) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, "unix")
        os.ftruncate(file, 64 << 20)
        receiving = world.loop.run_in_executor(None, drain, peer)
        assert not transport.send_file(file, 0, 64 << 20)
        before = world.reactor.turns
        await protocol.told("file")
        assert world.reactor.turns - before >= 62
        transport.close()
        assert await receiving == 64 << 20

    def drain(peer: socket.socket) -> int:
        peer.setblocking(True)
        total = 0
        while data := peer.recv(1 << 20):
            total += len(data)
        return total

    protocol = Protocol()
    world.run(main())


@pytest.mark.parametrize("queued", [False, True], ids=["directly", "from the queue"])
def test_a_file_that_became_shorter_is_told(world: World, file: int, queued: bool) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, small=queued)
        written = blocked(transport) if queued else b""
        protocol.inside = True
        assert not transport.send_file(file, 32 * 65536 - 10, 20)
        protocol.inside = False
        assert await world.receive(peer, len(written) + 10) == written + BLOCK[-10:]
        await protocol.told("file")
        assert transport.get_write_buffer_size() == 0
        transport.write(b"more")
        assert await world.receive(peer, 4) == b"more"
        await world.quiet()

    protocol = Protocol()
    world.run(main())
    assert isinstance(protocol.file_error, LocalProtocolError)
    assert str(protocol.file_error) == "the file became shorter while it was sent"


def test_a_file_that_cannot_be_read_is_told(world: World, tmp_path: Path) -> None:
    async def main() -> None:
        transport, _ = world.pair(protocol)
        fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
        assert not transport.send_file(fd, 0, 20)
        await protocol.told("file")
        os.close(fd)
        assert not transport.is_closing()

    protocol = Protocol()
    world.run(main())
    assert isinstance(protocol.file_error, OSError)
    assert protocol.file_error.errno == errno.EBADF


def test_a_connection_that_is_lost_says_nothing_of_its_file(world: World, file: int) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, small=True)
        assert not transport.send_file(file, 0, 1_000_000)
        assert protocol.said[-1] == "pause"
        reset(peer)
        await protocol.told("lost")
        broken, peer = world.pair(other, "unix")
        peer.close()
        assert not broken.send_file(file, 0, 1)
        await other.told("lost")

    protocol, other = Protocol(), Protocol()
    world.run(main())
    assert "file" not in protocol.said + other.said
    assert isinstance(other.error, BrokenPipeError)


@pytest.mark.parametrize("behind", [b"", b"behind it"])
def test_a_file_can_be_withdrawn_with_what_is_behind_it(world: World, file: int, behind: bytes) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, small=True)
        transport.withdraw()
        written = blocked(transport)
        transport.withdraw()
        assert not transport.send_file(file, 0, 10)
        size = transport.get_write_buffer_size()
        assert not transport.send_file(file, 0, 1_000_000)
        transport.write(behind)
        assert transport.get_write_buffer_size() == size + 1_000_000 + len(behind)
        transport.withdraw()
        assert transport.get_write_buffer_size() == size
        transport.write(b"after")
        transport.close()
        assert await world.receive(peer) == written + BLOCK[:10] + b"after"
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())
    assert protocol.said.count("file") == 1


def test_a_file_can_be_withdrawn_half_way(world: World, file: int) -> None:
    async def main() -> None:
        transport, peer = world.pair(protocol, small=True)
        assert not transport.send_file(file, 0, 1_000_000)
        assert await world.receive(peer, 100_000) == (BLOCK * 2)[:100_000]
        transport.withdraw()
        assert transport.get_write_buffer_size() == 0
        assert protocol.said[-1] == "resume"
        await world.quiet()
        transport.close()
        assert len(await world.receive(peer)) < 900_000
        await protocol.told("lost")

    protocol = Protocol()
    world.run(main())
    assert "file" not in protocol.said


def test_whoever_is_told_of_a_file_can_withdraw_the_next(world: World, file: int) -> None:
    class Changing(Protocol):
        def file_sent(self, error: BaseException | None) -> None:
            super().file_sent(error)
            self.transport.withdraw()
            self.transport.write(BLOCK * 32)
            self.transport.close()

    async def main() -> None:
        transport, peer = world.pair(protocol, small=True)
        assert not transport.send_file(file, 0, 1_000_000)
        transport.send_file(file, 0, 5)
        assert (await world.receive(peer))[1_000_000:] == BLOCK * 32
        await protocol.told("lost")

    protocol = Changing()
    world.run(main())
    assert protocol.said.count("file") == 1


def test_whoever_is_told_of_a_file_can_write_write_and_close(world: World, file: int) -> None:
    class Next(Protocol):
        def file_sent(self, error: BaseException | None) -> None:
            super().file_sent(error)
            self.transport.write(b"one")
            assert not self.transport.send_file(file, 0, 10)
            self.transport.writelines([b"two", b"three"])
            self.transport.set_protocol(last)
            self.transport.close()

    async def main() -> None:
        transport, peer = world.pair(protocol, small=True)
        assert not transport.send_file(file, 0, 1_000_000)
        assert (await world.receive(peer))[1_000_000:] == b"one" + BLOCK[:10] + b"twothree"
        await last.told("lost")

    protocol, last = Next(), Protocol()
    world.run(main())
    assert last.said == ["file", "lost"]


# --- accepting -----------------------------------------------------------------------------------------


class Door:
    """A listener whose connections get protocols of their own."""

    def __init__(self, world: World, sock: socket.socket, make: Callable[[], Any] = Protocol) -> None:
        self.world, self.sock, self.make = world, sock, make
        self.opened: list[tuple[Transport, Any, Any]] = []
        self.at: Counter[int] = Counter()
        self.full: list[int] = []
        self._news = asyncio.Event()
        self.listener = world.native.Listener(world.reactor, sock, self.open, self.exhausted)

    def open(self, fd: int, peername: Any, sockname: Any) -> None:
        self.at[self.world.reactor.turns] += 1
        transport = self.world.native.Transport(self.world.reactor, fd, self.make(), peername, sockname)
        self.opened.append((transport, peername, sockname))
        transport.start()
        self._news.set()

    def exhausted(self, number: int) -> None:
        self.full.append(number)
        self.listener.pause()
        self._news.set()

    async def until(self, condition: Callable[[], Any]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    def client(self, name: str = "") -> socket.socket:
        """A connected socket."""
        sock = socket.socket(self.sock.family)
        if name:
            sock.bind(name)
        sock.connect(self.sock.getsockname())
        return self.world.keep(sock)


@pytest.mark.parametrize("family", FAMILIES)
def test_connections_are_named_as_the_socket_module_names_them(
    world: World, family: str, tmp_path: Path
) -> None:
    async def main() -> None:
        door = Door(world, world.listen(family, tmp_path))
        clients = [door.client()]
        if family == "unix":
            clients.append(door.client(str(tmp_path / "näme")))
            if sys.platform == "linux":
                clients.append(door.client("\0abstract"))
        await door.until(lambda: len(door.opened) == len(clients))
        for client, (transport, peername, sockname) in zip(clients, door.opened, strict=True):
            sock = transport.get_extra_info("socket")
            assert peername == sock.getpeername() == client.getsockname()
            assert sockname == sock.getsockname() == client.getpeername()
            assert transport.get_extra_info("peername") == peername
            assert transport.get_extra_info("sockname") == sockname
            assert not os.get_blocking(sock.fileno())
            assert not os.get_inheritable(sock.fileno())
            if family != "unix":
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    world.run(main())


def test_a_wildcard_listener_knows_by_which_address_a_client_came(world: World) -> None:
    async def main() -> None:
        door = Door(world, world.listen("tcp", host="0.0.0.0"))
        port = door.sock.getsockname()[1]
        for host in ("127.0.0.1", "127.0.0.2"):
            world.keep(socket.create_connection((host, port)))
        await door.until(lambda: len(door.opened) == 2)
        assert [sockname for _, _, sockname in door.opened] == [("127.0.0.1", port), ("127.0.0.2", port)]

    world.run(main())


def test_an_unbound_unix_listener_has_a_name_all_the_same(world: World) -> None:
    async def main() -> None:
        door = Door(world, world.listen("unix"))
        door.client()
        await door.until(lambda: door.opened)
        assert door.opened[0][1:] == ("", door.sock.getsockname())

    world.run(main())


def test_many_connections_are_accepted_in_batches(world: World) -> None:
    async def main() -> None:
        door = Door(world, world.listen("tcp"), Echo)
        clients = [door.client() for _ in range(200)]
        await door.until(lambda: len(door.opened) == 200)
        assert max(door.at.values()) == 64
        for number, client in enumerate(clients):
            client.send(b"%03d" % number)
        for number, client in enumerate(clients):
            assert await world.receive(client, 3) == b"%03d" % number
        await world.quiet()

    world.run(main())


def test_what_has_connected_can_be_accepted_at_once_and_no_more_then(world: World) -> None:
    async def main() -> None:
        door = Door(world, world.listen("tcp"))
        door.listener.pause()
        clients = [door.client() for _ in range(150)]
        await world.quiet()
        assert door.opened == []
        door.listener.accept_all()
        assert len(door.opened) == len(clients)
        door.listener.resume()
        door.listener.resume()
        door.client()
        await door.until(lambda: len(door.opened) == 151)
        door.listener.close()
        door.listener.close()
        door.client()
        door.listener.resume()
        door.listener.pause()
        door.listener.accept_all()
        await world.quiet()
        assert len(door.opened) == 151
        assert door.sock.fileno() != -1

    world.run(main())


def test_a_listener_that_is_paused_in_a_batch_accepts_no_more_of_it(world: World) -> None:
    class Pausing(Protocol):
        def connection_made(self, transport: Any) -> None:
            if len(doors[0].opened) == 3:
                doors[0].listener.pause()

    async def main() -> None:
        doors.append(door := Door(world, world.listen("tcp"), Pausing))
        for _ in range(10):
            door.client()
        await door.until(lambda: len(door.opened) == 3)
        await world.quiet()
        assert len(door.opened) == 3
        door.listener.resume()
        await door.until(lambda: len(door.opened) == 10)
        door.listener.close()

    doors: list[Door] = []
    world.run(main())


def test_a_listener_can_be_closed_by_a_connection_that_it_opens(world: World) -> None:
    class Closing(Protocol):
        def connection_made(self, transport: Any) -> None:
            doors[0].listener.close()

    async def main() -> None:
        doors.append(Door(world, world.listen("tcp"), Closing))
        doors[0].client()
        doors[0].client()
        await doors[0].until(lambda: doors[0].opened)
        await world.quiet()
        assert len(doors[0].opened) == 1

    doors: list[Door] = []
    world.run(main())


@pytest.mark.parametrize("owned", [False, True], ids=["before", "after"])
def test_a_connection_that_cannot_be_opened_is_closed_and_accepting_goes_on(
    world: World, owned: bool
) -> None:
    transports: list[Transport] = []

    def opened(fd: int, peername: Any, sockname: Any) -> None:
        if owned:
            transports.append(world.native.Transport(world.reactor, fd, Protocol()))
            transports[-1].start()
        raise ZeroDivisionError

    async def main() -> None:
        sock = world.listen("tcp")
        listener = world.native.Listener(world.reactor, sock, opened, lambda _: None)
        clients = [world.keep(socket.create_connection(sock.getsockname())) for _ in range(3)]
        if owned:
            while len(transports) < 3:
                await spin(1)
            for transport, client in zip(transports, clients, strict=True):
                transport.write(b"works")
                assert await world.receive(client, 5) == b"works"
                transport.close()
        for client in clients:
            assert await world.receive(client) == b""
        listener.close()

    world.run(main())
    assert [type(told["exception"]) for told in world.complaints] == [ZeroDivisionError] * 3
    world.complaints.clear()


def test_a_listener_waits_when_descriptors_have_run_out(world: World) -> None:
    async def main() -> None:
        door = Door(world, world.listen("tcp"))
        client = door.client()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(client.fileno())
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            await door.until(lambda: door.full)
            await world.quiet()
            door.listener.accept_all()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert door.full == [errno.EMFILE, errno.EMFILE]
        door.listener.resume()
        await door.until(lambda: door.opened)

    world.run(main())


def test_a_listening_socket_that_fails_is_told_of_once(world: World) -> None:
    async def main() -> None:
        door = Door(world, world.listen("tcp"))
        door.sock.shutdown(socket.SHUT_RDWR)
        while not world.complaints:
            await spin(1)
        await world.quiet()

    world.run(main())
    assert world.complaint()["exception"].errno == errno.EINVAL


def test_a_closed_socket_cannot_be_listened_on(world: World) -> None:
    closed = socket.socket()
    closed.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        world.native.Listener(world.reactor, closed, None, None)
