"""The WebSocket engines and their decoders of frames, by the name of the parser that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

ENGINES = {"python": "servery.websocket.engine", "native": "servery._speedups.websocket"}
DECODERS = {"python": "servery.websocket.frames", "native": "servery._speedups.websocket"}

_chosen: list[str] = []


@contextmanager
def chosen(name: str) -> Iterator[None]:
    """In this block these classes are those of the parser `name`. One that is not built is an ImportError."""
    import_module(ENGINES[name])
    _chosen.append(name)
    try:
        yield
    finally:
        _chosen.pop()


def engine_class() -> Any:
    """The class under test."""
    return import_module(ENGINES[_chosen[-1]]).WebSocketEngine


def decoder_class() -> Any:
    """The class under test."""
    return import_module(DECODERS[_chosen[-1]]).FrameDecoder
