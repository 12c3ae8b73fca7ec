"""The WSGI application without a framework."""

from __future__ import annotations

import time

from proof import facts

OCTETS = ("content-type", "application/octet-stream")
BODY = b"x" * 1024


def app(environ, start_response):
    """1 KiB at once under `/`, after 10 ms of blocking under `/wait`, after 1.5 s under `/slow`."""
    path = environ["PATH_INFO"]
    body = BODY
    if path == "/.proof":
        body = facts()
    elif path == "/upload":
        body = b"%d" % len(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
    elif path == "/wait":
        time.sleep(0.01)
    elif path == "/slow":
        time.sleep(1.5)
    elif path != "/":
        start_response("404 Not Found", [("content-length", "0")])
        return []
    start_response("200 OK", [OCTETS, ("content-length", str(len(body)))])
    return [body]
