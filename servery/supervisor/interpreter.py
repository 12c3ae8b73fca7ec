"""Fresh interpreters as child processes: how they are started, and are told what to work with.

That comes through a pipe, pickled. Descriptors are inherited by number; on Windows, where that cannot be, the
pipe is the child's standard input, and sockets are shared by its process id (unverified).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any, BinaryIO

from ..errors import ConfigError

_FLAGS = (
    *(("isolated", "-I"), ("ignore_environment", "-E"), ("no_user_site", "-s"), ("safe_path", "-P")),
    *(("optimize", "-O"), ("dont_write_bytecode", "-B")),
)
"""Flags of the interpreter that `sys.flags` tells of, and that a child shall have, too."""

Handle = int | bytes
"""A socket on its way to another process: its descriptor, or on Windows what `socket.share` says."""


def command(module: str) -> list[str]:
    """What runs `module` in an interpreter like this one."""
    flags = [flag for name, flag in _FLAGS for _ in range(int(getattr(sys.flags, name, 0)))]
    options = [name if value is True else f"{name}={value}" for name, value in sys._xoptions.items()]
    for letter, values in (("X", options), ("W", sys.warnoptions)):
        flags += [part for value in values for part in (f"-{letter}", value)]
    return [sys.executable, *flags, "-m", module]


@contextlib.contextmanager
def holding_back(numbers: Collection[int]) -> Iterator[None]:
    """Processes that are started meanwhile begin with these signals blocked; this one gets them later."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def launch(
    module: str, descriptors: Sequence[int] = (), *, apart: bool = False
) -> tuple[subprocess.Popen[bytes], BinaryIO]:
    """Run `module`, which inherits `descriptors`; the process, and the pipe to what it reads with `told`.

    Its last argument is the number of its end of the pipe. On Windows, one that is `apart` does not get the
    console's Ctrl+C. Raises `OSError`.
    """
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP if apart else 0
        process = subprocess.Popen([*command(module), "0"], stdin=subprocess.PIPE, creationflags=flags)
        assert process.stdin is not None
        return process, process.stdin
    theirs, ours = os.pipe()
    try:
        process = subprocess.Popen([*command(module), str(theirs)], pass_fds=(theirs, *descriptors))
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return process, os.fdopen(ours, "wb")


def tell(pipe: BinaryIO, message: bytes) -> None:
    """Send what `pickled` made; a child that is dead already is no error: its end tells."""
    with contextlib.suppress(BrokenPipeError):
        pipe.write(message)
        pipe.flush()


def told(number: int) -> Any:
    """In the child: what it was told through the pipe `number`, which stays open."""
    with open(number, "rb", closefd=False) as pipe:
        return pickle.load(pipe)


def pickled(message: object, needed_by: str) -> bytes:
    """`message` for another process. Raises `ConfigError`, which begins with `needed_by`."""
    try:
        return pickle.dumps(message)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{needed_by}: the configuration cannot be handed to another process ({error}); "
            f"give log_config as the path of a file"
        ) from error


def handle_of(sock: socket.socket, process: int) -> Handle:
    """What `process`, which inherits the descriptor, makes its socket of."""
    if sys.platform == "win32":
        return sock.share(process)
    return sock.fileno()


def socket_of(handle: Handle) -> socket.socket:
    """In the child: the socket."""
    if sys.platform == "win32":
        assert isinstance(handle, bytes)
        return socket.fromshare(handle)
    assert isinstance(handle, int)
    os.set_inheritable(handle, False)  # what the application starts must not keep the port
    return socket.socket(fileno=handle)
