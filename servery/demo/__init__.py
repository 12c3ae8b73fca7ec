"""A small application that shows what the server does: ``servery servery.demo:app``.

``GET /`` is a page that shows the configuration and the request, ``/ticker`` an endless event stream,
``POST /echo`` gives an upload back, ``/scope`` is the ASGI scope as JSON, ``/healthz`` says ``ok``.
"""

from __future__ import annotations

from .application import app

__all__ = ["app"]
