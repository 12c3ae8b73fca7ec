"""The program is replaced in its own process: `exec`, with sockets and workers handed over.

Process id, descriptors and children stay, so that service managers and containers notice nothing. Whether the
new program can serve is tried out before, in a process of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

HANDED_OVER = "_SERVERY_HANDED_OVER"
"""Descriptor with the state, and the process that it is meant for: children must not believe it."""
ONLY_CHECK = "_SERVERY_ONLY_CHECK"
"""Set for a program that shall only try out whether it could serve."""


def start_check() -> subprocess.Popen[bytes]:
    """Start the program anew, to see whether it could serve; exit code 0 says so. Raises `OSError`."""
    import subprocess  # every start of the server asks `in_progress`; few need this

    return subprocess.Popen(_command(), env={**os.environ, ONLY_CHECK: "1"})


def in_progress() -> bool:
    """Whether this program replaces another one, or tries out whether it could."""
    return only_check() or os.environ.get(HANDED_OVER, "").endswith(f" {os.getpid()}")


def only_check() -> bool:
    """Whether this program was started by `start_check`."""
    return ONLY_CHECK in os.environ


def hand_over(state: dict[str, Any], descriptors: Iterable[int]) -> None:
    """Replace the program; returns only by raising `OSError`, and then all is as before."""
    import json

    reader = _open_file()
    handed = [reader, *descriptors]
    try:
        with open(reader, "w", encoding="utf-8", closefd=False) as file:
            json.dump(state, file)
        os.lseek(reader, 0, os.SEEK_SET)
        for descriptor in handed:
            os.set_inheritable(descriptor, True)
        command = _command()
        os.execve(command[0], command, {**os.environ, HANDED_OVER: f"{reader} {os.getpid()}"})
    finally:
        for descriptor in handed:
            os.set_inheritable(descriptor, False)
        os.close(reader)


def taken_over() -> dict[str, Any] | None:
    """The state that the program before this one handed over; None if there was none."""
    reader, _, pid = os.environ.pop(HANDED_OVER, "").partition(" ")
    if pid != str(os.getpid()):
        return None
    import json

    with open(int(reader), encoding="utf-8") as file:
        state: dict[str, Any] = json.load(file)
    return state


def _open_file() -> int:
    """A file without a name, and no pipe: nobody reads as long as it is written."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("servery", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _command() -> list[str]:
    return [sys.executable, *sys.orig_argv[1:]]
