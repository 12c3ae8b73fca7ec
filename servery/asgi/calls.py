"""A call of the application as a coroutine that a task can take over without losing its end.

Knows coroutines; knows nothing of messages.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any


def begun(call: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    """`call`, which waits in `entered` now: a cancellation before the task's first step ends it in order.

    Thrown into a coroutine that has not begun it would pass by, and nobody would be told.
    """
    call.send(None)
    return call


@coroutine
def entered() -> Generator[None, None, None]:
    """The first thing that the `call` of `begun` awaits."""
    yield
