"""TLS in the transports of the readiness reactor, from Python: content, files, and the order of ends."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from harness import reset
from test_reactor import BLOCK, Echo, Protocol, World, loop_kind, spin, world
from tls_material import Material

from servery.errors import LocalProtocolError
from servery.tls.contexts import Terms, context_on, make_context
from servery.tls.files import Pair
from servery.tls.session import Session

__all__ = ["loop_kind", "world"]
"""Fixtures."""

SHORT = b"short of a block"


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return Material(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def context(material: Material) -> Any:
    path = material.issue("localhost")
    terms = Terms(None, "none", "1.2", "ECDHE+AESGCM", ("http/1.1",))
    return make_context(Pair(None, path, path), terms, None), context_on(terms)


class Peer:
    """A client in memory, at the other end of a transport."""

    def __init__(self, world: World, sock: socket.socket, client: ssl.SSLContext) -> None:
        sock.setblocking(False)
        self.world, self.sock = world, sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = client.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.ended = self.closed = False

    async def send(self, data: bytes) -> None:
        """Content, in records."""
        for at in range(0, len(data), 16384):
            self.tls.write(data[at : at + 16384])
        await self.world.loop.sock_sendall(self.sock, self.outgoing.read())

    async def receive(self, size: int = 1 << 40) -> bytes:
        """`size` octets of content, or all up to the end of TLS or of the connection."""
        got = bytearray()
        while len(got) < size and not self.ended:
            try:
                part = self.tls.read(min(65536, size - len(got)))
                self.ended = not part
                got += part
            except ssl.SSLZeroReturnError:
                self.ended = True
            except ssl.SSLWantReadError:
                data = await self.world.loop.sock_recv(self.sock, 65536)
                if not data:
                    self.closed = True
                    break
                self.incoming.write(data)
        return bytes(got)

    async def at_end(self) -> bool:
        """Whether the connection is closed after TLS was, and nothing is in between."""
        return self.ended and not self.incoming.pending and not await self.world.loop.sock_recv(self.sock, 1)


def secured(world: World, material: Material, context: Any, protocol: Any, **how: Any) -> tuple[Any, Peer]:
    """A transport of the reactor that speaks TLS, and the client at its other end, after their handshake."""
    settings = how.pop("client", {})
    transport, sock = world.pair(Protocol(), **how)
    peer = Peer(world, sock, material.client(**settings))
    session = Session(context[0], "", context[1])
    for _ in range(5):
        for ours in (peer.tls, session.ssl):
            try:
                ours.do_handshake()
            except ssl.SSLWantReadError:
                pass
            session.incoming.write(peer.outgoing.read())
            peer.incoming.write(session.outgoing.read())
    transport.secure(session)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    transport.proceed()
    return transport, peer


def blocked(transport: Any) -> bytes:
    """Fill the kernel's buffers, and queue something; what was written."""
    written = b""
    while not transport.get_write_buffer_size():
        transport.write(BLOCK)
        written += BLOCK
    return written


@pytest.fixture
def file(tmp_path: Path) -> Any:
    path = tmp_path / "file"
    path.write_bytes(BLOCK * 64 + SHORT)
    number = os.open(path, os.O_RDONLY)
    yield number
    os.close(number)


CONTENT = BLOCK * 64 + SHORT


@pytest.mark.parametrize("client", [{}, {"maximum_version": ssl.TLSVersion.TLSv1_2}], ids=["1.3", "1.2"])
@pytest.mark.parametrize("small", (False, True))
def test_echo_keeps_to_the_water_marks(
    world: World, material: Material, context: Any, small: bool, client: dict[str, Any]
) -> None:
    async def scene() -> None:
        echo = Echo()
        transport, peer = secured(world, material, context, echo, small=small, client=client)
        transport.set_write_buffer_limits(high=100_000)
        sent = CONTENT[:3_000_000]
        sending = asyncio.ensure_future(peer.send(sent))
        assert await peer.receive(len(sent)) == sent
        await sending
        assert echo.most < 100_000 + 3 * 65536
        assert transport.get_extra_info("ssl_object").version() == peer.tls.version()
        transport.close()
        await echo.told("lost")
        assert await peer.receive() == b""
        assert await peer.at_end()

    world.run(scene())


def test_octets_of_the_wire_may_come_in_any_pieces(world: World, material: Material, context: Any) -> None:
    async def scene() -> None:
        protocol = Protocol()
        _, peer = secured(world, material, context, protocol)
        peer.tls.write(b"abc")
        peer.tls.write(b"def" * 5000)
        peer.tls.write(b"ghi")
        for octet in peer.outgoing.read():
            peer.sock.send(bytes((octet,)))
            await asyncio.sleep(0)
        await protocol.until(lambda: protocol.data.endswith(b"ghi"))
        assert protocol.data == b"abc" + b"def" * 5000 + b"ghi"
        peer.sock.close()
        await protocol.told("eof")
        protocol.transport.close()

    world.run(scene())


@pytest.mark.parametrize(
    "octets", [b"GET / HTTP/1.1\r\n\r\n", b"\x17\x03\x03\xff\xff", b"\x17\x03\x03\x00\x05abcde"]
)
def test_what_is_no_record_of_the_session_ends_it_with_an_alert(
    world: World, material: Material, context: Any, octets: bytes
) -> None:
    async def scene() -> None:
        protocol = Protocol()
        _, peer = secured(world, material, context, protocol)
        await peer.send(b"before")
        await world.loop.sock_sendall(peer.sock, octets)
        await protocol.told("lost")
        assert (protocol.data, protocol.error) == (b"before", None)
        with pytest.raises(ssl.SSLError, match="ALERT|alert"):
            await peer.receive()

    world.run(scene())


def test_a_client_may_say_its_end_and_still_reads(world: World, material: Material, context: Any) -> None:
    async def scene() -> None:
        protocol = Protocol()
        transport, peer = secured(world, material, context, protocol)
        peer.tls.write(b"last")
        with pytest.raises(ssl.SSLError):
            peer.tls.unwrap()
        await world.loop.sock_sendall(peer.sock, peer.outgoing.read() + b"dropped")
        await protocol.told("eof")
        assert protocol.data == b"last"
        transport.writelines([b"a", b"", CONTENT, b"z"])
        transport.close()
        assert await peer.receive() == b"a" + CONTENT + b"z"
        await protocol.told("lost")
        assert protocol.said.count("eof") == 1

    world.run(scene())


def test_our_end_comes_after_what_is_queued_and_what_comes_then_is_dropped(
    world: World, material: Material, context: Any
) -> None:
    async def scene() -> None:
        protocol = Protocol()
        transport, peer = secured(world, material, context, protocol, small=True)
        written = blocked(transport)
        transport.write_eof()
        with pytest.raises(RuntimeError, match="after write_eof"):
            transport.write(b"x")
        await peer.send(b"not heard")
        assert await peer.receive() == written
        assert await peer.at_end()
        peer.sock.close()
        await protocol.told("lost")
        assert (protocol.data, protocol.said.count("eof")) == (b"", 1)

    world.run(scene())


@pytest.mark.parametrize("how", ["close", "abort", "reset"])
def test_only_a_close_says_its_end(world: World, material: Material, context: Any, how: str) -> None:
    async def scene() -> None:
        protocol = Protocol()
        transport, peer = secured(world, material, context, protocol, small=True)
        written = blocked(transport)
        getattr(transport, how)()
        if how == "close":
            assert await peer.receive() == written
            assert peer.ended
        else:
            try:
                assert len(await peer.receive()) < len(written)
                assert peer.closed
            except ConnectionResetError:
                pass
            assert not peer.ended
        await protocol.told("lost")

    world.run(scene())


def test_nothing_is_written_after_the_end(world: World, material: Material, context: Any) -> None:
    async def scene() -> None:
        protocol = Protocol()
        transport, peer = secured(world, material, context, protocol)
        transport.close()
        transport.write(b"late")
        transport.writelines([b"late", b"late"])
        assert transport.send_file(0, 0, 1) is False
        assert await peer.receive() == b""
        await protocol.told("lost")
        transport.write(b"later")
        reset(peer.sock)

    world.run(scene())


# --- files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("full", (False, True))
def test_files_keep_their_place_among_octets(
    world: World, material: Material, context: Any, file: int, full: bool
) -> None:
    async def scene() -> None:
        protocol = Protocol()
        transport, peer = secured(world, material, context, protocol, small=True)
        expected = blocked(transport) if full else b""
        transport.write(b"<")
        assert transport.send_file(file, 0, len(CONTENT)) is False
        transport.write(b"|")
        transport.writelines([b"<", b"<"])
        assert transport.send_file(file, 3, 100) is False
        transport.write(b">" * 40_000)
        expected += b"<" + CONTENT + b"|<<" + CONTENT[3:103] + b">" * 40_000
        assert transport.get_write_buffer_size() > len(CONTENT) - 1_100_000
        transport.close()
        assert await peer.receive() == expected
        assert await peer.at_end()
        await protocol.told("lost")
        assert protocol.said.count("file") == 2
        assert (protocol.file_error, transport.get_write_buffer_size()) == (None, 0)

    world.run(scene())


def test_a_small_file_is_sent_at_once(world: World, material: Material, context: Any, file: int) -> None:
    async def scene() -> None:
        protocol = Protocol()
        transport, peer = secured(world, material, context, protocol)
        assert transport.send_file(file, 1, 100_000) is True
        assert transport.send_file(file, 1, 0) is True
        transport.close()
        assert await peer.receive() == CONTENT[1:100_001]
        await protocol.told("lost")
        assert "file" not in protocol.said

    world.run(scene())


@pytest.mark.parametrize("queued", (False, True))
def test_a_file_that_became_shorter_is_told(
    world: World, material: Material, context: Any, file: int, queued: bool
) -> None:
    async def scene() -> None:
        protocol = Protocol()
        transport, peer = secured(world, material, context, protocol, small=True)
        expected = blocked(transport) if queued else b""
        assert transport.send_file(file, len(CONTENT) - 5, 6) is False
        transport.write(b"behind")
        expected += CONTENT[-5:] + b"behind"
        assert await peer.receive(len(expected)) == expected
        await protocol.told("file")
        assert isinstance(protocol.file_error, LocalProtocolError)
        transport.close()
        await protocol.told("lost")

    world.run(scene())


def test_a_file_can_be_withdrawn_with_what_is_behind_it(
    world: World, material: Material, context: Any, file: int
) -> None:
    async def scene() -> None:
        protocol = Protocol()
        transport, peer = secured(world, material, context, protocol, small=True)
        expected = blocked(transport)
        before = transport.get_write_buffer_size()
        assert transport.send_file(file, 0, len(CONTENT)) is False
        transport.write(b"behind")
        transport.withdraw()
        assert transport.get_write_buffer_size() == before
        transport.write(b"instead")
        transport.close()
        assert await peer.receive() == expected + b"instead"
        await protocol.told("lost")
        assert "file" not in protocol.said

    world.run(scene())


# --- what a session is -------------------------------------------------------------------------------


def test_what_comes_along_with_the_handshake_is_handed_on(
    world: World, material: Material, context: Any
) -> None:
    async def scene() -> None:
        protocol = Protocol()
        transport, sock = world.pair(Protocol())
        peer = Peer(world, sock, material.client())
        session = Session(context[0], "", context[1])
        for ours in (peer.tls, session.ssl, peer.tls):
            try:
                ours.do_handshake()
            except ssl.SSLWantReadError:
                pass
            session.incoming.write(peer.outgoing.read())
            peer.incoming.write(session.outgoing.read())
        for _ in range(10):
            peer.tls.write(b"x" * 16384)
        octets = peer.outgoing.read()
        session.incoming.write(octets[:-100])
        session.ssl.do_handshake()
        transport.secure(session)
        transport.set_protocol(protocol)
        transport.proceed()
        assert protocol.data == b"x" * 16384 * 9
        await world.loop.sock_sendall(sock, octets[-100:])
        await protocol.until(lambda: len(protocol.data) == 163_840)
        transport.abort()
        await spin(3)

    world.run(scene())
