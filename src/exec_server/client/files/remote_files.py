"""`client.fs`: the server's files."""

from __future__ import annotations

import asyncio
import os
import posixpath
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from exec_server.client.files.file_streams import (
    WHOLE_FILE_BYTES,
    WINDOW,
    Block,
    ReadStream,
    WriteStream,
)
from exec_server.client.files.remote_path import RemotePath
from exec_server.errors import (
    ConnectionClosed,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    NotFound,
    RpcError,
)
from exec_server.limits import MIB
from exec_server.protocol import fs
from exec_server.protocol.base64 import Blob, LazyBlob
from exec_server.protocol.method import Method
from exec_server.protocol.paths import PathUri, from_uri, to_uri
from exec_server.protocol.sandbox import Sandboxed, as_context

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.client.files.transfer.progress import OnProgress
    from exec_server.client.files.transfer.result import TransferResult, Verify

P = TypeVar("P")
R = TypeVar("R")

# A path on the server, from its own directory when it is relative, or a file: URI.
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes] | RemotePath | PathUri

# Up to here a file travels in one message, and then in blocks. The answer must fit into one
# frame of 16 MiB: other servers do not cut theirs.
_ONE_MESSAGE_BYTES = 8 * MIB


class WalkEntry(NamedTuple):
    path: str
    kind: Literal["directory", "file"]


class WalkError(NamedTuple):
    path: str
    message: str


class WalkOutcome(NamedTuple):
    entries: list[WalkEntry]
    errors: list[WalkError]
    # A limit was reached, and there is more.
    truncated: bool


class MissingWatch:
    """A watch of paths that did not exist; it tells of the first change and is then over."""

    def __init__(self) -> None:
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def changed(self) -> None:
        """Returns once something has changed. Raises ConnectionClosed when nobody can tell."""
        await asyncio.shield(self._changed)

    def settle(self, error: Exception | None) -> None:
        if self._changed.done():
            return
        if error is None:
            self._changed.set_result(None)
        else:
            self._changed.set_exception(error)
            # Nobody may be waiting.
            self._changed.exception()


class RemoteFiles:
    """The files of a client's server.

    Paths are native ones of the server, as str, bytes or PathLike, or file: URIs; answers have
    native paths. Errors are the server's: NotFound for what does not exist, InvalidRequest for
    what is refused, InternalError for the rest. What the server does not offer raises
    MethodNotFound before anything is done. Nothing is ever repeated after a lost connection.
    """

    def __init__(self, client: ExecServerClient, *, sandbox: Sandboxed = None) -> None:
        self.client = client
        self._sandbox = as_context(sandbox)
        self._watch: MissingWatch | None = None
        self._last_watch_id = 0

    def sandboxed(self, sandbox: Sandboxed) -> RemoteFiles:
        """The same files, for requests that the server confines as *sandbox* says."""
        return RemoteFiles(self.client, sandbox=sandbox)

    @property
    def is_sandboxed(self) -> bool:
        return self._sandbox is not None

    def path(self, path: str) -> RemotePath:
        """A path to work with in the manner of pathlib."""
        return RemotePath(self, path)

    async def offers(self, capability: str) -> bool:
        """Whether the server says that it has *capability*."""
        try:
            info = await self.client.environment_info()
        except RpcError:
            return False
        return info.capabilities.get(capability, False)

    # Content.

    async def read_bytes(self, path: AnyPath) -> bytes:
        """All that a file holds; a large one comes in blocks."""
        uri = await self.uri(path)
        if (await self.get_metadata(uri)).size <= _ONE_MESSAGE_BYTES:
            return await self.read_file(uri)
        return await self.read_stream(uri).read()

    async def read_text(self, path: AnyPath, *, encoding: str = "utf-8") -> str:
        return (await self.read_bytes(path)).decode(encoding)

    async def write_bytes(self, path: AnyPath, data: bytes, *, atomic: bool = False) -> None:
        """Replace what a file holds, in blocks when it is much; a missing file is made.

        With *atomic* readers see the old content or the new, and never a part.
        """
        uri = await self.uri(path)
        if atomic or len(data) <= _ONE_MESSAGE_BYTES:
            await self.write_file(uri, data, atomic=atomic)
            return
        async with self.write_stream(uri) as stream:
            await stream.write(data)

    async def write_text(
        self, path: AnyPath, text: str, *, encoding: str = "utf-8", atomic: bool = False
    ) -> None:
        await self.write_bytes(path, text.encode(encoding), atomic=atomic)

    def read_stream(
        self, path: AnyPath, *, offset: int = 0, length: int | None = None, window: int = WINDOW
    ) -> ReadStream:
        """What a file holds from *offset* on, block by block, with *window* of them under way."""
        return ReadStream(self, path, offset=offset, length=length, window=window)

    def write_stream(self, path: AnyPath, *, window: int = WINDOW) -> WriteStream:
        """Replace what a file holds, block by block; for use with `async with`."""
        return WriteStream(self, path, window=window)

    async def read_file(self, path: AnyPath, *, follow_symlinks: bool = True) -> bytes:
        """`fs/readFile`: all of a file in one message."""
        params = fs.ReadFileParams(await self.uri(path), _unless(follow_symlinks), self._sandbox)
        return (await self._call(fs.READ_FILE, params)).data_base64.data

    async def write_file(
        self, path: AnyPath, data: bytes, *, atomic: bool = False, follow_symlinks: bool = True
    ) -> None:
        """`fs/writeFile`: replace what a file holds, in one message."""
        if len(data) > WHOLE_FILE_BYTES:
            raise InvalidRequest(f"{len(data)} bytes do not fit into one message; use write_stream")
        if atomic:
            await self._require("fsAtomicWrite")
        params = fs.WriteFileParams(
            await self.uri(path), LazyBlob(data), _unless(follow_symlinks), atomic, self._sandbox
        )
        await self._call(fs.WRITE_FILE, params)

    async def append(
        self, path: AnyPath, data: bytes, *, create: bool = True, follow_symlinks: bool = True
    ) -> int:
        """`fs/append`: write at the end of a file; its size then."""
        await self._require("fsAppend")
        params = fs.AppendParams(
            await self.uri(path), Blob(data), create, _unless(follow_symlinks), self._sandbox
        )
        return (await self._call(fs.APPEND, params)).size

    # Open files: what the streams are made of.

    async def open(
        self,
        path: AnyPath,
        *,
        mode: Literal["read", "replace"] = "read",
        handle_id: str | None = None,
    ) -> str:
        """`fs/open`: a handle, which is good until `close` or the end of the connection."""
        handle_id = uuid.uuid4().hex if handle_id is None else handle_id
        if mode == "replace":
            await self._require("fileWriteStreaming")
        params = fs.OpenParams(handle_id, await self.uri(path), mode, self._sandbox)
        return (await self._call(fs.OPEN, params)).handle_id

    async def read_block(self, handle_id: str, offset: int, size: int) -> Block:
        """`fs/readBlock`: up to *size* bytes, which is at most 1 MiB."""
        params = fs.ReadBlockParams(handle_id, offset, size)
        # Without a deadline: behind the blocks before it an answer may take long to arrive, and
        # a connection that is dead is noticed otherwise.
        answer = await self.client._call(fs.READ_BLOCK, params, seconds=None)
        return Block(answer.chunk.data, answer.eof)

    async def write_block(self, handle_id: str, offset: int, data: bytes) -> None:
        """`fs/writeBlock`: 1 byte to 1 MiB."""
        params = fs.WriteBlockParams(handle_id, offset, Blob(data))
        await self.client._call(fs.WRITE_BLOCK, params, seconds=None)

    async def close(self, handle_id: str) -> None:
        """`fs/close`; closing what is not open does no harm."""
        await self._call(fs.CLOSE, fs.CloseParams(handle_id))

    def forget_handle(self, handle_id: str) -> None:
        """Close a handle without waiting for that."""
        self.client._send(fs.CLOSE, fs.CloseParams(handle_id))

    # Names.

    async def exists(self, path: AnyPath) -> bool:
        """Whether *path* leads to something."""
        try:
            await self.get_metadata(path)
        except NotFound:
            return False
        return True

    async def get_metadata(self, path: AnyPath, *, follow_symlinks: bool = True) -> fs.Metadata:
        """`fs/getMetadata`: kind, size and times."""
        params = fs.GetMetadataParams(await self.uri(path), _unless(follow_symlinks), self._sandbox)
        return await self._call(fs.GET_METADATA, params)

    async def canonicalize(self, path: AnyPath) -> str:
        """`fs/canonicalize`: the path without any symbolic link; what it names must exist."""
        params = fs.CanonicalizeParams(await self.uri(path), self._sandbox)
        return _native((await self._call(fs.CANONICALIZE, params)).path.text)

    async def create_directory(
        self, path: AnyPath, *, recursive: bool = False, follow_symlinks: bool = True
    ) -> None:
        """`fs/createDirectory`; with *recursive* also those above it, and all may be there."""
        params = fs.CreateDirectoryParams(
            await self.uri(path), recursive, _unless(follow_symlinks), self._sandbox
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
        """`fs/remove`: a file, a link itself, an empty directory; with *recursive* a full one.

        With *force* what is not there need not be removed.
        """
        params = fs.RemoveParams(
            await self.uri(path), recursive, force, _unless(follow_symlinks), self._sandbox
        )
        await self._call(fs.REMOVE, params)

    async def copy(self, source: AnyPath, destination: AnyPath, *, recursive: bool = False) -> None:
        """`fs/copy`: within the server, to exactly *destination*; directories are merged."""
        params = fs.CopyParams(
            await self.uri(source), await self.uri(destination), recursive, self._sandbox
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
        """`fs/rename`: within one file system, in one step."""
        await self._require("fsRename")
        params = fs.RenameParams(
            await self.uri(source),
            await self.uri(destination),
            overwrite,
            _unless(follow_symlinks),
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
        """`fs/setPermissions`: the mode and the times that are given, in seconds since 1970.

        Times are kept to the millisecond.
        """
        await self._require("fsSetPermissions")
        params = fs.SetPermissionsParams(
            await self.uri(path),
            mode,
            _milliseconds(modified),
            _milliseconds(accessed),
            _unless(follow_symlinks),
            self._sandbox,
        )
        await self._call(fs.SET_PERMISSIONS, params)

    # Trees.

    async def read_directory(self, path: AnyPath) -> list[fs.DirectoryEntry]:
        """`fs/readDirectory`: the names in a directory, in no order.

        Links are listed as what they lead to, or not at all; what is not UTF-8 is replaced.
        """
        params = fs.ReadDirectoryParams(await self.uri(path), self._sandbox)
        return (await self._call(fs.READ_DIRECTORY, params)).entries

    async def walk(
        self,
        path: AnyPath,
        *,
        max_depth: int = 64,
        max_directories: int = 10_000,
        max_entries: int = 50_000,
        follow_directory_symlinks: bool = False,
        prune_hidden_directories: bool = False,
    ) -> WalkOutcome:
        """`fs/walk`: files and directories below *path*, breadth first; the limits are the most."""
        options = fs.WalkOptions(
            max_depth,
            max_directories,
            max_entries,
            follow_directory_symlinks,
            prune_hidden_directories,
        )
        params = fs.WalkParams(await self.uri(path), options, self._sandbox)
        result = await self._call(fs.WALK, params)
        return WalkOutcome(
            [WalkEntry(_native(entry.path), entry.kind) for entry in result.entries],
            [WalkError(_native(error.path), error.message) for error in result.errors],
            result.truncated,
        )

    async def watch_missing(
        self, missing: Iterable[AnyPath], *, present: AnyPath | None = None
    ) -> MissingWatch | None:
        """`fs/watchMissing`: be told when one of *missing* appears, or *present* changes.

        None when there is nothing to wait for, for example because one of them exists. A client
        has one such watch: the next one takes its place.
        """
        if self is not self.client.fs:
            return await self.client.fs.watch_missing(missing, present=present)
        await self._require("fsWatchMissing")
        self._last_watch_id += 1
        params = fs.WatchMissingParams(
            self._last_watch_id,
            [await self.uri(path) for path in missing],
            None if present is None else await self.uri(present),
        )
        # Before the request leaves: the change may overtake its answer.
        before, watch = self._watch, MissingWatch()
        self._watch = watch
        if (await self._call(fs.WATCH_MISSING, params)).watching:
            return watch
        self._watch = before
        return None

    # Whole trees, to and from this machine.

    async def upload(
        self,
        source: str | bytes | os.PathLike[str],
        destination: AnyPath,
        *,
        verify: Verify = "size",
        on_progress: OnProgress | None = None,
    ) -> TransferResult:
        """Copy a local file, or a directory with all that is in it, to exactly *destination*.

        Modes, times and symbolic links are kept as far as the server can, and what is already
        there with the same size and time is left alone; so a copy that was cut short is finished
        by doing it again. Raises TransferFailed when some of it could not be copied.
        """
        from exec_server.client.files.transfer.upload import upload

        return await upload(self, source, destination, verify=verify, on_progress=on_progress)

    async def download(
        self,
        source: AnyPath,
        destination: str | bytes | os.PathLike[str],
        *,
        verify: Verify = "size",
        on_progress: OnProgress | None = None,
    ) -> TransferResult:
        """The other direction of `upload`."""
        from exec_server.client.files.transfer.download import download

        return await download(self, source, destination, verify=verify, on_progress=on_progress)

    # What the client reports.

    def missing_changed(self, event: fs.MissingChangedEvent) -> None:
        if self._watch is not None and event.watch_id == self._last_watch_id:
            self._watch.settle(None)

    def connection_lost(self) -> None:
        if self._watch is not None:
            self._watch.settle(ConnectionClosed("the connection was lost"))
        # Numbers and watches belong to a connection.
        self._watch, self._last_watch_id = None, 0

    # Calls.

    async def _call(self, method: Method[P, R], params: P) -> R:
        return await self.client._call(method, params)

    async def _require(self, capability: str) -> None:
        if not await self.offers(capability):
            raise MethodNotFound(f"the server does not offer {capability}")

    async def uri(self, path: AnyPath) -> PathUri:
        """A path as the server wants it. Raises ValueError for what can be no path."""
        if isinstance(path, PathUri):
            return path
        raw = str(path) if isinstance(path, RemotePath) else os.fspath(path)
        if isinstance(raw, str) and raw.startswith("file:"):
            return PathUri(raw)
        native = os.fsencode(raw)
        if not native.startswith(b"/"):
            native = posixpath.join(os.fsencode(await self.client._server_cwd()), native)
        # Servers older than sessions take native paths.
        text = to_uri(native) if self.client._uses_uris else os.fsdecode(native)
        return PathUri(text)


def _unless(follow_symlinks: bool) -> bool | None:
    """Said only where it is not what every server does."""
    return None if follow_symlinks else False


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _native(uri: str) -> str:
    """The path that an answer names; of a server that is no POSIX system, its URI."""
    try:
        return os.fsdecode(from_uri(uri))
    except InvalidParams:
        return uri
