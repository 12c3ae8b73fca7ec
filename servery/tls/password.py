"""The password of a key, from where ``--tls-key-password`` says that it is: never from the command line
itself.
"""

from __future__ import annotations

import os

from ..errors import ConfigError


def read_password(where: str | None) -> str | None:
    """The password in ``env:NAME`` or in the first line of ``file:PATH``; ``None`` if there is none.

    Raises `ConfigError` if it is not there.
    """
    if where is None:
        return None
    kind, _, name = where.partition(":")
    if kind == "env":
        password = os.environ.get(name)
        if password is None:
            raise ConfigError(f"tls_key_password: there is no variable {name}: set it, or name another")
        return password
    try:
        with open(name, encoding="utf-8") as stream:
            return stream.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"tls_key_password: {name!r} cannot be read: {error}") from None
