"""The half of a connection that writes: output to the transport, back-pressure, files, the time that a peer
may take.

Knows transports and their write buffers; what is written is the engine's business, and what is read that of
`servery.drivers.transported`, which is built on top of this one.
"""

from __future__ import annotations

import asyncio
import os
from time import monotonic
from typing import Any

from ..engine import NEVER, Engine, FileSending
from ..errors import ClientDisconnected
from .contracts import Cycle
from .sendfile import FileToSend, send_file
from .service import Service
from .transports import reset, set_water_marks
from .wakeup import AsyncioWakeup

CORK_SIZE = 65_536
"""Octets of content that are kept back at most, for the rest of one turn of the loop."""


class WritingHalf(asyncio.Protocol):
    """The part of a connection that cycles drive: see `servery.engine.Port`.

    `_cycle` is what the application runs in now, or ``None``; `_transport` is there once the connection is
    made.
    """

    __slots__ = (
        *("_cycle", "_engine", "_service", "_transport", "armed", "writable"),
        *("_closing", "_corked", "_file_waits", "_fin_sent", "_flush_due", "_lost", "_unsent"),
        "_write_deadline",
    )

    def __init__(self, service: Service, engine: Engine) -> None:
        self._service = service
        self._engine = engine
        self._transport: asyncio.Transport
        self._cycle: Cycle | None = None
        self.armed = NEVER
        self.writable = True
        self._write_deadline = NEVER
        self._unsent = self._corked = 0
        self._closing = self._file_waits = self._fin_sent = self._flush_due = self._lost = False

    def settle(self) -> None:
        """Make the transport what engine and cycle say."""
        raise NotImplementedError

    def on_deadline(self, now: float) -> None:
        """The time has come that the clock was armed for."""
        raise NotImplementedError

    def _lose_cycle(self) -> None:
        """Nothing that the cycle sends can reach the peer any more."""
        raise NotImplementedError

    # --- from the transport --------------------------------------------------------------------------

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
        self.settle()

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

    # --- the end -------------------------------------------------------------------------------------

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
            try:
                transport.write_eof()
            except OSError:  # the peer has reset the connection, which the loop does not know yet
                self.abort()

    def abort(self) -> None:
        """Reset the connection: the peer must not take what it has for complete."""
        reset(self._transport)

    def _watch_writing(self, now: float) -> None:
        """The peer must take something within `Limits.write_timeout`, again and again."""
        self._unsent = self._transport.get_write_buffer_size()
        if not self._unsent and not self._file_waits:
            self._write_deadline = NEVER
            return
        self._write_deadline = now + self._service.limits.write_timeout
        if self._write_deadline < self.armed:
            self._service.clock.arm(self, self._write_deadline)

    def _watch_deadline(self, now: float) -> bool:
        """Whether the peer has taken nothing since it was last looked at, and its time is over: then
        reset."""
        if self._write_deadline > now:
            return False
        unsent = self._transport.get_write_buffer_size()
        if self._file_waits or (unsent and unsent >= self._unsent):
            self.abort()
            return True
        self._watch_writing(now)
        return False
