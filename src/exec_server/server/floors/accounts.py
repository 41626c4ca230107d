"""The Unix users that commands run as."""

from __future__ import annotations

import os
import pwd

from exec_server.errors import FloorRefused
from exec_server.process.start_terms import UserAccount

_DEFAULT_SHELL = "/bin/sh"


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
