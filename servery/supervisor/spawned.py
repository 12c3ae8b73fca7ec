"""The first steps of a worker in a fresh interpreter: see `spawning`."""

from __future__ import annotations

import os
import sys

from ..sockets import Listener
from .board import Board
from .channel import Channel
from .interpreter import Handle, socket_of, told
from .runners import Job
from .spawning import Handed
from .worker import run_worker


def main(pipe: int) -> int:
    """Serve with what comes through the descriptor `pipe`; the exit code."""
    handed = Handed(*told(pipe))
    if pipe > 0:  # on Windows it is the standard input
        os.close(pipe)
    sys.path[:], sys.argv[:] = handed.path, handed.argv
    bound = [_listener(each) for each in handed.own], [_listener(each) for each in handed.redirects]
    board = None if handed.board is None else Board(handed.board)
    if handed.board is not None:
        os.close(handed.board)  # the memory stays
    channel = Channel(socket_of(handed.channel))
    return run_worker(Job(handed.config, bound, None, channel, handed.slot, board))


def _listener(handle: Handle) -> Listener:
    sock = socket_of(handle)
    sock.setblocking(False)
    return Listener(sock)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
