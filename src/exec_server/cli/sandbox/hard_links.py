"""Hard links in a directory whose other names are outside of it.

A sandbox confines paths. A file that has a name in a writable directory can be written through
that name, even if its other names are not writable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

# The most entries that are read: a large source tree has a few hundred thousand.
MAX_ENTRIES = 2_000_000
# The most files that are named; further ones are only counted.
MAX_NAMED = 1000


class HardLinks(msgspec.Struct, frozen=True, rename="camel"):
    """The files in a directory that have names outside of it."""

    directory: str
    # The number of such files, and the first names of some of them inside of the directory.
    outside: int
    paths: list[str]
    # The number of directories that could not be read.
    unreadable: int = 0
    # True if there were too many entries to read them all.
    is_partial: bool = False

    @property
    def is_clean(self) -> bool:
        return not (self.outside or self.unreadable or self.is_partial)


def find_hard_links(directory: str, *, max_entries: int = MAX_ENTRIES) -> HardLinks:
    """Read everything below *directory*; symbolic links are not followed.

    Raises OSError when *directory* itself cannot be read.
    """
    os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    scan = _HardLinkScan(max_entries)
    scan.walk(directory)
    outside = [path for path, missing in scan.linked.values() if missing > 0]
    return HardLinks(
        os.path.abspath(directory),
        len(outside),
        sorted(outside)[:MAX_NAMED],
        scan.unreadable,
        scan.left < 0,
    )


class _HardLinkScan:
    def __init__(self, max_entries: int) -> None:
        self.left = max_entries
        self.unreadable = 0
        # The key is device and inode; the value is the first name, and how many names are missing.
        self.linked: dict[tuple[int, int], tuple[str, int]] = {}

    def walk(self, directory: str) -> None:
        waiting = [directory]
        while waiting and self.left >= 0:
            for entry in self._entries(waiting.pop()):
                self.left -= 1
                if self.left < 0:
                    return
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    self._count(entry)

    def _entries(self, directory: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as listing:
                yield from listing
        except OSError:
            self.unreadable += 1

    def _count(self, entry: os.DirEntry[str]) -> None:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            # The file was removed in the meantime.
            return
        if found.st_nlink > 1:
            key = found.st_dev, found.st_ino
            path, missing = self.linked.get(key, (entry.path, found.st_nlink))
            self.linked[key] = path, missing - 1
