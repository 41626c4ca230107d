"""A directory of recordings: their names, the list, and the quota."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from exec_server.recording.cast_format import CastError, CastHeader
from exec_server.recording.cast_reader import CastReader

SUFFIX = ".cast"
# The file beside a recording with its text and keyframes.
INDEX_SUFFIX = ".index"
# Only recordings with a name of this form, as `new_path` makes them, are removed for the quota.
_OURS = re.compile(r"\d{8}T\d{6}-")


def new_name(name: str) -> str:
    """The name of a recording that begins now: the time, and *name* as far as it is fit."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
    clean = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:40] or "terminal"
    return f"{now}-{clean}"


class FoundRecording(NamedTuple):
    """A recording in a directory."""

    path: Path
    header: CastHeader
    size: int
    # When it was written last, in seconds since 1970.
    changed: float

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(SUFFIX)


class RecordingFiles:
    """The recordings in one directory, which only their owner can list or read."""

    def __init__(self, directory: str | os.PathLike[str], *, quota: int | None = None) -> None:
        self.directory = Path(directory)
        self.quota = quota
        # Recordings that are written now; they are not removed.
        self._open: set[str] = set()

    def make(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(self.directory, os.W_OK | os.X_OK):
            raise PermissionError(f"cannot write to {self.directory}")

    def new_path(self, name: str) -> Path:
        """A path that no file has: the time, and *name* as far as it is fit for a file."""
        return next(path for path in self.free_paths(new_name(name)) if not path.exists())

    def free_paths(self, name: str) -> Iterator[Path]:
        """Paths for a recording of this name, none of which is written now; they may exist."""
        for number in count(1):
            more = "" if number == 1 else f"-{number}"
            path = self.directory / f"{name}{more}{SUFFIX}"
            if path.name not in self._open:
                yield path

    def begun(self, path: str) -> None:
        self._open.add(os.path.basename(path))

    def finished(self, path: str) -> None:
        self._open.discard(os.path.basename(path))

    def found(self) -> list[FoundRecording]:
        """All recordings, the newest first; other files are left out."""
        recordings = []
        for entry in self._entries():
            if entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError, CastError):
                    stat = entry.stat()
                    header = CastReader(entry.path).header
                    found = FoundRecording(Path(entry.path), header, stat.st_size, stat.st_mtime)
                    recordings.append(found)
        return sorted(recordings, key=lambda each: each.name, reverse=True)

    def find(self, name: str) -> Path | None:
        """The recording whose name is or begins with *name*, if there is only one."""
        exact = self.directory / (name.removesuffix(SUFFIX) + SUFFIX)
        if exact.is_file() and exact.parent == self.directory:
            return exact
        near = [each.path for each in self.found() if each.name.startswith(name)]
        return near[0] if len(near) == 1 else None

    def make_room(self) -> bool:
        """Remove the oldest recordings that are not written now; False if that is not enough."""
        if self.quota is None:
            return True
        files: dict[str, list[os.DirEntry[str]]] = {}
        for entry in self._entries():
            name, suffix, _ = entry.name.partition(SUFFIX)
            if suffix and _OURS.match(name):
                files.setdefault(name, []).append(entry)
        sizes = {name: sum(map(_size, entries)) for name, entries in files.items()}
        total = sum(sizes.values())
        # Names begin with the time.
        for name in sorted(sizes):
            if total <= self.quota:
                break
            if name + SUFFIX not in self._open:
                total -= sizes[name]
                for entry in files[name]:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
        return total <= self.quota

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.directory) as entries:
                return [entry for entry in entries if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
