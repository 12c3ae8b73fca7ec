"""The server's own response fields: Date (RFC 9110 section 6.6.1), Server, and those from the configuration.

Made once a second and shared by all connections of a worker. The wall clock is compared, not counted: when it
jumps, Date follows at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def imf_fixdate(epoch: float) -> str:
    """`epoch` seconds as an IMF-fixdate, whatever the locale."""
    t = time.gmtime(epoch)
    return (
        f"{_DAYS[t.tm_wday]}, {t.tm_mday:02} {_MONTHS[t.tm_mon - 1]} {t.tm_year} "
        f"{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02} GMT"
    )


class DateStamp:
    """Field lines by what the application has set itself: see `servery.engine.Stamp`.

    `extra` holds the operator's own fields; they are sent with every response.
    """

    __slots__ = ("_blocks", "_date", "_from", "_others", "_server")

    def __init__(self, date: bool, server: bool, extra: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self._date = date
        self._server = b"server: servery\r\n" if server else b""
        self._others = b"".join(b"%b: %b\r\n" % field for field in extra)
        self._from = -1
        self._blocks: tuple[bytes, ...] = ()

    def __call__(self, has: int) -> bytes:
        """The field lines for a response; bit 1 of `has`: it has a Date, bit 2: it has a Server field."""
        now = int(time.time())
        if now != self._from:
            self._from = now
            date = f"date: {imf_fixdate(now)}\r\n".encode() if self._date else b""
            others, server = self._others, self._server
            self._blocks = (date + server + others, server + others, date + others, others)
        return self._blocks[has]
