"""``servery ctl``: ask a running server through its admin listener, or tell it something.

Exit codes: 0 the server has done it, 1 it has said no (not ready, cannot be reloaded), 2 the command is
wrong, 3 the server cannot be reached.
"""

from __future__ import annotations

import argparse
import http.client
import os
import socket
import sys
from collections.abc import Sequence

from ..addresses import FdAddress, TcpAddress, UnixAddress, parse_bind
from ..errors import ConfigError
from ..sources import load

COMMANDS = {
    "live": ("GET", "whether the process answers at all"),
    "ready": ("GET", "whether it accepts connections, and does not stop"),
    "state": ("GET", "version, workers, connections, requests in progress, as JSON"),
    "metrics": ("GET", "the numbers, as Prometheus reads them"),
    "reload": ("POST", "load application and configuration anew"),
    "scale": ("POST", "have N workers from now on"),
    "stop": ("POST", "stop gracefully"),
}
TIMEOUT = 10.0
"""Seconds for the server to answer: it does at once, unless its event loop is stuck."""

OK, REFUSED, UNREACHABLE = 0, 1, 3


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code. Raises `ConfigError` if nobody says where the server is."""
    options = _parser().parse_args(argv)
    address = options.admin or load({}, os.environ, options.config).config.admin
    if address is None:
        raise ConfigError(
            "where is the admin listener? Give --admin ADDRESS, as the server has it, or set SERVERY_ADMIN"
        )
    try:
        status, content = ask(address, COMMANDS[options.command][0], _path(options))
    except (OSError, http.client.HTTPException) as error:
        print(f"servery ctl: no answer from {address}: {error or type(error).__name__}", file=sys.stderr)
        return UNREACHABLE
    good = 200 <= status < 300
    print(content, end="", file=sys.stdout if good else sys.stderr)
    return OK if good else REFUSED


def _path(options: argparse.Namespace) -> str:
    """What to ask for. Raises `ConfigError` for a number that is missing, or not wanted."""
    if options.command == "scale":
        if options.number is None or options.number < 1:
            raise ConfigError("how many workers? Write: servery ctl scale 4")
        return f"/scale?workers={options.number}"
    if options.number is not None:
        raise ConfigError(f"{options.command} takes no number")
    return f"/{options.command}"


def ask(address: str, method: str, path: str) -> tuple[int, str]:
    """(status, content) of the answer. Raises `OSError` or `http.client.HTTPException` if there is none."""
    connection = _Connection(address)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace")
    finally:
        connection.close()


class _Connection(http.client.HTTPConnection):
    """To an address as ``--admin`` takes it."""

    def __init__(self, address: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._where = parse_bind(address)

    def connect(self) -> None:
        where = self._where
        if isinstance(where, TcpAddress):
            self.sock = socket.create_connection((where.host, where.port), TIMEOUT)
        elif isinstance(where, UnixAddress):
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(TIMEOUT)
            self.sock.connect(where.path.replace("@", "\0", 1) if where.path.startswith("@") else where.path)
        else:
            assert isinstance(where, FdAddress)
            raise ConfigError(
                "a descriptor of the server's is none of this process: give unix:PATH or HOST:PORT"
            )


def _parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:8} {help}" for name, (_, help) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="servery ctl",
        description="Ask a running server through its admin listener, or tell it something.",
        epilog=f"commands:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of those below")
    parser.add_argument("number", nargs="?", type=int, metavar="N", help="of workers, for scale")
    parser.add_argument("--admin", metavar="ADDRESS", help="unix:PATH or HOST:PORT, as the server has it")
    parser.add_argument(
        "--config", metavar="PATH", help="TOML file to look for it instead of ./pyproject.toml"
    )
    return parser
