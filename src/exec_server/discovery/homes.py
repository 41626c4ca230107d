"""The directories of the executor's own files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from exec_server.errors import InternalError
from exec_server.host import home_directory

SYSTEM_DIRECTORY = b"/etc/codex"


class Homes(NamedTuple):
    """Native paths; `user` is None if it is unknown."""

    user: bytes | None
    codex: bytes
    system: bytes = SYSTEM_DIRECTORY


def find_homes(environ: Mapping[str, str]) -> Homes:
    """Find the directories from *environ*. Raises InternalError if CODEX_HOME does not exist."""
    user = home_directory(environ)
    named = environ.get("CODEX_HOME", "")
    if not named:
        if user is None:
            raise InternalError("Could not find home directory")
        return Homes(user, os.path.join(user, b".codex"))
    if not os.path.exists(named):
        raise InternalError(f'CODEX_HOME points to "{named}", but that path does not exist')
    if not os.path.isdir(named):
        raise InternalError(f'CODEX_HOME points to "{named}", but that path is not a directory')
    return Homes(user, os.path.realpath(os.fsencode(named)))
