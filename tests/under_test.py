"""Which parser the servers of the running test have.

The fixture `parser` says so for one test, and whatever starts a server asks here. A test that starts one
without that fixture fails, so that none of them runs with one parser only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from zlib import crc32

ENGINES = {"python": "servery.http1.engine", "native": "servery._speedups.engine"}
"""What ``--parser`` and `--engines` accept, and the module that each name stands for."""

LOOPS = ("asyncio", "uvloop")
"""What ``--loop`` accepts."""

_chosen: list[str] = []


@contextmanager
def chosen(parser: str) -> Iterator[str]:
    """Servers that are started in this block have `parser`, unless they are told another one."""
    _chosen.append(parser)
    try:
        yield parser
    finally:
        _chosen.pop()


def current() -> str:
    """The parser of a server that is started now."""
    assert _chosen, "this test starts a server: let it, or its module, use the fixture `parser`"
    return _chosen[-1]


def clean_environment() -> dict[str, str]:
    """The environment without settings of servery."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SERVERY_")}


def environment() -> dict[str, str]:
    """The environment of a server process, which has the parser under test."""
    return {**clean_environment(), "SERVERY_PARSER": current()}


def pairs(test: str, parsers: list[str]) -> list[tuple[str, str]]:
    """(parser, loop) of the runs of the test function `test`: each parser once, and each loop.

    An engine knows nothing of loops, so that not every test needs every pair; among all tests each pair is
    met as often. With one parser there is a run for each loop.
    """
    if len(parsers) == 1:
        return [(parsers[0], loop) for loop in LOOPS]
    turn = crc32(test.encode())
    return [(parser, LOOPS[(turn + number) % len(LOOPS)]) for number, parser in enumerate(parsers)]
