"""Sockets that somebody else has opened: descriptors that were inherited, and those that systemd passes.

Of the latter, see sd_listen_fds(3), the numbers start at 3; ``LISTEN_FDS`` says how many there are,
``LISTEN_FDNAMES`` how they are called, and ``LISTEN_PID`` who is meant: children inherit the variables, and
must not believe them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import NamedTuple

from .addresses import FdAddress, SystemdAddress, server_name
from .errors import BindError

FIRST = 3


class Passed(NamedTuple):
    """One of the sockets: its descriptor, and the name that its unit gives it."""

    fd: int
    name: str


def passed_sockets() -> list[Passed]:
    """What was passed to this process, in order; empty where nothing was."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    try:
        count = int(os.environ.get("LISTEN_FDS", "0"))
    except ValueError:
        return []
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    return [
        Passed(FIRST + at, names[at] if at < len(names) and names[at] else "unknown") for at in range(count)
    ]


def take_passed(address: SystemdAddress, backlog: int) -> list[socket.socket]:
    """Listen on copies of the sockets that `address` means. Raises `BindError`."""
    passed = passed_sockets()
    wanted = [each for each in passed if address.name in ("", each.name)]
    if not wanted:
        names = ", ".join(dict.fromkeys(each.name for each in passed))
        has = f"has passed sockets named {names}" if names else "has passed no socket to this process"
        raise BindError(
            f"cannot listen on {address}: systemd {has}; start it by a .socket unit whose "
            f"FileDescriptorName is the one named here"
        )
    for each in wanted:
        os.set_inheritable(each.fd, False)  # what the application starts must not keep the port
    with contextlib.ExitStack() as undo:
        socks = []
        for each in wanted:
            sock = adopt(FdAddress(each.fd), backlog)
            undo.callback(sock.close)
            socks.append(sock)
        undo.pop_all()
    return socks


def adopt(address: FdAddress, backlog: int) -> socket.socket:
    """Listen on a copy of the descriptor; the original stays open, so its number is not used again.

    Raises `BindError`.
    """
    try:
        copy = os.dup(address.fd)
    except (OSError, OverflowError) as error:
        raise BindError(
            f"cannot listen on {address}: the descriptor is not open; "
            f"let the parent process pass it on, or use HOST:PORT"
        ) from error
    try:
        sock = socket.socket(fileno=copy)
    except OSError as error:
        os.close(copy)
        raise BindError(f"cannot listen on {address}: it is not a socket; pass a bound one") from error
    try:
        _listen_on_inherited(sock, backlog)
        return sock
    except OSError as error:
        sock.close()
        raise BindError(f"cannot listen on {address}: {error.strerror or error}") from error
    except BaseException:
        sock.close()
        raise


def _listen_on_inherited(sock: socket.socket, backlog: int) -> None:
    families = (socket.AF_INET, socket.AF_INET6, getattr(socket, "AF_UNIX", None))
    if sock.family not in families or sock.type != socket.SOCK_STREAM:
        raise OSError(errno.EINVAL, "it is not a TCP or Unix stream socket; pass one that is")
    name = server_name(sock.getsockname())
    if name is None or name[1] == 0:
        raise OSError(errno.EINVAL, "the socket is not bound to an address; bind it before passing it on")
    # A parent that already listens has chosen its backlog.
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        try:
            sock.listen(backlog)
        except OSError as error:
            reason = f"it cannot be listened on ({error.strerror}); pass a bound, unconnected socket"
            raise OSError(error.errno, reason) from error
    sock.setblocking(False)
