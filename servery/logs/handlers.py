"""How log lines leave: a handler that survives a broken stream, and formatters with optional colours."""

from __future__ import annotations

import logging
import os
import sys
from typing import TextIO

from ..streams import silence
from .escaping import escape_controls
from .pipes import Pipe, open_pipe
from .stamps import iso_time

_RESET = "\x1b[0m"
_LEVELS = {"CRITICAL": "\x1b[1;31m", "ERROR": "\x1b[31m", "WARNING": "\x1b[33m", "INFO": "\x1b[32m"}
_FAINT = "\x1b[2m"
_STATUS = {5: "\x1b[31m", 4: "\x1b[33m", 3: "\x1b[36m", 0: "\x1b[35m"}


class LogHandler(logging.StreamHandler[TextIO]):
    """A stream handler that loses lines rather than break, flood or hold up the server when its stream fails.

    A pipe or socket that is full is waited for a moment, once; then lines are lost until it is read again.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self.lost = 0
        """Lines that could not be written: closed or full pipe, full disk."""
        self._pipe: Pipe | None = None
        self._looked_at: TextIO | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        if self._looked_at is not self.stream:
            self._looked_at, self._pipe = self.stream, open_pipe(self.stream)
        if self._pipe is None:
            super().emit(record)
            return
        try:
            self._pipe.write(f"{self.format(record)}{self.terminator}")
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Count the lost line, and say so once in the error log."""
        self.lost += 1
        error = sys.exc_info()[1]
        if isinstance(error, BrokenPipeError):
            self._pipe = None
            silence(self.stream)
        if self.lost == 1:
            name = getattr(self.stream, "name", "its stream")
            logging.getLogger("servery.error").warning(
                "log lines to %s are lost: %s. Said only once.", name, error
            )


class ErrorFormatter(logging.Formatter):
    """``2026-11-30T11:22:33.123+00:00 [pid] LEVEL    message``, tracebacks indented below.

    Only true log lines start in the first column, and no control character gets through: an exception text
    may well hold what a peer sent.
    """

    def __init__(self, colors: bool = False) -> None:
        super().__init__()
        self._colors = colors

    def format(self, record: logging.LogRecord) -> str:
        """One entry, without a newline at its end."""
        text = escape_controls(super().format(record)).replace("\n", "\n    ")
        level = f"{record.levelname:<8}"
        head = f"{iso_time(record.created)} [{record.process}]"
        if self._colors:
            head = f"{_FAINT}{head}{_RESET}"
            level = f"{_LEVELS.get(record.levelname, _FAINT)}{level}{_RESET}"
        return f"{head} {level} {text}"


class AccessFormatter(logging.Formatter):
    """The line itself; with colours, in the colour of its status class."""

    def __init__(self, colors: bool = False) -> None:
        super().__init__()
        self._colors = colors

    def format(self, record: logging.LogRecord) -> str:
        """One entry, without a newline at its end."""
        line = record.getMessage()
        access = getattr(record, "access", None)
        color = _STATUS.get(access.status // 100) if self._colors and access is not None else None
        return f"{color}{line}{_RESET}" if color else line


def wants_colors(stream: TextIO, use_colors: bool | None) -> bool:
    """`use_colors` if set; else whether `stream` is a terminal that shows colours (https://no-color.org)."""
    if use_colors is not None:
        return use_colors
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # no stream at all (pythonw), or closed
        return False
