"""A connection on an asyncio transport (asyncio's own or uvloop's): octets to the engine, events to cycles,
output to the transport.

Knows transports, flow control and time; the protocol is the engine's business, the application the cycle's.
Data flows one way: `data_received` -> engine -> `_dispatch` -> cycle -> engine -> `flush`. After every turn
`_settle` makes the transport what the engine's flags say: paused, half-closed, closed; it keeps no counters,
so no wake-up can get lost.
"""

from __future__ import annotations

import asyncio
import os
from time import monotonic
from typing import Any, cast

from ..addresses import peer_name, server_name
from ..asgi.http_cycle import HttpCycle
from ..asgi.scope import ConnectionInfo, http_scope
from ..engine import NEVER, FileSending
from ..errors import ClientDisconnected
from ..events import BodyReceived, ConnectionFailed, Event, RequestReceived
from .sendfile import FileToSend, send_file
from .service import Service, error_log
from .transports import prepare, reset, set_water_marks
from .wakeup import AsyncioWakeup

CORK_SIZE = 65_536
"""Octets of content that are kept back at most, for the rest of one turn of the loop."""


class AsyncioConnection(asyncio.Protocol):
    """One connection. It is the cycle's `Port` and the clock's `Timed`."""

    __slots__ = (
        *("_engine", "_info", "_service", "_transport", "armed", "writable"),
        *("_corked", "_cycle", "_file_waits", "_unsent", "_write_deadline"),
        *("_advance_due", "_closing", "_fin_sent", "_flush_due", "_lost", "_paused", "_settling"),
    )

    def __init__(self, service: Service) -> None:
        self._service = service
        self._engine = service.make_engine(monotonic())
        self._cycle: HttpCycle | None = None
        self.armed = NEVER
        self.writable = True
        self._write_deadline = NEVER
        self._unsent = self._corked = 0
        self._paused = self._lost = self._fin_sent = self._closing = False
        self._advance_due = self._file_waits = self._settling = self._flush_due = False

    # --- from the transport --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection was accepted."""
        transport = cast(asyncio.Transport, transport)  # uvloop's are, but do not say so
        self._transport = transport
        service = self._service
        prepare(transport, service.limits.write_buffer)
        self._info = ConnectionInfo(
            peer_name(transport.get_extra_info("peername")),
            server_name(transport.get_extra_info("sockname")),
            "http",
            service.root_path,
            service.state,
            service.runs,
        )
        service.connected(self)
        if service.stopping:
            self.stop(monotonic())
        else:
            service.clock.arm(self, self._engine.deadline)

    def data_received(self, data: bytes) -> None:
        """Octets from the peer."""
        now = monotonic()
        events = self._engine.receive(data, now)
        if events:
            self._dispatch(events, now)
        self._settle()

    def eof_received(self) -> bool:
        """The peer has finished sending; it may still read (RFC 9112 section 9.6), so the transport stays
        open.
        """
        now = monotonic()
        self._dispatch(self._engine.receive(b"", now), now)
        self._settle()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed, by whom and for what reason ever: let go of everything."""
        self._lost = True
        self.writable = True
        service = self._service
        service.clock.disarm(self)
        service.disconnected(self)
        self._lose_cycle()

    def pause_writing(self) -> None:
        """More than the high-water mark waits for the peer: it has `Limits.write_timeout` to take some."""
        self.writable = False
        self._watch_writing(monotonic())

    def resume_writing(self) -> None:
        """Less than the low-water mark waits."""
        self.writable = True
        if not self._closing:
            self._write_deadline = NEVER
        if self._cycle is not None:
            self._cycle.wake()
        self._settle()

    # --- from the clock and the server -----------------------------------------------------------------

    def on_deadline(self, now: float) -> None:
        """The time has come that the clock was armed for; it may have moved on since."""
        if self._write_deadline <= now:
            unsent = self._transport.get_write_buffer_size()
            if self._file_waits or (unsent and unsent >= self._unsent):
                self.abort()
                return
            self._watch_writing(now)
        if self._engine.deadline <= now:
            self._dispatch(self._engine.expire(now), now)
        self._settle()

    def stop(self, now: float) -> None:
        """Finish what is in progress, then close; close at once if nothing is."""
        self._engine.stop(now)
        self._settle()

    def told_to_end(self) -> None:
        """The stream grace is over: ``receive()`` of the request in progress says ``http.disconnect``."""
        if self._cycle is not None:
            self._cycle.disconnected(lost=False)

    def abort(self) -> None:
        """Reset the connection: the peer must not take what it has for complete."""
        reset(self._transport)

    # --- from the cycle ------------------------------------------------------------------------------

    def wakeup(self) -> AsyncioWakeup:
        """A fresh wake-up."""
        return AsyncioWakeup(self._service.loop)

    def flush_soon(self, size: int) -> None:
        """Write at the end of this turn of the loop, with what else is queued until then, or when it is much.

        An application that sends small parts one after the other so costs one system call, not one for each.
        """
        self._corked += size
        if self._corked > CORK_SIZE:
            self.flush()
        elif not self._flush_due:
            self._flush_due = True
            self._service.flush_later(self)

    def end_of_turn(self) -> None:
        """The turn of the loop in which `flush_soon` was called is over."""
        self._flush_due = False
        if self._corked and not self._lost:
            self.flush()

    def flush(self) -> None:
        """Write what the engine has queued."""
        self._corked = 0
        out = self._engine.take_output()
        transport = self._transport
        if not out or self._lost:
            return
        if transport.is_closing():
            self._lose_cycle()  # now: an application that only sends would never let `connection_lost` run
        elif len(out) == 1:
            transport.write(out[0])
        else:
            transport.writelines(out)
            high = self._service.limits.write_buffer
            if self.writable and transport.get_write_buffer_size() > high:
                set_water_marks(transport, high)  # asyncio before 3.12.9 and 3.13.2 forgets pause_writing()

    def consumed(self) -> None:
        """The application took request body octets."""
        if self._paused:
            self._settle()

    def open_file(self, file: Any, offset: int | None, count: int | None) -> FileToSend:
        """Open a path, or take an open file or descriptor."""
        return FileToSend(file, offset, count)

    async def send_file(self, sending: FileSending) -> None:
        """Write an open file after what was flushed."""
        assert isinstance(sending, FileToSend)
        try:
            await send_file(self, self._transport, sending)
        except ClientDisconnected:
            if not self._lost:  # the kernel told it first
                self._lose_cycle()
                self.abort()
            raise

    @property
    def reachable(self) -> bool:
        """Whether the response in progress can still reach the peer."""
        return self._cycle is not None and not self._lost and not self._transport.is_closing()

    async def drained(self) -> None:
        """Wait until the transport has handed everything to the kernel."""
        self.flush()
        transport = self._transport
        if transport.get_write_buffer_size():
            set_water_marks(transport, 0)  # calls pause_writing
            try:
                while not self.writable and self._cycle is not None:
                    await self._cycle.wait()
            finally:
                set_water_marks(transport, self._service.limits.write_buffer)
        if not self.reachable:
            raise ClientDisconnected("the client has closed the connection")

    async def kernel_ready(self) -> None:
        """Wait until the socket takes more of a file, for `Limits.write_timeout` at most."""
        loop = self._service.loop
        fd = os.dup(
            self._transport.get_extra_info("socket").fileno()
        )  # loops refuse a transport's own descriptor
        self._file_waits = True
        self._watch_writing(monotonic())
        try:
            loop.add_writer(fd, self._file_ready)
            try:
                while self._file_waits and self._cycle is not None:
                    await self._cycle.wait()
            finally:
                loop.remove_writer(fd)
        finally:
            os.close(fd)
            self._file_waits = False
            self._write_deadline = NEVER

    def _file_ready(self) -> None:
        self._file_waits = False
        if self._cycle is not None:
            self._cycle.wake()

    def response_complete(self, cycle: HttpCycle) -> None:
        """The response is queued to its end: log it, and go on with what the peer has sent since."""
        if self._cycle is cycle:
            self._cycle = None
            if self._service.access is not None:
                self._log(cycle, aborted=self._engine.closing)
            self._advance_due = True
            if not self._settling:  # an eager task answers while its request is being dispatched
                self._settle()

    def app_failed(self, cycle: HttpCycle, error: Exception) -> None:
        """The application raised `error`, or returned too early."""
        self._service.app_failed(cycle, error)

    def finished(self, cycle: HttpCycle) -> None:
        """The application call has ended."""
        cycle.task = None
        self._service.finished(cycle)

    def debug(self, info: Any) -> None:
        """The application sent ``http.response.debug``."""
        error_log.debug("http.response.debug: %r", info)

    # --- inside --------------------------------------------------------------------------------------

    def _dispatch(self, events: list[Event], now: float) -> None:
        begun = None
        for event in events:
            if type(event) is RequestReceived:
                begun = self._cycle = self._begin(event, now)
            elif type(event) is BodyReceived:
                if self._cycle is not None:
                    self._cycle.body_received(event.data, event.more, event.trailers)
            elif type(event) is ConnectionFailed:
                self._failed(event)
            elif self._cycle is not None:
                self._cycle.disconnected(lost=False)
        if begun is not None:  # an eager task runs at once: it shall know what the engine knows
            self._start(begun)

    def _begin(self, request: RequestReceived, now: float) -> HttpCycle:
        engine = self._engine
        request_id = self._service.next_request_id()
        scope = http_scope(request, self._info, request_id, engine.takes_trailers)
        return HttpCycle(scope, request, engine, self, now, request_id)

    def _start(self, cycle: HttpCycle) -> None:
        """Run the application. What was read behind the head may have failed the request already."""
        service = self._service
        if service.concurrency is not None and service.full:
            if self._cycle is cycle:
                self._refuse(cycle)
            return
        service.cycles.add(cycle)
        task = service.loop.create_task(
            cycle.begin(service.app), name=cycle.request_id, context=service.context.copy()
        )
        if not task.done():
            cycle.task = task

    def _refuse(self, cycle: HttpCycle) -> None:
        """More requests than `--limit-concurrency` are in progress."""
        self._cycle = None
        cycle.status = 503
        self._engine.answer(cycle.request.stream, 503, "Service Unavailable", b"retry-after: 1\r\n")
        self.flush()
        self._log(cycle, aborted=False)
        self._advance_due = True

    def _failed(self, event: ConnectionFailed) -> None:
        client = self._info.client
        cycle = self._cycle
        error_log.debug("%s: %s", client, event.error)
        if cycle is None:
            self._service.log_refusal(client, event.request_line, event.replied)
            return
        self._cycle = None
        cycle.status = event.replied or cycle.status
        self._log(cycle, aborted=True)
        cycle.disconnected(lost=True)

    def _lose_cycle(self) -> None:
        cycle = self._cycle
        if cycle is not None:
            self._cycle = None
            self._log(cycle, aborted=True)
            cycle.disconnected(lost=True)

    def _log(self, cycle: HttpCycle, aborted: bool) -> None:
        self._service.log_request(cycle, self._info.client, self._engine.content_sent, aborted)

    def _settle(self) -> None:
        """Go on as far as possible; make the transport what engine and cycle say; tell the clock what is due
        sooner.
        """
        engine = self._engine
        if self._advance_due:
            self._settling = True
            while self._advance_due and (self.writable or engine.closing):
                self._advance_due = False  # not before: the peer shall first read what it has asked for
                now = monotonic()
                events = engine.advance(now)
                if events:
                    self._dispatch(events, now)
            self._settling = False
        cycle = self._cycle
        full = cycle is not None and cycle.buffered > self._service.limits.body_buffer
        if self._paused is (engine.wants_read and not full):
            self._switch_reading()
        if engine.half_closed or engine.closing:
            self._wind_up()
        if engine.deadline < self.armed and not self._lost:
            self._service.clock.arm(self, engine.deadline)

    def _switch_reading(self) -> None:
        self._paused = not self._paused
        transport = self._transport
        if not transport.is_closing():
            switch = transport.pause_reading if self._paused else transport.resume_reading
            # outside of the application's context: a callback made here must not keep a request's variables
            self._service.context.run(switch)
        self._engine.body_paused(self._paused, monotonic())

    def _wind_up(self) -> None:
        """Last words, then FIN and a lingering close, or the close itself."""
        self.flush()
        engine = self._engine
        transport = self._transport
        if transport.is_closing():
            return
        if engine.closing:
            self._closing = True
            if engine.reset:
                self.abort()
            else:
                transport.close()  # after what waits is written
                self._watch_writing(monotonic())
        elif not self._fin_sent:
            self._fin_sent = True
            transport.write_eof()

    def _watch_writing(self, now: float) -> None:
        """The peer must take something within `Limits.write_timeout`, again and again."""
        self._unsent = self._transport.get_write_buffer_size()
        if not self._unsent and not self._file_waits:
            self._write_deadline = NEVER
            return
        self._write_deadline = now + self._service.limits.write_timeout
        if self._write_deadline < self.armed:
            self._service.clock.arm(self, self._write_deadline)
