"""The response half on its own: it answers, and leaves to the half that reads what only that one can know."""

from __future__ import annotations

import pytest

from servery.http1.responding import ResponseHalf


def test_half_is_no_engine() -> None:
    half = ResponseHalf(lambda has: b"", 0)
    with pytest.raises(NotImplementedError):
        half.abandon(0)
