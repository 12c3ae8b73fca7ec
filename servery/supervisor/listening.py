"""The listening sockets of the master, which it keeps for its whole life while workers come and go.

Sockets are known by the text of their address, so that a new configuration, or the program that replaces this
one, takes over those that it names too.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..config import Config
from ..listening import Bound, places_of_redirects
from ..sockets import Address, Listener, bind_all, places
from .identity import find_identity


class Sockets:
    """Every listening socket. With ``reuse_port`` each slot beyond the first has siblings of its own."""

    def __init__(self, inherited: Iterable[Mapping[str, Any]] = ()) -> None:
        """`inherited` is what `state` of the program before this one said."""
        self._shared: dict[str, list[Listener]] = {}
        self._own: dict[tuple[int, str], list[Listener]] = {}
        for entry in inherited:
            listener = adopted(entry["fd"], entry["path"])
            if entry["slot"]:
                self._own.setdefault((entry["slot"], entry["address"]), []).append(listener)
            else:
                self._shared.setdefault(entry["address"], []).append(listener)

    def bind(self, config: Config) -> None:
        """Listen on what `config` names and is not there yet. Raises `BindError`, with nothing changed."""
        new: dict[str, list[Listener]] = {}
        with contextlib.ExitStack() as undo:
            for address in (*places(config), *places_of_redirects(config)):
                if str(address) not in self._shared:
                    bound = bind_all(
                        [address],
                        uds_mode=config.uds_mode,
                        backlog=config.backlog,
                        reuse_port=config.reuse_port,
                    )
                    new[str(address)] = bound
                    for listener in bound:
                        undo.callback(listener.close)
                        if listener.path is not None:
                            find_identity(config).own(listener.path)
            undo.pop_all()
        self._shared |= new

    def prune(self, config: Config) -> None:
        """Stop listening on what `config` does not name."""
        named = {str(address) for address in (*places(config), *places_of_redirects(config))}
        for address in self._shared.keys() - named:
            _close(self._shared.pop(address))
        for key in [key for key in self._own if key[1] not in named]:
            _close(self._own.pop(key))

    def for_slot(self, slot: int, config: Config) -> Bound:
        """What the worker of a slot listens on. Raises `BindError`."""
        return (
            self._at(places(config), slot, config),
            self._at(places_of_redirects(config), slot, config),
        )

    def _at(self, where: list[Address], slot: int, config: Config) -> list[Listener]:
        found: list[Listener] = []
        for address in map(str, where):
            shared = self._shared[address]
            if not config.reuse_port or slot == 0:
                found += shared
                continue
            if (slot, address) not in self._own:
                siblings = [listener.sibling(config.backlog) for listener in shared]
                self._own[slot, address] = [listener for listener in siblings if listener is not None]
            own = self._own[slot, address]
            found += own or shared
        return found

    def give_up(self, slot: int) -> None:
        """The slot has no worker any more: nobody would accept from its own sockets."""
        for key in [key for key in self._own if key[0] == slot]:
            _close(self._own.pop(key))

    def state(self) -> list[dict[str, Any]]:
        """What another program needs to go on with these sockets; their descriptors must stay open."""
        return [
            {"fd": listener.sock.fileno(), "path": listener.path, "slot": slot, "address": address}
            for slot, address, listener in self._all()
        ]

    def close(self) -> None:
        """Stop listening, and remove socket files."""
        _close([listener for _, _, listener in self._all()])
        self._shared.clear()
        self._own.clear()

    def hand_to_worker(self, bound: Bound) -> Bound:
        """In a new worker: `bound` without the duty to remove files; all others are let go of."""
        own, redirects = bound
        kept = {listener.sock.fileno() for listener in (*own, *redirects)}
        for _, _, listener in self._all():
            if listener.sock.fileno() not in kept:
                listener.sock.close()
        return [Listener(listener.sock) for listener in own], [Listener(each.sock) for each in redirects]

    def _all(self) -> Iterator[tuple[int, str, Listener]]:
        for address, listeners in self._shared.items():
            yield from ((0, address, listener) for listener in listeners)
        for (slot, address), listeners in self._own.items():
            yield from ((slot, address, listener) for listener in listeners)


def adopted(fd: int, path: str | None) -> Listener:
    """A listener on a descriptor that this process has, from the program that ran in it before."""
    os.set_inheritable(fd, False)
    sock = socket.socket(fileno=fd)
    sock.setblocking(False)
    ours = path is not None and os.path.lexists(path) and stat.S_ISSOCK(os.lstat(path).st_mode)
    return Listener(sock, path=path if ours else None)


def _close(listeners: Iterable[Listener]) -> None:
    for listener in listeners:
        listener.close()
