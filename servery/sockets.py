"""Listening sockets: binding all of them or none, and putting socket files away again.

Knows TCP, Unix sockets and descriptors that somebody hands over; knows nothing of event loops, TLS or
HTTP beyond the scheme in a start-up line. Options of accepted connections are the driver's job.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from .addresses import (
    Address,
    SystemdAddress,
    TcpAddress,
    UnixAddress,
    addresses,
    parse_bind,
    peer_name,
    server_name,
)
from .config import SETTINGS, Config
from .errors import BindError
from .inherited import adopt, passed_sockets, take_passed

__all__ = [
    "Address",
    "Listener",
    "addresses",
    "bind_all",
    "parse_bind",
    "peer_name",
    "places",
    "server_name",
    "tcp_port",
]

PORT_ATTEMPTS = 16
"""How often port 0 is drawn again because one of a name's other addresses has that port in use."""
WHERE = ("host", "port", "uds", "fd", "bind")
"""The settings that say where to listen."""
LOCK_PATIENCE = 1.0
"""Seconds to wait for another server that binds in the same directory; it holds the lock for microseconds."""


class Listener:
    """A listening, non-blocking, non-inheritable socket and its name for the start-up line."""

    __slots__ = ("_path", "_stat", "sock")

    def __init__(self, sock: socket.socket, *, path: str | None = None) -> None:
        """`path` is the file that `sock` has just created and that `close` removes again."""
        self.sock = sock
        self._path = None if path is None else os.path.abspath(path)
        self._stat = None if path is None else os.lstat(path)

    @property
    def url(self) -> str:
        """Where it is reached without TLS: ``http://127.0.0.1:8000``, ``unix:/run/app.sock``, ``fd://3``."""
        return self.url_for("http")

    def url_for(self, scheme: str) -> str:
        """Where it is reached with `scheme`, if it has one."""
        return _url(self.sock, scheme)

    @property
    def path(self) -> str | None:
        """The socket file that `close` removes; None if that is not this listener's business."""
        return self._path

    def sibling(self, backlog: int) -> Listener | None:
        """Another listener on the same address, among which the kernel spreads connections.

        None for what cannot have one: Unix sockets, and TCP sockets that were bound without SO_REUSEPORT.
        Raises `BindError`.
        """
        sock = self.sock
        if sock.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT):
            return None
        try:
            return _bind_endpoint(sock.family, sock.getsockname(), backlog, reuse_port=True)
        except OSError as error:
            raise BindError(f"cannot listen on {self.url} once more: {error.strerror or error}") from error

    def close(self) -> None:
        """Stop listening, and remove our own socket file, but never one that has taken its place."""
        # The file goes first: as long as the socket is open its inode number cannot be given away, and
        # nobody who probes the socket takes it for a stale one.
        if self._path is not None and self._stat is not None:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.lstat(self._path), self._stat):
                    os.unlink(self._path)
            self._path = None
        self.sock.close()


def places(config: Config) -> list[Address]:
    """Where to listen: what `config` says; if it says nothing, on the sockets that systemd has passed."""
    says_nothing = all(getattr(config, name) == SETTINGS[name].default for name in WHERE)
    if says_nothing and passed_sockets():
        return [SystemdAddress("")]
    return addresses(config)


def bind_all(
    where: Iterable[Address], *, uds_mode: int | None, backlog: int, reuse_port: bool = False
) -> list[Listener]:
    """Bind and listen on every address, or on none.

    A host name gives one listener for each of its addresses. `uds_mode` is the mode of new socket
    files, which they have before anybody can connect; None leaves it to the umask. With `reuse_port` TCP
    sockets may have siblings: see `Listener.sibling`. Raises `BindError`
    with the address, the reason and the fix; what was bound before is closed again.
    """
    listeners: list[Listener] = []
    with contextlib.ExitStack() as undo:
        for address in where:
            if isinstance(address, TcpAddress):
                bound = _bind_tcp(address, backlog, reuse_port)
            elif isinstance(address, UnixAddress):
                bound = [_bind_unix(address, uds_mode, backlog)]
            elif isinstance(address, SystemdAddress):
                bound = [Listener(sock) for sock in take_passed(address, backlog)]
            else:
                bound = [Listener(adopt(address, backlog))]
            for listener in bound:
                undo.callback(listener.close)
            listeners += bound
        undo.pop_all()
    return listeners


def tcp_port(listeners: Iterable[Listener]) -> int:
    """The port of the first TCP listener, 443 if there is none."""
    names = (server_name(listener.sock.getsockname()) for listener in listeners)
    return next((name[1] for name in names if name is not None and name[1] is not None), 443)


def _url(sock: socket.socket, scheme: str) -> str:
    match server_name(sock.getsockname()):
        case (host, int(port)):
            return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        case (path, _):
            return f"unix:{path}"
    return f"fd://{sock.fileno()}"


# --- TCP ----------------------------------------------------------------------------------------------

_Endpoint = tuple[socket.AddressFamily, tuple[Any, ...]]


def _bind_tcp(address: TcpAddress, backlog: int, reuse_port: bool) -> list[Listener]:
    endpoints = _resolve(address)
    attempts = PORT_ATTEMPTS if address.port == 0 else 1
    while True:
        attempts -= 1
        try:
            return _bind_endpoints(endpoints, backlog, reuse_port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not attempts:
                raise BindError(f"cannot listen on {address}: {_tcp_reason(address, error)}") from error


def _resolve(address: TcpAddress) -> list[_Endpoint]:
    try:
        found = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise BindError(
            f"cannot listen on {address}: the name does not resolve ({error}); "
            f"check its spelling or write the address in digits"
        ) from error
    # A name may be listed twice in /etc/hosts; dict keeps the order and drops the repetition.
    return list(dict.fromkeys((family, sockaddr) for family, _, _, _, sockaddr in found))


def _bind_endpoints(endpoints: list[_Endpoint], backlog: int, reuse_port: bool) -> list[Listener]:
    """Bind every address of one name, all with the same port. Raises OSError, with nothing left bound."""
    has_ipv4 = any(family == socket.AF_INET for family, _ in endpoints)
    listeners: list[Listener] = []
    with contextlib.ExitStack() as undo:
        for family, (host, port, *rest) in endpoints:
            if port == 0 and listeners:
                port = listeners[0].sock.getsockname()[1]
            try:
                listener = _bind_endpoint(family, (host, port, *rest), backlog, reuse_port)
            except OSError as error:
                # Hosts without IPv6 still list ::1 for localhost, and :: for every interface.
                absent = error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
                if family == socket.AF_INET6 and has_ipv4 and absent:
                    continue
                raise
            undo.callback(listener.close)
            listeners.append(listener)
        undo.pop_all()
    return listeners


def _bind_endpoint(
    family: socket.AddressFamily, sockaddr: tuple[Any, ...], backlog: int, reuse_port: bool
) -> Listener:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform == "win32":
            # There SO_REUSEADDR would let any process take the port over while we listen.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            # A restart must not wait for old connections in TIME_WAIT. SO_REUSEPORT is only set when asked
            # for: it lets a second server start unnoticed and take a share of the connections.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(sockaddr)
        sock.listen(backlog)
        sock.setblocking(False)
        return Listener(sock)
    except BaseException:
        sock.close()
        raise


def _tcp_reason(address: TcpAddress, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"address already in use: another server is listening on {address}; "
                f"choose another --port or stop it"
            )
        case errno.EACCES | errno.EPERM:
            return "permission denied: choose a --port from 1024 up, or give the process the right to bind it"
        case errno.EADDRNOTAVAIL:
            return "no interface of this machine has that address; use 127.0.0.1, 0.0.0.0 or one it has"
        case errno.EAFNOSUPPORT:
            return "this machine has no such address family; use an IPv4 address"
    return f"{error.strerror or error}"


# --- Unix sockets -------------------------------------------------------------------------------------


def _bind_unix(address: UnixAddress, mode: int | None, backlog: int) -> Listener:
    try:
        if not hasattr(socket, "AF_UNIX"):
            raise BindError(f"cannot listen on {address}: no Unix sockets on this platform; use HOST:PORT")
        if address.path.startswith("@"):
            return _bind_abstract(address.path, backlog)
        with _locked_directory(address.path):
            _remove_stale(address)
            return _bind_path(address.path, mode, backlog)
    except OSError as error:
        raise BindError(f"cannot listen on {address}: {_unix_reason(error)}") from error


def _bind_abstract(path: str, backlog: int) -> Listener:
    if sys.platform != "linux":
        raise BindError(f"cannot listen on unix:{path}: @ names exist on Linux only; write a path")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(f"\0{path[1:]}")
        sock.listen(backlog)
        sock.setblocking(False)
        return Listener(sock)
    except BaseException:
        sock.close()
        raise


def _bind_path(path: str, mode: int | None, backlog: int) -> Listener:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.ExitStack() as undo:
        undo.callback(sock.close)
        if mode is None:
            sock.bind(path)
        else:
            umask = os.umask(0o777)  # nobody gets in before the chmod, which comes before the listen
            try:
                sock.bind(path)
            finally:
                os.umask(umask)
        listener = Listener(sock, path=path)
        undo.callback(listener.close)
        if mode is not None:
            os.chmod(path, mode)
        sock.listen(backlog)
        sock.setblocking(False)
        undo.pop_all()
    return listener


@contextlib.contextmanager
def _locked_directory(path: str) -> Iterator[None]:
    """Let one server at a time look at, remove and bind socket files in the directory of `path`.

    Between bind and listen a new socket refuses connections just like a stale one; without the lock
    two servers that start together could each remove the other's. No lock file is left behind. Where
    the directory cannot be read or somebody sits on the lock, binding goes on without it.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    try:
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    except PermissionError:
        yield
        return
    try:
        give_up = time.monotonic() + LOCK_PATIENCE
        while time.monotonic() < give_up:
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(directory)


def _remove_stale(address: UnixAddress) -> None:
    """Remove the socket file of a server that is gone. Anything else in its place is a `BindError`."""
    try:
        seen = os.lstat(address.path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(seen.st_mode):
        raise BindError(
            f"cannot listen on {address}: the path exists and is not a socket; "
            f"choose another path or remove it yourself"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        answer = probe.connect_ex(address.path)
    if answer in (0, errno.EAGAIN, errno.EINPROGRESS):  # EAGAIN: its backlog is full, so it is in use
        raise OSError(errno.EADDRINUSE, "a server answers there")
    if answer not in (errno.ECONNREFUSED, errno.ENOENT):
        raise OSError(answer, f"cannot tell whether a server uses it ({os.strerror(answer)})")
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.lstat(address.path), seen):
            os.unlink(address.path)


def _unix_reason(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "address already in use: another server is listening there; choose another path or stop it"
        case errno.ENOENT | errno.ENOTDIR:
            return "its directory does not exist; create it or choose another path"
        case errno.EACCES | errno.EPERM:
            return "permission denied: choose a path in a directory that this user may write to"
        case None:  # raised by Python itself: the path is longer than a socket address can hold
            return f"{error}; choose a path of at most about 100 bytes"
    return f"{error.strerror}; choose another path"
