"""What every transport of ours gets, and how one is reset.

Knows sockets behind transports; knows nothing of what they carry. A reactor's transport has a method `reset`;
it has got its options when it was accepted, and is not asked for its socket, since that would make one.
"""

from __future__ import annotations

import asyncio
import socket
import struct

READ_SIZE = 65_536
"""Octets that are asked of a socket at once."""

_AF_UNIX = getattr(socket, "AF_UNIX", None)
_RESET = struct.pack("ii", 1, 0)


def prepare(transport: asyncio.Transport, high: int) -> None:
    """Make a fresh transport ours; `high` is the high-water mark of its write buffer in octets."""
    sock = None if hasattr(transport, "reset") else transport.get_extra_info("socket")
    if sock is not None and sock.family != _AF_UNIX:
        try:
            # asyncio does it only for sockets that know their protocol number, and accepted ones do not
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            pass  # reset since it was accepted: `connection_lost` will say so
    if hasattr(transport, "max_size"):
        # asyncio asks for 256 KiB at every read, and the C library gives such a block back to the system
        # each time: ten microseconds for a request of sixty octets
        transport.max_size = READ_SIZE
    set_water_marks(transport, high)


def set_water_marks(transport: asyncio.Transport, high: int) -> None:
    """Call ``pause_writing`` above `high` octets, ``resume_writing`` below a quarter of it."""
    transport.set_write_buffer_limits(high=high, low=high // 4)


def reset(transport: asyncio.Transport) -> None:
    """Close with RST: the peer must not take what it has for complete."""
    if hasattr(transport, "reset"):
        transport.reset()
        return
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family != _AF_UNIX:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except (OSError, ValueError):
            pass  # it is gone already
    transport.abort()
