"""In which order the servers take their turns in each trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def order(items: Sequence[T], trial: int) -> list[T]:
    """The order of a trial, counted from 0; the same on every machine.

    The order moves on by one place from trial to trial, so that within a cycle of ``len(items)`` trials
    each item stands once in each place. Every other cycle goes backwards: with two items this is AB BA BA
    AB, which a machine that steadily gets slower, or a neighbour that leaves its mark on whoever comes
    next, treats alike.
    """
    if not items:
        return []
    cycle, turn = divmod(trial, len(items))
    turned = [*items[turn:], *items[:turn]]
    return turned[::-1] if cycle % 2 else turned
