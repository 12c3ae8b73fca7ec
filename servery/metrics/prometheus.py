"""A snapshot as text for Prometheus, version 0.0.4:
https://prometheus.io/docs/instrumenting/exposition_formats/.

Every name that a snapshot may hold stands here, with what it means.
"""

from __future__ import annotations

from typing import Any

from .counting import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

HELP = {
    "servery_requests_total": "Requests that have ended, by method and status; none: there was no answer.",
    "servery_request_duration_seconds": "From the head of a request to the end of its response.",
    "servery_response_size_bytes": "Content of a response, without head and framing.",
    "servery_queue_wait_seconds": "Time that requests over the limit have waited for their turn.",
    "servery_loop_lag_seconds": "How late the event loop called a timer, looked at twice a second.",
    "servery_websockets_total": "WebSockets that have ended, by close code.",
    "servery_rejected_total": "Input that was refused before or instead of a response, by reason.",
    "servery_connections_accepted_total": "Connections that were accepted.",
    "servery_connections": "Connections now: with a request in progress, with a WebSocket, or idle.",
    "servery_requests_in_flight": "Requests in progress now, WebSockets among them.",
    "servery_requests_waiting": "Requests over the limit that wait for their turn now.",
    "servery_access_log_lines_lost_total": "Lines of the access log that could not be written.",
    "servery_workers": "Worker processes that serve.",
    "servery_workers_wanted": "Worker processes that shall serve.",
    "servery_worker_restarts_total": "Workers that were replaced, by reason.",
    "servery_worker_memory_bytes": "Resident memory of each worker.",
    "servery_worker_connections": "Connections of each worker now.",
    "servery_worker_requests_in_flight": "Requests of each worker that are in progress now.",
    "servery_worker_report_age_seconds": "Since when the numbers of each worker are what is told here.",
}


def exposition(snapshot: Snapshot) -> str:
    """`snapshot` as a page; what it holds none of is left out."""
    lines: list[str] = []
    for name, help in HELP.items():
        if name in snapshot:
            one = snapshot[name]
            lines += (f"# HELP {name} {help}", f"# TYPE {name} {one['type']}")
            lines += (
                _histogram(name, one["values"]) if one["type"] == "histogram" else _plain(name, one["values"])
            )
    return "\n".join(lines) + "\n"


def _plain(name: str, values: dict[str, float]) -> list[str]:
    return [
        f"{name}{{{labels}}} {_number(value)}" if labels else f"{name} {_number(value)}"
        for labels, value in values.items()
    ]


def _histogram(name: str, values: dict[str, Any]) -> list[str]:
    lines, total = [], 0
    for bound, count in zip([*map(_number, values["bounds"]), "+Inf"], values["counts"], strict=True):
        total += count
        lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
    return [*lines, f"{name}_sum {_number(values['sum'])}", f"{name}_count {total}"]


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
