"""Clients that ask without a pause on kept connections, and note every request that was refused or cut."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from typing import NamedTuple

from harness import WAIT, read_response

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Fault(NamedTuple):
    """A request that got no whole answer."""

    when: float
    """Monotonic seconds."""
    pid: int | None
    """The worker that had answered on this connection before."""
    error: str


class Client(threading.Thread):
    """Asks for ``/``, whose answer is the process id of the worker, until the block ends.

    There are `pause` seconds from one request to the next, if the answer comes sooner.
    """

    def __init__(self, port: int, pause: float = 0.0) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._pause = pause
        self._ending = threading.Event()
        self.answers: Counter[int] = Counter()
        """Answers of each worker."""
        self.connections = 0
        self.faults: list[Fault] = []

    def run(self) -> None:
        while not self._ending.is_set():
            pid: int | None = None
            try:
                with socket.create_connection(("127.0.0.1", self._port), WAIT) as sock:
                    self.connections += 1
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    due = time.monotonic()
                    while not self._ending.is_set():
                        sock.sendall(GET)
                        head, content, _ = read_response(sock)
                        assert head.startswith(b"HTTP/1.1 200"), head
                        pid = int(content)
                        self.answers[pid] += 1
                        due += self._pause
                        if (ahead := due - time.monotonic()) > 0:
                            self._ending.wait(ahead)
                        if b"connection: close" in head.lower():
                            break
            except (OSError, AssertionError) as error:
                self.faults.append(Fault(time.monotonic(), pid, repr(error)))

    def __enter__(self) -> Client:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join(WAIT)
