"""Files to sockets: sendfile(2) where the transport is a plain socket, else read and write in blocks.

Knows files and descriptors; what goes before and after them on the wire is the engine's business.
"""

from __future__ import annotations

import asyncio
import os
import stat
from typing import Any, Protocol

from ..errors import ClientDisconnected, LocalProtocolError

BLOCK = 262_144
"""Octets per read when the kernel cannot copy for us."""


class Sender(Protocol):
    """The connection that sends."""

    @property
    def reachable(self) -> bool:
        """Whether the response can still reach the peer."""
        ...

    async def drained(self) -> None:
        """Wait until everything written is in the kernel. Raises `ClientDisconnected`."""
        ...

    async def kernel_ready(self) -> None:
        """Wait until the kernel takes more. Raises `ClientDisconnected`."""
        ...


class FileToSend:
    """An open file and the range of it that is sent.

    `file` is a path (str, bytes or PathLike), a descriptor, or an object with ``fileno()``. Without `offset`
    the range begins at the file's position, without `count` it reaches to the file's end. Raises `OSError` as
    ``open`` does, and `ValueError` if the range is not in the file.
    """

    __slots__ = ("_opened", "fd", "offset", "size")

    def __init__(self, file: Any, offset: int | None, count: int | None) -> None:
        self._opened = isinstance(file, (str, bytes, os.PathLike))
        if self._opened:
            self.fd = os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
        else:
            self.fd = file if isinstance(file, int) else file.fileno()
        try:
            status = os.fstat(self.fd)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"not a regular file: {file!r}")
            self.offset = offset if offset is not None else os.lseek(self.fd, 0, os.SEEK_CUR)
            left = max(0, status.st_size - self.offset)
            self.size = left if count is None else count
            if self.size > left or self.size < 0 or self.offset < 0:
                raise ValueError(
                    f"{count} octets from {self.offset} are not in {file!r} of {status.st_size} octets"
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the descriptor if it was opened here."""
        if self._opened:
            self._opened = False
            os.close(self.fd)


async def send_file(sender: Sender, transport: asyncio.Transport, file: FileToSend) -> None:
    """Send the range of `file`. Raises `ClientDisconnected`, or `LocalProtocolError` if the file became
    shorter.
    """
    sock = transport.get_extra_info("socket")
    if hasattr(os, "sendfile") and sock is not None and transport.get_extra_info("sslcontext") is None:
        await sender.drained()
        await _by_kernel(sender, sock.fileno(), file)
    else:
        await _by_copy(sender, transport, file)


async def _by_kernel(sender: Sender, fd: int, file: FileToSend) -> None:
    at, end = file.offset, file.offset + file.size
    while at < end:
        if not sender.reachable:
            raise ClientDisconnected("the client has closed the connection")
        try:
            sent = os.sendfile(fd, file.fd, at, end - at)
        except BlockingIOError:
            await sender.kernel_ready()
            continue
        except OSError as error:
            raise ClientDisconnected("the client has closed the connection") from error
        if not sent:
            raise LocalProtocolError("the file became shorter while it was sent")
        at += sent


async def _by_copy(sender: Sender, transport: asyncio.Transport, file: FileToSend) -> None:
    loop = asyncio.get_running_loop()
    at, end = file.offset, file.offset + file.size
    while at < end:
        block = await loop.run_in_executor(None, read_block, file.fd, min(BLOCK, end - at), at)
        if not sender.reachable:
            raise ClientDisconnected("the client has closed the connection")
        if not block:
            raise LocalProtocolError("the file became shorter while it was sent")
        transport.write(block)
        at += len(block)
        await sender.drained()


def read_block(fd: int, size: int, offset: int) -> bytes:
    """Up to `size` octets of an open file, for a thread."""
    os.lseek(fd, offset, os.SEEK_SET)  # no pread on Windows; nobody else moves it while the response is sent
    return os.read(fd, size)
