"""The administrator's listener for a process that runs no event loop: a supervisor, which has a selector.

The same application on the same engine as `servery.admin.listener`, without tasks: its source has to answer
at once, from what the workers have reported.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Coroutine
from typing import Any

from ..addresses import parse_bind, peer_name, server_name
from ..asgi.scope import ConnectionInfo, http_scope
from ..config import Config
from ..drivers.contracts import EngineFactory
from ..drivers.stamp import DateStamp
from ..engine import HttpEngine, Message
from ..events import Event, RequestReceived
from ..limits import DEFAULTS
from ..selection import Selection
from ..sockets import Listener, bind_all
from .application import AdminApplication
from .listener import BACKLOG, CONNECTIONS, SOCKET_MODE
from .source import Source

READ_SIZE = 16_384


class PolledAdmin:
    """Listens where ``--admin`` says. Its owner calls `poll` when `fileno` is readable, and every second.

    Raises `BindError` and `ConfigError` for an address that cannot be had.
    """

    def __init__(self, config: Config, selection: Selection, source: Source) -> None:
        assert config.admin is not None
        self._app = AdminApplication(source, config.admin_public)
        self._make_engine = selection.engine_factory(DEFAULTS, DateStamp(date=True, server=True))
        self._selector = selectors.DefaultSelector()
        self._peers: set[_Peer] = set()
        self.listeners: list[Listener] = bind_all(
            [parse_bind(config.admin)], uds_mode=SOCKET_MODE, backlog=BACKLOG
        )
        for listener in self.listeners:
            self._selector.register(listener.sock, selectors.EVENT_READ)

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` has something to do."""
        number: int = self._selector.fileno()
        return number

    def poll(self) -> None:
        """Do what can be done without waiting."""
        now = time.monotonic()
        for key, _ in self._selector.select(0):
            if isinstance(key.data, _Peer):
                key.data.ready(now)
            else:
                self._accept(key.fileobj, now)  # type: ignore[arg-type]  # a listening socket
        for peer in list(self._peers):
            peer.expire(now)
            self._watch(peer)

    def close(self) -> None:
        """Listen no more, and cut what is open."""
        for peer in self._peers:
            peer.close()
        for listener in self.listeners:
            listener.close()
        self._selector.close()

    def _accept(self, listening: socket.socket, now: float) -> None:
        try:
            sock, _ = listening.accept()
        except OSError:
            return  # gone, or no descriptor left: it is tried again
        if len(self._peers) >= CONNECTIONS:
            sock.close()
            return
        sock.setblocking(False)
        peer = _Peer(sock, self._make_engine, self._app, now)
        self._peers.add(peer)
        self._selector.register(sock, selectors.EVENT_READ, peer)

    def _watch(self, peer: _Peer) -> None:
        """Ask the system for what `peer` waits for now; let go of it if that is nothing."""
        if peer.closed:
            self._peers.discard(peer)
            self._selector.unregister(peer.sock)
            peer.close()
        else:
            self._selector.modify(peer.sock, peer.interest, peer)


class _Peer:
    """One connection."""

    def __init__(self, sock: socket.socket, make_engine: EngineFactory, app: Any, now: float) -> None:
        self.sock = sock
        self.closed = False
        self._app = app
        self._engine: HttpEngine = make_engine(now)
        self._out = b""
        self._took = now
        self._finished = self._advance_due = False

    @property
    def interest(self) -> int:
        """What to wait for."""
        return selectors.EVENT_WRITE if self._out else selectors.EVENT_READ

    def ready(self, now: float) -> None:
        """It can be read, or written if something waits for that."""
        if not self._out:
            self._read(now)
        self._write(now)
        while self._advance_due and not (self._out or self.closed):
            self._advance_due = False  # not before: it shall first read what it has asked for
            self._handle(self._engine.advance(now))
            self._write(now)

    def expire(self, now: float) -> None:
        """The engine's time may have come, or that of a peer which takes nothing."""
        if self._out:
            self.closed = self.closed or now - self._took >= DEFAULTS.write_timeout
        elif not self.closed and self._engine.deadline <= now:
            self._handle(self._engine.expire(now))
            self._write(now)

    def close(self) -> None:
        """Close the socket."""
        self.closed = True
        self.sock.close()

    def _read(self, now: float) -> None:
        try:
            data = self.sock.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.closed = True
            return
        self.closed = self._finished and not data
        self._finished = not data
        self._handle(self._engine.receive(data, now))

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, RequestReceived):
                self._answer(event)
                self._advance_due = True

    def _answer(self, request: RequestReceived) -> None:
        info = ConnectionInfo(
            peer_name(self.sock.getpeername()),
            server_name(self.sock.getsockname()),
            "http",
            "",
            None,
            "admin",
        )
        engine, stream = self._engine, request.stream
        scope = http_scope(request, info, "", False)

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                engine.start_response(stream, message["status"], message["headers"], False)
            else:
                engine.send_body(stream, message["body"], False)

        _run(self._app(scope, None, send))

    def _write(self, now: float) -> None:
        self._out += b"".join(self._engine.take_output())
        try:
            while self._out:
                self._out = self._out[self.sock.send(self._out) :]
                self._took = now
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.closed = True
            return
        if self._engine.closing:
            self.closed = True
        elif self._engine.half_closed and not self._finished:
            try:
                self.sock.shutdown(socket.SHUT_WR)
            except OSError:
                self.closed = True


def _run(call: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        call.send(None)
    except StopIteration:
        return
    call.close()
    raise RuntimeError("the source of an admin listener without an event loop has to answer at once")
