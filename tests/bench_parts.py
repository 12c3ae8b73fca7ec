"""The parts of the load generator, called through ctypes, and servers with exact faults for it."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.loadgen.build import build  # noqa: E402

MORE, COMPLETE, BROKEN = range(3)


class Seen(ctypes.Structure):
    """What the client's parser made of the octets: `struct parts_seen`."""

    _fields_ = (
        ("result", ctypes.c_int32),
        ("status", ctypes.c_int32),
        ("keep_alive", ctypes.c_int32),
        ("length", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("digest", ctypes.c_uint8 * 32),
        ("reason", ctypes.c_char * 80),
    )


def load_parts() -> ctypes.CDLL:
    """The library, compiled on the first call."""
    parts = ctypes.CDLL(str(build("parts.so")))
    parts.parts_samples.restype = ctypes.c_void_p
    parts.parts_samples.argtypes = (ctypes.c_uint64,) * 3
    parts.samples_add.argtypes = (ctypes.c_void_p, ctypes.c_double, ctypes.c_uint64)
    parts.parts_quantile.argtypes = (ctypes.c_void_p, ctypes.c_double)
    for name in ("parts_quantile", "parts_values", "parts_lost"):
        getattr(parts, name).restype = ctypes.c_uint64
    parts.parts_values.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    parts.parts_lost.argtypes = parts.parts_free.argtypes = (ctypes.c_void_p,)
    parts.parts_frame.restype = ctypes.c_int64
    parts.frame_write.restype = ctypes.c_size_t
    parts.frame_write.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
    return parts


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket, int], None], accepted: int = 1_000_000) -> Iterator[int]:
    """The port of a server that calls `answer` with each connection and its number, in a thread for each.

    After so many connections nobody listens any more.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:

        def accept() -> None:
            for number in range(accepted):
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(sock, number), daemon=True).start()
            listener.close()

        def serve(sock: socket.socket, number: int) -> None:
            with sock, contextlib.suppress(OSError):
                answer(sock, number)

        port = listener.getsockname()[1]
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield port
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def requests_on(sock: socket.socket) -> Iterator[bytes]:
    """The heads of the requests that come, one at a time."""
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            piece = sock.recv(65536)
            if not piece:
                return
            data += piece
        head, _, data = data.partition(b"\r\n\r\n")
        yield head
