"""TLS on top of any transport: a protocol to the transport below, and a transport to the connection above.

Knows records, and how each way of closing is said in TLS; knows nothing of handshakes, which are over, and of
what it carries. Nothing is kept back here: octets that come are decrypted at once, what is written is
encrypted at once, so that limits and flow control are those of the transport below. A reactor's transport can
do the same itself.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any

from .contracts import TlsSession
from .service import error_log
from .transports import READ_SIZE, reset

JOINED = 65_536
"""Octets of several parts that are copied together, for fewer records, sooner than encrypted one by one."""


def carry(below: asyncio.Transport, session: TlsSession, connection: asyncio.Protocol) -> None:
    """Let `connection` speak in `session`, whose handshake is over, on the transport `below`: it begins, and
    gets what has come already.
    """
    own: Any = below if hasattr(below, "secure") else None  # a reactor's
    if own is not None:
        own.secure(session)
        own.set_protocol(connection)
        connection.connection_made(own)
        own.proceed()
        return
    transport = TlsTransport(below, session, connection)
    below.set_protocol(transport)
    connection.connection_made(transport)
    transport.data_received(b"")


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """Carries `protocol` in the session, whose handshake is over, on the transport `below`."""

    __slots__ = ("_below", "_closing", "_deaf", "_ended", "_protocol", "_session")

    def __init__(self, below: asyncio.Transport, session: TlsSession, protocol: asyncio.Protocol) -> None:
        self._below = below
        self._session = session
        self._protocol: asyncio.Protocol | None = protocol
        self._closing = False
        self._deaf = False  # whatever comes is dropped: the peer has ended, or we have
        self._ended = False  # the connection above knows that the peer has

    # --- from the transport below --------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Records from the peer, in any pieces; with none, what came along with the end of the handshake."""
        if self._deaf or self._closing:
            return
        session = self._session
        session.incoming.write(data)
        fault, ended, content = self._decrypt()
        if session.outgoing.pending:  # an answer of TLS itself, such as to an update of keys
            self._send()
        protocol = self._protocol
        if content and protocol is not None:
            protocol.data_received(content)
        if fault is not None and not self._closing:
            self._fail(fault)
        elif ended:
            self._end()

    def _decrypt(self) -> tuple[ssl.SSLError | None, bool, bytes]:
        """(what is wrong, whether the peer has said its end, what it sent before)."""
        session = self._session
        incoming, read, parts = session.incoming, session.ssl.read, list[bytes]()
        try:
            while incoming.pending or session.ssl.pending():
                part = read(READ_SIZE)
                if not part:
                    return None, True, b"".join(parts)
                parts.append(part)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError) as error:
            return None, isinstance(error, ssl.SSLZeroReturnError), b"".join(parts)
        except ssl.SSLError as error:
            return error, False, b"".join(parts)
        return None, False, parts[0] if len(parts) == 1 else b"".join(parts)

    def eof_received(self) -> bool:
        """The peer has closed without a word of TLS before. HTTP says itself where a message ends, so that
        what is cut is seen as such.
        """
        self._end()
        return True

    def _end(self) -> None:
        """The peer sends no more; it may still read."""
        self._deaf = True
        if self._protocol is not None and not (self._ended or self._closing):
            self._ended = True
            self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport below is closed."""
        self._closing = True
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """The transport below has more than enough."""
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """It takes more."""
        if self._protocol is not None:
            self._protocol.resume_writing()

    # --- from the connection above -------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt, and write."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """`write` for several at once."""
        parts = [part for part in list_of_data if part]
        if self._closing or not parts:
            return
        if len(parts) > 1 and sum(map(len, parts)) <= JOINED:
            parts = [b"".join(parts)]
        try:
            for part in parts:
                self._encrypt(part)
        except ssl.SSLError as error:
            self._fail(error)
        else:
            self._send()

    def _encrypt(self, data: bytes | bytearray | memoryview) -> None:
        write = self._session.ssl.write
        sent = write(data)
        if sent < len(data):  # a record has 16 KiB at most
            rest = memoryview(data)
            while sent < len(data):
                sent += write(rest[sent:])

    def _send(self) -> None:
        self._below.write(self._session.outgoing.read())

    def can_write_eof(self) -> bool:
        """Yes."""
        return True

    def write_eof(self) -> None:
        """Say that nothing follows, in TLS and below it; what comes from now on is not even decrypted."""
        self._say_end()
        self._deaf = True
        self._below.write_eof()

    def close(self) -> None:
        """Say that nothing follows, and close when it is written; nobody waits for the peer to say it too."""
        if not self._closing:
            self._say_end()
            self._closing = True
            self._below.close()

    def _say_end(self) -> None:
        """Write ``close_notify`` (RFC 8446 section 6.1)."""
        try:
            self._session.ssl.unwrap()
        except ssl.SSLError:  # it would have the peer's as well, and that is not awaited
            pass
        if self._session.outgoing.pending and not self._below.is_closing():
            self._send()

    def _fail(self, error: ssl.SSLError) -> None:
        """The peer broke TLS: the alert that says so, if it can be written at once, and the end."""
        error_log.debug("TLS: the connection is ended: %s", error.reason or type(error).__name__)
        self._closing = True
        waiting = self._below.get_write_buffer_size()
        if self._session.outgoing.pending:
            self._send()
        if waiting:
            self._below.abort()
        else:
            self._below.close()

    def abort(self) -> None:
        """Close now."""
        self._closing = True
        self._below.abort()

    def reset(self) -> None:
        """Close now, with RST."""
        self._closing = True
        reset(self._below)

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing or self._below.is_closing()

    def pause_reading(self) -> None:
        """Read no more until `resume_reading`."""
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._below.resume_reading()

    def is_reading(self) -> bool:
        """Whether `data_received` may be called."""
        return self._below.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """In octets as they are on the wire."""
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Octets that wait, as they are on the wire."""
        return self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the transport below tells; ``tls``, the extensions of a scope; ``ssl_object`` and
        ``sslcontext``.
        """
        if name == "tls":
            return self._session.describe()
        if name == "ssl_object":
            return self._session.ssl
        if name == "sslcontext":
            return self._session.ssl.context
        return self._below.get_extra_info(name, default)
