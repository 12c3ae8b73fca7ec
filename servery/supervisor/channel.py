"""The pipe between the master and one worker: JSON objects, one a line, both ways.

A worker reports ``{"ready": true}``, ``{"counts": {...}}``, ``{"stopping": true}``, ``{"stacks": true}`` or
``{"failed": TEXT, "code": N}``; the master asks ``{"do": WORD}``. When one end is closed, the
other reads EOF.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]

READ_SIZE = 65_536


class Channel:
    """One end. Sending is safe from any thread, and to a peer that is gone no error."""

    def __init__(self, sock: socket.socket, unread: bytes = b"") -> None:
        """`unread` is the begin of a line that was received by who had this end before."""
        self.sock = sock
        self.unread = unread
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """The descriptor."""
        return self.sock.fileno()

    def send(self, message: Message) -> None:
        """Send a message. On a socket that does not block it is lost if the peer reads nothing."""
        data = json.dumps(message).encode() + b"\n"
        with self._lock, contextlib.suppress(OSError):
            self.sock.sendall(data)

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


def open_channel() -> tuple[Channel, Channel]:
    """The master's end, which never blocks, and the worker's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return Channel(ours), Channel(theirs)
