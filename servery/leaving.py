"""Leaving the process in bounded time, whatever the application has left running, and saying what that is.

Python waits for threads when it exits, and for ever: one ``run_in_executor(None, time.sleep, 3600)`` would
hold a stopped server up for an hour. What can end in order does. Knows nothing of servers and event loops.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from typing import Any

from .streams import release_streams

log = logging.getLogger("servery.error")

LEAST = 0.2
"""Seconds that idle threads get to end in any case."""

WATCH = "servery exit"
"""The name of the thread that waits for the others; there is one at most."""


def leave_within(timeout: float, code: int) -> int:
    """Make sure that the process ends within `timeout` seconds, plus its exit handlers; returns `code`.

    Call it last, then leave as usual: idle pool threads end when the interpreter asks them to. A thread that
    is still at work by then is logged with its stack, and the process ends with `code`, or 1 instead of 0.
    """
    release_streams()
    if _at_work() and not any(thread.name == WATCH for thread in threading.enumerate()):
        arguments = (time.monotonic() + max(timeout, LEAST), code or 1)
        threading.Thread(target=_watch, args=arguments, name=WATCH, daemon=True).start()
    return code


def where(coroutine: Any) -> str:
    """Where a suspended `coroutine` waits, through all that it awaits, as the lines of a traceback."""
    lines: list[str] = []
    while coroutine is not None:
        for frame, awaits in (
            ("cr_frame", "cr_await"),
            ("gi_frame", "gi_yieldfrom"),
            ("ag_frame", "ag_await"),
        ):
            if getattr(coroutine, frame, None) is not None:
                lines += traceback.format_stack(getattr(coroutine, frame), 1)
                coroutine = getattr(coroutine, awaits)
                break
        else:
            break  # a future, or something written in C
    return "".join(lines)


def _at_work() -> list[threading.Thread]:
    """The threads that the interpreter waits for at its exit."""
    mine = (threading.main_thread(), threading.current_thread())
    return [thread for thread in threading.enumerate() if not thread.daemon and thread not in mine]


def _watch(deadline: float, code: int) -> None:
    while threads := _at_work():
        left = deadline - time.monotonic()
        if left <= 0:
            break
        threads[0].join(left)
    else:
        return  # the exit handlers may run as long as they like
    frames = sys._current_frames()
    for thread in threads:
        frame = frames.get(thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "it has just ended"
        log.error("left behind at the exit, still running: thread %r\n%s", thread.name, stack)
    _exit_now(code)


def _exit_now(code: int) -> None:
    """End the process now, with nothing lost that was logged or printed."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # there is none, or nobody reads it any more
    os._exit(code)
