"""The files of one session, in a directory that no sandbox can see."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil

from exec_server.sandbox.placeholders import Folder

_SHELVES = b"snapshots"
# An attempt fails only if another process clears the directory away at that very moment.
_ATTEMPTS = 8


class Shelf:
    """A directory of its own for each session that needs one, made with its first file.

    It is removed with the session. If this process is killed, the next session that needs a
    directory removes it: every process holds a lock on the directory that it uses.
    """

    def __init__(self, folder: Folder | None = None) -> None:
        self._folder = folder or Folder()
        self._path: bytes | None = None
        self._lock = -1

    def put(self, content: bytes) -> str:
        """Write a new file and return its path; OSError as the system says."""
        if self._path is None or not os.path.isdir(self._path):
            self.close()
            self._path, self._lock = self._made()
        path = os.path.join(self._path, secrets.token_hex(16).encode())
        with open(path, "xb") as file:
            file.write(content)
        return os.fsdecode(path)

    def close(self) -> None:
        """Remove everything. Idempotent."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            os.close(self._lock)
            self._path = None

    def _made(self) -> tuple[bytes, int]:
        self._folder.prepare()
        shelves = os.path.join(self._folder.path, _SHELVES)
        os.makedirs(shelves, 0o700, exist_ok=True)
        _clear_away(shelves)
        for _ in range(_ATTEMPTS):
            path = os.path.join(shelves, secrets.token_hex(8).encode())
            os.mkdir(path, 0o700)
            lock = _locked(path)
            if lock is not None:
                return path, lock
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _clear_away(shelves: bytes) -> None:
    """Remove the directories of processes that were killed."""
    for name in os.listdir(shelves):
        path = os.path.join(shelves, name)
        lock = _locked(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _locked(path: bytes) -> int | None:
    """Lock *path* and return the descriptor that holds the lock; None if another process has it."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have removed it as left over before it was locked.
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except OSError:
            pass
        os.close(fd)
    return None
