"""The files of this machine in a transfer. All functions block and follow no symbolic links."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from exec_server.client.files.transfer.tree import PERMISSIONS, Kind, TreeEntry, below, part_name

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# With these flags, opening a FIFO does not wait for its other end.
_QUIET = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# The owner must be able to write into a directory until it is complete.
_OWNER = 0o700


class Changed(Exception):
    """A file is no longer as it was when it was listed."""


class WithoutSize(Changed):
    """A file has content although its size is 0, as those of /proc have."""


class MostlyNew(Changed):
    """Too little of a file is in its old version to send only the rest."""


class LocalScan(NamedTuple):
    """What a scan of a tree has found."""

    entries: list[TreeEntry]
    # The paths that could not be read, and why.
    errors: list[tuple[bytes, OSError]]


class LocalPlace(NamedTuple):
    """A name in an open directory."""

    directory: int
    name: bytes


class LocalTree:
    """A file, or a directory with all below it; its root need not exist yet."""

    def __init__(self, root: str | bytes | os.PathLike[str]) -> None:
        """Links on the way to *root* are followed, because the caller has named that path."""
        self._base, name = os.path.split(os.path.realpath(os.fsencode(root)))
        self._top = [name] if name else []

    @property
    def root(self) -> bytes:
        """The absolute path, without links."""
        return os.path.join(self._base, *self._top)

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Let an error name the root, and not the directory above it that it is about."""
        try:
            yield
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, os.fsdecode(self.root)) from None

    def make_base(self) -> None:
        """Make the directory that contains the root, unless it exists."""
        os.makedirs(self._base, exist_ok=True)

    def names(self, path: bytes) -> list[bytes]:
        """The names that lead from the base directory to *path*."""
        return [*self._top, *(path.split(b"/") if path else ())]

    def places(self) -> LocalPlaces:
        return LocalPlaces(self)

    def open_base(self) -> int:
        return os.open(os.fsdecode(self._base), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _stat_root(self, places: LocalPlaces) -> os.stat_result:
        try:
            return _stat(places.of(b""))
        except OSError as exc:
            # The error names the path that the caller knows, and not its last part.
            raise OSError(exc.errno, exc.strerror, os.fsdecode(self.root)) from None

    def scan(self) -> LocalScan:
        """All entries, each directory before its content. Raises OSError only for the root."""
        scan = LocalScan([], [])
        with self.places() as places:
            scan.entries.append(_entry(b"", self._stat_root(places)))
            waiting = [b""] if scan.entries[0].kind == "directory" else []
            while waiting:
                _scan_directory(places, waiting.pop(), scan, waiting)
        return scan


def _scan_directory(
    places: LocalPlaces, path: bytes, scan: LocalScan, waiting: list[bytes]
) -> None:
    found = []
    try:
        with os.scandir(places.inside(path)) as names:
            for item in names:
                inner = below(path, os.fsencode(item.name))
                try:
                    entry = _entry(inner, item.stat(follow_symlinks=False))
                    if entry.kind == "symlink":
                        entry = _link(entry, places.of(inner))
                    found.append(entry)
                except OSError as exc:
                    scan.errors.append((inner, exc))
    except OSError as exc:
        scan.errors.append((path, exc))
    found.sort(key=lambda entry: entry.path)
    scan.entries.extend(found)
    waiting += [entry.path for entry in reversed(found) if entry.kind == "directory"]


def _entry(path: bytes, found: os.stat_result) -> TreeEntry:
    return TreeEntry(
        path, _kind(found.st_mode), found.st_size, found.st_mtime_ns, found.st_mode & PERMISSIONS
    )


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def _link(entry: TreeEntry, place: LocalPlace) -> TreeEntry:
    target = os.readlink(place.name, dir_fd=place.directory)
    return TreeEntry(entry.path, "symlink", mtime_ns=entry.mtime_ns, target=target)


class LocalPlaces:
    """Opens the directories of a tree, for one thread; the last directory stays open."""

    def __init__(self, tree: LocalTree) -> None:
        self._tree = tree
        self._base = tree.open_base()
        self._names: list[bytes] | None = None
        self._open = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._forget()
        os.close(self._base)

    def of(self, path: bytes) -> LocalPlace:
        """The parent of *path*, open until the next call, and its name. Raises OSError."""
        names = self._tree.names(path)
        if not names:
            return LocalPlace(self._base, b".")
        return LocalPlace(self._directory(names[:-1]), names[-1])

    def inside(self, path: bytes) -> int:
        """The directory *path* itself, open until the next call."""
        return self._directory(self._tree.names(path))

    def _directory(self, names: list[bytes]) -> int:
        if not names:
            return self._base
        if names != self._names:
            fd = _open_below(self._base, names)
            self._forget()
            self._open, self._names = fd, names
        return self._open

    def _forget(self) -> None:
        if self._open >= 0:
            os.close(self._open)
        self._open, self._names = -1, None


def _open_below(base: int, names: list[bytes]) -> int:
    fd = os.open(names[0], _DIRECTORY, dir_fd=base)
    for name in names[1:]:
        try:
            inner = os.open(name, _DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


# Reading.


def open_file(place: LocalPlace, entry: TreeEntry) -> int:
    """Open the file of *entry*. Raises OSError, and Changed if it is not as it was listed."""
    fd = os.open(place.name, os.O_RDONLY | _QUIET, dir_fd=place.directory)
    try:
        check_unchanged(fd, entry)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_unchanged(fd: int, entry: TreeEntry) -> None:
    """Raise Changed unless the open file is as *entry* says."""
    found = os.fstat(fd)
    if (
        not stat.S_ISREG(found.st_mode)
        or found.st_size != entry.size
        or found.st_mtime_ns != entry.mtime_ns
    ):
        raise Changed


def read_file(place: LocalPlace, entry: TreeEntry) -> bytes:
    """The content of a small file."""
    fd = open_file(place, entry)
    try:
        # Reading one byte more shows whether the file has grown.
        data = os.read(fd, entry.size + 1)
    finally:
        os.close(fd)
    if len(data) != entry.size:
        raise Changed if entry.size else WithoutSize
    return data


# Writing.


def make_directory(place: LocalPlace, entry: TreeEntry) -> None:
    """Make a directory that only its owner can use until its own mode is set."""
    mode = PERMISSIONS if entry.mode is None else _OWNER
    os.mkdir(place.name, mode, dir_fd=place.directory)


def open_directory(place: LocalPlace, entry: TreeEntry) -> None:
    """Let the owner write into a directory that exists already."""
    if entry.mode is not None and entry.mode & _OWNER != _OWNER:
        with _opened(place, _DIRECTORY) as fd:
            os.fchmod(fd, entry.mode | _OWNER)


def write_file(place: LocalPlace, entry: TreeEntry, data: bytes) -> None:
    """Make a file with the content *data*, or replace another file in one step."""
    part = LocalPlace(place.directory, part_name(entry, place.name))
    fd = open_part(part, os.O_TRUNC, entry)
    try:
        write_all(fd, data)
        finish_part(fd, part, place, entry)
    except BaseException:
        os.unlink(part.name, dir_fd=part.directory)
        raise
    finally:
        os.close(fd)


def open_part(part: LocalPlace, flags: int, entry: TreeEntry) -> int:
    """Open the file that grows until it is complete, or create it. Raises OSError.

    If the mode of *entry* is known, others cannot read the file before it has this mode. A file
    that another user has put there, whose name can be guessed, is replaced.
    """
    mode = 0o666 if entry.mode is None else 0o600
    flags |= os.O_RDWR | _QUIET
    if not _has_own(part):
        flags |= os.O_CREAT | os.O_EXCL
    fd = os.open(part.name, flags, mode, dir_fd=part.directory)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileExistsError(f"{os.fsdecode(part.name)} is not a file")
    return fd


def _has_own(part: LocalPlace) -> bool:
    """True if there is a file of this user; one of another user is removed."""
    try:
        found = _stat(part)
    except FileNotFoundError:
        return False
    if found.st_uid == os.geteuid() and found.st_nlink == 1:
        return True
    # On a file system that shows another owner for all files, a part cannot be continued.
    os.unlink(part.name, dir_fd=part.directory)
    return False


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def finish_part(fd: int, part: LocalPlace, place: LocalPlace, entry: TreeEntry) -> None:
    """Set the attributes and the name of a complete part. Raises Changed if it is incomplete."""
    if os.fstat(fd).st_size != entry.size:
        raise Changed
    if entry.mode is not None:
        os.fchmod(fd, entry.mode)
    _set_time(fd, entry)
    os.rename(part.name, place.name, src_dir_fd=part.directory, dst_dir_fd=place.directory)


def make_link(place: LocalPlace, entry: TreeEntry) -> None:
    """Make a symbolic link, or replace another file by it in one step."""
    part = part_name(entry, place.name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part, dir_fd=place.directory)
    os.symlink(entry.target, part, dir_fd=place.directory)
    os.rename(part, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)


def remove_entry(place: LocalPlace, entry: TreeEntry) -> None:
    """Remove a file, a link, or a directory unless something is left in it."""
    try:
        if entry.kind == "directory":
            os.rmdir(place.name, dir_fd=place.directory)
        else:
            os.unlink(place.name, dir_fd=place.directory)
    except FileNotFoundError:
        return
    except OSError as exc:
        if exc.errno != errno.ENOTEMPTY:
            raise


def set_attributes(place: LocalPlace, entry: TreeEntry) -> None:
    """Set the mode and the time of a complete directory."""
    with _opened(place, _DIRECTORY) as fd:
        _set_time(fd, entry)
        if entry.mode is not None:
            os.fchmod(fd, entry.mode)


def _set_time(fd: int, entry: TreeEntry) -> None:
    try:
        os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))
    except OverflowError:
        # A server may name any time.
        raise OSError(errno.EOVERFLOW, os.strerror(errno.EOVERFLOW)) from None


def set_mode(place: LocalPlace, mode: int) -> None:
    with _opened(place, os.O_RDONLY | _QUIET) as fd:
        os.fchmod(fd, mode)


@contextlib.contextmanager
def _opened(place: LocalPlace, flags: int) -> Iterator[int]:
    fd = os.open(place.name, flags, dir_fd=place.directory)
    try:
        yield fd
    finally:
        os.close(fd)


def _stat(place: LocalPlace) -> os.stat_result:
    return os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
