"""Why something was not measured."""

from __future__ import annotations


class CannotServe(Exception):
    """The server does not have what the scenario needs; it is left out, with this reason."""


class Refused(Exception):
    """The server did not prove to be what was asked for, or answered wrongly: nothing of it is reported."""
