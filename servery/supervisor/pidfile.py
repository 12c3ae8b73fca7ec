"""A file with the process id, for tools that find a server by it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from ..errors import ConfigError


@contextlib.contextmanager
def pidfile(path: str | None) -> Iterator[None]:
    """Have the id of this process in the file `path` until the end of the block.

    It is written whole or not at all, and removed only by the process that wrote it. Raises `ConfigError` if
    it names another process that is alive, or cannot be written.
    """
    if path is None:
        yield
        return
    path, pid = os.path.abspath(path), os.getpid()
    other = _pid_in(path)
    if other not in (None, pid) and _alive(other):
        raise ConfigError(
            f"pidfile: {path} names process {other}, which is alive: stop it, or remove the file"
        )
    draft = f"{path}.{pid}"
    try:
        with open(draft, "w", encoding="ascii") as file:
            file.write(f"{pid}\n")
        os.replace(draft, path)
    except OSError as error:
        raise ConfigError(f"pidfile: cannot write {path}: {error.strerror}; choose another path") from None
    try:
        yield
    finally:
        if os.getpid() == pid and _pid_in(path) == pid:  # not in a worker, and not over a successor's
            with contextlib.suppress(OSError):
                os.unlink(path)


def _pid_in(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _alive(pid: int | None) -> bool:
    if sys.platform == "win32":  # there os.kill() with 0 would be a Ctrl+C for it
        return False
    try:
        os.kill(pid or 0, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True
