"""From ``--parser``, ``--io`` and ``--loop`` to the classes that run: nothing is chosen silently.

The only module that may name the compiled core. A choice that cannot work is a `ConfigError` with the fix in
its text, raised before a socket is bound.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .errors import ConfigError, NativeUnavailable

if TYPE_CHECKING:
    import asyncio

    from .config import Config
    from .drivers.service import EngineFactory
    from .http1.writer import Stamp
    from .limits import Limits


class Selection:
    """What runs: the values of the axes, resolved, and how to make the parts."""

    def __init__(self, parser: str, io: str, loop: str) -> None:
        self.parser = parser
        self.io = io
        self.loop = loop

    def engine_factory(self, limits: Limits, stamp: Stamp) -> EngineFactory:
        """A function that makes the engine of a new connection."""
        from .http1.engine import Http1Engine

        return lambda now: Http1Engine(limits, stamp, now)

    def loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop]:
        """A function that makes the event loop."""
        if self.loop == "uvloop":
            import uvloop

            factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
            return factory
        import asyncio

        return asyncio.new_event_loop

    def __str__(self) -> str:
        """What the server says of itself, to applications and in its start-up line."""
        return f"parser={self.parser} io={self.io} loop={self.loop}"


def select(config: Config) -> Selection:
    """The parts that `config` asks for. Raises `ConfigError` or `NativeUnavailable`."""
    if config.parser == "native":
        raise NativeUnavailable(
            "--parser native needs the compiled core, which this version of servery does not have yet: "
            "use --parser python"
        )
    if config.io == "reactor":
        raise ConfigError(
            "--io reactor needs the compiled core, which this version of servery does not have yet: "
            "use --io transport"
        )
    if config.loop == "uvloop" and find_spec("uvloop") is None:
        raise ConfigError(
            "--loop uvloop needs the package uvloop, which is not installed: "
            "install it with `python -m pip install uvloop`, or use --loop asyncio"
        )
    return Selection(config.parser, config.io or "transport", config.loop)


def build_facts() -> dict[str, Any]:
    """How this install was built and where it runs, for ``--version --verbose`` and for reports."""
    gil = getattr(sys, "_is_gil_enabled", None)
    return {
        "servery": __version__,
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "compiler": platform.python_compiler(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "gil": gil() if gil is not None else True,
        "parsers": ["python"],
        "native": None,
        "uvloop": _version_of("uvloop"),
        "watchfiles": _version_of("watchfiles"),
    }


def _version_of(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
