"""The application of a listener that only says: the same, by ``https://``."""

from __future__ import annotations

import re
from typing import Any

_PORT = re.compile(rb":[0-9]*$")


class Redirect:
    """Answers each request with 308 (RFC 9110 section 15.4.9) to the same target at `port` of the same
    host.
    """

    def __init__(self, port: int) -> None:
        self._port = b"" if port == 443 else b":%d" % port

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """See ASGI. Only requests come here."""
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        name = _PORT.sub(b"", host) if not host.endswith(b"]") else host
        if name:
            path = scope["raw_path"] if scope["raw_path"].startswith(b"/") else b"/"
            query = b"?" + scope["query_string"] if scope["query_string"] else b""
            target = b"https://" + name + self._port + path + query
            status, more, text = 308, [(b"location", target)], b"this is served by https only\n"
        else:
            status, more, text = (
                400,
                [],
                b"this is served by https only, and a request without Host says not where\n",
            )
        fields = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text)), *more]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": text})
