"""From ``--parser``, ``--io`` and ``--loop`` to the classes that run: nothing is chosen silently.

The only module that may name the compiled core, which is imported only when it is asked for. A choice that
cannot work is a `ConfigError` with the fix in its text, raised before a socket is bound.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .errors import ConfigError, NativeUnavailable

if TYPE_CHECKING:
    import asyncio

    from .config import Config
    from .drivers.service import EngineFactory
    from .http1.writer import Stamp
    from .limits import Limits

SPEEDUPS = Path(__file__).parent / "_speedups"
"""Where the compiled core is, if this install has one, and beside it the facts that the build wrote down."""


class Selection:
    """What runs: the values of the axes, resolved, and how to make the parts."""

    def __init__(self, parser: str, io: str, loop: str) -> None:
        self.parser = parser
        self.io = io
        self.loop = loop

    def engine_factory(self, limits: Limits, stamp: Stamp) -> EngineFactory:
        """A function that makes the engine of a new connection."""
        if self.parser == "native":
            compiled, kept = _native().Http1Engine, _native().KeptStamp(stamp)
            return lambda now: compiled(limits, kept, now)
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
        _native()
    if config.io == "reactor":
        raise ConfigError(
            "--io reactor is not built yet: this version of servery serves on the event loop's transports: "
            "use --io transport"
        )
    if config.loop == "uvloop" and find_spec("uvloop") is None:
        raise ConfigError(
            "--loop uvloop needs the package uvloop, which is not installed: "
            "install it with `python -m pip install uvloop`, or use --loop asyncio"
        )
    return Selection(config.parser, config.io or "transport", config.loop)


def build_facts() -> dict[str, Any]:
    """How this install was built and where it runs, for ``--version --verbose`` and for reports.

    ``native`` is what the compiled core says of itself; if it is null, ``native_missing`` says why.
    """
    gil = getattr(sys, "_is_gil_enabled", None)
    native, missing = _native_facts()
    return {
        "servery": __version__,
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "compiler": platform.python_compiler(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "gil": gil() if gil is not None else True,
        "parsers": ["python", "native"] if native else ["python"],
        "native": native,
        "native_missing": missing,
        "uvloop": _version_of("uvloop"),
        "watchfiles": _version_of("watchfiles"),
    }


def _native() -> ModuleType:
    """The compiled core.

    Raises `NativeUnavailable`, which says what is missing and how to get it.
    """
    try:
        return import_module(f"{__package__}._speedups.engine")
    except ImportError as error:
        raise NativeUnavailable(_how_to_get_it(error)) from error


def _native_facts() -> tuple[dict[str, str] | None, str | None]:
    """(what the compiled core says of itself, None), or (None, why it is not here)."""
    try:
        from ._speedups.engine import __file__, build_info
    except ImportError as error:
        return None, f"{error}; {_how_built()}"
    return {"file": __file__, **build_info()}, None


def _how_to_get_it(error: ImportError) -> str:
    expected = SPEEDUPS / f"engine{EXTENSION_SUFFIXES[0]}"
    others = sorted({path.name for path in SPEEDUPS.glob("engine.*") if path.suffix in (".so", ".pyd")})
    state = "there" if expected.exists() else "missing"
    if others and not expected.exists():
        state += f"; built for another Python: {', '.join(others)}"
    return f"""--parser native needs the compiled core, which cannot be imported: {error}
  expected file: {expected} ({state})
  this install:  {_how_built()}
  to get it:     install a wheel for this platform; or, with a C compiler and the headers of Python, build it:
                 SERVERY_BUILD_NATIVE=require python -m pip install --force-reinstall --no-cache-dir PATH
                 where PATH is a checkout or an sdist of servery
  without it:    --parser python"""


def _how_built() -> str:
    """What the build wrote down of itself, in a line."""
    import json

    try:
        facts = json.loads((SPEEDUPS / "build.json").read_text("utf-8"))
    except FileNotFoundError:
        return "not built: these are sources that no build has touched"
    by = f"; Python {facts['python']}, {facts['platform']}" if "python" in facts else ""
    return f"compiled core: {facts['native']}{by}"


def _version_of(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
