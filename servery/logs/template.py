"""Access log templates with the %-atoms that Apache and gunicorn share, compiled once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import fields

from ..errors import ConfigError
from .escaping import escape, escape_word
from .formats import request_id, request_line
from .record import AccessRecord, WebSocketTraffic, field
from .stamps import clf_time

Line = Callable[[AccessRecord], str]

_ATOM = re.compile(r"%(?:\{(?P<name>[^{}]*)\}(?P<kind>[A-Za-z]?)|>?(?P<atom>.?))", re.DOTALL)


def _host(record: AccessRecord) -> str:
    return escape_word(record.client[0]) if record.client else "-"


def _query(record: AccessRecord) -> str:
    mark, query = record.target.partition(b"?")[1:]
    return escape(mark + query).replace(" ", "\\x20")


ATOMS: dict[str, Line] = {
    "h": _host,
    "l": lambda record: "-",
    "u": lambda record: "-",  # the server authenticates nobody, and does not repeat what nobody checked
    "t": lambda record: f"[{clf_time(record.started_at)}]",
    "r": request_line,
    "m": lambda record: escape_word(record.method),
    "U": lambda record: escape_word(record.target.partition(b"?")[0]),
    "q": _query,
    "H": lambda record: escape_word(record.version and b"HTTP/" + record.version),
    "s": lambda record: f"{record.status:03d}",
    "b": lambda record: str(record.body_bytes_sent or "-"),
    "B": lambda record: str(record.body_bytes_sent),
    "f": lambda record: _text(field(record.headers, b"referer")),
    "a": lambda record: _text(field(record.headers, b"user-agent")),
    "D": lambda record: str(round(record.duration * 1_000_000)),
    "L": lambda record: f"{record.duration:.6f}",
    "M": lambda record: str(round(record.duration * 1000)),
    "T": lambda record: str(int(record.duration)),
    "p": lambda record: str(os.getpid()),
    "I": request_id,
    "x": lambda record: "X" if record.aborted else "-",
}
"""Atom to text. %D is microseconds, %M milliseconds, %T whole seconds, %L seconds with a fraction; for no
content %b is ``-`` and %B is 0; %q starts with its question mark; %x is ``X`` for an aborted request."""

TRAFFIC = tuple(field.name for field in fields(WebSocketTraffic))
"""What ``%{NAME}w`` may name: ``-`` for a request that opened no WebSocket."""

_USE = (
    "use " + " ".join(f"%{atom}" for atom in ATOMS) + " %{NAME}i (request field) %{NAME}o (response field)"
    f" %{{NAME}}w (of a WebSocket: {', '.join(TRAFFIC)}) and %% for a percent sign"
)


def compile_template(template: str) -> Line:
    """Make a function that writes a record as `template` says. Raises `ConfigError` for an unknown atom."""
    getters: list[Line] = []
    parts: list[str] = []
    end = 0
    for match in _ATOM.finditer(template):
        parts.append(_literal(template[end : match.start()]))
        end = match.end()
        if match[0] == "%%":
            parts.append("%%")
        else:
            parts.append("%s")
            getters.append(_getter(match))
    text = "".join(parts) + _literal(template[end:])
    return lambda record: text % tuple([get(record) for get in getters])


def _literal(text: str) -> str:
    if re.search(r"[^\t\x20-\x7e]", text):
        raise ConfigError(
            f'access log format: "{escape(text)}" is not printable ASCII; one request is one line, so'
            " write the template with ASCII letters, signs, spaces and tabs only"
        )
    return text.replace("%", "%%")


def _getter(match: re.Match[str]) -> Line:
    atom, kind = match["atom"], match["kind"]
    if atom in ATOMS and (atom == "s" or not match[0].startswith("%>")):
        return ATOMS[atom]
    if kind in ("i", "o") and match["name"]:
        return _field_getter(match["name"].lower().encode("utf-8"), kind)
    if kind == "w" and match["name"] in TRAFFIC:
        return _traffic_getter(match["name"])
    hint = "; gunicorn's %(h)s is %h here" if atom == "(" else ""
    raise ConfigError(f'access log format: unknown atom "{escape(match[0])}"; {_USE}{hint}')


def _field_getter(name: bytes, kind: str) -> Line:
    if kind == "i":
        return lambda record: _text(field(record.headers, name))
    return lambda record: _text(field(record.response_headers, name))


def _traffic_getter(name: str) -> Line:
    return lambda record: "-" if record.websocket is None else str(getattr(record.websocket, name))


def _text(value: bytes | None) -> str:
    return escape(value) if value else "-"
