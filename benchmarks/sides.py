"""What `ab` compares: two command lines in words, and an application, which may be the user's own."""

from __future__ import annotations

import dataclasses
import hashlib
import http.client
import os
import shlex
from pathlib import Path
from typing import Any

from .adapters import Adapter, adapter_named, servery_with
from .environments import Environments
from .scenario import Cell, Scenario
from .serving import free_port, running
from .trial import Subject, launch_of
from .verdicts import Refused

SETTINGS_OF_SERVERS = (
    "SERVERY_",
    "UVICORN_",
    "GRANIAN_",
    "H2CORN_",
    "GUNICORN_",
    "HYPERCORN_",
    "WEB_CONCURRENCY",
    "PYTHONPATH",
)
"""Beginnings of variables that would change a server behind its command line."""


def side(text: str, letter: str) -> tuple[str, Adapter]:
    """Name and adapter of ``--parser native`` (flags of servery) or of ``uvicorn-native --backlog 512``.

    Raises KeyError for an unknown server, CannotServe for one that is only listed.
    """
    words = shlex.split(text)
    name = f"{letter}: {text or 'servery'}"
    if words and not words[0].startswith("-"):
        adapter = adapter_named(words[0])
        extra = tuple(words[1:])
        return name, dataclasses.replace(adapter, name=adapter.name, flags=(*adapter.flags, *extra))
    return name, servery_with(words)


def users_environment() -> dict[str, str]:
    """The user's variables, which an application may need, without those that servers read as settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS_OF_SERVERS)}


def users_scenario(app: str, path: str, connections: int, method: str, is_wsgi: bool) -> Scenario:
    """A scenario of the user's own; what it expects is not known yet."""
    return Scenario(
        name="app",
        title=f"{app} {path}",
        about="",
        app="plain_wsgi" if is_wsgi else "",
        kind="http",
        axis="",
        points=(1,),
        path=path,
        request={"method": method},
        load={"connections": connections},
    )


def learn(scenario: Scenario, subject: Subject, environments: Environments) -> tuple[Scenario, str]:
    """The scenario with the expectation that the first server's answer sets, and a remark on it.

    Two requests tell whether the body is the same each time; only then is it expected. Raises Refused for
    an error.
    """
    cell = Cell(scenario, 1)
    port = free_port()
    argv = subject.adapter.argv(launch_of(subject, cell, port), environments)
    with running(argv, scenario.path, port, "", None, subject.directory, subject.environment) as server:
        answers = [_ask(server.connection(), scenario) for _ in range(2)]
    status, body, kind = answers[0]
    if status >= 400:
        raise Refused(
            f"{scenario.path} answers {status}: give the --path, and the --method, of a request that succeeds"
        )
    expect: dict[str, Any] = {"status": status}
    if kind:
        expect["fields"] = {"content-type": kind}
    if answers[0] != answers[1]:
        return dataclasses.replace(
            scenario, expect=expect
        ), "the body differs from request to request and is not checked"
    expect |= {"length": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    return dataclasses.replace(scenario, expect=expect), f"{status}, {len(body):,} octets, checked exactly"


def _ask(connection: http.client.HTTPConnection, scenario: Scenario) -> tuple[int, bytes, str]:
    """Status, body, and content type."""
    try:
        connection.request(scenario.request.get("method", "GET"), scenario.path)
        response = connection.getresponse()
        return response.status, response.read(), response.getheader("content-type", "")
    finally:
        connection.close()


def users_subject(name: str, adapter: Adapter, app: str, directory: str) -> Subject:
    """An application of the user's behind one of the sides."""
    return Subject(name, adapter, app, Path(directory).resolve(), users_environment())
