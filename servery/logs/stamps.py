"""Times of day for log lines, worked out once per second, with the UTC offset that holds at that moment."""

from __future__ import annotations

import time
from functools import lru_cache

# strftime's %b follows the locale; the log does not.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def clf_time(seconds: float) -> str:
    """`seconds` since the epoch as ``30/Nov/2026:11:22:33 +0100``, the common log format."""
    return _clf(int(seconds))


def iso_time(seconds: float) -> str:
    """`seconds` since the epoch as ``2026-11-30T11:22:33.123+01:00``, ISO 8601."""
    whole = int(seconds)
    date, offset = _iso(whole)
    return f"{date}.{int((seconds - whole) * 1000):03d}{offset}"


@lru_cache(maxsize=8)
def _clf(second: int) -> str:
    now = time.localtime(second)
    hours, minutes = _offset(now)
    month = _MONTHS[now.tm_mon - 1]
    return (
        f"{now.tm_mday:02d}/{month}/{now.tm_year:04d}"
        f":{now.tm_hour:02d}:{now.tm_min:02d}:{now.tm_sec:02d} {hours}{minutes}"
    )


@lru_cache(maxsize=8)
def _iso(second: int) -> tuple[str, str]:
    now = time.localtime(second)
    hours, minutes = _offset(now)
    return time.strftime("%Y-%m-%dT%H:%M:%S", now), f"{hours}:{minutes}"


def _offset(now: time.struct_time) -> tuple[str, str]:
    """The UTC offset as sign with hours, and minutes: ``("+05", "30")``."""
    minutes = now.tm_gmtoff // 60
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02d}", f"{rest:02d}"
