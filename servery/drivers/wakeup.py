"""Waiting, the asyncio way."""

from __future__ import annotations

import asyncio


class AsyncioWakeup:
    """See `servery.engine.Wakeup`: one future for each who waits."""

    __slots__ = ("_loop", "_waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Wake all who wait now."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait(self) -> None:
        """Wait for the next `set`."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter.cancelled() and waiter in self._waiters:  # `set` may have come before we ran
                self._waiters.remove(waiter)
