"""The access log: one line per request, and no work at all while it is off."""

from __future__ import annotations

import logging

from ..errors import ConfigError
from .escaping import escape
from .formats import json_line, text_line
from .record import AccessRecord
from .template import Line, compile_template

_FORMATS: dict[str, Line] = {"text": text_line, "json": json_line}


class AccessLog:
    """Writes an `AccessRecord` as one line at INFO.

    `format` is ``text``, ``json`` or a template with %-atoms. The log record that handlers get carries the
    `AccessRecord` as its attribute ``access``. Raises `ConfigError` for a format that cannot work.
    """

    def __init__(self, format: str, logger: logging.Logger) -> None:
        self._line = compile_format(format)
        self._logger = logger
        self.lost = 0
        """Lines that a handler or the format failed on."""

    @property
    def enabled(self) -> bool:
        """False while nothing would be written: then do not even make a record."""
        return self._logger.isEnabledFor(logging.INFO)

    def log(self, record: AccessRecord) -> None:
        """Write one line. Never raises: a log that fails must not break a response."""
        if not self.enabled:
            return
        logger = self._logger
        try:
            # Not logger.info(): it walks the stack for a caller that is always this one.
            entry = logger.makeRecord(
                logger.name, logging.INFO, "", 0, self._line(record), (), None, extra={"access": record}
            )
            logger.handle(entry)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.lost += 1
        if self.lost > 1:
            return
        try:
            logging.getLogger("servery.error").warning(
                "access log: a line was lost (%s); look at the handlers of %r. Said only once.",
                escape(repr(error)),
                self._logger.name,
            )
        except Exception:
            pass  # the error log is broken as well: there is nobody left to tell


def compile_format(format: str) -> Line:
    """Give the function that writes a record in `format`. Raises `ConfigError` if there is no such format."""
    if format in _FORMATS:
        return _FORMATS[format]
    if "%" in format:
        return compile_template(format)
    raise ConfigError(
        f'access log format: "{escape(format)}" is unknown; use "text", "json", or a template such as'
        " '%h %t \"%r\" %s %B %L'"
    )
