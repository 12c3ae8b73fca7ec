"""Processes around servers: a master with workers, a reloader with its child, and what systems expect."""

from __future__ import annotations

from ..config import Config
from .upgrade import in_progress


def needs_supervisor(config: Config) -> bool:
    """Whether `config` asks for a master, or this program goes on with the sockets of one."""
    return config.supervised or in_progress()
