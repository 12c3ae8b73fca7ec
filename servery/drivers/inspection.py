"""A worker as others see it: its numbers, and what it has in hand. Plain values, fit for JSON and a pipe.

Looks at the worker when somebody asks; knows nothing of who does.
"""

from __future__ import annotations

import os
import sys
from time import monotonic
from typing import Any

from ..logs import escape
from ..metrics.counting import Snapshot, counter, gauge
from .admission import Admission
from .contracts import Cycle
from .service import Service

MOST_REQUESTS = 100
"""Requests that `describe` names: the oldest, which are those that somebody looks for."""


LONGEST_PATH = 200
"""Octets of a path that `describe` gives: enough to know it by."""


def snapshot(service: Service) -> Snapshot:
    """The numbers of a worker that counts: see `servery.metrics.counting`."""
    assert service.metrics is not None
    running = [cycle for cycle in service.cycles if not cycle.answered]
    open_sockets = sum(_is_open_websocket(cycle) for cycle in running)
    active = min(len(running) - open_sockets, len(service.connections) - open_sockets)
    states = {
        'state="active"': active,
        'state="websocket"': open_sockets,
        'state="idle"': len(service.connections) - open_sockets - active,
    }
    return service.metrics.snapshot() | {
        "servery_connections": gauge(states),
        "servery_connections_accepted_total": counter({"": service.closed + len(service.connections)}),
        "servery_requests_in_flight": gauge({"": len(running)}),
        "servery_requests_waiting": gauge({"": _waiting(service)}),
        "servery_access_log_lines_lost_total": counter({"": service.access.lost if service.access else 0}),
    }


def describe(service: Service) -> dict[str, Any]:
    """What a worker has in hand: the process, connections, and the requests in progress, oldest first.

    Queries are left out: they hold secrets more often than paths do.
    """
    now = monotonic()
    running = sorted(
        (cycle for cycle in service.cycles if not cycle.answered), key=lambda cycle: cycle.started
    )
    return {
        "pid": os.getpid(),
        "stopping": service.stopping,
        "memory": resident_memory(),
        "requests_begun": service.count_requests(),
        "connections": len(service.connections),
        "requests_in_flight": len(running),
        "requests_waiting": _waiting(service),
        "requests": [_describe(cycle, now) for cycle in running[:MOST_REQUESTS]],
    }


def _describe(cycle: Cycle, now: float) -> dict[str, Any]:
    request, path = cycle.request, cycle.request.raw_path
    return {
        "id": cycle.request_id,
        "type": "websocket" if _is_open_websocket(cycle) else "http",
        "method": escape(request.method),
        "path": escape(path[:LONGEST_PATH]) + "..." * (len(path) > LONGEST_PATH),
        "status": cycle.status or None,
        "age": round(now - cycle.started, 3),
    }


def _is_open_websocket(cycle: Cycle) -> bool:
    return getattr(cycle, "websocket", None) is not None


def _waiting(service: Service) -> int:
    return service.app.waiting if isinstance(service.app, Admission) else 0


def resident_memory() -> int:
    """Octets of this process that are in memory; where only their peak is known, that; 0 where nothing is."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        if sys.platform == "win32":
            return 0
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
