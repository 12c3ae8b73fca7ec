"""The administrator's listener for a process that runs no event loop: a supervisor, which has a selector.

The same application on the same engine as `servery.admin.listener`, without tasks: who has to wait for
something in it waits for `next_poll`, and looks again.
"""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections.abc import Coroutine, Generator
from types import coroutine
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

log = logging.getLogger("servery.error")


@coroutine
def next_poll() -> Generator[None, None, None]:
    """Wait until `PolledAdmin.poll` is called again: the only thing that can be waited for here."""
    yield


class PolledAdmin:
    """Listens where ``--admin`` says. Its owner calls `poll` when `fileno` is readable, when something has
    come about for which an answer may wait, and ten times a second.

    Raises `BindError` and `ConfigError` for an address that cannot be had.
    """

    def __init__(
        self,
        config: Config,
        selection: Selection,
        source: Source,
        listeners: list[Listener] | None = None,
    ) -> None:
        """`listeners` are those that somebody has opened before at this address."""
        assert config.admin is not None
        self._app = AdminApplication(source, config.admin_public)
        self._make_engine = selection.engine_factory(DEFAULTS, DateStamp(date=True, server=True))
        self._peers: set[_Peer] = set()
        self.listeners: list[Listener] = listeners or bind_all(
            [parse_bind(config.admin)], uds_mode=SOCKET_MODE, backlog=BACKLOG
        )
        self._selector = selectors.DefaultSelector()
        self.resume()

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
            peer.go_on(now)
            self._watch(peer)

    def pause(self) -> None:
        """Accept no more connections: they wait for `resume`, or for another program."""
        for listener in self.listeners:
            if listener.sock in self._selector.get_map():
                self._selector.unregister(listener.sock)

    def resume(self) -> None:
        """Accept connections."""
        for listener in self.listeners:
            if listener.sock not in self._selector.get_map():
                self._selector.register(listener.sock, selectors.EVENT_READ)

    @property
    def quiet(self) -> bool:
        """Whether every connection is idle after an answer."""
        return all(peer.quiet for peer in self._peers)

    def close(self) -> None:
        """Listen no more, and cut what is open."""
        for peer in self._peers:
            peer.close()
        for listener in self.listeners:
            listener.close()
        self._selector.close()

    def let_go(self) -> None:
        """Close this process's copies of what is another's, who goes on with it."""
        for peer in self._peers:
            peer.sock.close()
        for listener in self.listeners:
            listener.sock.close()
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
        self._peers.add(_Peer(sock, self._make_engine, self._app, now))

    def _watch(self, peer: _Peer) -> None:
        """Ask the system for what `peer` waits for now; let go of it if it is closed."""
        interest = 0 if peer.closed else peer.interest
        if interest and peer.watched:
            if interest != peer.watched:
                self._selector.modify(peer.sock, interest, peer)
        elif interest:
            self._selector.register(peer.sock, interest, peer)
        elif peer.watched:
            self._selector.unregister(peer.sock)
        peer.watched = interest
        if peer.closed:
            self._peers.discard(peer)
            peer.close()


class _Peer:
    """One connection."""

    def __init__(self, sock: socket.socket, make_engine: EngineFactory, app: Any, now: float) -> None:
        self.sock = sock
        self.closed = False
        self.quiet = False
        """It is idle after an answer."""
        self.watched = 0
        """What the system was asked for."""
        self._app = app
        self._engine: HttpEngine = make_engine(now)
        self._call: Coroutine[Any, Any, None] | None = None
        """The application, as long as it waits."""
        self._out = b""
        self._took = now
        self._finished = self._advance_due = False

    @property
    def interest(self) -> int:
        """What to wait for: nothing of the peer's, while the application waits."""
        if self._call is not None:
            return 0
        return selectors.EVENT_WRITE if self._out else selectors.EVENT_READ

    def ready(self, now: float) -> None:
        """It can be read, or written if something waits for that."""
        if not self._out:
            self._read(now)
        self._proceed(now)

    def go_on(self, now: float) -> None:
        """Time has passed: the application may be able to go on, or the peer's time have come."""
        if self._call is not None:
            self._step()
            if self._call is None:
                self._proceed(now)
        elif self._out:
            self.closed = self.closed or now - self._took >= DEFAULTS.write_timeout
        elif not self.closed and self._engine.deadline <= now:
            self._handle(self._engine.expire(now))
            self._write(now)

    def close(self) -> None:
        """Close the socket."""
        self.closed = True
        if self._call is not None:
            self._call.close()
            self._call = None
        self.sock.close()

    def _proceed(self, now: float) -> None:
        self._write(now)
        while self._advance_due and not (self._call or self._out or self.closed):
            self._advance_due = False  # not before: it shall first read what it has asked for
            self.quiet = True
            self._handle(self._engine.advance(now))
            self._write(now)

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
        self.quiet = self.quiet and not data
        self._handle(self._engine.receive(data, now))

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, RequestReceived):
                self.quiet = False
                self._call = self._answer(event)
                self._advance_due = True
                self._step()

    def _step(self) -> None:
        """Let the application go on up to where it waits."""
        assert self._call is not None
        try:
            self._call.send(None)
        except StopIteration:
            self._call = None
        except Exception:  # its owner has more to do than to answer questions
            log.exception("the admin listener cannot answer")
            self._call, self.closed = None, True

    def _answer(self, request: RequestReceived) -> Coroutine[Any, Any, None]:
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

        call: Coroutine[Any, Any, None] = self._app(scope, None, send)
        return call

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
