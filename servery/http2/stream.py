"""One request and its response on a connection of HTTP/2: what the engine remembers of it.

Knows states and sizes; what changes them is the engine's business.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from ..engine import NEVER, Stamp
from ..events import Headers
from .fields import RequestHead, ResponseFields


class Responding(Enum):
    """How far the response is."""

    NONE = "not started"
    STARTED = "started, with nothing queued yet"
    SENDING = "under way"
    TRAILERS = "waiting for its trailers"
    DONE = "complete"


NONE, STARTED, SENDING, TRAILERS, DONE = Responding


class Stream:
    """The state of one stream.

    `receiving` is true until the peer has ended its side, `sending` until our end or a reset is made into
    frames, `held` until the application call is over. What waits for the peer is in `queue`: `queued` octets;
    `skipped` of the first part are gone already.
    """

    __slots__ = (
        *("continue_due", "expected", "is_head", "takes_trailers", "tunnel", "urgency"),  # the request
        *("body_base", "body_deadline", "owed_window", "received", "receiving", "unacknowledged"),
        *("fields", "owed", "responding", "status", "trailers", "trailers_due"),  # the response
        *("content_sent", "ending", "queue", "queued", "sending", "skipped", "write_deadline"),
        *("held", "number", "reserved_more", "stamp"),
    )

    def __init__(self, number: int, head: RequestHead, complete: bool) -> None:
        self.number = number
        self.is_head = head.method == b"HEAD"
        self.takes_trailers = head.takes_trailers
        self.continue_due = head.expects_continue and not complete
        self.tunnel = head.protocol is not None
        self.urgency = head.urgency
        self.expected = head.length
        self.received = 0
        self.receiving = not complete
        self.unacknowledged = 0  # of the peer's window, not given back yet
        self.owed_window = 0  # of that, what the application has taken
        self.body_base = 0.0
        self.body_deadline = NEVER
        self.responding = NONE
        self.status = 0
        self.fields: ResponseFields | None = None
        self.owed = -1
        self.trailers_due = False
        self.trailers: Headers = []
        self.content_sent = 0
        self.queue: deque[bytes] = deque()
        self.queued = self.skipped = 0
        self.ending = False  # the end follows what is queued
        self.sending = True
        self.write_deadline = NEVER
        self.held = True
        self.stamp: Stamp | None = None  # that of this response alone
        self.reserved_more = False

    @property
    def empty(self) -> bool:
        """Whether the response has no content whatever is sent: HEAD, 204, 304."""
        return self.is_head or self.status == 204 or self.status == 304

    def take(self, size: int) -> tuple[bytes | memoryview, bool]:
        """(up to `size` octets from the queue, whether it is empty now)."""
        queue = self.queue
        first = queue[0]
        left = len(first) - self.skipped
        if left > size:
            part = memoryview(first)[self.skipped : self.skipped + size]
            self.skipped += size
            self.queued -= size
            return part, False
        parts: list[bytes | memoryview] = [memoryview(first)[self.skipped :] if self.skipped else first]
        queue.popleft()
        self.skipped = 0
        total = left
        while queue and total + len(queue[0]) <= size:
            parts.append(queue.popleft())
            total += len(parts[-1])
        self.queued -= total
        return (parts[0] if len(parts) == 1 else b"".join(parts)), not queue

    def drop(self) -> None:
        """Nothing more can be sent."""
        self.queue.clear()
        self.queued = self.skipped = 0
        self.sending = self.ending = False
        self.write_deadline = NEVER
        self.responding = DONE
