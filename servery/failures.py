"""What the user reads when the server cannot start, and the exit code that says so.

Exit codes: 0 all went well, 1 the stop was not clean, 2 the configuration cannot work, 3 the server could not
start, 128 and more a signal ended it.
"""

from __future__ import annotations

import os
from types import TracebackType

from .errors import AppImportError, ConfigError, LifespanError, ServeryError
from .streams import say

EXIT_UNCLEAN = 1
EXIT_CONFIG = 2
EXIT_STARTUP = 3
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def report(error: ServeryError) -> int:
    """Print what `describe` says; the exit code."""
    text, code = describe(error)
    say(text)
    return code


def describe(error: ServeryError) -> tuple[str, int]:
    """One line for the user, after the traceback of his own code if that failed; and the exit code."""
    lines = [f"servery: error: {error}"]
    cause = error.__cause__
    if isinstance(error, AppImportError | LifespanError) and cause is not None:
        import traceback

        lines[:0] = ["".join(traceback.format_exception(type(cause), cause, user_traceback(cause))).rstrip()]
    return "\n".join(lines), EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_STARTUP


def user_traceback(error: BaseException) -> TracebackType | None:
    """The traceback of `error` from the first frame that is neither ours nor the import system's."""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((_OURS, "<frozen importlib")) and file != _importlib():
            break
        trace = trace.tb_next
    return trace


def _importlib() -> str:
    from importlib import import_module

    return import_module.__code__.co_filename
