"""RemotePath: a path on the server, with methods like those of pathlib."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from exec_server.errors import InvalidRequest, NotFound
from exec_server.protocol.fs import DirectoryEntry, Metadata

if TYPE_CHECKING:
    from exec_server.client.files.remote_files import RemoteFiles


class RemotePath:
    """A path on a client's server; see `client.fs.path`.

    Methods that only concern the text work as in pathlib, and what asks the server is asynchronous.
    It is not a PathLike on purpose: `open()` would look for the file on this machine.
    """

    __slots__ = ("_files", "_pure")

    def __init__(self, files: RemoteFiles, path: str | PurePosixPath) -> None:
        self._files = files
        self._pure = PurePosixPath(path)

    # The text.

    def __str__(self) -> str:
        return str(self._pure)

    def __repr__(self) -> str:
        return f"RemotePath({str(self._pure)!r})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RemotePath)
            and other._pure == self._pure
            and other._files is self._files
        )

    def __lt__(self, other: RemotePath) -> bool:
        return self._pure < other._pure

    def __hash__(self) -> int:
        return hash(self._pure)

    def __truediv__(self, other: str) -> RemotePath:
        return self._with(self._pure / other)

    def joinpath(self, *others: str) -> RemotePath:
        """This path with *others* after it."""
        return self._with(self._pure.joinpath(*others))

    def with_name(self, name: str) -> RemotePath:
        """This path with another last part."""
        return self._with(self._pure.with_name(name))

    def with_suffix(self, suffix: str) -> RemotePath:
        """This path with another suffix, such as `.txt`."""
        return self._with(self._pure.with_suffix(suffix))

    @property
    def parent(self) -> RemotePath:
        """The path without its last part."""
        return self._with(self._pure.parent)

    @property
    def parts(self) -> Sequence[str]:
        """The parts between the slashes, and the leading slash."""
        return self._pure.parts

    @property
    def name(self) -> str:
        """The last part."""
        return self._pure.name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """The suffix of the last part, such as `.txt`; empty if there is none."""
        return self._pure.suffix

    def _with(self, pure: PurePosixPath) -> RemotePath:
        return RemotePath(self._files, pure)

    # What is there.

    async def stat(self) -> Metadata:
        """The kind, size, times and, if the server tells it, the mode. Raises NotFound."""
        return await self._files.get_metadata(self, attributes=True)

    async def lstat(self) -> Metadata:
        """The same of a link itself, also of one that leads nowhere. An extension."""
        return await self._files.lstat(self)

    async def readlink(self) -> RemotePath:
        """The path in a link, which may be relative to the link's directory. An extension."""
        return self._with(PurePosixPath(await self._files.readlink(self)))

    async def exists(self) -> bool:
        """True if the path leads to something."""
        return await self._files.exists(self)

    async def is_file(self) -> bool:
        """True if it is a regular file, or a link to one."""
        found = await self._found()
        return found is not None and found.is_file

    async def is_dir(self) -> bool:
        """True if it is a directory, or a link to one."""
        found = await self._found()
        return found is not None and found.is_directory

    async def is_symlink(self) -> bool:
        """True if it is a symbolic link; some servers do not see one that leads nowhere."""
        try:
            has_links = await self._files.offers("fsLinks")
            return (await (self.lstat() if has_links else self.stat())).is_symlink
        except (NotFound, NotADirectoryError):
            return False

    async def resolve(self) -> RemotePath:
        """The path without symbolic links; unlike in pathlib it must exist."""
        return self._with(PurePosixPath(await self._files.canonicalize(self)))

    async def _found(self) -> Metadata | None:
        try:
            return await self._files.get_metadata(self)
        except NotFound:
            return None

    async def iterdir(self) -> AsyncIterator[RemotePath]:
        """The paths in the directory, in no particular order."""
        for entry in await self._files.read_directory(self):
            yield self / entry.name

    async def glob(self, pattern: str) -> AsyncIterator[RemotePath]:
        """The paths that match *pattern*, in which `**` stands for any number of directories.

        Links to directories are entered only where the pattern names them.
        """
        parts = PurePosixPath(pattern).parts
        if not parts or pattern.startswith("/"):
            raise ValueError(f"not a relative pattern: {pattern!r}")
        async for path in _matches(self, parts):
            yield path

    # Content.

    async def read_bytes(self) -> bytes:
        """The content of the file."""
        return await self._files.read_bytes(self)

    async def read_text(self, encoding: str = "utf-8") -> str:
        """The content of the file, decoded."""
        return await self._files.read_text(self, encoding=encoding)

    async def write_bytes(self, data: bytes, *, atomic: bool = False) -> None:
        """Replace the content of the file, or create it; see `RemoteFiles.write_bytes`."""
        await self._files.write_bytes(self, data, atomic=atomic)

    async def write_text(self, text: str, encoding: str = "utf-8", *, atomic: bool = False) -> None:
        """Replace the content of the file by *text*, or create it."""
        await self._files.write_text(self, text, encoding=encoding, atomic=atomic)

    # Changes.

    async def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Create the directory, as in pathlib; but *parents* implies *exist_ok*."""
        if exist_ok and not parents and await self.is_dir():
            return
        await self._files.create_directory(self, recursive=parents)

    async def symlink_to(self, target: str | RemotePath) -> None:
        """Make this path a link to *target*, which need not exist. An extension."""
        await self._files.symlink(str(target), self)

    async def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the file or the symbolic link."""
        await self._files.remove(self, force=missing_ok)

    async def rmdir(self) -> None:
        """Remove an empty directory."""
        await self._files.remove(self)

    async def rename(self, target: str | RemotePath) -> RemotePath:
        """Rename to *target*, which is replaced; a relative text starts at this path's parent."""
        path = target if isinstance(target, RemotePath) else self.parent / target
        await self._files.rename(self, path)
        return path


async def _matches(directory: RemotePath, parts: Sequence[str]) -> AsyncIterator[RemotePath]:
    part, rest = parts[0], parts[1:]
    if part == "**":
        async for path in _matches(directory, rest or ("*",)):
            yield path
    for entry in sorted(await _listed(directory), key=lambda entry: entry.name):
        path = directory / entry.name
        if part == "**":
            if entry.is_directory and not await _is_link(path, entry):
                async for match in _matches(path, parts):
                    yield match
        elif fnmatchcase(entry.name, part):
            if not rest:
                yield path
            elif entry.is_directory:
                async for match in _matches(path, rest):
                    yield match


async def _listed(directory: RemotePath) -> list[DirectoryEntry]:
    """The entries of a directory; none if it may not be read or has vanished, as in pathlib."""
    try:
        return await directory._files.read_directory(directory)
    except (NotFound, InvalidRequest):
        return []


async def _is_link(path: RemotePath, entry: DirectoryEntry) -> bool:
    """True if *entry* is a link; servers that list links say so at once."""
    return bool(entry.is_symlink) or await path.is_symlink()
