"""The two logs: `servery.error` (stderr) and `servery.access` (stdout), both plain standard `logging`.

`configure` sets them up, `AccessLog` writes one line per request, `escape` makes a peer's bytes harmless.
`LogHandler`, `ErrorFormatter` and `AccessFormatter` are public so that a log configuration can name them::

    [handlers.access]
    class = "servery.logs.LogHandler"
    stream = "ext://sys.stdout"

Writing is synchronous. Where a reader stops reading, `LogHandler` loses lines (on Linux); other handlers hold
the server up: put a `logging.handlers.QueueHandler` in front of them.
"""

from __future__ import annotations

from .access import AccessLog
from .escaping import escape
from .handlers import AccessFormatter, ErrorFormatter, LogHandler
from .record import AccessRecord, WebSocketTraffic
from .setup import ACCESS_LOGGER, ERROR_LOGGER, TRACE, LogSettings, configure, reopen

__all__ = [
    "ACCESS_LOGGER",
    "ERROR_LOGGER",
    "TRACE",
    "AccessFormatter",
    "AccessLog",
    "AccessRecord",
    "ErrorFormatter",
    "LogHandler",
    "LogSettings",
    "WebSocketTraffic",
    "configure",
    "escape",
    "reopen",
]
