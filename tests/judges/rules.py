"""How `explained.toml` names tests: by id, by the beginning of one, by a fixture, by a marker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def is_named(test: str, names: Iterable[str]) -> bool:
    """Whether `test` is one of `names`; a name that ends in ``*`` stands for all that begin like it."""
    return any(test.startswith(name[:-1]) if name.endswith("*") else test == name for name in names)


def first_rule(
    rules: list[dict[str, Any]], test: str, fixtures: Iterable[str] = (), markers: Iterable[str] = ()
) -> dict[str, Any] | None:
    """The first of `rules` that speaks of `test`, of one of its `fixtures` or of one of its `markers`."""
    for rule in rules:
        if is_named(test, rule.get("tests", ())):
            return rule
        if not set(rule.get("fixtures", ())).isdisjoint(fixtures):
            return rule
        if not set(rule.get("markers", ())).isdisjoint(markers):
            return rule
    return None
