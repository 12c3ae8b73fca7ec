"""What a serving process says of itself, so that the harness need not believe a command line.

Only the standard library.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import sysconfig
import threading

TOLD = (
    "httptools",
    "h11",
    "uvloop",
    "zttp",
    "servery._speedups",
    "servery._speedups.engine",
    "h2",
    "wsproto",
    "websockets",
)
"""Modules whose presence tells which parser, loop or protocol runs."""


def facts() -> bytes:
    """JSON: the process, its Python, its event loop, and which of `TOLD` are loaded."""
    try:
        loop = (
            f"{type(asyncio.get_running_loop()).__module__}.{type(asyncio.get_running_loop()).__qualname__}"
        )
    except RuntimeError:
        loop = ""
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return json.dumps(
        {
            "pid": os.getpid(),
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
            "free_threaded_build": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
            "gil": gil,
            "loop": loop,
            "loaded": [name for name in TOLD if name in sys.modules],
            "python_threads": threading.active_count(),
        }
    ).encode()
