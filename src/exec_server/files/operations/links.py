"""fs/lstat, fs/readLink and fs/symlink: methods of our own for symbolic links themselves.

A link is never followed at the end of the path. With `followSymlinks: false` none is followed in
the directories above it either.
"""

from __future__ import annotations

import errno
import os

from exec_server.errors import InvalidRequest
from exec_server.files.operations import changes, local, nofollow
from exec_server.files.operations.oserrors import lossy, os_error
from exec_server.files.operations.status import metadata_of, status
from exec_server.protocol.fs import LinkTarget, Metadata
from exec_server.protocol.paths import encoded


def lstat(path: bytes) -> Metadata:
    """The attributes of *path* itself."""
    return _described(path, None)


def lstat_nofollow(path: bytes) -> Metadata:
    if path == b"/":
        return lstat(path)
    with nofollow.parent_of(path) as (directory, name):
        return _described(name, directory)


def _described(name: bytes, directory: int | None) -> Metadata:
    found = metadata_of(status(name, dir_fd=directory, follow_symlinks=False))
    more = os.stat(name, dir_fd=directory, follow_symlinks=False)
    found.is_symlink = more.st_mode & 0o170000 == 0o120000
    return _with_attributes(found, more)


def _with_attributes(found: Metadata, more: os.stat_result) -> Metadata:
    found.mode, found.link_count = more.st_mode, more.st_nlink
    found.uid, found.gid = more.st_uid, more.st_gid
    return found


def get_metadata(path: bytes, has_attributes: bool = False) -> Metadata:
    """fs/getMetadata, with the attributes of the target if they are wanted."""
    found = local.get_metadata(path)
    return _with_attributes(found, os.stat(path)) if has_attributes else found


def get_metadata_nofollow(path: bytes, has_attributes: bool = False) -> Metadata:
    found = nofollow.get_metadata(path)
    return lstat_nofollow(path) if has_attributes else found


def read_link(path: bytes) -> LinkTarget:
    """Where the link *path* leads. Raises InvalidRequest (EINVAL) for anything else."""
    return _target(os.readlink(path))


def read_link_nofollow(path: bytes) -> LinkTarget:
    if path == b"/":
        raise os_error(errno.EINVAL)
    with nofollow.parent_of(path) as (directory, name):
        return _target(os.readlink(name, dir_fd=directory))


def _target(raw: bytes) -> LinkTarget:
    found = LinkTarget(lossy(raw))
    if found.target.encode() != raw:
        found.encoded_target = encoded(raw)
    return found


def symlink(path: bytes, target: bytes) -> None:
    """Make the link *path* to *target*. It is an error if *path* exists."""
    changes.make_symlink(_checked(target), path)


def symlink_nofollow(path: bytes, target: bytes) -> None:
    with nofollow.parent_of(path) as (directory, name):
        changes.make_symlink(_checked(target), name, dir_fd=directory)


def _checked(target: bytes) -> bytes:
    if not target or b"\0" in target:
        raise InvalidRequest("the target of a link must be a text without NUL")
    return target
