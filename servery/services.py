"""From a configuration to what the connections of a worker share."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Any

from . import logs
from .apps import LoadedApp
from .config import Config
from .drivers.admission import Admission
from .drivers.balance import Balance, Loads
from .drivers.clients import Clients
from .drivers.contracts import Certificates
from .drivers.front import Front, RequestIds
from .drivers.preamble import PreambleRules
from .drivers.room import Both, Places, Room
from .drivers.service import Options, Service
from .drivers.stamp import DateStamp
from .metrics.counting import Metrics
from .proxies.rewriting import ScopeRewriter
from .proxies.trust import Trust
from .selection import Selection

VERSIONS = {"v1": frozenset((1,)), "v2": frozenset((2,)), "any": frozenset((1, 2))}
"""What ``--proxy-protocol`` accepts."""


def make_service(
    config: Config,
    selection: Selection,
    loaded: LoadedApp,
    state: dict[str, Any] | None,
    certificates: Certificates | None,
    loads: Loads | None,
) -> Service:
    """What serves the application, in the running event loop; None is what there is none of.

    `state` is the lifespan's, `certificates` are shown to clients, `loads` are of workers that share sockets.
    """
    loop = asyncio.get_running_loop()
    stamp = DateStamp(config.date_header, config.server_header, config.extra_headers)
    metrics = Metrics(selection.tally()) if config.admin is not None else None
    app, concurrency = _in_turn(config, loaded, loop, metrics)
    return Service(
        app=app,
        limits=config.limits,
        make_engine=selection.engine_factory(config.limits, stamp),
        handshakes=selection.handshake_reader(config, stamp),
        loop=loop,
        context=contextvars.copy_context(),
        access=logs.AccessLog(config.access_log_format, logging.getLogger(logs.ACCESS_LOGGER)),
        root_path=config.root_path,
        concurrency=concurrency,
        state=state,
        runs=f"{selection} interface={loaded.interface}",
        tls=certificates,
        options=Options(
            front=_front(config),
            preamble=_preamble(config),
            room=_room(config, loads, loop),
            clients=_clients(config, metrics),
            metrics=metrics,
            make_http2=selection.http2_factory(config, stamp),
            h2c=config.h2c,
            slow_after=config.slow_request_log,
        ),
    )


def _in_turn(
    config: Config, loaded: LoadedApp, loop: asyncio.AbstractEventLoop, metrics: Metrics | None
) -> tuple[Any, int | None]:
    """The application, and how many requests it may be asked for at a time, those that wait among them."""
    limit = config.limit_concurrency
    if not config.limit_queue and config.limit_client_concurrency is None:
        return loaded.app, limit
    admission = Admission(
        loaded.app,
        limit=limit if config.limit_queue else None,
        timeout=config.timeout_queue,
        per_client=config.limit_client_concurrency,
        loop=loop,
        waited=metrics.waits.observe if metrics is not None else None,
    )
    return admission, None if limit is None else limit + config.limit_queue


def _front(config: Config) -> Front | None:
    trust = Trust(config.trusted_proxy)
    rewrite = ids = None
    if config.forwarded_field:
        believed = [field.lower().encode() for field in config.forwarded_field]
        rewrite = ScopeRewriter(trust, believed, config.untrusted_fields == "remove", config.root_path)
    if config.request_id_header is not None:
        ids = RequestIds(config.request_id_header.lower().encode(), trust, config.request_id_reply)
    return Front(rewrite, ids) if rewrite is not None or ids is not None else None


def _room(config: Config, loads: Loads | None, loop: asyncio.AbstractEventLoop) -> Places | None:
    room = Room(config.limit_connections) if config.limit_connections is not None else None
    if loads is None:
        return room
    balance = Balance(loads, loop)
    return balance if room is None else Both(room, balance)


def _clients(config: Config, metrics: Metrics | None) -> Clients | None:
    if config.limit_client_connections is None:
        return None
    return Clients(config.limit_client_connections, Trust(config.trusted_proxy), metrics)


def _preamble(config: Config) -> PreambleRules | None:
    if config.proxy_protocol == "off":
        return None
    return PreambleRules(Trust(config.trusted_proxy), VERSIONS[config.proxy_protocol])
