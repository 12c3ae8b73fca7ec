"""Choices made by octets: what is random in the fuzzers' inputs, and so can be repeated, mutated and shrunk.

The same octets make the same choices, wherever they come from: a seed and a number (`numbered`), libFuzzer,
Hypothesis. One octet is one choice in most cases, so that a small change of the octets is a small change of
what they choose, and it is several times cheaper than `random`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import shake_128
from typing import TypeVar

T = TypeVar("T")

ENOUGH = 640
"""Octets for any script: what comes after them is as short as it can be."""

CHOICES = 96
"""Octets that choose, at the end of an input of libFuzzer's: few, so that it learns what they do."""


class Chance:
    """Reads `octets` from the start. When they are used up it always says 0: the first option, and no.

    `octet` gives the next of them, from 0 to 255.
    """

    __slots__ = ("octet",)

    def __init__(self, octets: bytes) -> None:
        self.octet: Callable[[], int] = partial(next, iter(octets), 0)

    @classmethod
    def numbered(cls, seed: object, number: int) -> Chance:
        """The choices that belong to `number` of `seed`, on every machine and in every version of Python."""
        return cls(shake_128(f"{seed} {number}".encode()).digest(ENOUGH))

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1, which is below 65,536."""
        if count <= 256:
            return self.octet() * count >> 8
        return (self.octet() << 8 | self.octet()) * count >> 16

    def flag(self, likely: float = 0.5) -> bool:
        """True with the probability `likely`."""
        return self.octet() > 255 - 256 * likely

    def pick(self, options: Sequence[T]) -> T:
        """One of `options`, of which there are 256 at most; what stands there twice is twice as likely."""
        return options[self.octet() * len(options) >> 8]
