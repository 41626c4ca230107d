"""Placeholders: mount points that had to be made on the host, and their certain removal.

A name that must not be created is mounted over, and a mount needs something to be mounted on. What
is made for that, the placeholder, is shared by all sandboxes that need it and removed with the last
of them. Each has a *marker* in a private folder, written before the placeholder is made. A process
that uses the placeholder holds a shared lock on the marker; one that gets an exclusive lock may
remove both. The keeper holds the locks of its children. A lock ends with its holder, and then the
next server removes what is left.

Markers are private to a user. A sandbox of another user that relies on a placeholder holds a shared
lock on the placeholder itself, and as long as there is one its maker leaves it there.

The keeper loads this file by its path, so it imports the standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Only root can write to the first folder; the owner of the second is checked.
_ROOT_FOLDER = b"/run/exec-server"
_USER_FOLDER = b"/tmp/exec-server-%d"
_MARKERS = b"placeholders"
# Empty files, which are mounted over files that must not be read or must not be made.
_UNREADABLE, _EMPTY = b"unreadable", b"empty"
_SHARED = b"-shared"
# A marker is locked exclusively only for as long as it takes to remove one name.
_BUSY_SECONDS = 5.0
_MARKER_BYTES = 8192


class Folder:
    """The private folder of this user, which no sandbox can write to.

    If it *is_shared*, the files without content are in a folder beside it, where other users can
    mount them, too.
    """

    def __init__(self, path: bytes | None = None, *, is_shared: bool = False) -> None:
        self.path = default_folder() if path is None else path
        self._markers = os.path.join(self.path, _MARKERS)
        self._empty = self.path + _SHARED if is_shared else self.path

    def prepare(self) -> None:
        """Make the folder and its fixed content; OSError if another user has taken its name."""
        folders = {self.path: 0o700, self._markers: 0o700}
        if self._empty != self.path:
            folders[self._empty] = 0o755
        for folder, wanted in folders.items():
            try:
                os.mkdir(folder, wanted)
            except FileExistsError:
                found = os.lstat(folder)
                if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                    raise
            if stat.S_IMODE(os.lstat(folder).st_mode) != wanted:
                os.chmod(folder, wanted)
        for name, mode in ((_UNREADABLE, 0o000), (_EMPTY, 0o444)):
            path = os.path.join(self._empty, name)
            if not os.path.lexists(path):
                os.close(os.open(path, os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode))

    def empty_file(self, *, is_readable: bool) -> bytes:
        """A file without content, to be mounted over others."""
        return os.path.join(self._empty, _EMPTY if is_readable else _UNREADABLE)

    def hold(self, names: Iterable[tuple[bytes, bool]]) -> list[tuple[int, bytes]]:
        """Make what is missing of *names*: each a path, and True if it is a directory.

        A path that exists stays as it is; if it is the placeholder of another sandbox, it is held
        as well. The result has, for each placeholder, the descriptor that holds the lock and the
        path of the marker, which is empty if another user has made the placeholder; the caller
        gives both to `release`. On OSError nothing is held.
        """
        held: list[tuple[int, bytes]] = []
        try:
            for path, is_directory in names:
                marker = self._marker(path)
                if _is_no_placeholder(path, marker):
                    fd = _lock_foreign(path)
                    if fd is not None:
                        held.append((fd, b""))
                    if fd is not None or os.path.lexists(path):
                        continue
                fd = _lock_shared(marker)
                held.append((fd, marker))
                _make(fd, path, is_directory=is_directory)
        except BaseException:
            for fd, marker in held:
                release(fd, marker)
            raise
        return held

    def sweep(self) -> None:
        """Remove placeholders that no process holds any more, because their keeper was killed."""
        try:
            names = os.listdir(self._markers)
        except OSError:
            return
        for name in names:
            marker = os.path.join(self._markers, name)
            try:
                fd = os.open(marker, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                continue
            release(fd, marker)

    def _marker(self, path: bytes) -> bytes:
        import hashlib  # It loads OpenSSL, and the keeper never needs it.

        return os.path.join(self._markers, hashlib.sha256(path).hexdigest().encode())


def _is_no_placeholder(path: bytes, marker: bytes) -> bool:
    """True if something exists at *path* that no sandbox has made.

    A placeholder is removed before its marker. So one look at each would take a placeholder that is
    just being removed for a file that stays.
    """
    if os.path.lexists(marker) or not os.path.lexists(path):
        return False
    return not os.path.lexists(marker) and os.path.lexists(path)


def default_folder() -> bytes:
    uid = os.geteuid()
    return _ROOT_FOLDER if uid == 0 and os.path.isdir(b"/run") else _USER_FOLDER % uid


def release(fd: int, marker: bytes) -> None:
    """Give up a lock; remove its placeholder if that was the last lock."""
    try:
        if marker:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A marker that was deleted has been released already, together with its placeholder.
        if marker and os.fstat(fd).st_nlink:
            _remove_placeholder(fd)
            os.unlink(marker)
    except OSError:
        # Another process holds the lock, on the marker or, of another user, on the placeholder; or
        # that cannot be removed any more.
        pass
    finally:
        # A process that was forked just now may have a copy of the descriptor.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _lock_shared(marker: bytes) -> int:
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        fd = os.open(marker, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink:
                return fd
        except BlockingIOError:
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        if time.monotonic() > deadline:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        time.sleep(0.001)


def _lock_foreign(path: bytes) -> int | None:
    """Hold what may be the placeholder of another user's sandbox; None if it is none, or gone."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while time.monotonic() < deadline:
        try:
            if not _may_be_foreign(os.lstat(path)):
                return None
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            # It is gone, or a file that is not a placeholder, because those can be read.
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.lstat(path)):
                return fd
        except (BlockingIOError, FileNotFoundError):
            if _has_content(fd):
                # It stays, whatever another program locks it for.
                os.close(fd)
                return None
            # It is being removed.
            time.sleep(0.001)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _has_content(fd: int) -> bool:
    return stat.S_ISDIR(os.fstat(fd).st_mode) and bool(os.listdir(fd))


def _may_be_foreign(found: os.stat_result) -> bool:
    # Of its own placeholders this user has markers. A directory need not be empty: to hold one that
    # is no placeholder does no harm.
    is_empty_file = stat.S_ISREG(found.st_mode) and not found.st_size
    return found.st_uid != os.geteuid() and (stat.S_ISDIR(found.st_mode) or is_empty_file)


def _make(fd: int, path: bytes, *, is_directory: bool) -> None:
    """Make *path*, unless another holder has made it, and note in the marker what it is."""
    parent, name = _open_parent(path), os.path.basename(path)
    try:
        # Several processes may write this at the same time; all of them write the same.
        os.pwrite(fd, path + b"\0", 0)
        if is_directory:
            os.mkdir(name, 0o755, dir_fd=parent)
        else:
            flags = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o644, dir_fd=parent))
        made = os.lstat(name, dir_fd=parent)
        os.pwrite(fd, b"%020d" % made.st_ino, len(path) + 1)
    except FileExistsError:
        pass
    finally:
        os.close(parent)


def _remove_placeholder(fd: int) -> None:
    """Remove what the marker names, if it is still ours and as empty as it was made.

    Raises BlockingIOError if a sandbox of another user relies on it.
    """
    path, _, number = os.pread(fd, _MARKER_BYTES, 0).partition(b"\0")
    if not path:
        return
    try:
        parent, name = _open_parent(path), os.path.basename(path)
    except OSError:
        # The folder was moved away; what is there now is not ours.
        return
    try:
        found = os.lstat(name, dir_fd=parent)
        if not _is_ours(found, number, since=os.fstat(fd).st_mtime_ns):
            return
        if stat.S_ISDIR(found.st_mode):
            with _alone(name, parent):
                os.rmdir(name, dir_fd=parent)
        elif stat.S_ISREG(found.st_mode) and found.st_size == 0:
            with _alone(name, parent):
                os.unlink(name, dir_fd=parent)
    except BlockingIOError:
        raise
    except OSError:
        # It is gone, or no longer empty: then it is not ours any more.
        pass
    finally:
        os.close(parent)


class _alone:
    """While no sandbox of another user relies on the placeholder *name*, and none begins to."""

    def __init__(self, name: bytes, parent: int) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._fd = os.open(name, flags, dir_fd=parent)

    def __enter__(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._fd)
            raise

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _open_parent(path: bytes) -> int:
    """Open the folder of *path*, provided that no part of it was replaced by a symbolic link."""
    folder = os.path.dirname(path)
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(folder, flags)
    if os.readlink(b"/proc/self/fd/%d" % fd) != folder:
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return fd


def _is_ours(found: os.stat_result, number: bytes, *, since: int) -> bool:
    if number:
        return found.st_ino == int(number)
    # The process that made it was killed before it could note the inode number.
    return found.st_uid == os.geteuid() and found.st_ctime_ns >= since
