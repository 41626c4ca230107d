"""Names right below a writable directory that a sandboxed command must not change.

A program that can write there decides what runs later, outside of the sandbox.
"""

from __future__ import annotations

from exec_server.protocol.paths import normalised
from exec_server.protocol.permissions import PROTECTED_NAMES
from exec_server.sandbox.file_system_facts import join

NAMES = tuple(name.encode() for name in PROTECTED_NAMES)
GIT = b".git"
# In the directory of a worktree, this file names the repository with the hooks and the settings.
COMMON = b"commondir"
# This much of a .git file is read; a path has no more than 4 KiB.
HEAD_BYTES = 8 * 1024

_GITDIR = b"gitdir:"


def gitdir(head: bytes, directory: bytes) -> bytes | None:
    """The repository that a .git file in *directory*, which begins with *head*, points to."""
    if not head.startswith(_GITDIR):
        return None
    return named(head[len(_GITDIR) :], directory)


def named(text: bytes, directory: bytes) -> bytes | None:
    """The path in the first line of *text*, a file of git that is in *directory*."""
    target = text.partition(b"\n")[0].strip()
    if not target or b"\0" in target:
        return None
    return normalised(target if target.startswith(b"/") else join(directory, target))
