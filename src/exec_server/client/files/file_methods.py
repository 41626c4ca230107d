"""The file methods of the protocol, one Python method each.

The module is long because there are so many of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from exec_server.client.arguments import as_bytes, as_path
from exec_server.client.files.file_streams import (
    WHOLE_FILE_BYTES,
    Block,
    native_text,
    subject,
)
from exec_server.client.files.missing_watch import MissingWatch
from exec_server.client.files.remote_path import RemotePath
from exec_server.client.os_errors import as_os_error
from exec_server.errors import (
    ExecServerError,
    InvalidRequest,
    MethodNotFound,
    ProtocolError,
    RpcError,
)
from exec_server.protocol import fs
from exec_server.protocol.base64 import Blob, LazyBlob
from exec_server.protocol.method import Method
from exec_server.protocol.paths import PathUri, to_uri
from exec_server.protocol.sandbox import Sandboxed, as_context

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.client.client_session import ClientSession

P = TypeVar("P")
R = TypeVar("R")

# A path on the server or a file: URI; a relative path starts at the server's own directory.
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes] | RemotePath | PathUri


# The ends of texts that refuse to open something else than a regular file.
_NO_FILE = ("` is not a file", "path is not a regular file")


class WalkEntry(NamedTuple):
    """A file, directory or link that `walk` has found."""

    path: str
    kind: Literal["directory", "file", "symlink"]


class WalkError(NamedTuple):
    """A directory that `walk` could not read."""

    path: str
    message: str


class WalkOutcome(NamedTuple):
    """The result of `walk`."""

    entries: list[WalkEntry]
    errors: list[WalkError]
    # True if a limit was reached and there is more.
    truncated: bool


async def is_directory(session: ClientSession, path: PathUri) -> bool:
    """True if *path* is a directory on the server. Raises NotFound."""
    return (await session.call(fs.GET_METADATA, fs.GetMetadataParams(path))).is_directory


class FileMethods:
    """The part of `client.fs` that has one method for each file method of the protocol."""

    def __init__(
        self, client: ExecServerClient, session: ClientSession, *, sandbox: Sandboxed = None
    ) -> None:
        """Use `client.fs`."""
        self._client = client
        self._session = session
        self._sandbox = as_context(sandbox)

    async def offers(self, capability: str) -> bool:
        """True if the server says that it has *capability*."""
        return await self._session.offers(capability)

    # Content.

    async def read_file(self, path: AnyPath, *, follow_symlinks: bool = True) -> bytes:
        """`fs/readFile`: the content of a file, in one message."""
        params = fs.ReadFileParams(await self.uri(path), unless(follow_symlinks), self._sandbox)
        return (await self._call(fs.READ_FILE, params)).data_base64.data

    async def write_file(
        self, path: AnyPath, data: bytes, *, atomic: bool = False, follow_symlinks: bool = True
    ) -> None:
        """`fs/writeFile`: replace the content of a file, in one message."""
        data = as_bytes(data, "data")
        if len(data) > WHOLE_FILE_BYTES:
            raise InvalidRequest(f"{len(data)} bytes do not fit into one message; use write_stream")
        if atomic:
            await self._require("fsAtomicWrite")
        params = fs.WriteFileParams(
            await self.uri(path), LazyBlob(data), unless(follow_symlinks), atomic, self._sandbox
        )
        await self._call(fs.WRITE_FILE, params)

    async def append(
        self, path: AnyPath, data: bytes, *, create: bool = True, follow_symlinks: bool = True
    ) -> int:
        """`fs/append`: write at the end of a file; returns its size after that."""
        data = as_bytes(data, "data")
        await self._require("fsAppend")
        params = fs.AppendParams(
            await self.uri(path), Blob(data), create, unless(follow_symlinks), self._sandbox
        )
        return (await self._call(fs.APPEND, params)).size

    # Open files, of which the streams are made.

    async def open(
        self,
        path: AnyPath,
        *,
        mode: Literal["read", "replace", "update"] = "read",
        handle_id: str | None = None,
    ) -> str:
        """`fs/open`: a handle, which is valid until `close` or the end of the connection.

        With `update` the file is made if it is missing, keeps its content, and can be read and
        written. This is an extension: servers without it raise MethodNotFound.
        """
        handle_id = uuid.uuid4().hex if handle_id is None else handle_id
        if mode == "replace":
            await self._require("fileWriteStreaming")
        elif mode == "update":
            await self._require("fsOpenUpdate")
        params = fs.OpenParams(handle_id, await self.uri(path), mode, self._sandbox)
        return (await self._call(fs.OPEN, params)).handle_id

    async def read_block(self, handle_id: str, offset: int, size: int) -> Block:
        """`fs/readBlock`: up to *size* bytes, which is at most 1 MiB."""
        params = fs.ReadBlockParams(handle_id, offset, size)
        # There is no deadline, because the answer may wait behind many other blocks. Pings find out
        # whether the connection is dead.
        answer = await self._session.call(fs.READ_BLOCK, params, seconds=None)
        return Block(answer.chunk.data, answer.eof)

    async def write_block(self, handle_id: str, offset: int, data: bytes) -> None:
        """`fs/writeBlock`: write 1 byte to 1 MiB."""
        params = fs.WriteBlockParams(handle_id, offset, Blob(as_bytes(data, "data")))
        await self._session.call(fs.WRITE_BLOCK, params, seconds=None)

    async def close(self, handle_id: str) -> None:
        """`fs/close`; closing a handle that is not open does no harm."""
        await self._call(fs.CLOSE, fs.CloseParams(handle_id))

    def _forget(self, handle_id: str) -> None:
        """Close a handle without waiting for that."""
        self._session.send(fs.CLOSE, fs.CloseParams(handle_id))

    # Names.

    async def get_metadata(
        self, path: AnyPath, *, follow_symlinks: bool = True, attributes: bool = False
    ) -> fs.Metadata:
        """`fs/getMetadata`: the kind, size and times of what the path leads to.

        With *attributes* also `mode`, `uid`, `gid` and `link_count`, which are `msgspec.UNSET` from
        servers without `fsLinks`.
        """
        params = fs.GetMetadataParams(
            await self.uri(path),
            unless(follow_symlinks),
            self._sandbox,
            attributes=attributes and await self.offers("fsLinks"),
        )
        return await self._call(fs.GET_METADATA, params)

    async def canonicalize(self, path: AnyPath) -> str:
        """`fs/canonicalize`: the path without symbolic links; it must exist."""
        params = fs.CanonicalizeParams(await self.uri(path), self._sandbox)
        return native_text((await self._call(fs.CANONICALIZE, params)).path.text)

    async def create_directory(
        self, path: AnyPath, *, recursive: bool = False, follow_symlinks: bool = True
    ) -> None:
        """`fs/createDirectory`; *recursive* also creates its parents, and all of them may exist."""
        params = fs.CreateDirectoryParams(
            await self.uri(path), recursive, unless(follow_symlinks), self._sandbox
        )
        await self._call(fs.CREATE_DIRECTORY, params)

    async def remove(
        self,
        path: AnyPath,
        *,
        recursive: bool = False,
        force: bool = False,
        follow_symlinks: bool = True,
    ) -> None:
        """`fs/remove`: remove a file, a link itself or an empty directory; *recursive*: a full one.

        With *force* it is no error if the path does not exist.
        """
        params = fs.RemoveParams(
            await self.uri(path), recursive, force, unless(follow_symlinks), self._sandbox
        )
        await self._call(fs.REMOVE, params)

    async def copy(
        self,
        source: AnyPath,
        destination: AnyPath,
        *,
        recursive: bool = False,
        archive: bool = False,
    ) -> None:
        """`fs/copy`: copy within the server to exactly *destination*; directories are merged.

        With *archive*, times and the modes of directories are kept, files with the same size and
        time are left alone, and links below *destination* are replaced and not followed.
        """
        if archive:
            await self._require("fsCopyArchive")
        params = fs.CopyParams(
            await self.uri(source), await self.uri(destination), recursive, archive, self._sandbox
        )
        await self._call(fs.COPY, params)

    async def rename(
        self,
        source: AnyPath,
        destination: AnyPath,
        *,
        overwrite: bool = True,
        follow_symlinks: bool = True,
    ) -> None:
        """`fs/rename`: rename within one file system, in one step."""
        await self._require("fsRename")
        params = fs.RenameParams(
            await self.uri(source),
            await self.uri(destination),
            overwrite,
            unless(follow_symlinks),
            self._sandbox,
        )
        await self._call(fs.RENAME, params)

    async def set_permissions(
        self,
        path: AnyPath,
        *,
        mode: int | None = None,
        modified: float | None = None,
        accessed: float | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """`fs/setPermissions`: set the mode and the times that are given, in seconds since 1970.

        Times are kept to the millisecond.
        """
        await self._require("fsSetPermissions")
        params = fs.SetPermissionsParams(
            await self.uri(path),
            mode,
            _milliseconds(modified),
            _milliseconds(accessed),
            unless(follow_symlinks),
            self._sandbox,
        )
        await self._call(fs.SET_PERMISSIONS, params)

    # Trees.

    async def read_directory(self, path: AnyPath) -> list[fs.DirectoryEntry]:
        """`fs/readDirectory`: the names in a directory, in no particular order.

        A link is listed as the kind that it leads to. From servers of this package, links that lead
        nowhere are listed, too, and `entry.name` is exact. Other servers leave out such links, and
        replace the bytes of names that are not UTF-8.
        """
        is_complete = self._session.has_announced("fsCompleteListing")
        params = fs.ReadDirectoryParams(await self.uri(path), self._sandbox, complete=is_complete)
        entries = (await self._call(fs.READ_DIRECTORY, params)).entries
        for entry in entries:
            if entry.name in ("", ".", "..") or "/" in entry.name or "\0" in entry.name:
                # A caller joins it with a directory, perhaps of this machine.
                raise ProtocolError(f"the server names a file {entry.name!r:.256}")
        return entries

    async def walk(
        self,
        path: AnyPath,
        *,
        max_depth: int = 64,
        max_directories: int = 10_000,
        max_entries: int = 50_000,
        follow_directory_symlinks: bool = False,
        prune_hidden_directories: bool = False,
        links: bool = False,
    ) -> WalkOutcome:
        """`fs/walk`: files and directories below *path*, breadth first.

        Names that are not UTF-8 are among them if the server can list them (`fsWalkExactNames`);
        others report them as errors. With *links* symbolic links that are not entered are among
        them, too, also those that lead nowhere; this needs a server with `fsLinks`.
        The limits given by default are the highest that servers accept.
        """
        if links:
            await self._require("fsLinks")
        options = fs.WalkOptions(
            max_depth,
            max_directories,
            max_entries,
            follow_directory_symlinks,
            prune_hidden_directories,
            exact_names=await self.offers("fsWalkExactNames"),
            links=links,
        )
        params = fs.WalkParams(await self.uri(path), options, self._sandbox)
        result = await self._call(fs.WALK, params)
        return WalkOutcome(
            [WalkEntry(native_text(entry.path), entry.kind) for entry in result.entries],
            [WalkError(native_text(error.path), error.message) for error in result.errors],
            result.truncated,
        )

    async def watch_missing(
        self, missing: Iterable[AnyPath], *, present: AnyPath | None = None
    ) -> MissingWatch | None:
        """`fs/watchMissing`: wait until one of *missing* appears, or *present* changes.

        Returns None if there is nothing to wait for, for example because one of them exists. A
        client has one such watch; the next one replaces it.
        """
        await self._require("fsWatchMissing")
        uris = [await self.uri(path) for path in missing]
        there = None if present is None else await self.uri(present)

        async def ask(watch_id: int) -> bool:
            params = fs.WatchMissingParams(watch_id, uris, there)
            return (await self._call(fs.WATCH_MISSING, params)).watching

        return await self._session.watches.start(ask)

    # Calls.

    async def _call(self, method: Method[P, R], params: P) -> R:
        try:
            return await self._session.call(method, params)
        except RpcError as exc:
            paths = _paths(params)
            if not paths:
                raise
            error = await self._with_errno(exc, paths[0])
            if error.path is not None:
                # A server that says more says it as it writes all paths.
                error.path = native_text(error.path)
            raise error.about(subject(*paths), path=native_text(paths[0].text)) from None

    async def _with_errno(self, error: RpcError, path: PathUri) -> RpcError:
        """*error*, as an OSError if *path* is a directory where a file is wanted.

        Servers without `errorDetails` only say that it is no regular file.
        """
        if error.errno is None and error.message.endswith(_NO_FILE):
            with contextlib.suppress(ExecServerError):
                if await is_directory(self._session, path):
                    error.errno = errno.EISDIR
        return as_os_error(error)

    async def _require(self, capability: str) -> None:
        if not await self.offers(capability):
            raise MethodNotFound(f"the server does not offer {capability}")

    async def uri(self, path: AnyPath) -> PathUri:
        """A path in the form that the server wants. Raises ValueError if it cannot be a path."""
        if isinstance(path, PathUri):
            return path
        text = as_path(path, "path")
        if text.startswith("file:"):
            return PathUri(text)
        native = os.fsencode(text)
        if not native.startswith(b"/"):
            native = posixpath.join(os.fsencode(await self._session.server_cwd()), native)
        # Servers older than sessions take native paths.
        text = to_uri(native) if self._session.uses_uris else os.fsdecode(native)
        return PathUri(text)


def unless(follow_symlinks: bool) -> bool | None:
    """The parameter is sent only where it differs from what every server does."""
    return None if follow_symlinks else False


def _paths(params: object) -> list[PathUri]:
    """The paths that a call is about."""
    members = ("path", "source_path", "destination_path")
    return [getattr(params, name) for name in members if hasattr(params, name)]


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
