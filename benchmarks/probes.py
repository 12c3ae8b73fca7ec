"""What is not measured by load: how a server stops, and what it does with connections that say too little."""

from __future__ import annotations

import select
import signal
import socket
import time
from typing import Any

from .fixtures import expectation, request
from .scenario import Cell
from .serving import Server

INTO_THE_REQUEST = 0.25
"""Seconds from the request to SIGTERM."""


def _read_until_over(sock: socket.socket, seconds: float) -> tuple[bytes, float, bool]:
    """What came until the peer closed or was silent for `seconds`; when the last of it came; whether it
    closed.
    """
    data, last = b"", time.monotonic()
    sock.settimeout(seconds)
    while True:
        try:
            piece = sock.recv(65536)
        except TimeoutError:
            return data, last, False
        except OSError:
            return data, time.monotonic(), True
        last = time.monotonic()
        if not piece:
            return data, last, True
        data += piece
        if _is_whole(data):
            return data, last, False


def _is_whole(data: bytes) -> bool:
    """Has the body come that Content-Length announces?"""
    head, found, body = data.partition(b"\r\n\r\n")
    lengths = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(found and lengths and len(body) >= int(lengths[0]))


def stop(server: Server, cell: Cell) -> dict[str, Any]:
    """SIGTERM to the master while a request is answered: is it answered, when, and when is all over?"""
    wanted = expectation(cell.scenario.expect)
    with server.socket() as sock:
        sock.sendall(request("GET", cell.scenario.path, {}))
        time.sleep(INTO_THE_REQUEST)
        server.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        data, last, closed = _read_until_over(sock, 10.0)
    exit_after, code = server.wait_for_the_end(begin)
    status = data[9:12].decode("ascii", "replace") if data.startswith(b"HTTP/1.") else ""
    body = data.partition(b"\r\n\r\n")[2]
    return {
        "answered": status == str(wanted.status) and len(body) == wanted.length,
        "status": status,
        "answer_or_close_ms": round((last - begin) * 1000, 1),
        "closed": closed,
        "exit_ms": round(exit_after * 1000, 1),
        "exit_code": code,
    }


def timeouts(server: Server, cell: Cell, limit: float) -> dict[str, Any]:
    """Seconds until each unfinished connection was closed, None if it was kept beyond `limit`; and what was
    answered.
    """
    said = {
        "idle": b"",
        "slow_head": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Unfin",
        "stalled_body": request("POST", cell.scenario.path, {}, b"b" * 100)[:-90],
    }
    sockets = {}
    for name, octets in said.items():
        sockets[name] = server.socket()
        sockets[name].sendall(octets)
    begin = time.monotonic()
    result: dict[str, Any] = {name: {"closed_s": None, "status": ""} for name in said}
    try:
        while sockets and time.monotonic() < begin + limit:
            readable, _, _ = select.select(list(sockets.values()), [], [], begin + limit - time.monotonic())
            for name, sock in list(sockets.items()):
                if sock in readable and _met(sock, result[name], time.monotonic() - begin):
                    sockets.pop(name).close()
    finally:
        for sock in sockets.values():
            sock.close()
    return result


def _met(sock: socket.socket, entry: dict[str, Any], after: float) -> bool:
    """Notes what came; true at the end of the connection."""
    try:
        data = sock.recv(65536)
    except OSError:
        data = b""
    if data.startswith(b"HTTP/1.") and not entry["status"]:
        entry["status"] = data[9:12].decode("ascii", "replace")
    if not data:
        entry["closed_s"] = round(after, 2)
    return not data
