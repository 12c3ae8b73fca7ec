"""What is done with a request before its application is called, where the configuration asks for it.

Believes proxies (`servery.proxies`) and names requests. Both kinds of connection call it with a cycle whose
scope is made; without it they call nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol

from ..engine import Scope, Stamp
from ..proxies.rewriting import ScopeRewriter
from ..proxies.trust import Trust

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._~+/=@:-]{1,128}")
"""What is taken for a request id: UUIDs, ULIDs, trace ids, and nothing that a log would have to escape."""


class Fronted(Protocol):
    """What of a cycle is looked at and changed."""

    request_id: str
    origin: tuple[tuple[str, int] | None, str] | None
    """(client, scheme) as the access log shall have them, if not those of the connection."""

    @property
    def engine(self) -> Any:
        """The engine that answers."""
        ...


class RequestIds:
    """How requests are named: by the field `name` (lower case) of a peer in `trust`, if it has a usable one.

    `replies` says that responses carry the id, too.
    """

    __slots__ = ("name", "replies", "trust")

    def __init__(self, name: bytes, trust: Trust, replies: bool) -> None:
        self.name = name
        self.trust = trust
        self.replies = replies

    def given(self, scope: Scope) -> str | None:
        """The id that a trusted peer has given to the request of `scope`."""
        if not self.trust.is_trusted(scope["client"], scope["server"]):
            return None
        values = [value for name, value in scope["headers"] if name == self.name]
        if len(values) != 1 or not _REQUEST_ID.fullmatch(values[0]):
            return None
        value: bytes = values[0]
        return value.decode("ascii")


class IdStamp:
    """A stamp (see `servery.engine.Stamp`) that adds the id of one request to what `base` says."""

    __slots__ = ("_line", "base")

    def __init__(self, base: Stamp, line: bytes) -> None:
        self.base = base
        self._line = line

    def __call__(self, has: int) -> bytes:
        """The field lines for a response."""
        return self.base(has) + self._line


class Front:
    """Called with each cycle before it begins, and told of its end with `ended`."""

    __slots__ = ("_ids", "_rewrite")

    def __init__(self, rewrite: ScopeRewriter | None, ids: RequestIds | None) -> None:
        self._rewrite = rewrite
        self._ids = ids

    def __call__(self, cycle: Fronted, scope: Scope) -> None:
        """Change `scope`, which `cycle` is about to begin with, and what the access log will say of it."""
        if self._ids is not None:
            self._name(cycle, scope, self._ids)
        if self._rewrite is not None:
            self._rewrite(scope)
            scheme = "https" if scope["scheme"] in ("https", "wss") else "http"
            cycle.origin = (scope["client"], scheme)

    def ended(self, cycle: Fronted) -> None:
        """The response is queued: what the server says next is not about this request."""
        stamp = cycle.engine.stamp
        if isinstance(stamp, IdStamp):
            cycle.engine.stamp = stamp.base

    def switching_fields(
        self, cycle: Fronted, headers: Iterable[tuple[bytes, bytes]]
    ) -> Iterable[tuple[bytes, bytes]]:
        """`headers` of the response that opens a WebSocket, with the id among them."""
        if self._ids is None or not self._ids.replies:
            return headers
        return [*headers, (self._ids.name, cycle.request_id.encode())]

    @staticmethod
    def _name(cycle: Fronted, scope: Scope, ids: RequestIds) -> None:
        given = ids.given(scope)
        if given is not None:
            cycle.request_id = scope["extensions"]["servery"]["request_id"] = given
        if ids.replies:
            engine = cycle.engine
            base = engine.stamp.base if isinstance(engine.stamp, IdStamp) else engine.stamp
            engine.stamp = IdStamp(base, b"%b: %b\r\n" % (ids.name, cycle.request_id.encode()))
