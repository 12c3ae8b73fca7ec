"""Writing to a pipe or socket that may be full, without waiting for its reader for long.

``O_NONBLOCK`` belongs to all who share an open pipe, the shell among them, so it is not set. Linux has two
other ways: a single write that does not wait, and opening the pipe once more. Elsewhere there is no `Pipe`.
"""

from __future__ import annotations

import os
import select
import socket
import stat
from collections.abc import Callable
from typing import TextIO

PATIENCE = 0.5
"""Seconds that a full pipe is waited for: once, not for each line, until its reader reads again."""

Write = Callable[[bytes], int]
"""Writes a part, and says how many octets; raises `BlockingIOError` if there is no room."""


class Full(OSError):
    """The reader takes nothing; the line is lost."""


class Pipe:
    """A pipe or stream socket under `stream`, written to without blocking."""

    def __init__(self, stream: TextIO, write: Write) -> None:
        self._stream = stream
        self._write = write
        self._rest = b""
        """The end of a line of which the begin has been written."""
        self._full = False

    def write(self, text: str) -> None:
        """Write `text` whole. Raises `Full` if there is no room, `OSError` for other failures."""
        if self._rest:
            self._rest = self._send(self._rest)
        if self._rest:
            raise Full("its reader does not read")
        self._stream.flush()  # what others have printed comes first
        data = text.encode(self._stream.encoding or "utf-8", "backslashreplace")
        rest = self._send(data)
        if rest == data:
            raise Full("its reader does not read")
        self._rest = rest

    def _send(self, data: bytes) -> bytes:
        """What is left of `data` when there is no room for more."""
        while data:
            try:
                data = data[self._write(data) :]
                self._full = False
            except BlockingIOError:
                if self._full or not self._becomes_writable():
                    self._full = True
                    break
        return data

    def _becomes_writable(self) -> bool:
        # Once: another process may take the room, or it may be less than an atomic write needs.
        self._full = True
        poll = select.poll()
        poll.register(self._stream.fileno(), select.POLLOUT)
        return bool(poll.poll(PATIENCE * 1000))


def open_pipe(stream: TextIO) -> Pipe | None:
    """A `Pipe` for `stream`; None if it is something else, such as a file, or cannot be written to so."""
    try:
        fd = stream.fileno()
        mode = os.fstat(fd).st_mode
        if stat.S_ISFIFO(mode):
            return Pipe(stream, _single_write(fd) or _SecondDescription(fd))
        if stat.S_ISSOCK(mode) and hasattr(socket, "MSG_DONTWAIT"):
            return Pipe(stream, _send_at_once(fd))
    except (AttributeError, OSError, ValueError):
        pass  # no descriptor behind it, or it may not be opened again
    return None


def _single_write(fd: int) -> Write | None:
    """Writes that do not wait, where the kernel has them for pipes: tried out on another one."""
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    reader, writer = os.pipe()
    try:
        os.pwritev(writer, [b"x"], -1, os.RWF_NOWAIT)
    except OSError:
        return None
    finally:
        os.close(reader)
        os.close(writer)
    return lambda data: os.pwritev(fd, [data], -1, os.RWF_NOWAIT)


class _SecondDescription:
    """Writes to the pipe under `fd`, opened once more. Raises `OSError` if that is not allowed."""

    def __init__(self, fd: int) -> None:
        self._fd = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)

    def __call__(self, data: bytes) -> int:
        return os.write(self._fd, data)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)


def _send_at_once(fd: int) -> Write:
    """Writes to the socket `fd`, which stays its owner's."""
    with socket.socket(fileno=os.dup(fd)) as sock:
        family, kind = sock.family, sock.type

    def write(data: bytes) -> int:
        sock = socket.socket(family, kind, fileno=fd)
        try:
            return sock.send(data, socket.MSG_DONTWAIT)
        finally:
            sock.detach()

    return write
