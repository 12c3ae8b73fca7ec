"""The way in which the servers of a test run: their parser, who owns their sockets, their event loop.

The fixture `way` decides it for one test, and whatever starts a server asks here. A test that starts one
without that fixture fails, so that none of them runs in one way only.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import NamedTuple
from zlib import crc32

ENGINES = {"python": "servery.http1.engine", "native": "servery._speedups.engine"}
"""What ``--parser`` and `--engines` accept, and the module that each name stands for."""

IOS = ("transport",) if sys.platform == "win32" else ("transport", "reactor")
"""What ``--io`` accepts, here."""

LOOPS = (
    ("asyncio", "uvloop")
    if sys.platform != "win32" and sys.implementation.name == "cpython"
    else ("asyncio",)
)
"""What ``--loop`` accepts, here."""


class Way(NamedTuple):
    """One way to run."""

    parser: str
    io: str
    loop: str

    @property
    def settings(self) -> dict[str, str]:
        """For `servery.Config`."""
        return self._asdict()

    @property
    def flags(self) -> list[str]:
        """For the command."""
        return [f"--{name}={value}" for name, value in self._asdict().items()]

    @property
    def environment(self) -> dict[str, str]:
        """For a process."""
        return {f"SERVERY_{name.upper()}": value for name, value in self._asdict().items()}

    def must_be_built(self) -> None:
        """Raises ImportError if this install lacks what runs."""
        importlib.import_module(ENGINES[self.parser])
        if self.parser == "native":
            importlib.import_module("servery._speedups.http2")
        if self.io == "reactor":
            importlib.import_module("servery._speedups.reactor")
            if self.parser == "native":
                importlib.import_module("servery._speedups.connection")
                importlib.import_module("servery._speedups.http2_connection")

    def __str__(self) -> str:
        return "-".join(self)


WAYS = {parts: Way(*parts) for parts in product(ENGINES, IOS, LOOPS)}
"""All there are. pytest asks whether two are one object, so that there is one of each."""

_chosen: list[Way] = []


@contextmanager
def chosen(way: Way) -> Iterator[Way]:
    """Servers that are started in this block run in this way, unless they are told another one."""
    _chosen.append(way)
    try:
        yield way
    finally:
        _chosen.pop()


def current() -> Way:
    """The way of a server that is started now."""
    assert _chosen, "this test starts a server: let it, or its module, use the fixture `way`"
    return _chosen[-1]


def clean_environment() -> dict[str, str]:
    """The environment without settings of servery."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SERVERY_")}


def environment() -> dict[str, str]:
    """The environment of a server process that runs in the way under test."""
    return {**clean_environment(), **current().environment}


def ways(name: str, parsers: list[str], ios: list[str]) -> list[Way]:
    """The runs of the test or module `name`: each parser with each io once, and each of them on both loops.

    Neither knows anything of loops, so that not every test needs all ways; among all tests each is met as
    often. With one parser and one io there is a run for each loop.
    """
    if len(parsers) == len(ios) == 1:
        return [WAYS[parsers[0], ios[0], loop] for loop in LOOPS]
    turn = crc32(name.encode())
    return [
        WAYS[parser, io, LOOPS[(turn + row + column) % len(LOOPS)]]
        for row, parser in enumerate(parsers)
        for column, io in enumerate(ios)
    ]
