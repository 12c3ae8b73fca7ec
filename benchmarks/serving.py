"""A server process for one trial: started cold, proven, watched, stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import processes
from .adapters import Adapter
from .environments import clean_environment
from .fixtures import files_directory
from .paths import HERE
from .verdicts import Refused

START_LIMIT = 30.0
"""Seconds until the first answer."""
STOP_LIMIT = 20.0
"""Seconds from SIGTERM to the end."""
COMPILED = ("httptools", "uvloop", "servery._speedups")
"""Modules that a process has mapped if it has imported them."""
LOOK = 0.002
"""Seconds between two attempts to connect while a server starts."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("127.0.0.1", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """To the path."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclasses.dataclass
class Server:
    """A running server. `started` is the time from the command to the first answer, in seconds."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int = 0
    unix: str = ""
    started: float = 0.0

    @property
    def pid(self) -> int:
        """Of the process that was started: the master, if there is one."""
        return self.process.pid

    def connection(self, timeout: float = 5.0) -> http.client.HTTPConnection:
        """A fresh connection."""
        if self.unix:
            return UnixConnection(self.unix, timeout)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def socket(self, timeout: float = 5.0) -> socket.socket:
        """A fresh, connected socket."""
        connection = self.connection(timeout)
        connection.connect()
        assert connection.sock is not None
        return connection.sock

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body. Raises OSError or http.client.HTTPException."""
        with contextlib.closing(self.connection()) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()

    def output(self) -> str:
        """What the server has written so far."""
        return self.log.read_text("utf-8", "replace")

    def wait_until_it_answers(self, path: str) -> None:
        """Sets `started`. Raises Refused if the process ends or nothing comes in time."""
        begin = time.monotonic()
        while time.monotonic() < begin + START_LIMIT:
            try:
                self.get(path)
            except (OSError, http.client.HTTPException):
                if self.process.poll() is not None:
                    raise Refused(f"it ended with {self.process.returncode}: {self._last_words()}") from None
                time.sleep(LOOK)
            else:
                self.started = time.monotonic() - begin
                return
        raise Refused(f"no answer within {START_LIMIT:g} s: {self._last_words()}")

    def _last_words(self) -> str:
        return (
            " | ".join(line.strip() for line in self.output().splitlines()[-4:] if line.strip())
            or "(no output)"
        )

    def terminate(self) -> tuple[float, int | None]:
        """SIGTERM to the master; seconds until it ended, and its status, None if it had to be killed."""
        begin = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait_for_the_end(begin)

    def wait_for_the_end(self, begin: float) -> tuple[float, int | None]:
        """Until all is over, or STOP_LIMIT after `begin` (monotonic) all is killed."""
        members = processes.tree(self.pid)
        try:
            code: int | None = self.process.wait(max(0.0, begin + STOP_LIMIT - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
        took = time.monotonic() - begin
        self._kill(members)
        return took, code

    def _kill(self, members: Sequence[int]) -> None:
        """Those of the tree that are left; the group is the server's own, since it was started in a session
        of its own.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        for member in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(member) == self.pid:
                    os.kill(member, signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _start(
    argv: Sequence[str],
    log: Path,
    cpus: Collection[int] | None,
    directory: str | Path,
    environment: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """The process, in a session of its own; what it writes goes to `log`."""

    def prepare() -> None:
        """In the child: its processors, and as many open files as are allowed at all."""
        if cpus:
            os.sched_setaffinity(0, cpus)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    files = str(files_directory())
    ours = {"PYTHONPATH": str(directory), "BENCHMARKS_FILES": files, "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as out:
        return subprocess.Popen(
            list(argv),
            cwd=directory,
            env={**environment, **ours},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=prepare,
        )


@contextlib.contextmanager
def running(
    argv: Sequence[str],
    path: str,
    port: int = 0,
    unix: str = "",
    cpus: Collection[int] | None = None,
    directory: str | Path = HERE / "apps",
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """A server that answers on `path`; it is stopped at the end. Raises Refused if it does not start.

    `directory` is where the application is imported from.
    """
    log = Path(tempfile.mkstemp(prefix="benchmarks-", suffix=".log")[1])
    variables = clean_environment() if environment is None else environment
    server = Server(_start(argv, log, cpus, directory, variables), log, port, unix)
    try:
        server.wait_until_it_answers(path)
        yield server
    finally:
        server.terminate()
        log.unlink(missing_ok=True)
        if unix:
            Path(unix).unlink(missing_ok=True)


def prove(
    server: Server, adapter: Adapter, workers: int, is_asgi: bool = True, has_proof_path: bool = True
) -> dict[str, Any]:
    """What the server proved to be. Raises Refused if that is not what `adapter` asks for.

    The fixture applications answer on ``/.proof`` out of the serving process; an application of the user's
    has no such path, and only the server's own output, its processes and what they have mapped are looked at.
    """
    facts: dict[str, Any] = {
        "processes": len(processes.tree(server.pid)),
        "threads": processes.threads(server.pid),
    }
    if workers > 1 and facts["processes"] < workers:
        raise Refused(f"{workers} workers were asked for, and there are {facts['processes']} processes")
    wanted = adapter.says.split()
    if adapter.environment == "servery":
        wanted.append(f"workers={workers}")
    output = server.output().split()
    if missing := [word for word in wanted if word not in output]:
        raise Refused(f"its own output does not say {' '.join(missing)}: a changed flag?")
    if adapter.proofless:
        return facts
    if not has_proof_path:
        _prove_by_maps(server, adapter)
        return facts
    status, body = server.get("/.proof")
    if status != 200:
        raise Refused(f"/.proof answered {status}")
    proof: dict[str, Any] = json.loads(body)
    if is_asgi and not proof["loop"].startswith(adapter.loop):
        raise Refused(f"the event loop is {proof['loop']!r}, not {adapter.loop}…: a changed flag?")
    if missing := [name for name in adapter.loaded if name not in proof["loaded"]]:
        raise Refused(f"not loaded: {', '.join(missing)}; a native piece that was asked for is missing")
    if extra := [name for name in adapter.absent if name in proof["loaded"]]:
        raise Refused(f"loaded although not asked for: {', '.join(extra)}")
    del proof["pid"]
    return facts | proof


def _prove_by_maps(server: Server, adapter: Adapter) -> None:
    """What can be told of any application: which compiled modules are there. Raises Refused."""
    files = processes.mapped_files(server.pid)
    for name in COMPILED:
        is_there = any(f"/{name.replace('.', '/')}/" in path for path in files)
        if name in adapter.loaded and not is_there:
            raise Refused(f"not loaded: {name}; a native piece that was asked for is missing")
        if name in adapter.absent and is_there:
            raise Refused(f"loaded although not asked for: {name}")
