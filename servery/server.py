"""One worker process: import the application, bind, start up, serve, stop.

Knows the order of these phases and what each may take; sockets, engines and the application are made
elsewhere. One signal always ends it in bounded time: see `Server._stop`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from . import logs
from ._version import __version__
from .addresses import addresses, parse_bind
from .apps import LoadedApp, load_app
from .asgi.lifespan import Lifespan, Phase
from .config import Config
from .drivers.acceptor import Acceptor
from .drivers.io import Io
from .drivers.service import Service, error_log
from .drivers.stamp import DateStamp
from .drivers.wakeup import AsyncioWakeup
from .errors import LifespanError
from .leaving import where
from .listening import described, listen
from .selection import select
from .sockets import Listener, bind_all
from .tls.watch import Watcher, watch

INTERRUPTED = 128
"""Exit code when a second signal ended the stop: this plus the signal's number."""

UNWIND = 0.1
"""Seconds that cancelled tasks may take to unwind when the stop is to end at once."""


class Server:
    """Serves one application until it is told to stop.

    `started` is true from the moment connections are accepted. Setting `should_exit` from any thread begins a
    graceful stop; setting `force_exit` too ends it at once. `listeners` are the bound sockets, `urls` where
    they are reached.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.selection = select(config)
        self.started = False
        self.listeners: list[Listener] = []
        self.exit_code = 0
        self.tls: Watcher | None = None
        self.redirects: list[Listener] = []
        self.left_behind: set[asyncio.Task[Any]] = set()
        """Tasks that ignored their cancellation: only leaving the process ends them."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._should_exit = self._force_exit = False
        self._wake = asyncio.Event()
        self._forced = asyncio.Event()

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
        self._call_soon(self._forced.set)

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

    def run(self) -> int:
        """Serve until a signal; returns the exit code. Raises `StartupError` or `ConfigError`."""
        loop = self.selection.loop_factory()()
        asyncio.set_event_loop(loop)
        executor = ThreadPoolExecutor(thread_name_prefix="servery")
        loop.set_default_executor(executor)
        try:
            with self._signals(loop):
                loop.run_until_complete(self.serve(announce=True))
        finally:
            executor.shutdown(
                wait=False, cancel_futures=True
            )  # its idle threads end; see `leaving` for the others
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
        logs.configure(self.config)
        loaded = load_app(self.config)
        self.tls = watch(self.config)
        io = self.selection.open_io(self._loop, contextvars.copy_context())
        try:
            bind = partial(bind_all, uds_mode=self.config.uds_mode, backlog=self.config.backlog)
            self.listeners = bind(addresses(self.config))
            self.redirects = bind(map(parse_bind, self.config.tls_redirect))
            await self._serve(loaded, io, announce)
        finally:
            self.started = False
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
        service = self._make_service(loaded, lifespan.state if task is not None else None)
        acceptors = await listen(io, service, self.config, self.listeners, self.redirects)
        if self.tls is not None:
            self.tls.start()
        self.started = True
        self._announce(announce)
        try:
            await self._wake.wait()
        finally:  # in order too when somebody cancels all tasks of the loop
            await self._stop(service, acceptors)
            await self._end_lifespan(lifespan, task)

    def _close_listeners(self) -> None:
        for listener in (*self.listeners, *self.redirects):
            listener.close()

    def _make_service(self, loaded: LoadedApp, state: dict[str, Any] | None) -> Service:
        config = self.config
        stamp = DateStamp(config.date_header, config.server_header, config.extra_headers)
        return Service(
            app=loaded.app,
            limits=config.limits,
            make_engine=self.selection.engine_factory(config.limits, stamp),
            handshakes=self.selection.handshake_reader(config, stamp),
            loop=asyncio.get_running_loop(),
            context=contextvars.copy_context(),
            access=logs.AccessLog(config.access_log_format, logging.getLogger(logs.ACCESS_LOGGER)),
            root_path=config.root_path,
            concurrency=config.limit_concurrency,
            state=state,
            runs=f"{self.selection} interface={loaded.interface}",
            tls=None if self.tls is None else self.tls.certificates,
        )

    def _announce(self, loudly: bool) -> None:
        where = described(self.config.scheme, self.listeners, self.redirects)
        line = f"servery {__version__} · {self.selection} http=1.1 workers=1 · {where}"
        if loudly:
            print(line, file=sys.stderr, flush=True)
        else:
            error_log.info("%s", line)

    # --- lifespan ------------------------------------------------------------------------------------

    async def _start_lifespan(self, lifespan: Lifespan) -> asyncio.Task[None] | None:
        """Start the application up; ``None`` if it knows no lifespan. Raises `LifespanError`."""
        if self.config.lifespan == "off":
            return None
        task = asyncio.create_task(lifespan.run())
        try:
            await self._race(lifespan.started(), self._wake, self.config.timeout_lifespan_startup)
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
                await self._race(lifespan.stopped(), self._forced, self.config.timeout_lifespan_shutdown)
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

    def _leave_behind(self, task: asyncio.Task[Any] | None) -> None:
        """Log where `task` is, once."""
        if task is not None and task not in self.left_behind:
            self.left_behind.add(task)
            self.exit_code = self.exit_code or 1
            error_log.error("still running: %s\n%s", task.get_name(), where(task.get_coro()))

    @staticmethod
    async def _race(awaitable: Any, event: asyncio.Event, timeout: float | None) -> None:
        """Wait for `awaitable`, but not beyond `event`: a request to stop. Raises `TimeoutError`."""
        first = asyncio.ensure_future(awaitable)
        second = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait((first, second), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                first.result()
            elif not second.done():
                raise TimeoutError
        finally:
            first.cancel()
            second.cancel()

    # --- the stop ------------------------------------------------------------------------------------

    async def _stop(self, service: Service, acceptors: Sequence[Acceptor]) -> None:
        """End in bounded time: accept no more; finish, tell, cancel, leave behind; each phase is logged.

        Requests in progress are answered with ``Connection: close``, idle connections closed at once. After
        `Limits.stream_grace` the requests still running are told ``http.disconnect``, after
        `Limits.graceful_timeout` they are cancelled, and what ignores even that is left behind after
        `Limits.cancel_timeout`.
        """
        limits = service.limits
        service.stopping = True
        for acceptor in acceptors:
            await acceptor.stop()
        self._close_listeners()
        now = time.monotonic()
        for connection in list(service.connections):
            connection.stop(now)
        if service.cycles:
            error_log.info("stopping: %s", _open_work(service))
        grace = min(limits.stream_grace, limits.graceful_timeout)
        if not await self._idle(service, grace):
            error_log.info("stop: after %g s telling the applications to end: %s", grace, _open_work(service))
            for connection in list(service.connections):
                connection.told_to_end()
            if not await self._idle(service, limits.graceful_timeout - grace):
                await self._cancel(service)
        for connection in list(service.connections):
            connection.abort()
        service.clock.close()

    async def _cancel(self, service: Service) -> None:
        if service.cycles:
            when = "at once" if self._force_exit else "after the graceful time-out"
            error_log.warning("stop: cancelling %s: %s", when, _open_work(service))
        tasks = [cycle.task for cycle in service.cycles if cycle.task is not None]
        for task in tasks:
            task.cancel()
        await self._idle(service, service.limits.cancel_timeout)
        if self._force_exit and tasks:
            await asyncio.wait(tasks, timeout=UNWIND)
        if service.cycles:
            error_log.error(
                "stop: left behind, still running after they were cancelled: %s", _open_work(service)
            )
            for cycle in service.cycles:
                self._leave_behind(cycle.task)

    async def _idle(self, service: Service, timeout: float) -> bool:
        """Wait until no connection and no request is left; false after `timeout` seconds or when forced."""
        try:
            await self._race(service.idle.wait(), self._forced, timeout)
        except TimeoutError:
            return False
        return service.idle.is_set()

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
        numbers = [signal.SIGINT, signal.SIGTERM]
        if hasattr(signal, "SIGBREAK"):
            numbers.append(signal.SIGBREAK)
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


def _open_work(service: Service) -> str:
    return f"{len(service.cycles)} requests in progress, {len(service.connections)} connections open"
