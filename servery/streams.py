"""The standard streams: that nobody reads them, or their disk is full, is no reason to stop or to fail."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def say(text: str) -> None:
    """Print a line for the operator on stderr; that it cannot be written is no reason to stop."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass


def release_streams() -> None:
    """Write what is buffered for the standard streams, or drop it: at the exit it would spoil the code.

    To be called by processes that do not call `leave_within`, which does it.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, ValueError):
            pass  # there is none, or it is closed
        except OSError:
            silence(stream)


def silence(stream: TextIO) -> None:
    """Point the standard stream at nothing: its reader is gone for good, or its disk is full at the end."""
    if stream not in (sys.stdout, sys.stderr):
        return
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
    except (OSError, ValueError):
        pass  # no descriptor behind it, or closed already
