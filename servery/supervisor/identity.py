"""Who the process is: user, group, umask and name. What needs root, such as port 80, is done before."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..config import Config
from ..errors import ConfigError


@dataclass(frozen=True, slots=True)
class Identity:
    """Numbers of the user and the group to become, and the user's name; None is no change."""

    uid: int | None
    gid: int | None
    name: str | None

    def assume(self) -> None:
        """Become them for good. Raises `ConfigError` if this process may not.

        The supplementary groups become the user's; root's would be as good as root.
        """
        try:
            if self.gid is not None:
                if self.name is not None:
                    os.initgroups(self.name, self.gid)
                elif os.geteuid() == 0:
                    os.setgroups([self.gid])
                os.setgid(self.gid)
            if self.uid is not None:
                os.setuid(self.uid)
        except PermissionError:
            raise ConfigError(
                "user, group: this process may not change them; start it as root, or drop them"
            ) from None

    def own(self, path: str) -> None:
        """Give a file to them, so that they can remove it, and those in the group can use it."""
        if self.uid is not None or self.gid is not None:
            os.chown(path, -1 if self.uid is None else self.uid, -1 if self.gid is None else self.gid)


def find_identity(config: Config) -> Identity:
    """The numbers behind ``user`` and ``group``, which may be numbers themselves. Raises `ConfigError`."""
    if config.user is None and config.group is None:
        return Identity(None, None, None)
    try:
        import grp
        import pwd
    except ImportError:
        raise ConfigError("user, group: this platform has none; drop them") from None
    uid = gid = name = None
    if config.user is not None:
        try:
            entry = pwd.getpwuid(int(config.user)) if config.user.isdecimal() else pwd.getpwnam(config.user)
            uid, gid, name = entry.pw_uid, entry.pw_gid, entry.pw_name
        except KeyError:
            if not config.user.isdecimal():
                raise ConfigError(f"user: there is no {config.user!r}; name one that exists") from None
            uid = gid = int(config.user)  # containers have users that no file names
    if config.group is not None:
        try:
            gid = int(config.group) if config.group.isdecimal() else grp.getgrnam(config.group).gr_gid
        except KeyError:
            raise ConfigError(f"group: there is no {config.group!r}; name one that exists") from None
    return Identity(uid, gid, name)


def set_umask(config: Config) -> None:
    """Set the umask, if one is asked for."""
    if config.umask is not None:
        os.umask(config.umask)


def set_name(config: Config, role: str) -> None:
    """Show ``process_name`` and the role in ps and top. Raises `ConfigError` without `setproctitle`."""
    if config.process_name is None:
        return
    try:
        import setproctitle
    except ImportError:
        raise ConfigError(
            "process_name needs the package setproctitle: install it (the extra [process-name]), or drop it"
        ) from None
    setproctitle.setproctitle(f"{config.process_name}: {role}" if role else config.process_name)
