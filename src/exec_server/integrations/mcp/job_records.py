"""The records by which a later MCP server finds the jobs of an earlier one.

A record is a file with a session token. The program that uses the session holds a lock on the file,
which the system releases when the program ends, however it ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


class JobRecord:
    """One record; this program holds its lock."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @property
    def token(self) -> str:
        """The session token, which is a secret; empty if it was never written."""
        return os.pread(self._descriptor, 1 << 20, 0).decode()

    def write(self, token: str) -> None:
        """Replace the session token."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, token.encode(), 0)

    def remove(self) -> None:
        """The session is gone: forget it, and release the lock."""
        self._path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Leave the record to the next program."""
        os.close(self._descriptor)


class JobRecords:
    """The records of one exec-server below a folder, which is made when it is needed.

    Jobs of another *confinement* have records of their own: with a shell that was started without
    a sandbox, a model could leave the sandbox that it has now.
    """

    def __init__(self, folder: Path, server: str, confinement: str = "") -> None:
        self._folder = folder
        # The server may be a URL with credentials in it.
        place = f"{server}\0{confinement}" if confinement else server
        self._prefix = hashlib.sha256(place.encode()).hexdigest()[:16]

    def claim(self) -> Iterator[JobRecord]:
        """Yield each record that no other program uses; the caller has to release or remove it."""
        for path in sorted(self._folder.glob(f"{self._prefix}-*.session")):
            if (found := _lock(path, os.O_RDWR)) is not None:
                yield found

    def new(self) -> JobRecord:
        """A new record, still empty."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{self._prefix}-{uuid.uuid4().hex}.session"
        made = _lock(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        assert made is not None, "the name is new"
        return made


def _lock(path: Path, flags: int) -> JobRecord | None:
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        # The program that held it has removed it meanwhile.
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return JobRecord(path, descriptor)
