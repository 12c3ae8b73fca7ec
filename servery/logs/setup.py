"""Setting up the two loggers: built in, or from a log configuration of the operator's own."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ..errors import ConfigError
from .handlers import AccessFormatter, ErrorFormatter, LogHandler, wants_colors

ERROR_LOGGER = "servery.error"
ACCESS_LOGGER = "servery.access"
TRACE = 5
"""The level below DEBUG: every event and message."""

_NAMES = (ERROR_LOGGER, ACCESS_LOGGER)
_LEVELS = {
    "critical": logging.CRITICAL,
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": TRACE,
}


class LogSettings(Protocol):
    """What `configure` reads of the configuration."""

    @property
    def log_level(self) -> str:
        """critical, error, warning, info, debug or trace."""
        ...

    @property
    def log_config(self) -> str | Mapping[str, Any] | None:
        """Path of a .toml or .json file for dictConfig, or its content; ``None`` for what is built in."""
        ...

    @property
    def use_colors(self) -> bool | None:
        """``None``: on terminals that show them."""
        ...

    @property
    def access_log(self) -> bool:
        """Whether there is an access log."""
        ...

    @property
    def access_log_format(self) -> str:
        """text, json or a template."""
        ...


def configure(config: LogSettings) -> None:
    """Set up `servery.error` and `servery.access`, and nothing else unless a log configuration says so.

    Handlers that stood on the two loggers are replaced, so that calling again never doubles a line. A level
    that the log configuration states for one of the two loggers wins over `log_level`. Raises `ConfigError`,
    and then leaves both loggers as they were.
    """
    logging.addLevelName(TRACE, "TRACE")
    level = _level(config.log_level)
    if config.log_config is None:
        _reset()
        _built_in(config)
        stated: frozenset[str] = frozenset()
    else:
        stated = _custom(config.log_config)
    for name in _NAMES:
        if name not in stated:
            logging.getLogger(name).setLevel(level)
    logging.getLogger(ACCESS_LOGGER).disabled = not config.access_log


def reopen() -> None:
    """Let every log file be opened anew by its next line, for programs that rename them away.

    The files of all loggers, the application's too.
    """
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    found = [handler for logger in loggers for handler in getattr(logger, "handlers", ())]
    for handler in dict.fromkeys(found):
        if isinstance(handler, logging.FileHandler):
            handler.acquire()
            try:
                # Not close(): a handler that was closed for good does not open its file again.
                stream, handler.stream = handler.stream, None
                if stream is not None:
                    stream.close()
            finally:
                handler.release()


def _level(name: str) -> int:
    try:
        return _LEVELS[name.lower()]
    except KeyError:
        raise ConfigError(f"log_level: {name!r} is unknown; use one of {', '.join(_LEVELS)}") from None


def _built_in(config: LogSettings) -> None:
    # By hand, not by dictConfig: that closes every handler of the process, the application's among them.
    error = LogHandler(sys.stderr)
    error.setFormatter(ErrorFormatter(wants_colors(sys.stderr, config.use_colors)))
    access = LogHandler(sys.stdout)
    plain = config.access_log_format == "json"
    access.setFormatter(AccessFormatter(not plain and wants_colors(sys.stdout, config.use_colors)))
    for name, handler in ((ERROR_LOGGER, error), (ACCESS_LOGGER, access)):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False


def _custom(source: str | Mapping[str, Any]) -> frozenset[str]:
    """Apply the operator's log configuration; give the names of our loggers whose level it states."""
    import logging.config  # only here: it takes longer to import than everything else of this module

    where = "log_config (a dict)" if isinstance(source, Mapping) else f"log_config {source}"
    settings = _prepared(source if isinstance(source, Mapping) else _load(source, where), where)
    before = [_State.of(name) for name in _NAMES]
    _reset()
    try:
        logging.config.dictConfig(settings)
    except Exception as error:  # factories in the configuration may raise anything
        for state in before:
            state.restore()
        reasons = [str(error), str(error.__cause__)] if error.__cause__ else [str(error)]
        raise ConfigError(
            f"{where}: {': '.join(reasons)}; correct that entry, see the schema of logging.config.dictConfig"
        ) from error
    return frozenset(name for name in _NAMES if "level" in settings["loggers"].get(name, {}))


def _load(path: str, where: str) -> Any:
    if not path.endswith((".toml", ".json")):
        raise ConfigError(f"{where}: the name must end in .toml or .json; write the file in one of these")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror}; give the path of a readable file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: {error}; save the file as UTF-8") from error
    parse: Callable[[str], Any]
    if path.endswith(".toml"):
        from tomllib import loads as parse
    else:
        from json import loads as parse
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}; correct the file there") from error


def _prepared(settings: Any, where: str) -> dict[str, Any]:
    """Fill in what is better than dictConfig's defaults: keep the application's loggers, double no line."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{where}: the top level must be a table of handlers, loggers and so on")
    loggers = settings.get("loggers", {})
    if not isinstance(loggers, Mapping) or not all(isinstance(entry, Mapping) for entry in loggers.values()):
        raise ConfigError(f"{where}: loggers must be a table with one table for each logger")
    loggers = {name: dict(entry) for name, entry in loggers.items()}
    for name in _NAMES:
        if loggers.get(name, {}).get("handlers"):
            loggers[name].setdefault("propagate", False)
    return {"version": 1, "disable_existing_loggers": False, **settings, "loggers": loggers}


def _reset() -> None:
    for name in _NAMES:
        _State(logging.getLogger(name), logging.NOTSET, True, False, []).restore()


class _State(NamedTuple):
    """All that a configuration changes on a logger."""

    logger: logging.Logger
    level: int
    propagate: bool
    disabled: bool
    handlers: list[logging.Handler]

    @classmethod
    def of(cls, name: str) -> _State:
        logger = logging.getLogger(name)
        return cls(logger, logger.level, logger.propagate, logger.disabled, list(logger.handlers))

    def restore(self) -> None:
        for handler in list(self.logger.handlers):
            self.logger.removeHandler(handler)
        for handler in self.handlers:
            self.logger.addHandler(handler)
        self.logger.propagate = self.propagate
        self.logger.disabled = self.disabled
        self.logger.setLevel(self.level)
