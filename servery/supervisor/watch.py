"""Which files a developer's server watches, and how it learns of their changes.

`watchfiles` (extra ``[reload]``) is told of changes by the system; without it, `StatWatcher` looks at
every file again and again. Both follow the same `Rules` and are used from one thread, tick by tick.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import PurePath
from typing import Protocol

from ..errors import ConfigError

INCLUDE = ("*.py",)
EXCLUDE = (".*", ".py[cod]", ".sw.*", "~*")
IGNORED = frozenset({"__pycache__", ".git", ".venv", "venv", "node_modules", "site-packages"})
"""Directories that are never looked into: caches, repositories and other people's code."""
LONGEST_BURST = 8
"""Looks, at `delay` apart, after which a burst of changes that does not end is reported all the same."""


class Interrupt(Protocol):
    """Tells a watcher to give up waiting."""

    def is_set(self) -> bool:
        """Whether to stop."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for a reason to look up; whether to stop."""
        ...


class Watcher(Protocol):
    """Notices changes from the moment it is made."""

    name: str
    """What the start-up line calls it: ``watchfiles`` or ``stat``."""

    def wait(self) -> list[str]:
        """Wait about `delay` seconds; the paths that changed, empty if none did or on an interrupt."""
        ...


class Rules:
    """What of the files below `roots` matters.

    `include` adds globs to ``*.py``; `exclude` adds globs to the usual hidden and temporary files and
    wins over everything else. A glob without a slash is matched with a name, one with a slash with the
    end of the path. An excluded directory, by glob or by path, takes all that is in it along.
    """

    __slots__ = ("_exclude", "_hidden", "_include", "_subtrees", "roots")

    def __init__(
        self, roots: Iterable[str], include: Iterable[str] = (), exclude: Iterable[str] = ()
    ) -> None:
        """Paths may be relative. Raises `ConfigError` for a root that is not a directory."""
        self.roots = tuple(dict.fromkeys(os.path.realpath(root) for root in roots))
        for root in self.roots:
            if not os.path.isdir(root):
                raise ConfigError(f"reload_dir: {root} is not a directory; name one that exists")
        self._include = tuple(include)
        self._exclude = tuple(glob.rstrip("/") for glob in exclude)
        self._hidden = tuple(glob for glob in EXCLUDE if glob not in self._include)
        self._subtrees = frozenset(os.path.realpath(path) for path in self._exclude if os.path.isdir(path))

    def enters(self, directory: str) -> bool:
        """Whether to look into this directory, given that its parent is looked into."""
        if os.path.basename(directory) in IGNORED or directory in self._subtrees:
            return False
        return not _matches(directory, self._hidden) and not _matches(directory, self._exclude)

    def wants(self, file: str) -> bool:
        """Whether this file matters, given that its directory is looked into."""
        if _matches(file, self._exclude):
            return False
        if _matches(file, self._include):
            return True
        return _matches(file, INCLUDE) and not _matches(file, self._hidden)

    def covers(self, file: str) -> bool:
        """Whether this file matters, and every directory from one of the roots down to it is entered."""
        return self.wants(file) and any(self._reaches(root, file) for root in self.roots)

    def _reaches(self, root: str, file: str) -> bool:
        directory = os.path.dirname(file)
        while len(directory) > len(root) and self.enters(directory):
            directory = os.path.dirname(directory)
        return directory == root


def _matches(path: str, globs: tuple[str, ...]) -> bool:
    name = os.path.basename(path)
    return any(PurePath(path).match(glob) if "/" in glob else fnmatch(name, glob) for glob in globs)


def open_watcher(rules: Rules, delay: float, interrupt: Interrupt) -> Watcher:
    """The best watcher that is installed. `delay` is the time in seconds between two looks."""
    try:
        return WatchfilesWatcher(rules, delay, interrupt)
    except ImportError:
        return StatWatcher(rules, delay, interrupt)


class WatchfilesWatcher:
    """Changes as the system reports them, through the `watchfiles` package. ImportError without it."""

    name = "watchfiles"
    __slots__ = ("_changes", "_rules")

    def __init__(self, rules: Rules, delay: float, interrupt: Interrupt) -> None:
        import watchfiles

        self._rules = rules
        step = max(1, round(delay * 1000))
        self._changes = watchfiles.watch(
            *rules.roots,
            # No filter here: while all it sees is filtered out, watch() does not come back to its caller.
            watch_filter=None,
            stop_event=interrupt,
            step=step,
            debounce=step * LONGEST_BURST,
            rust_timeout=step,
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        # The generator begins to watch at its first step, which must come before a child reads a file.
        next(self._changes, None)

    def wait(self) -> list[str]:
        """See `Watcher.wait`."""
        paths = {path for _, path in next(self._changes, ())}
        return sorted(path for path in paths if self._rules.covers(path))


_Look = dict[str, tuple[int, int, int]]


class StatWatcher:
    """Changes found by comparing time stamp, size and inode number of every file: new, changed, deleted."""

    name = "stat"
    __slots__ = ("_delay", "_interrupt", "_rules", "_seen")

    def __init__(self, rules: Rules, delay: float, interrupt: Interrupt) -> None:
        self._rules = rules
        self._delay = delay
        self._interrupt = interrupt
        self._seen = self._look()

    def wait(self) -> list[str]:
        """See `Watcher.wait`. A burst of changes, such as a checkout, is reported once, when it is over."""
        changed: set[str] = set()
        for _ in range(LONGEST_BURST):
            if self._interrupt.wait(self._delay):
                return []
            before, self._seen = self._seen, self._look()
            fresh = {path for path, _ in before.items() ^ self._seen.items()}
            changed |= fresh
            if not fresh:
                break
        return sorted(changed)

    def _look(self) -> _Look:
        return {path: state for root in self._rules.roots for path, state in self._files(root)}

    def _files(self, directory: str) -> Iterator[tuple[str, tuple[int, int, int]]]:
        try:
            entries: Sequence[os.DirEntry[str]] = list(os.scandir(directory))
        except OSError:  # deleted meanwhile, or not ours to read
            return
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):  # a link could lead round in a circle
                    if self._rules.enters(entry.path):
                        yield from self._files(entry.path)
                elif self._rules.wants(entry.path):
                    found = entry.stat()
                    yield entry.path, (found.st_mtime_ns, found.st_size, found.st_ino)
            except OSError:
                continue
