"""Questions that plans ask the file system, and where paths lead."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from exec_server.sandbox import host_mounts

# The kernel follows this many symbolic links in one path.
_MAX_LINKS = 40


class FoundEntry(NamedTuple):
    """An entry of a directory; a symbolic link to a directory does not count as a directory."""

    name: bytes
    is_directory: bool
    is_symlink: bool


class FileSystemFacts:
    """The answers of the operating system; tests replace this class. Methods raise OSError."""

    def mode(self, path: bytes) -> int:
        """The type and permissions of *path* itself; a symbolic link is not followed."""
        return os.lstat(path).st_mode

    def link_target(self, path: bytes) -> bytes:
        return os.readlink(path)

    def head(self, path: bytes, size: int) -> bytes:
        """The first *size* bytes of a regular file."""
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(fd, size)
        finally:
            os.close(fd)

    def entries(self, path: bytes) -> Iterator[FoundEntry]:
        """The entries of a directory, in any order."""
        with os.scandir(path) as listing:
            for entry in listing:
                is_directory = entry.is_dir(follow_symlinks=False)
                yield FoundEntry(entry.name, is_directory, entry.is_symlink())

    def can_create_in(self, directory: bytes) -> bool:
        """True if a process with our rights could create a name in *directory*."""
        if os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
            return True
        # The owner can change the mode, but not on a read-only file system.
        if os.lstat(directory).st_uid != os.geteuid():
            return False
        return not os.statvfs(directory).f_flag & os.ST_RDONLY

    def make(self, make: Callable[[], object]) -> None:
        """Have a missing file of our own made."""
        make()

    def aliases(self, paths: Iterable[bytes]) -> dict[bytes, list[bytes]]:
        """Other paths of each of *paths*, or of something below, because of mounts of the host."""
        mounts = host_mounts.read()
        return {
            path: [other for known, other in mounts.pairs(path) if _is_same(known, other)]
            for path in paths
        }


OS = FileSystemFacts()


def _is_same(one: bytes, other: bytes) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        # One of them is covered by another mount.
        return False


class Located(msgspec.Struct, frozen=True, gc=False):
    """Where a path leads. *path* is free of symbolic links."""

    # The path of what is there; if nothing is there, the first component that is missing.
    path: bytes
    # The type and permissions; None when it is missing.
    mode: int | None
    # The symbolic links on the way: where each is (itself free of links), and its target.
    links: tuple[tuple[bytes, bytes], ...] = ()
    # The error that keeps us from knowing.
    trouble: OSError | None = None
    # True if a file is in the place of the directory of a missing path.
    is_blocked: bool = False

    @property
    def exists(self) -> bool:
        return self.mode is not None

    @property
    def is_directory(self) -> bool:
        return self.mode is not None and stat.S_ISDIR(self.mode)


_ROOT = Located(b"/", stat.S_IFDIR | 0o755)


class Locator:
    """Follows paths, and asks about each directory on the way only once."""

    def __init__(self, facts: FileSystemFacts) -> None:
        self.facts = facts
        self._found: dict[bytes, Located] = {b"/": _ROOT}

    def locate(self, path: bytes) -> Located:
        """Follow *path*, which is absolute and normal. Never raises OSError."""
        found = self._found.get(path)
        if found is None:
            above, _, name = path.rpartition(b"/")
            found = self._found[path] = self._step(self.locate(above or b"/"), name)
        return found

    def _step(self, above: Located, name: bytes) -> Located:
        if above.mode is None:
            return above
        if not stat.S_ISDIR(above.mode):
            return Located(join(above.path, name), None, above.links, is_blocked=True)
        path = join(above.path, name)
        try:
            mode = self.facts.mode(path)
            if not stat.S_ISLNK(mode):
                return Located(path, mode, above.links)
            return self._follow(above, path)
        except FileNotFoundError:
            return Located(path, None, above.links)
        except OSError as exc:
            return Located(path, None, above.links, trouble=exc)

    def _follow(self, above: Located, path: bytes) -> Located:
        target = self.facts.link_target(path)
        links = (*above.links, (path, target))
        if len(links) > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        start = b"/" if target.startswith(b"/") else above.path
        found = Located(start, stat.S_IFDIR, links)
        for part in target.split(b"/"):
            if part == b".." and found.is_directory:
                found = Located(parent(found.path), stat.S_IFDIR, found.links)
            elif part not in (b"", b".", b".."):
                found = self._step(found, part)
        return found


def join(directory: bytes, name: bytes) -> bytes:
    return b"/" + name if directory == b"/" else b"%b/%b" % (directory, name)


def parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0] or b"/"
