# long: one table, which is looked through as one
"""The configuration: one table with every default and its reason.

Flags, `SERVERY_*` variables, TOML keys, ``--help`` and ``--print-config`` are all made from this table.
It knows no source of values; `sources.py` merges them. What must hold between them stands in `conflicts.py`;
which parts of an install can work together (parser, io, loop) is asked of `selection.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from . import rules
from .conflicts import SUPERVISED, find_conflict, start_method
from .errors import ConfigError
from .limits import Limits
from .rows import BYTES, BYTES_OR_ZERO, limit, row
from .settings import (
    Application,
    Choice,
    LogConfig,
    Mode,
    Seconds,
    Setting,
    Switch,
    Text,
    Texts,
    Whole,
    WholeOrWord,
)

GROUPS = (
    *("Application", "Listen", "TLS", "Proxies", "HTTP/2", "Engine", "Workers", "Process"),
    *("Limits", "Time-outs", "WebSockets", "Logs", "Operations", "Reload", "Other"),
)


# fmt: off
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting, checked: an instance that exists can work, as far as its values can tell.

    Sizes are bytes, times are seconds. Raises `ConfigError`, whose text names the field and the fix.
    """

    # --- Application ---------------------------------------------------------------------------------
    app: str | Callable[..., Any] | None = row(None, "Application", Application(),  # noqa: RUF009
        "import string of the application; without :ATTR, app and application are tried",
        unset="needed",
        why="only the user knows it")
    factory: bool = row(False, "Application", Switch(),
        "ATTR is a function without arguments that makes the application",
        why="most names are the application itself")
    app_dir: str = row("", "Application", Text("DIR", empty=True),
        "directory put first on the import path", unset="the current directory",
        why="as with python -m: what works in a shell works here")
    interface: str | None = row(None, "Application", Choice("asgi3", "asgi2"),
        "what the application speaks", unset="found from the callable",
        why="the signature tells it in all but odd cases")
    lifespan: str = row("auto", "Application", Choice("auto", "on", "off"),
        "lifespan events; auto goes on without them if the application raises",
        why="applications without lifespan must start, those with it must get it")
    root_path: str = row("", "Application", Text("PATH", rules.root_path, empty=True),
        "prefix under which a proxy serves the application, such as /api",
        why="most applications stand at the root")

    # --- Listen --------------------------------------------------------------------------------------
    host: str = row("127.0.0.1", "Listen", Text("HOST"), "address or name to listen on",
        why="nothing is open to the network unless asked for")
    port: int = row(8000, "Listen", Whole(0, 65_535), "TCP port; 0 takes a free one",
        why="the port that Python servers and their users' scripts expect")
    uds: str | None = row(None, "Listen", Text("PATH"), "listen on this unix socket instead",
        why="TCP unless asked for")
    fd: int | None = row(None, "Listen", Whole(0), "serve this listening socket, inherited from the parent",
        why="only a supervisor that passes a socket knows its number")
    bind: tuple[str, ...] = row((), "Listen", Texts("ADDRESS", rules.bind),
        "HOST:PORT, [V6]:PORT, unix:PATH, fd://N, systemd:NAME; repeat it for more; replaces the above",
        why="one listener, named by host and port, is the common case")
    uds_mode: int | None = row(None, "Listen", Mode(), "permissions of unix sockets, such as 660",
        unset="by the umask", why="the umask is the administrator's word")
    backlog: int = row(2048, "Listen", Whole(1), "connections that the kernel keeps waiting",
        why="uvicorn's figure; the kernel cuts it to its own maximum")

    # --- TLS -----------------------------------------------------------------------------------------
    tls_cert: tuple[str, ...] = row((), "TLS", Texts("[HOST=]PATH[,KEY]", rules.tls_cert, separator=";"),
        "certificate with its chain, PEM, or a directory of them; repeat it for more", unset="no TLS",
        why="only the operator has one")
    tls_key: str | None = row(None, "TLS", Text("PATH"), "key of certificates given without one, PEM",
        unset="in the certificate's file", why="many tools write both into one file")
    tls_key_password: str | None = row(None, "TLS", Text("WHERE", rules.tls_key_password),
        "where the password of encrypted keys is: env:NAME or file:PATH", why="most keys have none")
    tls_ca: str | None = row(None, "TLS", Text("PATH"),
        "file or directory of the authorities that issue certificates of clients, PEM",
        why="no client needs one unless asked for")
    tls_client_cert: str = row("none", "TLS", Choice("none", "optional", "required"),
        "whether clients show a certificate, issued by tls_ca", why="browsers have none")
    tls_min_version: str = row("1.2", "TLS", Choice("1.2", "1.3"), "oldest version of TLS",
        why="RFC 8996 forbids what is older; 1.2 is what some libraries still speak")
    tls_ciphers: str = row("ECDHE+AESGCM:ECDHE+CHACHA20", "TLS", Text("NAMES"),
        "cipher suites of TLS 1.2, as OpenSSL names them; those of 1.3 are OpenSSL's own",
        why="forward secrecy and authenticated encryption, which all current clients have")
    tls_self_signed: bool = row(False, "TLS", Switch(),
        "make a certificate for this machine, for development; needs the package cryptography",
        why="browsers warn of it")
    tls_watch: float | None = row(0.5, "TLS", Seconds(),
        "time between two looks at the files; none reads them again only when told to", nullable=True,
        why="a renewed certificate is in use within two seconds, for a few calls of stat()")
    tls_redirect: tuple[str, ...] = row((), "TLS", Texts("ADDRESS", rules.bind),
        "like bind, for requests without TLS, which are sent to https://; repeat it for more",
        why="port 80 needs a right that not every process has")
    tls_redirect_port: int | None = row(None, "TLS", Whole(1, 65_535), "port that tls_redirect sends to",
        unset="the port with TLS", why="the same, unless something forwards another one")
    # --- Proxies -------------------------------------------------------------------------------------
    trusted_proxy: tuple[str, ...] = row((), "Proxies", Texts("PEER", rules.peer),
        "peer that is believed what it says of clients: an address, a network, or unix; repeat it for more",
        unset="none", why="whoever is believed can be anybody")
    forwarded_field: tuple[str, ...] = row((), "Proxies", Texts("FIELD", rules.forwarding_field),
        "forwarding field that the trusted proxies set, so that clients cannot, such as x-forwarded-for; "
        "repeat it for more",
        unset="none", why="only the user knows which fields the proxy sets, and which it lets through")
    untrusted_fields: str = row("remove", "Proxies", Choice("remove", "keep"),
        "with --forwarded-field: what becomes of forwarding fields that are not believed",
        why="an application may believe what it finds")
    proxy_protocol: str = row("off", "Proxies", Choice("off", "v1", "v2", "any"),
        "versions of the PROXY protocol with which trusted proxies begin their connections",
        why="must be on at both ends or at none")
    limit_proxy_protocol_size: int = limit("proxy_protocol_size", "Proxies", BYTES,
        "preamble of the PROXY protocol")
    timeout_proxy_protocol: float = limit("proxy_protocol_timeout", "Proxies", Seconds(),
        "from accept to the end of the preamble")
    request_id_header: str | None = row(None, "Proxies", Text("FIELD", rules.field_name),
        "field with which trusted proxies name requests, such as x-request-id", unset="servery names them",
        why="ids that anybody can choose are worth nothing")
    request_id_reply: bool = row(False, "Proxies", Switch(),
        "send the id of a request back in the field of --request-id-header",
        why="most applications and proxies do it already")

    # --- HTTP/2 --------------------------------------------------------------------------------------
    http2: bool = row(False, "HTTP/2", Switch(),
        "offer HTTP/2 to clients with TLS; with parser python it needs the package h2",
        why="a second protocol is a choice: HTTP/1.1 needs no other package")
    h2c: bool = row(False, "HTTP/2", Switch(),
        "HTTP/2 without TLS, for clients that begin with it; needs h2 as well",
        why="for proxies and gRPC inside of a network; browsers never use it")
    http2_max_streams: int = limit("h2_streams", "HTTP/2", Whole(1), "requests of one connection at a time")
    http2_connection_window: int = limit("h2_connection_window", "HTTP/2", Whole(65_535, unit="bytes"),
        "request bodies of one connection on the network")
    limit_http2_continuations: int = limit("h2_continuations", "HTTP/2", Whole(0),
        "CONTINUATION frames of one head")
    limit_http2_resets: int = limit("h2_resets", "HTTP/2", Whole(1),
        "requests that a client may reset within the interval")
    limit_http2_control_frames: int = limit("h2_control_frames", "HTTP/2", Whole(10),
        "frames without content within the interval, besides eight for each with content")
    timeout_http2_interval: float = limit("h2_interval", "HTTP/2", Seconds(),
        "interval for which these two limits count")

    # --- Engine --------------------------------------------------------------------------------------
    parser: str = row("python", "Engine", Choice("python", "native"),
        "who parses requests and writes responses",
        why="runs everywhere; native is a choice, never a surprise")
    io: str | None = row(None, "Engine", Choice("transport", "reactor"),
        "who owns the sockets; reactor needs the compiled core, and epoll or kqueue",
        unset="transport; with --parser native reactor, where it can run", why="follows the parser")
    loop: str = row("asyncio", "Engine", Choice("asyncio", "uvloop"), "who schedules coroutines",
        why="needs no other package")

    # --- Workers -------------------------------------------------------------------------------------
    workers: int | str = row(1, "Workers", WholeOrWord("auto", 1),
        "worker processes; auto is one for each processor that this process may use",
        why="one needs no supervisor, and shares what it keeps in memory among all requests")
    worker_timeout: float | None = row(30.0, "Workers", Seconds(), nullable=True,
        help="longest time in which a worker's event loop does not turn before the worker is replaced",
        why="longer than any pause of a healthy loop, such as a busy machine or a large import makes")
    limit_max_requests: int | None = row(None, "Workers", Whole(1),
        "requests after which a worker is replaced", unset="no limit",
        why="only an application that leaks needs it")
    limit_max_requests_jitter: int | None = row(None, "Workers", Whole(0),
        "up to so many requests more, drawn for each worker", unset="a tenth of the limit",
        why="workers that started together shall not be replaced together")
    worker_max_age: float | None = row(None, "Workers", Seconds(),
        "age at which a worker is replaced", unset="no limit", why="as for limit_max_requests")
    worker_max_memory: int | None = row(None, "Workers", BYTES,
        "resident memory at which a worker is replaced", unset="no limit", why="as for limit_max_requests")
    worker_kind: str = row("process", "Workers", Choice("process", "thread"),
        "what a worker is; threads need a build of Python without GIL",
        why="a process can be killed, and takes no other one with it")
    worker_start: str | None = row(None, "Workers", Choice("fork", "spawn"),
        "how a worker process begins: as a copy of the master, or in a fresh interpreter",
        unset="fork where the system has it, else spawn",
        why="a copy is there at once, and shares what the master has in memory")
    preload: bool = row(False, "Workers", Switch(),
        "import the application before the workers start, so that they share its memory",
        why="connections and threads that an import makes do not survive a fork")
    reuse_port: bool = row(False, "Workers", Switch(),
        "a listening socket for each worker, among which the kernel spreads connections (SO_REUSEPORT)",
        why="with it a connection waits for its worker even if another one is idle")

    # --- Process -------------------------------------------------------------------------------------
    pidfile: str | None = row(None, "Process", Text("PATH"), "file to write the process id to",
        why="service managers know their processes without one")
    user: str | None = row(None, "Process", Text("NAME"), "user to become once the sockets are bound",
        unset="no change", why="only root can change it")
    group: str | None = row(None, "Process", Text("NAME"), "group to become once the sockets are bound",
        unset="the user's", why="the user's own groups are what is meant")
    umask: int | None = row(None, "Process", Mode(), "permissions that new files do not get, such as 027",
        unset="no change", why="the administrator has set one")
    process_name: str | None = row(None, "Process", Text("NAME"),
        "name of the processes in ps and top; needs the package setproctitle",
        unset="no change", why="the command line tells more")

    # --- Limits --------------------------------------------------------------------------------------
    limit_concurrency: int | None = row(None, "Limits", Whole(1), "requests in flight; further ones get 503",
        unset="no limit", why="only the application knows how many it can carry")
    limit_queue: int = row(0, "Limits", Whole(0),
        "requests over --limit-concurrency that wait for their turn",
        why="a refusal at once lets a balancer ask somebody else")
    limit_client_concurrency: int | None = row(None, "Limits", Whole(1),
        "requests in flight from one address; further ones get 429", unset="no limit",
        why="behind a proxy that is not trusted all clients have one address")
    limit_client_connections: int | None = row(None, "Limits", Whole(1),
        "open connections of one address, or of one /64 of IPv6; further ones are reset", unset="no limit",
        why="behind a proxy that is not trusted all clients have one address")
    limit_connections: int | None = row(None, "Limits", Whole(1),
        "open connections; further ones wait in the backlog", unset="no limit",
        why="the limit on open files bounds them already")
    limit_request_line: int = limit("request_line", "Limits", BYTES, "request line, without CRLF")
    limit_request_fields: int = limit("field_count", "Limits", Whole(1), "field lines of one head")
    limit_request_field_size: int = limit("field_size", "Limits", BYTES, "one field line")
    limit_head_size: int = limit("head_size", "Limits", BYTES, "whole head")
    limit_trailer_size: int = limit("trailer_size", "Limits", BYTES_OR_ZERO, "trailer section")
    limit_chunk_line: int = limit("chunk_line", "Limits", BYTES, "chunk-size line with its extensions")
    limit_chunk_extensions: int = limit("chunk_extensions", "Limits", BYTES_OR_ZERO,
        "chunk extensions of one body, all together")
    limit_body_size: int | None = limit("body_size", "Limits", BYTES_OR_ZERO, "request body",
        nullable=True, unset="no limit")
    limit_empty_lines: int = limit("empty_lines", "Limits", Whole(0), "empty lines skipped before a request")
    limit_read_ahead: int = limit("read_ahead", "Limits", BYTES,
        "read beyond the request in progress before reading pauses")
    limit_body_buffer: int = limit("body_buffer", "Limits", BYTES,
        "request body kept for the application before reading pauses")
    limit_drain_size: int = limit("drain_size", "Limits", BYTES_OR_ZERO,
        "unread request body that is dropped to keep a connection")
    limit_write_buffer: int = limit("write_buffer", "Limits", BYTES_OR_ZERO,
        "response waiting for the peer before send() waits")
    body_min_rate: int = limit("body_min_rate", "Limits", Whole(0, unit="bytes per second"),
        "average that a request body must reach; 0 asks for none")
    limit_tls_handshakes: int = limit("tls_handshakes", "Limits", Whole(1), "TLS handshakes in flight")

    # --- Time-outs -----------------------------------------------------------------------------------
    timeout_first_byte: float = limit("first_byte_timeout", "Time-outs", Seconds(),
        "from accept to the first byte")
    timeout_tls_handshake: float = limit("tls_handshake_timeout", "Time-outs", Seconds(),
        "from accept to the end of a TLS handshake, in total")
    timeout_head: float = limit("head_timeout", "Time-outs", Seconds(),
        "from the first byte of a head to its end, in total")
    timeout_body: float = limit("body_timeout", "Time-outs", Seconds(), "longest stall of a request body")
    timeout_keep_alive: float = limit("keep_alive_timeout", "Time-outs", Seconds(zero=True),
        "idle time between two requests")
    timeout_write: float = limit("write_timeout", "Time-outs", Seconds(),
        "longest time in which the peer takes nothing of a response")
    timeout_linger: float = limit("linger_timeout", "Time-outs", Seconds(zero=True),
        "time for the peer to read a refusal before the connection closes")
    drain_delay: float = row(0.0, "Time-outs", Seconds(zero=True),
        "after the stop signal: time to serve on while load balancers learn of the stop",
        why="without a load balancer it would only delay the stop")
    timeout_queue: float = row(5.0, "Time-outs", Seconds(), "longest wait for a turn; then 503",
        why="whoever waits longer has mostly gone, or asked again")
    timeout_stream_grace: float = limit("stream_grace", "Time-outs", Seconds(zero=True),
        "after the stop signal: until receive() gives http.disconnect")
    timeout_graceful_shutdown: float = limit("graceful_timeout", "Time-outs", Seconds(zero=True),
        "after the stop signal: until requests still running are cancelled")
    timeout_cancel: float = limit("cancel_timeout", "Time-outs", Seconds(zero=True),
        "time for cancelled requests to unwind")
    timeout_lifespan_startup: float | None = row(60.0, "Time-outs", Seconds(),
        "longest lifespan start-up; none waits for ever", nullable=True,
        why="a start that hangs must be seen; a minute is enough to warm up most applications")
    timeout_lifespan_shutdown: float | None = row(30.0, "Time-outs", Seconds(),
        "longest lifespan shutdown; none waits for ever", nullable=True,
        why="one signal must end the process in bounded time")

    # --- WebSockets ----------------------------------------------------------------------------------
    ws_max_size: int | None = limit("ws_max_size", "WebSockets", BYTES_OR_ZERO,
        "one message, assembled and inflated", nullable=True, unset="no limit")
    ws_max_queue: int = limit("ws_max_queue", "WebSockets", Whole(1),
        "messages kept for the application before reading pauses")
    ws_ping_interval: float | None = limit("ws_ping_interval", "WebSockets", Seconds(),
        "silence after which the peer is pinged; none sends no pings", nullable=True)
    ws_ping_timeout: float | None = limit("ws_ping_timeout", "WebSockets", Seconds(),
        "silence after a ping until the connection is closed; none never closes it", nullable=True)
    ws_close_timeout: float = limit("ws_close_timeout", "WebSockets", Seconds(),
        "time for the peer to answer a close frame")
    ws_per_message_deflate: bool = row(True, "WebSockets", Switch(),
        "compress messages where the peer offers it",
        why="text shrinks to a fraction, and most peers offer it")
    ws_deflate_window_bits: int = row(12, "WebSockets", Whole(9, 15),
        "compression window of each side, as a power of two",
        why="an eighth of the memory of 15, for nearly the same size of most messages")
    ws_deflate_memory_level: int = row(5, "WebSockets", Whole(1, 9), "zlib's memory level",
        why="fits the window: 16 KiB beside the window's 16")
    ws_deflate_context_takeover: bool = row(True, "WebSockets", Switch(),
        "let messages refer to earlier ones; keeps about 43 KiB per connection with the values above",
        why="small messages that resemble each other only shrink with it")
    ws_deflate_min_size: int = row(128, "WebSockets", BYTES_OR_ZERO, "smaller messages are sent as they are",
        why="one packet either way: compressing it would cost time and save nothing")

    # --- Logs ----------------------------------------------------------------------------------------
    log_level: str = row("info", "Logs", Choice("critical", "error", "warning", "info", "debug", "trace"),
        "least severity that is logged", why="start, stop and faults, nothing per connection")
    log_config: str | dict[str, Any] | None = row(None, "Logs", LogConfig(),  # noqa: RUF009
        "logging configuration, .toml or .json", unset="servery's own", why="readable without any file")
    access_log: bool = row(True, "Logs", Switch(), "one line for each request",
        why="a new user sees that requests arrive")
    access_log_format: str = row("text", "Logs", Text("FORMAT", rules.access_log_format),
        "text, json, or a template with %-fields", why="a person reads it first")
    use_colors: bool | None = row(None, "Logs", Switch(), "colours in the log", unset="on a terminal",
        why="escape codes do not belong into files")

    slow_request_log: float | None = row(None, "Logs", Seconds(),
        "log a request, and where its application waits, when it has no response after this time",
        unset="off", why="only the application's owner knows what is slow")

    # --- Operations ----------------------------------------------------------------------------------
    admin: str | None = row(None, "Operations", Text("ADDRESS", rules.admin),
        "listen here for probes, metrics and servery ctl: unix:PATH or 127.0.0.1:PORT", unset="off",
        why="whoever reaches it can stop the server")
    admin_public: bool = row(False, "Operations", Switch(),
        "let --admin be an address that other machines can reach", why="it asks nobody for a password")

    # --- Reload --------------------------------------------------------------------------------------
    reload: bool = row(False, "Reload", Switch(), "start again when a source file changes",
        why="for development only")
    reload_dir: tuple[str, ...] = row((), "Reload", Texts("DIR"), "directory to watch; repeat it for more",
        unset="the current directory", why="where most projects keep their sources")
    reload_include: tuple[str, ...] = row((), "Reload", Texts("GLOB"),
        "files to watch as well; repeat it for more", why="Python sources are watched anyway")
    reload_exclude: tuple[str, ...] = row((), "Reload", Texts("GLOB"),
        "files not to watch; repeat it for more", why="only the project knows what it generates")
    reload_delay: float = row(0.25, "Reload", Seconds(), "time between two looks at the files",
        why="short for a person, long for a disk")

    # --- Other ---------------------------------------------------------------------------------------
    server_header: bool = row(True, "Other", Switch(), "send the Server field",
        why="tells which hop answered; it names no version")
    date_header: bool = row(True, "Other", Switch(), "send the Date field",
        why="RFC 9110 section 6.6.1 asks for it from a server with a clock")
    header: tuple[str, ...] = row((), "Other", Texts("NAME:VALUE", rules.header),
        "field added to every response; repeat it for more", why="the application sets its own")
# fmt: on

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in SETTINGS}
        for name, setting in SETTINGS.items():
            try:
                setting.check(values[name])
            except ValueError as error:
                raise ConfigError(f"{name}: {error}") from None
        conflict = find_conflict(values, changed(values))
        if conflict:
            raise ConfigError(conflict.text)

    @property
    def limits(self) -> Limits:
        """The bounds on what a peer controls, for the engines and the drivers."""
        return Limits(**{row.limit: getattr(self, name) for name, row in SETTINGS.items() if row.limit})

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return bool(self.tls_cert or self.tls_self_signed)

    @property
    def uses_http2(self) -> bool:
        """Whether some clients may speak HTTP/2."""
        return self.http2 or self.h2c

    @property
    def scheme(self) -> str:
        """What its addresses begin with."""
        return "https" if self.uses_tls else "http"

    @property
    def extra_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """`header` as (lower-case name, value) pairs, as ASGI spells response fields."""
        pairs = (line.partition(":") for line in self.header)
        return tuple((name.lower().encode(), value.strip().encode("latin-1")) for name, _, value in pairs)

    @property
    def supervised(self) -> bool:
        """Whether a supervisor is needed: for several workers, and for replacing even one."""
        return self.workers != 1 or any(getattr(self, name) != SETTINGS[name].default for name in SUPERVISED)

    @property
    def start_method(self) -> str:
        """How worker processes start: ``fork`` or ``spawn``."""
        return start_method(self.worker_start)

    def replace(self, **changes: Any) -> Config:
        """A checked copy with `changes`; ConfigError as for a new one, TypeError for an unknown name."""
        return dataclasses.replace(self, **changes)


SETTINGS: dict[str, Setting] = {field.name: field.metadata["setting"] for field in dataclasses.fields(Config)}
"""The table: field name -> its row, in the order of the help."""


def changed(values: Mapping[str, object]) -> set[str]:
    """The names of those `values` that are not the defaults."""
    return {name for name, setting in SETTINGS.items() if values[name] != setting.default}
