"""A plan for another Unix user: what this user cannot reach anyway is not hidden again.

The server's own secrets are hidden in every sandbox. bubblewrap, which runs as the user, cannot
mount anything below a directory that the user cannot enter; there the permissions hide it.
"""

from __future__ import annotations

import os
import stat

from msgspec import structs

from exec_server.sandbox.file_system_facts import parent
from exec_server.sandbox.model import Plan


def for_user(plan: Plan, uid: int, groups: tuple[int, ...]) -> Plan:
    """*plan* without the steps that hide secrets where the user cannot go."""
    unreached = {path for path in plan.own_secrets if not _reaches(parent(path), uid, groups)}
    if not unreached:
        return plan
    return structs.replace(
        plan,
        steps=tuple(step for step in plan.steps if step.path not in unreached),
        own_secrets=tuple(path for path in plan.own_secrets if path not in unreached),
    )


def _reaches(folder: bytes, uid: int, groups: tuple[int, ...]) -> bool:
    """True if the user may pass through *folder* and all above it, by their modes."""
    while True:
        try:
            found = os.stat(folder)
        except OSError:
            return True
        if not _may_enter(found, uid, groups):
            return False
        if folder == b"/":
            return True
        folder = parent(folder)


def _may_enter(found: os.stat_result, uid: int, groups: tuple[int, ...]) -> bool:
    if found.st_uid == uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid in groups:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)
