"""The pipe between the master and one worker: JSON objects, one a line, both ways.

The master asks ``{"do": WORD}``. A worker reports ``{"ready": true}``, ``{"stopping": true}``,
``{"stacks": true}`` and ``{"failed": TEXT, "code": N}``; beside these, what it counts: ``counts``, and where
there is an admin listener ``metrics`` and ``state``, with ``answers`` and ``number`` if it was asked. When
one end is closed, the other reads EOF.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]

READ_SIZE = 65_536
NO_WAIT = getattr(socket, "MSG_DONTWAIT", 0)


class Channel:
    """One end. Sending is safe from any thread, never waits, and to a peer that is gone it is no error."""

    def __init__(self, sock: socket.socket, unread: bytes = b"") -> None:
        """`unread` is the begin of a line that was received by who had this end before."""
        self.sock = sock
        self.unread = unread
        self._unsent = b""
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """The descriptor."""
        return self.sock.fileno()

    def send(self, message: Message) -> None:
        """Send a message. What a peer does not read is kept, and goes with the next one, or with `flush`."""
        with self._lock:
            self._unsent += _line(message)
            self._flush()

    def offer(self, message: Message) -> None:
        """Send a message that a later one replaces: it is left out as long as the peer does not read."""
        with self._lock:
            self._flush()
            if not self._unsent:
                self._unsent = _line(message)
                self._flush()

    def flush(self) -> None:
        """Send what was kept, as far as the peer takes it."""
        with self._lock:
            self._flush()

    def finish(self, timeout: float) -> None:
        """Wait until all is sent, but at most `timeout` seconds."""
        self.flush()
        if self._unsent:
            select.select([], [self.sock], [], timeout)
            self.flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self.sock.send(self._unsent, NO_WAIT) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._unsent = b""

    def receive(self) -> list[Message] | None:
        """What has come, waiting for it if the socket blocks; None at the end."""
        try:
            data = self.sock.recv(READ_SIZE)
        except BlockingIOError:
            return []
        except OSError:  # reset: the peer was killed with something unread
            return None
        if not data:
            return None
        *lines, self.unread = (self.unread + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def rest(self) -> Iterator[Message]:
        """Each message of a peer that has ended; never waits, also where others hold the peer's end."""
        with contextlib.suppress(OSError):
            while data := self.sock.recv(READ_SIZE, NO_WAIT):
                *lines, self.unread = (self.unread + data).split(b"\n")
                yield from map(json.loads, lines)

    def messages(self) -> Iterator[Message]:
        """Each message up to the end, for a socket that blocks."""
        while (received := self.receive()) is not None:
            yield from received

    def shut(self) -> None:
        """Send and receive no more, in whatever thread: the other end reads EOF, and who waits here, too."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of this end."""
        self.sock.close()


def _line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def open_channel() -> tuple[Channel, Channel]:
    """The master's end, which never blocks, and the worker's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return Channel(ours), Channel(theirs)
