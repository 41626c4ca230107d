"""The Unix users that commands run as."""

from __future__ import annotations

import os
import pwd

from exec_server.access.principal import Principal
from exec_server.errors import FloorRefused
from exec_server.process.start_terms import UserAccount

_DEFAULT_SHELL = "/bin/sh"


def chosen_account(user: str, who: Principal) -> UserAccount:
    """The account of the user that a start of *who* asks for. Raises FloorRefused."""
    own = who.floors.run_as
    if own is not None and own != user:
        raise FloorRefused(f"principal `{who.name}` runs commands as the user `{own}` alone")
    if own is None and not who.is_admin:
        raise FloorRefused(f"principal `{who.name}` is no admin, and cannot choose a user")
    if own is None and not _exists(user):
        raise FloorRefused(f"the user `{user}` is unknown here")
    return find_account(user, principal=who.name)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except (KeyError, ValueError):
        return False
    return True


def find_account(user: str, *, principal: str) -> UserAccount:
    """The account of *user*, whose commands *principal* starts. Raises FloorRefused.

    Only a server that runs as root can start a command as another user.
    """
    if os.geteuid() != 0:
        raise FloorRefused(
            f"principal `{principal}` runs commands as the user `{user}`, "
            "and only a server that runs as root can do that"
        )
    try:
        found = pwd.getpwnam(user)
    except (KeyError, ValueError):
        raise FloorRefused(
            f"principal `{principal}` runs commands as the user `{user}`, who is unknown here"
        ) from None
    return UserAccount(
        user,
        found.pw_uid,
        found.pw_gid,
        tuple(os.getgrouplist(user, found.pw_gid)),
        found.pw_dir,
        found.pw_shell or _DEFAULT_SHELL,
    )
