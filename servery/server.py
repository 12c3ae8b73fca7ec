"""One worker process: import the application, bind, start up, serve, stop.

Knows the order of these phases and what each may take; sockets, engines and the application are made
elsewhere. One signal always ends it in bounded time: see `stopping`.
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

from . import logs
from ._version import __version__
from .admin.listener import administered
from .admin.source import ProcessSource
from .apps import LoadedApp, load_app
from .asgi.lifespan import Lifespan, Phase
from .config import Config
from .drivers.balance import Loads
from .drivers.io import Io
from .drivers.service import Service, error_log
from .drivers.wakeup import AsyncioWakeup
from .errors import LifespanError
from .leaving import where
from .listening import Bound, bind, described, listen
from .selection import Selection, select
from .services import make_service
from .sockets import Listener
from .stopping import UNWIND, Stop, race
from .streams import say
from .tls.watch import Watcher, watch

INTERRUPTED = 128
"""Exit code when a second signal ended the stop: this plus the signal's number."""

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)
)


def start_line(config: Config, selection: Selection, workers: int, bound: Bound) -> str:
    """What runs, and where it is reached."""
    where = described(config.scheme, *bound)
    kind = " kind=thread" if config.worker_kind == "thread" else ""
    return f"servery {__version__} · {selection} http={selection.versions} workers={workers}{kind} · {where}"


class Companion(Protocol):
    """Who is told of the phases of a server; all in the thread of its loop."""

    def serving(self, server: Server) -> None:
        """Connections are accepted from now on."""
        ...

    def stopping(self) -> None:
        """The stop has begun."""
        ...


class Server:
    """Serves one application until it is told to stop.

    `started` is true from the moment connections are accepted. Setting `should_exit` from any thread begins a
    graceful stop; setting `force_exit` too ends it at once. `listeners` are the bound sockets, `urls` where
    they are reached.

    A supervisor hands over what is `bound` already, and an application that is `loaded` already;
    `signals` are those that begin a stop, its `companion` is told of the phases, and where several servers
    share a process it, and not each of them, `sets_up_logs`. `loads` are those of the workers that accept
    from the same sockets. Without `own_admin` somebody else has the admin listener.
    """

    def __init__(
        self,
        config: Config,
        *,
        bound: Bound | None = None,
        loaded: LoadedApp | None = None,
        companion: Companion | None = None,
        signals: Collection[int] = STOP_SIGNALS,
        sets_up_logs: bool = True,
        loads: Loads | None = None,
        own_admin: bool = True,
    ) -> None:
        self.config = config
        self.selection = select(config)
        self.started = False
        self.listeners: list[Listener] = []
        self.admin_urls: list[str] = []
        """Where the admin listener is reached."""
        self.exit_code = 0
        self.tls: Watcher | None = None
        self.redirects: list[Listener] = []
        self.left_behind: set[asyncio.Task[Any]] = set()
        """Tasks that ignored their cancellation: only leaving the process ends them."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.service: Service | None = None
        """What the connections share, from the moment they are accepted."""
        self._should_exit = self._force_exit = self._patient = False
        self._wake = asyncio.Event()
        self._hurried = asyncio.Event()
        self._forced = asyncio.Event()
        self._bound = bound
        self.loaded = loaded
        """The application, once it is imported."""
        self._companion = companion
        self._stop_signals = signals
        self._sets_up_logs, self._own_admin = sets_up_logs, own_admin
        self._loads = loads

    @property
    def should_exit(self) -> bool:
        """Whether a graceful stop was asked for."""
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._should_exit = value
        self._call_soon(self._wake.set)

    @property
    def force_exit(self) -> bool:
        """Whether the stop is to end at once."""
        return self._force_exit

    @force_exit.setter
    def force_exit(self, value: bool) -> None:
        self._force_exit = value
        self._call_soon(self._hurried.set)
        self._call_soon(self._forced.set)

    def hurry(self) -> None:
        """Stop without waiting for requests: they are cancelled, the lifespan ends in order. Any thread."""
        self._call_soon(self._hurried.set)
        self.should_exit = True

    def retire(self) -> None:
        """Stop because others go on: a client that is about to use its connection again loses nothing.

        From any thread.
        """
        self._patient = True
        self.should_exit = True

    def snapshot(self) -> dict[str, int]:
        """Counters of this worker: requests begun, those in progress, connections open."""
        service = self.service
        if service is None:
            return {"requests": 0, "in_progress": 0, "connections": 0}
        return {
            "requests": service.count_requests(),
            "in_progress": len(service.cycles),
            "connections": len(service.connections),
        }

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop it runs in, once it does."""
        return self._loop

    @property
    def sockets(self) -> list[Any]:
        """The listening sockets."""
        return [listener.sock for listener in self.listeners]

    @property
    def urls(self) -> list[str]:
        """Where the server is reached: ``http://127.0.0.1:8000``, ``unix:/run/app.sock``."""
        return [listener.url_for(self.config.scheme) for listener in self.listeners]

    def reload_certificates(self) -> None:
        """Read certificates and keys again, now; faults are logged. From any thread or signal handler."""
        if self.tls is not None:
            self.tls.refresh()

    def run(self, *, announce: bool = True) -> int:
        """Serve until a signal; returns the exit code. Raises `StartupError` or `ConfigError`."""
        loop = self.selection.loop_factory(shares_sockets=self._bound is not None)()
        asyncio.set_event_loop(loop)
        executor = ThreadPoolExecutor(thread_name_prefix="servery")
        loop.set_default_executor(executor)
        try:
            with self._signals(loop):
                loop.run_until_complete(self.serve(announce=announce))
        finally:
            # its idle threads end; see `leaving` for the others
            executor.shutdown(wait=False, cancel_futures=True)
            self._close_loop(loop)
            asyncio.set_event_loop(None)
        return self.exit_code

    async def serve(self, *, announce: bool = False) -> None:
        """Serve inside of the running event loop until `should_exit`; signals are the caller's business.

        Cancelling it begins a graceful stop, and `asyncio.CancelledError` follows; once more ends it at once.
        With `announce` the start-up line goes to stderr whatever the log level. Raises `StartupError`.
        """
        # a task of its own, for the stop needs one that is not cancelled
        serving = asyncio.create_task(self._run(announce))
        cancelled: asyncio.CancelledError | None = None
        while not serving.done():
            try:
                await asyncio.wait((serving,))
            except asyncio.CancelledError as error:
                if cancelled is None:
                    self.should_exit = True
                else:
                    self.force_exit = True
                cancelled = error
        serving.result()
        if cancelled is not None:
            raise cancelled

    async def _run(self, announce: bool) -> None:
        self._loop = asyncio.get_running_loop()
        config = self.config
        if self._sets_up_logs:
            logs.configure(config)
        loaded = self.loaded = self.loaded or load_app(config)
        self.tls = watch(config)
        io = self.selection.open_io(self._loop, contextvars.copy_context())
        try:
            self.listeners, self.redirects = self._bound or bind(config)
            source = ProcessSource(self) if self._own_admin else None
            async with administered(config, self.selection, io, source) as admin:
                self.admin_urls = [listener.url for listener in admin]
                await self._serve(loaded, io, announce)
        finally:
            self.started = False
            self.service = None  # which knows the connections and their requests
            self._close_listeners()
            if self.tls is not None:
                self.tls.close()
            io.close()

    async def _serve(self, loaded: LoadedApp, io: Io, announce: bool) -> None:
        loop = asyncio.get_running_loop()
        lifespan = Lifespan(loaded.app, lambda: AsyncioWakeup(loop))
        task = await self._start_lifespan(lifespan)
        if self._should_exit:  # asked to stop while starting up
            await self._end_lifespan(lifespan, task)
            return
        state = lifespan.state if task is not None else None
        certificates = None if self.tls is None else self.tls.certificates
        service = self.service = make_service(
            self.config, self.selection, loaded, state, certificates, self._loads
        )
        acceptors = await listen(io, service, self.config, self.listeners, self.redirects)
        if self.tls is not None:
            self.tls.start()
        self.started = True
        self._announce(announce)
        if self._companion is not None:
            self._companion.serving(self)
        try:
            await self._wake.wait()
        finally:  # in order too when somebody cancels all tasks of the loop
            if self._companion is not None:
                self._companion.stopping()
            stop = Stop(
                service,
                acceptors,
                (*self.listeners, *self.redirects),
                hurried=self._hurried,
                forced=self._forced,
                leave_behind=self._leave_behind,
                patient=self._patient,
            )
            await stop.drain_delay(self.config.drain_delay)
            await stop.run()
            await self._end_lifespan(lifespan, task)

    def _close_listeners(self) -> None:
        for listener in (*self.listeners, *self.redirects):
            listener.close()

    def _announce(self, loudly: bool) -> None:
        line = start_line(self.config, self.selection, 1, (self.listeners, self.redirects))
        if loudly:
            say(line)
        elif self._bound is None:  # who hands sockets over says where they are reached
            error_log.info("%s", line)

    # --- lifespan ------------------------------------------------------------------------------------

    async def _start_lifespan(self, lifespan: Lifespan) -> asyncio.Task[None] | None:
        """Start the application up; ``None`` if it knows no lifespan. Raises `LifespanError`."""
        if self.config.lifespan == "off":
            return None
        task = asyncio.create_task(lifespan.run())
        try:
            await race(lifespan.started(), self._wake, self.config.timeout_lifespan_startup)
        except TimeoutError:
            task.cancel()
            await self._unwind(task)
            raise LifespanError(
                f"the application did not start within {self.config.timeout_lifespan_startup:g} s "
                "(--timeout-lifespan-startup)"
            ) from None
        except LifespanError as error:
            await self._unwind(task)
            if lifespan.unsupported and self.config.lifespan == "auto":
                error_log.debug("the application does not support lifespan", exc_info=lifespan.error)
                return None
            if lifespan.error is not None:
                raise error from lifespan.error
            raise
        return task

    async def _end_lifespan(self, lifespan: Lifespan, task: asyncio.Task[None] | None) -> None:
        if task is None:
            return
        if self._force_exit or lifespan.phase in (Phase.WAITING, Phase.STARTING):
            task.cancel()  # at once; or stopped while starting up: nothing to shut down
        else:
            try:
                await race(lifespan.stopped(), self._forced, self.config.timeout_lifespan_shutdown)
            except TimeoutError:
                error_log.error("the application did not shut down in time (--timeout-lifespan-shutdown)")
                self.exit_code = self.exit_code or 1
            except LifespanError as error:
                error_log.error("%s", error, exc_info=lifespan.error)
                self.exit_code = self.exit_code or 1
        await self._unwind(task)

    async def _unwind(self, task: asyncio.Task[None]) -> None:
        """Let the lifespan call come to its end, then cancel it; each may take `timeout_cancel` seconds."""
        timeout = UNWIND if self._force_exit else self.config.timeout_cancel
        await asyncio.wait((task,), timeout=timeout)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=timeout)
        if not task.done():
            error_log.error(
                "left behind, still running after it was cancelled: the lifespan of the application"
            )
            self._leave_behind(task)

    def _leave_behind(self, task: asyncio.Task[Any]) -> None:
        """Log where `task` is, once."""
        if task not in self.left_behind:
            self.left_behind.add(task)
            self.exit_code = self.exit_code or 1
            error_log.error("still running: %s\n%s", task.get_name(), where(task.get_coro()))

    # --- signals and threads -------------------------------------------------------------------------

    def _call_soon(self, function: Any) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)
        else:
            function()

    def handle_signal(self, number: int) -> None:
        """The first signal begins a graceful stop, the second ends it at once."""
        if not self._should_exit:
            self.should_exit = True
        else:
            self.exit_code = INTERRUPTED + number
            self.force_exit = True

    @contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        numbers = self._stop_signals
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in numbers}
        try:
            for number in numbers:
                try:
                    loop.add_signal_handler(number, self.handle_signal, number)
                except NotImplementedError:  # Windows
                    signal.signal(number, lambda number, _: self.handle_signal(number))
            yield
        finally:
            for number, handler in before.items():
                try:
                    loop.remove_signal_handler(number)
                except NotImplementedError:
                    pass
                signal.signal(number, handler)

    def _close_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the loop; what does not end within a moment is left to the end of the process."""
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        generators = loop.create_task(loop.shutdown_asyncgens())
        timeout = UNWIND if self._force_exit else self.config.timeout_cancel
        _, pending = loop.run_until_complete(asyncio.wait((*tasks, generators), timeout=timeout))
        for task in pending:
            self._leave_behind(task)
        loop.close()
