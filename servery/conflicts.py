"""Settings that cannot work together, and the fix for each pair. Knows values, not where they come from."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from . import rules

RELOAD_DETAILS = ("reload_dir", "reload_include", "reload_exclude", "reload_delay")
"""The settings that have a meaning only with `reload`."""
SUPERVISED = (
    *("preload", "limit_max_requests", "limit_max_requests_jitter", "worker_max_age", "worker_max_memory"),
    "reuse_port",
)
"""The settings that only a supervisor can fulfil: with one of them even one worker has one."""
PROCESSES_ONLY = ("worker_start", "preload", "worker_max_memory")
"""The settings that have no meaning for workers that are threads."""
TLS_DETAILS = (
    *("tls_key", "tls_key_password", "tls_ca", "tls_client_cert", "tls_min_version", "tls_ciphers"),
    *("tls_watch", "tls_redirect", "tls_redirect_port"),
)
"""The settings that have a meaning only with `tls_cert` or `tls_self_signed`."""
DEFLATE_DETAILS = (
    *("ws_deflate_window_bits", "ws_deflate_memory_level", "ws_deflate_context_takeover"),
    "ws_deflate_min_size",
)
"""The settings that have a meaning only with `ws_per_message_deflate`."""


class Conflict(NamedTuple):
    """Settings that cannot work together: the fields that made the trouble, and the fix."""

    fields: tuple[str, ...]
    text: str


def find_conflict(values: Mapping[str, Any], given: Collection[str]) -> Conflict | None:
    """The first contradiction between `values`, one for each setting; `given` names those set on purpose."""
    checks = (
        *(
            _listen_conflicts,
            _tls_conflicts,
            _http2_conflicts,
            _proxy_conflicts,
            _limit_conflicts,
            _websocket_conflicts,
            _worker_conflicts,
            _start_conflicts,
        ),
        _other_conflicts,
    )
    return next((conflict for check in checks for conflict in check(values, given)), None)


def _listen_conflicts(values: Mapping[str, Any], given: Collection[str]) -> Iterator[Conflict]:
    if values["uds"] is not None and values["fd"] is not None:
        yield Conflict(("uds", "fd"), "uds and fd both say where to listen: give one, or name both with bind")
    chosen = next((name for name in ("bind", "uds", "fd") if values[name] not in (None, ())), None)
    for name in ("host", "port", "uds", "fd"):
        if chosen and name != chosen and name in given:
            text = f"{chosen} and {name} both say where to listen: drop {name}, or name all with bind"
            yield Conflict((chosen, name), text)
    unix = values["uds"] is not None or any(address.startswith("unix:") for address in values["bind"])
    if values["uds_mode"] is not None and not unix:
        text = "uds_mode is for unix sockets, and there is none: add uds or bind unix:PATH, or drop uds_mode"
        yield Conflict(("uds_mode",), text)
    lists = ("bind", "tls_cert", "tls_redirect", "trusted_proxy", "forwarded_field", *RELOAD_DETAILS[:3])
    for name in lists:
        for item in values[name]:
            if values[name].count(item) > 1:
                yield Conflict((name,), f"{name} names {item!r} twice: drop one")


def _tls_conflicts(values: Mapping[str, Any], given: Collection[str]) -> Iterator[Conflict]:
    if values["tls_cert"] and values["tls_self_signed"]:
        text = "tls_cert and tls_self_signed both say what to show: drop tls_self_signed"
        yield Conflict(("tls_cert", "tls_self_signed"), text)
    for name in TLS_DETAILS:
        if name in given and not (values["tls_cert"] or values["tls_self_signed"]):
            yield Conflict((name,), f"{name} does nothing without TLS: add tls_cert, or drop {name}")
    if (values["tls_client_cert"] == "none") is not (values["tls_ca"] is None):
        text = "tls_client_cert and tls_ca need each other: who may show a certificate, and who issues it"
        yield Conflict(("tls_client_cert", "tls_ca"), text)
    if "tls_ciphers" in given and values["tls_min_version"] == "1.3":
        text = "tls_ciphers are those of TLS 1.2, and tls_min_version is 1.3: drop tls_ciphers"
        yield Conflict(("tls_ciphers", "tls_min_version"), text)
    if "tls_redirect_port" in given and not values["tls_redirect"]:
        text = "tls_redirect_port does nothing without tls_redirect: add that, or drop tls_redirect_port"
        yield Conflict(("tls_redirect_port",), text)


def _http2_conflicts(values: Mapping[str, Any], _: Collection[str]) -> Iterator[Conflict]:
    tls = values["tls_cert"] or values["tls_self_signed"]
    if values["http2"] and not tls:
        text = "http2 is agreed on within TLS, and there is none: add tls_cert, or use h2c instead"
        yield Conflict(("http2",), text)
    if values["h2c"] and tls:
        text = "h2c is HTTP/2 without TLS, and all listeners have TLS: use http2 instead"
        yield Conflict(("h2c",), text)


def _proxy_conflicts(values: Mapping[str, Any], _: Collection[str]) -> Iterator[Conflict]:
    fields = [field.lower() for field in values["forwarded_field"]]
    mixed = next((field for field in fields if field in rules.SAID_BY_FORWARDED), None)
    if mixed and "forwarded" in fields:
        text = f"forwarded_field has forwarded and {mixed}, which say the same: name what your proxy sets"
        yield Conflict(("forwarded_field",), text)
    wanting = ("forwarded_field",) * bool(fields) + ("proxy_protocol",) * (values["proxy_protocol"] != "off")
    if wanting and not values["trusted_proxy"]:
        text = f"{wanting[0]} does nothing without trusted_proxy: name the addresses of your proxies there"
        yield Conflict((wanting[0], "trusted_proxy"), text)
    name, reply = values["request_id_header"], values["request_id_reply"]
    if reply and name is None:
        text = "request_id_reply needs the name of a field: set request_id_header, such as x-request-id"
        yield Conflict(("request_id_reply", "request_id_header"), text)
    if name is not None and not reply and not values["trusted_proxy"]:
        text = "request_id_header does nothing without trusted_proxy or request_id_reply: add one of them"
        yield Conflict(("request_id_header", "trusted_proxy"), text)


def _limit_conflicts(values: Mapping[str, Any], _: Collection[str]) -> Iterator[Conflict]:
    whole = values["limit_head_size"]
    for name in ("limit_request_line", "limit_request_field_size"):
        if values[name] > whole:
            text = (
                f"{name} is {values[name]} bytes, but the whole head may only have {whole}: "
                f"lower {name}, or raise limit_head_size to {values[name]} or more"
            )
            yield Conflict((name, "limit_head_size"), text)
    if values["limit_queue"] and values["limit_concurrency"] is None:
        text = "limit_queue does nothing without limit_concurrency: set that to what your application carries"
        yield Conflict(("limit_queue", "limit_concurrency"), text)


def _websocket_conflicts(values: Mapping[str, Any], given: Collection[str]) -> Iterator[Conflict]:
    for name in DEFLATE_DETAILS:
        if name in given and not values["ws_per_message_deflate"]:
            text = f"{name} does nothing without ws_per_message_deflate: set that to true, or drop {name}"
            yield Conflict((name, "ws_per_message_deflate"), text)
    if "ws_ping_timeout" in given and values["ws_ping_interval"] is None:
        text = "ws_ping_timeout does nothing without pings: set ws_ping_interval, or drop ws_ping_timeout"
        yield Conflict(("ws_ping_timeout", "ws_ping_interval"), text)


def start_method(chosen: str | None) -> str:
    """How worker processes start, with `worker_start` as it is `chosen`."""
    return chosen or ("fork" if hasattr(os, "fork") else "spawn")


def gil_trouble() -> str | None:
    """Why threads cannot run Python at the same time in this process, and what to do; None if they can."""
    enabled = getattr(sys, "_is_gil_enabled", None)
    if enabled is not None and not enabled():
        return None
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return (
            "the GIL is on, though this build of Python can do without: a compiled module asks for it (those "
            "of parser native do), or PYTHON_GIL or -X gil; drop that, or use worker_kind process"
        )
    return (
        "this build of Python has a GIL, with which threads only take turns: use a free-threaded one, such "
        "as python3.14t, or worker_kind process"
    )


def _needing_master(values: Mapping[str, Any]) -> list[str]:
    """The settings for which there is a supervisor."""
    found = [name for name in SUPERVISED if values[name] not in (None, False)]
    return found if values["workers"] == 1 else [*found, "workers"]


def _worker_conflicts(values: Mapping[str, Any], given: Collection[str]) -> Iterator[Conflict]:
    for name in _needing_master(values):
        if values["reload"]:
            text = f"reload serves with one process that it restarts: drop {name}, or reload"
            yield Conflict(("reload", name), text)
    if "limit_max_requests_jitter" in given and values["limit_max_requests"] is None:
        text = "limit_max_requests_jitter does nothing without limit_max_requests: set that, or drop it"
        yield Conflict(("limit_max_requests_jitter", "limit_max_requests"), text)


def _start_conflicts(values: Mapping[str, Any], given: Collection[str]) -> Iterator[Conflict]:
    if values["worker_kind"] == "thread":
        trouble = gil_trouble()
        if trouble:
            yield Conflict(("worker_kind",), f"worker_kind thread: {trouble}")
        for name in PROCESSES_ONLY:
            if name in given:
                text = f"{name} is for workers that are processes: drop it, or use worker_kind process"
                yield Conflict((name, "worker_kind"), text)
        return
    if values["worker_start"] == "fork" and start_method(None) != "fork":
        text = "worker_start fork: this system has no fork(): use spawn, which is the default here"
        yield Conflict(("worker_start",), text)
    needing = _needing_master(values)
    if not needing or start_method(values["worker_start"]) == "fork":
        return
    if values["preload"]:
        text = "preload shares by a fork what is imported, and worker_start is spawn: drop one of them"
        yield Conflict(("preload", "worker_start"), text)
    if not isinstance(values["app"], str | None):
        text = (
            "workers that are spawned import the application themselves (worker_start), so app must be an "
            "import string such as main:app"
        )
        yield Conflict(("app", needing[-1]), text)


def _other_conflicts(values: Mapping[str, Any], given: Collection[str]) -> Iterator[Conflict]:
    for name in RELOAD_DETAILS:
        if name in given and not values["reload"]:
            yield Conflict((name,), f"{name} does nothing without reload: add reload, or drop {name}")
    if values["reload"] and not isinstance(values["app"], str | None):
        text = "reload imports the application anew, so app must be an import string such as main:app"
        yield Conflict(("reload", "app"), text)
    if values["admin"] is not None and not values["admin_public"] and not rules.is_local(values["admin"]):
        text = (
            f"admin is {values['admin']}, which other machines may reach, and it asks for no password: use "
            "unix:PATH or a loopback address, or add admin_public if a firewall stands before it"
        )
        yield Conflict(("admin", "admin_public"), text)
    names = {line.partition(":")[0].lower() for line in values["header"]}
    for field in ("server", "date"):
        if field in names and values[f"{field}_header"]:
            text = f"header sets {field} and so does servery: set {field}_header to false as well"
            yield Conflict(("header", f"{field}_header"), text)
