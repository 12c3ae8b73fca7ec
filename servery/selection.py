"""From ``--parser``, ``--io`` and ``--loop`` to the classes that run: nothing is chosen silently.

The only module that may name the compiled core, which is imported only when it is asked for. A choice that
cannot work is a `ConfigError` with the fix in its text, raised before a socket is bound.
"""

from __future__ import annotations

import platform
import select as readiness
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .errors import ConfigError, NativeUnavailable

if TYPE_CHECKING:
    import asyncio
    from contextvars import Context

    from .config import Config
    from .drivers.contracts import EngineFactory, HandshakeReader, StreamsFactory, TlsSession
    from .drivers.io import Begin, Io
    from .drivers.names import ConnectionNames
    from .drivers.service import Service
    from .engine import Stamp
    from .limits import Limits
    from .metrics.tally import RequestTally

SPEEDUPS = Path(__file__).parent / "_speedups"
"""Where the compiled core is, if this install has one, and beside it the facts that the build wrote down."""

HAS_READINESS = hasattr(readiness, "epoll") or hasattr(readiness, "kqueue")
"""Whether this platform has something that a reactor can stand on."""

_ENGINES = ("engine", "websocket", "tally")

MODULES: dict[tuple[str, str], tuple[str, ...]] = {
    ("python", "transport"): (),
    ("python", "reactor"): ("reactor", "records"),
    ("native", "transport"): _ENGINES,
    ("native", "reactor"): (
        *(*_ENGINES, "records", "reactor", "shared", "calls"),
        *("http_cycle", "websocket_cycle", "connection"),
    ),
}
"""What of the compiled core runs, by parser and io."""

HTTP2_MODULES = {"transport": ("hpack", "http2"), "reactor": ("hpack", "http2", "http2_connection")}
"""What of it runs besides, with HTTP/2, by io: it is there if nghttp2 was when it was built."""


class Selection:
    """What runs: the values of the axes, resolved, and how to make the parts."""

    def __init__(self, parser: str, io: str, loop: str, tls: bool, http2: bool) -> None:
        self.parser = parser
        self.io = io
        self.loop = loop
        self.tls = tls
        self.http2 = http2

    def engine_factory(self, limits: Limits, stamp: Stamp) -> EngineFactory:
        """A function that makes the engine of a new connection."""
        if self.parser == "native":
            from ._speedups.engine import Http1Engine as Compiled
            from ._speedups.engine import KeptStamp

            kept = KeptStamp(stamp)
            return lambda now: Compiled(limits, kept, now)
        from .http1.engine import Http1Engine

        return lambda now: Http1Engine(limits, stamp, now)

    def http2_factory(self, config: Config, stamp: Stamp) -> StreamsFactory | None:
        """A function that makes the engine of a new connection of HTTP/2; ``None`` if nobody speaks it."""
        if not config.uses_http2:
            return None
        limits = config.limits
        if self.parser == "native":
            from ._speedups.engine import KeptStamp
            from ._speedups.http2 import Http2Engine as Compiled

            kept = KeptStamp(stamp)
            return lambda now: Compiled(limits, kept, now)
        from .http2.engine import Http2Engine
        from .http2.library import load

        library = load()
        return lambda now: Http2Engine(library, limits, stamp, now)

    def handshake_reader(self, config: Config, stamp: Stamp) -> HandshakeReader:
        """A function that reads the handshakes of WebSockets, and makes their engines."""
        from functools import partial

        from .http1.writer import switching_head
        from .websocket.deflate import DeflateSettings
        from .websocket.handshake import Handshakes

        deflate = DeflateSettings(
            config.ws_deflate_window_bits,
            config.ws_deflate_context_takeover,
            config.ws_deflate_memory_level,
            config.ws_deflate_min_size,
        )
        compresses = config.ws_per_message_deflate
        agreed = deflate if compresses else None
        write_head = partial(switching_head, stamp=stamp)
        if self.parser == "native":
            from ._speedups.websocket import WebSocketEngine

            return Handshakes(config.limits, agreed, write_head, WebSocketEngine)
        return Handshakes(config.limits, agreed, write_head)

    def tally(self) -> RequestTally:
        """What counts the requests of a worker."""
        if self.parser == "native":
            from ._speedups.tally import Tally as Compiled

            return Compiled()
        from .metrics.tally import Tally

        return Tally()

    def open_io(self, loop: asyncio.AbstractEventLoop, context: Context) -> Io:
        """Who owns the sockets of a worker that runs in `loop`, which calls back in `context`.

        Raises `ConfigError` if that loop cannot tell when a descriptor is ready.
        """
        from .drivers.io import ReactorIo, TransportIo

        if self.io == "transport":
            return TransportIo(loop)
        from ._speedups.reactor import Listener, Reactor

        try:
            reactor = Reactor(loop, context)
        except NotImplementedError as error:
            raise ConfigError(
                "--io reactor needs an event loop with add_reader(), and "
                f"{type(loop).__qualname__} has none: use --io transport"
            ) from error
        return ReactorIo(
            loop,
            lambda sock, begin, exhausted: Listener(reactor, sock, begin, exhausted),
            lambda service: self._beginner(reactor, service),
            reactor.close,
        )

    def _beginner(self, reactor: Any, service: Service) -> Begin:
        """What takes over the connections that `reactor` accepts."""
        from .drivers.protocols import protocol_factory

        if self.parser == "native":
            from ._speedups.connection import Connection, take_over
            from ._speedups.shared import Shared

            shared = Shared(service)
            if service.preamble is None and service.tls is None and not service.h2c:
                return lambda fd, peer, own: Connection(reactor, fd, shared, peer, own).start()

            def go_on(
                transport: Any, names: ConnectionNames | None, ahead: bytes, session: TlsSession | None
            ) -> None:
                client, server, tls = names or _names_of(transport)
                take_over(transport, shared, client, server).start(ahead, tls, session)

            def negotiated(transport: Any, names: ConnectionNames | None, ahead: bytes, http2: bool) -> None:
                if not http2:
                    go_on(transport, names, ahead, None)
                    return
                from ._speedups.http2_connection import Http2Connection

                client, server, tls = names or _names_of(transport)
                Http2Connection(reactor, transport.detach(), shared, client, server).start(ahead, tls)

            protocol = protocol_factory(service, go_on, negotiated)
        else:
            protocol = protocol_factory(service)
        from ._speedups.reactor import Transport

        return lambda fd, peer, own: Transport(reactor, fd, protocol(), peer, own).start()

    def loop_factory(self, shares_sockets: bool = False) -> Callable[[], asyncio.AbstractEventLoop]:
        """A function that makes the event loop; `shares_sockets` says that other processes accept, too."""
        if self.loop == "uvloop":
            import uvloop

            factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
            return factory
        import asyncio

        if shares_sockets and sys.platform == "win32":
            # the proactor loop's sockets belong to its completion port, and there can be only one
            return asyncio.SelectorEventLoop
        return asyncio.new_event_loop

    @property
    def versions(self) -> str:
        """The versions of HTTP, for the start-up line."""
        return "1.1,2" if self.http2 else "1.1"

    def __str__(self) -> str:
        """What the server says of itself, to applications and in its start-up line."""
        return f"parser={self.parser} io={self.io} loop={self.loop}{' tls=ssl' if self.tls else ''}"


def _names_of(transport: Any) -> tuple[Any, Any, bool]:
    """Both ends of a transport of the reactor, as it says them itself, and that there is no TLS before it."""
    return transport.get_extra_info("peername"), transport.get_extra_info("sockname"), False


def select(config: Config) -> Selection:
    """The parts that `config` asks for. Raises `ConfigError` or `NativeUnavailable`."""
    if config.io == "reactor" and not HAS_READINESS:
        raise ConfigError(
            "--io reactor needs epoll or kqueue, and this platform has neither: use --io transport"
        )
    io = config.io or ("reactor" if config.parser == "native" and HAS_READINESS else "transport")
    try:
        for module in MODULES[config.parser, io]:
            import_module(f"{__package__}._speedups.{module}")
    except ImportError as error:
        raise NativeUnavailable(_how_to_get_it(config, module, error)) from error
    if config.loop == "uvloop" and find_spec("uvloop") is None:
        raise ConfigError(
            "--loop uvloop needs the package uvloop, which is not installed: "
            "install it with `python -m pip install uvloop`, or use --loop asyncio"
        )
    if config.uses_http2:
        _check_http2(config, io)
    return Selection(config.parser, io, config.loop, config.uses_tls, config.uses_http2)


def _check_http2(config: Config, io: str) -> None:
    flag = "--http2" if config.http2 else "--h2c"
    if config.parser == "native":
        try:
            for module in HTTP2_MODULES[io]:
                import_module(f"{__package__}._speedups.{module}")
        except ImportError as error:
            raise NativeUnavailable(_how_to_get_http2(flag, error)) from error
        return
    from .http2.library import load

    try:
        load()
    except ImportError as error:
        raise ConfigError(
            f"{flag} needs the package h2, which cannot be imported ({error}): install it with "
            f"`python -m pip install 'h2>=4.2'`, or servery with the extra http2; or drop {flag}"
        ) from error


def build_facts() -> dict[str, Any]:
    """How this install was built and where it runs, for ``--version --verbose`` and for reports.

    ``native`` is what the compiled core says of itself, its modules among it, and what its reactor stands on
    (``poll``); if it is null, ``native_missing`` says why.
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
        "ios": ["transport", "reactor"] if native and "poll" in native else ["transport"],
        "native": native,
        "native_missing": missing,
        "uvloop": _version_of("uvloop"),
        "h2": _version_of("h2"),
        "watchfiles": _version_of("watchfiles"),
    }


def _native_facts() -> tuple[dict[str, Any] | None, str | None]:
    """(what the compiled core says of itself, None), or (None, why it is not here)."""
    wanted = MODULES["native", "reactor" if HAS_READINESS else "transport"]
    try:
        modules = {name: import_module(f"{__package__}._speedups.{name}") for name in wanted}
    except ImportError as error:
        return None, f"{error}; {_how_built()}"
    facts: dict[str, Any] = {"modules": {name: module.__file__ for name, module in modules.items()}}
    facts |= modules["engine"].build_info()
    if "reactor" in modules:
        facts["poll"] = modules["reactor"].POLL
    return facts | _http2_facts(facts["modules"]), None


def _http2_facts(modules: dict[str, str | None]) -> dict[str, Any]:
    """``http2``: the library of the compiled core's HTTP/2; if it is null, ``http2_missing`` says why.

    Its modules are added to `modules`.
    """
    try:
        found = {
            name: import_module(f"{__package__}._speedups.{name}")
            for name in HTTP2_MODULES["reactor" if HAS_READINESS else "transport"]
        }
    except ImportError as error:
        return {"http2": None, "http2_missing": f"{error}; {_how_built()}"}
    modules |= {name: module.__file__ for name, module in found.items()}
    return {"http2": f"nghttp2 {found['hpack'].library_version()}"}


def _how_to_get_it(config: Config, module: str, error: ImportError) -> str:
    """Why `module` is not there, and what to do."""
    flag, instead = "--parser native", "--parser python"
    if config.parser == "python":
        flag, instead = "--io reactor", "--io transport"
    elif config.io == "reactor":
        instead += " --io transport"
    expected = SPEEDUPS / f"{module}{EXTENSION_SUFFIXES[0]}"
    others = sorted({path.name for path in SPEEDUPS.glob(f"{module}.*") if path.suffix in (".so", ".pyd")})
    state = "there" if expected.exists() else "missing"
    if others and not expected.exists():
        state += f"; built for another Python: {', '.join(others)}"
    return f"""{flag} needs the compiled core, which cannot be imported: {error}
  expected file: {expected} ({state})
  this install:  {_how_built()}
  to get it:     install a wheel for this platform; or, with a C compiler and the headers of Python, build it:
                 SERVERY_BUILD_NATIVE=require python -m pip install --force-reinstall --no-cache-dir PATH
                 where PATH is a checkout or an sdist of servery
  without it:    {instead}"""


def _how_to_get_http2(flag: str, error: ImportError) -> str:
    """Why the compiled core has no HTTP/2, and what to do."""
    return f"""--parser native {flag} needs a part of the compiled core that cannot be imported: {error}
  this install:  {_how_built()}
  to get it:     install a wheel for this platform; or install nghttp2 with its headers (Debian:
                 libnghttp2-dev, Fedora: libnghttp2-devel, Homebrew: libnghttp2) and build it:
                 SERVERY_BUILD_HTTP2=require SERVERY_BUILD_NATIVE=require \\
                 python -m pip install --force-reinstall --no-cache-dir PATH
                 where PATH is a checkout or an sdist of servery
  without it:    --parser python, or drop {flag}"""


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
