"""Children that this process did not start: as process 1 it inherits those whose parents have ended."""

from __future__ import annotations

import os
from collections.abc import Collection


def reap_orphans(own: Collection[int]) -> None:
    """As process 1, wait for every child that has ended and is none of `own`, who are waited for elsewhere.

    As soon as the kernel names one of those first, the rest has to wait for the next call.
    """
    while os.getpid() == 1:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # there are no children
            return
        if ended is None or ended.si_pid in own:
            return
        os.waitpid(ended.si_pid, 0)
