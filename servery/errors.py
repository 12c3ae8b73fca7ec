"""The one exception tree. Nothing else in servery derives from Exception directly.

ServeryError
├── ConfigError                 a flag, key or pair of them that cannot work (exit code 2)
│   └── NativeUnavailable       the compiled core was asked for and is not there
├── StartupError                the server could not begin to serve (exit code 3)
│   ├── AppImportError          the application could not be imported
│   ├── BindError               a socket could not be bound
│   ├── CertificateError        the files for TLS cannot be used
│   └── LifespanError           the application refused to start
├── RemoteProtocolError         the peer broke the protocol; carries the status of the refusal
│   ├── LimitExceeded           the peer went over one of `limits.Limits`
│   └── Http2Error              the peer broke the rules of HTTP/2; carries their error code
├── LocalProtocolError          the application sent a wrong ASGI message
└── ClientDisconnected          (also an OSError) the application sent to a peer that is gone
"""

from __future__ import annotations


class ServeryError(Exception):
    """Base of every error that servery raises on purpose."""


class ConfigError(ServeryError):
    """The configuration cannot work; the text names the fix. Exit code 2."""


class NativeUnavailable(ConfigError):
    """``--parser native`` was asked for, but this install has no compiled core."""


class StartupError(ServeryError):
    """The server could not start to serve. Exit code 3."""


class AppImportError(StartupError):
    """The application named on the command line could not be imported."""


class BindError(StartupError):
    """An address could not be bound."""


class CertificateError(StartupError):
    """A certificate, a key or an authority cannot be used; the text names the setting, the file and the
    fix.
    """


class LifespanError(StartupError):
    """The application's lifespan start-up failed."""


class RemoteProtocolError(ServeryError):
    """The peer's bytes break the protocol.

    `status` is the HTTP status code of the refusal, or the close code that a WebSocket is failed with (RFC
    6455 section 7.4). `reason` is a short text that is safe to send to the peer and to log: it never contains
    bytes from the peer.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}"


class LimitExceeded(RemoteProtocolError):
    """The peer went over one of the limits of `servery.limits.Limits`."""


class Http2Error(RemoteProtocolError):
    """The peer broke the rules of HTTP/2, or floods the connection.

    `code` is that of RFC 9113 section 7. `status` is what a request that is at fault would be answered with.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(400, reason)
        self.code = code

    def __str__(self) -> str:
        return f"HTTP/2 error {self.code}: {self.reason}"


class LocalProtocolError(ServeryError):
    """The application sent a message that ASGI does not allow at this point; the text says why."""


class ClientDisconnected(ServeryError, OSError):
    """``send()`` was called after the connection was lost (ASGI HTTP 2.4: an OSError subclass)."""
