"""A plan for another Unix user: what this user cannot reach anyway is not closed again.

The server's own files are hidden or read-only in every sandbox, and the directories above them
cannot be renamed. bubblewrap, which runs as the user, cannot mount anything below a directory that
the user cannot enter; there the permissions do the same.
"""

from __future__ import annotations

import os
import stat

from msgspec import structs

from exec_server.sandbox import own_places
from exec_server.sandbox.file_system_facts import parent
from exec_server.sandbox.model import Plan


def for_user(plan: Plan, uid: int, groups: tuple[int, ...]) -> Plan:
    """*plan* without the steps that close our own files where the user cannot go."""
    own = (*plan.own_secrets, *own_places.protected())
    places = {parent(path) for path in (*own, *plan.anchors)}
    unreached = {place for place in places if not _reaches(place, uid, groups)}
    if not unreached:
        return plan
    dropped = {path for path in own if parent(path) in unreached}
    return structs.replace(
        plan,
        steps=tuple(step for step in plan.steps if step.path not in dropped),
        own_secrets=tuple(path for path in plan.own_secrets if path not in dropped),
        anchors=tuple(path for path in plan.anchors if parent(path) not in unreached),
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
