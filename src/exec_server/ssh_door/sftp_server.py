"""The sftp subsystem: the files of a server, by the file calls of its client."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import AsyncIterator, Iterator
from typing import Any

from asyncssh import (
    FILEXFER_TYPE_DIRECTORY,
    FILEXFER_TYPE_REGULAR,
    FILEXFER_TYPE_SPECIAL,
    FILEXFER_TYPE_SYMLINK,
    FXF_APPEND,
    FXF_CREAT,
    FXF_EXCL,
    FXF_READ,
    FXF_TRUNC,
    FXF_WRITE,
    SFTPAttrs,
    SFTPConnectionLost,
    SFTPFailure,
    SFTPFileAlreadyExists,
    SFTPFileIsADirectory,
    SFTPName,
    SFTPNoSuchFile,
    SFTPNotADirectory,
    SFTPOpUnsupported,
    SFTPPermissionDenied,
    SFTPServer,
    SFTPVFSAttrs,
)

from exec_server.client.files.remote_files import RemoteFiles
from exec_server.errors import ConnectionClosed, ExecServerError, MethodNotFound, NotFound
from exec_server.protocol import fs
from exec_server.protocol.paths import from_uri
from exec_server.ssh_door.remote_commands import home_directory
from exec_server.ssh_door.sftp_files import OpenMode, SftpFile
from exec_server.ssh_door.sftp_tools import SftpTools
from exec_server.ssh_door.target import DoorTarget

# As many entries of a directory are asked about at once.
_AT_ONCE = 32
# A file that is made has this mode with the usual umask, so nothing has to be changed.
_USUAL_MODE = 0o644
# The kinds of files in newer versions of sftp; scp's old protocol asks for them.
_TYPES = {
    stat.S_IFREG: FILEXFER_TYPE_REGULAR,
    stat.S_IFDIR: FILEXFER_TYPE_DIRECTORY,
    stat.S_IFLNK: FILEXFER_TYPE_SYMLINK,
}


class RemoteSftp(SFTPServer):
    """The files of a target's server. Paths are bytes; relative ones begin at the home directory.

    `connect` comes before any other call.
    """

    def __init__(self, channel: Any, target: DoorTarget) -> None:
        super().__init__(channel)
        self._target = target
        self._home = b"/"

    async def connect(self) -> None:
        """Connect to the server. Raises ExecServerError."""
        await self._reach()
        home = await home_directory(self._client)
        if home is not None:
            self._home = from_uri(home)

    async def _reach(self) -> None:
        """Use the client of the target, which is another one after its session was lost."""
        self._client = await self._target.client()
        self._files: RemoteFiles = self._client.fs
        self._tools = SftpTools(self._client)

    @contextlib.asynccontextmanager
    async def _reached(self) -> AsyncIterator[None]:
        """A call of the sftp client, which hears errors of the server as those of sftp."""
        with _sftp_errors():
            await self._reach()
            yield

    def _path(self, path: bytes) -> bytes:
        return posixpath.join(self._home, path)

    def format_user(self, uid: int | None) -> str:
        """The names of this machine's users would be wrong."""
        return "" if uid is None else str(uid)

    def format_group(self, gid: int | None) -> str:
        return "" if gid is None else str(gid)

    def exit(self) -> None:
        """The client has left; scp wants to know that nothing went wrong until then."""
        if self.channel.get_subsystem() is not None and not self.channel.is_closing():
            self.channel.exit(0)

    # Open files.

    async def open(self, path: bytes, pflags: int, attrs: SFTPAttrs) -> SftpFile:
        full = self._path(path)
        async with self._reached():
            is_new = False
            needs_mode = bool(pflags & FXF_CREAT) and attrs.permissions not in (None, _USUAL_MODE)
            if pflags & FXF_WRITE and (needs_mode or pflags & FXF_EXCL or not pflags & FXF_CREAT):
                is_new = not await self._exists(full)
                if is_new and not pflags & FXF_CREAT:
                    raise SFTPNoSuchFile("No such file")
                if not is_new and pflags & FXF_EXCL:
                    raise SFTPFileAlreadyExists("File exists")
            file = SftpFile(
                self._files,
                full,
                await self._mode(full, pflags),
                appends=bool(pflags & FXF_APPEND),
                empties=bool(pflags & FXF_TRUNC),
                place=None if self._target.file_place is None else self._target.file_place(),
            )
            await file.open()
            if is_new and needs_mode and attrs.permissions is not None:
                await self._set_first_mode(full, attrs.permissions)
            return file

    async def _mode(self, full: bytes, pflags: int) -> OpenMode:
        if not pflags & FXF_WRITE:
            return "read"
        if pflags & FXF_TRUNC and not pflags & FXF_READ:
            return "replace"
        if await self._files.offers("fsOpenUpdate"):
            return "update"
        if pflags & FXF_TRUNC or (pflags & FXF_CREAT and not await self._has_content(full)):
            return "replace"
        raise SFTPOpUnsupported("this server can replace files, and not change a part of one")

    async def _has_content(self, full: bytes) -> bool:
        try:
            return (await self._files.get_metadata(full)).size != 0
        except NotFound:
            return False

    async def _set_first_mode(self, path: bytes, wanted: int) -> None:
        """Give a new file the mode that was asked for, without the bits of the server's umask."""
        made = (await self._files.get_metadata(path, attributes=True)).mode
        hidden = 0o666 & ~made if isinstance(made, int) else 0o022
        hidden |= (hidden & 0o444) >> 2
        await self._set_mode(path, wanted & 0o7777 & ~hidden)

    async def _set_mode(self, path: bytes, mode: int) -> None:
        if await self._files.offers("fsSetPermissions"):
            await self._files.set_permissions(path, mode=mode)
        else:
            await self._tools.set_mode(path, mode)

    async def _exists(self, path: bytes) -> bool:
        try:
            await self._lstat(path)
        except NotFound:
            return False
        return True

    async def close(self, file_obj: object) -> None:
        with _sftp_errors():
            await _file(file_obj).close()

    async def read(self, file_obj: object, offset: int, size: int) -> bytes:
        with _sftp_errors():
            return await _file(file_obj).read(offset, size)

    async def write(self, file_obj: object, offset: int, data: bytes) -> int:
        with _sftp_errors():
            return await _file(file_obj).write(offset, data)

    async def fsync(self, file_obj: object) -> None:
        async with self._reached():
            await _file(file_obj).flush()
            await self._tools.sync(_file(file_obj).path)

    # Attributes.

    async def stat(self, path: bytes) -> SFTPAttrs:
        async with self._reached():
            return _attributes(await self._files.get_metadata(self._path(path), attributes=True))

    async def lstat(self, path: bytes) -> SFTPAttrs:
        async with self._reached():
            return _attributes(await self._lstat(self._path(path)))

    async def _lstat(self, path: bytes) -> fs.Metadata:
        if await self._files.offers("fsLinks"):
            return await self._files.lstat(path)
        return await self._files.get_metadata(path)

    async def fstat(self, file_obj: object) -> SFTPAttrs:
        async with self._reached():
            await _file(file_obj).flush()
        return await self.stat(_file(file_obj).path)

    async def setstat(self, path: bytes, attrs: SFTPAttrs) -> None:
        await self._set(self._path(path), attrs)

    async def fsetstat(self, file_obj: object, attrs: SFTPAttrs) -> None:
        async with self._reached():
            await _file(file_obj).flush()
        await self._set(_file(file_obj).path, attrs)

    async def lsetstat(self, path: bytes, attrs: SFTPAttrs) -> None:
        full = self._path(path)
        async with self._reached():
            if not (await self._lstat(full)).is_symlink:
                await self._set(full, attrs)
                return
            if attrs.uid is not None and attrs.gid is not None:
                await self._tools.change_owner(full, attrs.uid, attrs.gid, follows=False)
            if attrs.atime is not None and attrs.mtime is not None:
                await self._tools.set_link_times(full, attrs.atime, attrs.mtime)

    async def _set(self, path: bytes, attrs: SFTPAttrs) -> None:
        async with self._reached():
            if attrs.size is not None:
                # scp sets the size of each file that it has written.
                if (await self._files.get_metadata(path)).size != attrs.size:
                    await self._tools.truncate(path, attrs.size)
            if attrs.uid is not None and attrs.gid is not None:
                await self._tools.change_owner(path, attrs.uid, attrs.gid)
            if attrs.permissions is not None:
                await self._set_mode(path, attrs.permissions & 0o7777)
            if attrs.atime is not None and attrs.mtime is not None:
                if await self._files.offers("fsSetPermissions"):
                    await self._files.set_permissions(
                        path, modified=attrs.mtime, accessed=attrs.atime
                    )
                else:
                    await self._tools.set_link_times(path, attrs.atime, attrs.mtime)

    async def statvfs(self, path: bytes) -> SFTPVFSAttrs:
        async with self._reached():
            return await self._tools.file_system(self._path(path))

    async def fstatvfs(self, file_obj: object) -> SFTPVFSAttrs:
        return await self.statvfs(_file(file_obj).path)

    # Directories.

    async def scandir(self, path: bytes) -> AsyncIterator[SFTPName]:
        full = self._path(path)
        async with self._reached():
            entries = await self._files.read_directory(full)
        names = [b".", b"..", *(os.fsencode(entry.name) for entry in entries)]
        for start in range(0, len(names), _AT_ONCE):
            part = names[start : start + _AT_ONCE]
            for name in await asyncio.gather(*(self._described(full, each) for each in part)):
                if name is not None:
                    yield name

    async def _described(self, directory: bytes, name: bytes) -> SFTPName | None:
        try:
            found = await self._lstat(posixpath.join(directory, name))
        except NotFound:
            # It was removed meanwhile.
            return None
        except ExecServerError:
            return SFTPName(name, attrs=SFTPAttrs())
        return SFTPName(name, attrs=_attributes(found))

    async def mkdir(self, path: bytes, attrs: SFTPAttrs) -> None:
        full = self._path(path)
        async with self._reached():
            await self._files.create_directory(full)
            wanted = attrs.permissions
            if wanted is not None and wanted & 0o777 not in (0o777, 0o755):
                await self._set_mode(full, wanted & 0o7777)

    async def rmdir(self, path: bytes) -> None:
        full = self._path(path)
        async with self._reached():
            found = await self._lstat(full)
            if not found.is_directory or found.is_symlink:
                raise SFTPNotADirectory("Not a directory")
            await self._files.remove(full)

    async def remove(self, path: bytes) -> None:
        full = self._path(path)
        async with self._reached():
            found = await self._lstat(full)
            if found.is_directory and not found.is_symlink:
                raise SFTPFileIsADirectory("Is a directory")
            await self._files.remove(full)

    # Names.

    async def realpath(self, path: bytes) -> bytes:
        full = self._path(path)
        async with self._reached():
            try:
                return os.fsencode(await self._files.canonicalize(full))
            except NotFound:
                # The last component need not exist.
                above, name = posixpath.split(posixpath.normpath(full))
                found = os.fsencode(await self._files.canonicalize(above))
                return posixpath.join(found, name)

    async def rename(self, oldpath: bytes, newpath: bytes) -> None:
        await self._rename(oldpath, newpath, overwrites=False)

    async def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        await self._rename(oldpath, newpath, overwrites=True)

    async def _rename(self, oldpath: bytes, newpath: bytes, *, overwrites: bool) -> None:
        source, destination = self._path(oldpath), self._path(newpath)
        async with self._reached():
            if await self._files.offers("fsRename"):
                await self._files.rename(source, destination, overwrite=overwrites)
            else:
                await self._tools.rename(source, destination, overwrites=overwrites)

    async def readlink(self, path: bytes) -> bytes:
        async with self._reached():
            return os.fsencode(await self._files.readlink(self._path(path)))

    async def symlink(self, oldpath: bytes, newpath: bytes) -> None:
        async with self._reached():
            await self._files.symlink(oldpath, self._path(newpath))

    async def link(self, oldpath: bytes, newpath: bytes) -> None:
        async with self._reached():
            await self._tools.link(self._path(oldpath), self._path(newpath))


def _file(file_obj: object) -> SftpFile:
    assert isinstance(file_obj, SftpFile)
    return file_obj


def _attributes(found: fs.Metadata) -> SFTPAttrs:
    """The attributes as far as the server knows them."""
    modified = found.modified_at_ms // 1000
    attrs = SFTPAttrs(size=found.size, atime=modified, mtime=modified)
    if isinstance(found.mode, int):
        attrs.permissions = found.mode
    else:
        kind = stat.S_IFDIR | 0o755 if found.is_directory else stat.S_IFREG | 0o644
        attrs.permissions = stat.S_IFLNK | 0o777 if found.is_symlink else kind
    attrs.type = _TYPES.get(stat.S_IFMT(attrs.permissions), FILEXFER_TYPE_SPECIAL)
    if isinstance(found.uid, int) and isinstance(found.gid, int):
        attrs.uid, attrs.gid = found.uid, found.gid
    if isinstance(found.link_count, int):
        attrs.nlink = found.link_count
    return attrs


@contextlib.contextmanager
def _sftp_errors() -> Iterator[None]:
    """Errors of a client as errors of sftp; an OSError is translated by asyncssh."""
    try:
        yield
    except OSError as exc:
        if exc.errno == errno.EPERM:
            raise SFTPPermissionDenied(exc.strerror or "Permission denied") from exc
        raise
    except NotFound as exc:
        raise SFTPNoSuchFile(str(exc)) from exc
    except MethodNotFound as exc:
        raise SFTPOpUnsupported(str(exc)) from exc
    except ConnectionClosed as exc:
        # Otherwise sshfs would say that the operation is not permitted.
        raise SFTPConnectionLost(str(exc)) from exc
    except (ExecServerError, ValueError) as exc:
        # A ValueError is about a path that the protocol cannot carry.
        raise SFTPFailure(str(exc)) from exc
