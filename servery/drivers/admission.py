"""How many application calls run at a time, who waits for a turn, and for how long.

An ASGI application around the other one, put there only where the configuration asks for a queue or a limit
for each client. What waits is bounded: the service refuses further requests before they come here.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from ..asgi.calls import App, Receive, Send
from ..engine import Message, Scope

BUSY, TOO_MANY = 503, 429
_TEXTS = {BUSY: b"Service Unavailable\n", TOO_MANY: b"Too Many Requests\n"}
RETRY_AFTER = b"1"
"""Seconds: what is asked for in ``Retry-After``. A queue that was full may be empty a moment later."""


class Ticket:
    """A request that waits; `admitted` once it may go on, `expired` once it has waited for too long."""

    __slots__ = ("admitted", "cycle", "expired")

    def __init__(self, cycle: Any) -> None:
        self.cycle = cycle
        self.admitted = self.expired = False

    def expire(self) -> None:
        """The time is over. Whoever waits must not ask another clock: a loop's may be ahead of it."""
        self.expired = True
        self.cycle.wake()


class Admission:
    """Calls `app` for at most `limit` requests at a time, `per_client` of one address; ``None`` is no limit.

    A request over `limit` waits its turn, first come, first served, for `timeout` seconds at most: then, or
    when its client leaves, it is answered 503. One over `per_client` is answered 429 at once. A call holds
    its place until it returns. `waited` is told the seconds of each wait.
    """

    def __init__(
        self,
        app: App,
        *,
        limit: int | None,
        timeout: float,
        per_client: int | None,
        loop: asyncio.AbstractEventLoop,
        waited: Callable[[float], None] | None = None,
    ) -> None:
        self._app = app
        self._limit = limit
        self._timeout = timeout
        self._per_client = per_client
        self._loop = loop
        self._waited = waited
        self._tickets: deque[Ticket] = deque()
        self._clients: Counter[str | None] = Counter()
        self.active = 0

    @property
    def waiting(self) -> int:
        """Requests that wait for a turn."""
        return len(self._tickets)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, or refuse."""
        if self._per_client is None:
            await self._in_turn(scope, receive, send)
            return
        client = scope["client"][0] if scope["client"] else None
        if self._clients[client] >= self._per_client:
            await _refuse(scope, send, TOO_MANY)
            return
        self._clients[client] += 1
        try:
            await self._in_turn(scope, receive, send)
        finally:
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]  # as many entries as requests in progress, and no more

    async def _in_turn(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._limit is not None and (self.active >= self._limit or self._tickets):
            if not await self._wait(send.__self__):  # type: ignore[attr-defined]  # a cycle's own method
                await _refuse(scope, send, BUSY)
                return
        else:
            self.active += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self.active -= 1
            self._admit()

    async def _wait(self, cycle: Any) -> bool:
        """Whether the turn of `cycle` has come; then it is counted as active already."""
        began = monotonic()
        ticket = Ticket(cycle)
        self._tickets.append(ticket)
        alarm = self._loop.call_later(self._timeout, ticket.expire)
        try:
            while not (ticket.admitted or ticket.expired or cycle.gone):
                await cycle.wait()
        except BaseException:
            if ticket.admitted:
                self.active -= 1
                self._admit()
            raise
        finally:
            alarm.cancel()
            if not ticket.admitted:
                self._tickets.remove(ticket)
            if self._waited is not None:
                self._waited(monotonic() - began)
        return ticket.admitted

    def _admit(self) -> None:
        while self._tickets and self._limit is not None and self.active < self._limit:
            ticket = self._tickets.popleft()
            ticket.admitted = True
            self.active += 1
            ticket.cycle.wake()


async def _refuse(scope: Scope, send: Send, status: int) -> None:
    text = _TEXTS[status]
    headers = [
        (b"retry-after", RETRY_AFTER),
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(text)),
    ]
    prefix = "websocket.http" if scope["type"] == "websocket" else "http"
    start: Message = {"type": f"{prefix}.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": f"{prefix}.response.body", "body": text})
