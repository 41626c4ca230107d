"""Replace a file in one step: it has either its old content, or all of the new one."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator

from exec_server.files.operations import changes, nofollow
from exec_server.files.operations.content import Content, write_content
from exec_server.files.operations.local import canonicalize, not_a_file
from exec_server.files.operations.oserrors import os_error

# The kernel follows as many.
_MOST_LINKS = 40
_AS_US = os.access in os.supports_effective_ids


def write_file(path: bytes, content: Content, follow_symlinks: bool) -> None:
    """Write *content* to a new file beside *path*, flush it to disk, and rename it."""
    if follow_symlinks:
        path = _target(path)
        parent, name = os.path.split(path)
        if not name:
            raise os_error(errno.EISDIR)
        directory = os.open(parent, os.O_PATH if hasattr(os, "O_PATH") else os.O_RDONLY)
        try:
            _replace(directory, name, content, path)
        finally:
            os.close(directory)
    else:
        with nofollow.parent_of(path) as (directory, name):
            _replace(directory, name, content, path)


def _target(path: bytes) -> bytes:
    """The target of *path*, which need not exist; links to the file stay links."""
    for _ in range(_MOST_LINKS):
        try:
            text = os.readlink(path)
        except OSError as exc:
            if exc.errno not in (errno.EINVAL, errno.ENOENT):
                raise
            return path
        path = os.path.join(os.path.dirname(path), text)
        parent, name = os.path.split(path)
        if name in (b"", b".", b".."):
            return canonicalize(path)
        path = os.path.join(canonicalize(parent), name)
    raise os_error(errno.ELOOP)


def _replace(directory: int, name: bytes, content: Content, path: bytes) -> None:
    changes.check(directory, name)
    old = _regular(directory, name, path)
    with _new_file(directory, old) as (fd, temporary):
        write_content(fd, content)
        if old is not None:
            _adopt(fd, old)
        os.fsync(fd)
        changes.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    _sync(directory)


def _regular(directory: int, name: bytes, path: bytes) -> os.stat_result | None:
    """The regular file that exists, or None. Raises an error for anything else."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise os_error(errno.EISDIR)
    if stat.S_ISLNK(found.st_mode):
        raise os_error(errno.ELOOP)
    if not stat.S_ISREG(found.st_mode):
        raise not_a_file(path, found.st_mode)
    # Writing in place would need this permission as well.
    if not os.access(name, os.W_OK, dir_fd=directory, effective_ids=_AS_US):
        is_read_only = os.fstatvfs(directory).f_flag & os.ST_RDONLY
        raise os_error(errno.EROFS if is_read_only else errno.EACCES)
    return found


@contextlib.contextmanager
def _new_file(directory: int, old: os.stat_result | None) -> Iterator[tuple[int, bytes]]:
    """An empty file in *directory*, which is removed if the block fails."""
    temporary = b".%b.tmp" % secrets.token_hex(8).encode()
    # The new content of a secret file must never be readable for others.
    mode = 0o666 if old is None else 0o600
    fd = os.open(
        temporary,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        mode,
        dir_fd=directory,
    )
    try:
        yield fd, temporary
    except BaseException:
        with contextlib.suppress(OSError):
            changes.unlink(temporary, dir_fd=directory)
        raise
    finally:
        os.close(fd)


def _adopt(fd: int, old: os.stat_result) -> None:
    """Give the new file the mode of the old one, and its owner if the system allows it."""
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(fd, old.st_uid, old.st_gid)
    # The mode follows the owner, because changing the owner removes set-id bits.
    os.fchmod(fd, stat.S_IMODE(old.st_mode))


def _sync(directory: int) -> None:
    """Flush the new name to disk. A directory without read permission cannot be flushed."""
    with contextlib.suppress(PermissionError):
        fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
