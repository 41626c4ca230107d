"""`client.fs`: the server's files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from exec_server.client.arguments import as_bytes
from exec_server.client.files.file_methods import AnyPath
from exec_server.client.files.file_streams import WINDOW, ReadStream, WriteStream
from exec_server.client.files.looking import LookingMethods
from exec_server.client.files.remote_path import RemotePath
from exec_server.errors import NotFound
from exec_server.limits import MIB
from exec_server.protocol.sandbox import Sandboxed

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.client.files.transfer.progress import OnProgress
    from exec_server.client.files.transfer.result import TransferResult, Verify
    from exec_server.client.files.transfer.transfer_options import TransferOptions

# A file up to this size is read in one message, a larger one in blocks. The answer must fit into
# one frame of 16 MiB, because other servers do not split theirs.
_ONE_MESSAGE_BYTES = 8 * MIB


class RemoteFiles(LookingMethods):
    """The files of a client's server.

    Paths are native paths of the server, as str, bytes or PathLike, or file: URIs; answers contain
    native paths. Errors come from the server: NotFound if something does not exist, InvalidRequest
    if it is refused, InternalError otherwise. A method that the server does not offer raises
    MethodNotFound before anything is done. Nothing is repeated after a lost connection.
    """

    def __repr__(self) -> str:
        sandboxed = " sandboxed" if self.is_sandboxed else ""
        return f"<RemoteFiles of {self._client!r}{sandboxed}>"

    @property
    def client(self) -> ExecServerClient:
        """The client whose files these are."""
        return self._client

    def sandboxed(self, sandbox: Sandboxed) -> RemoteFiles:
        """The same files, with requests that the server confines as *sandbox* says."""
        return RemoteFiles(self._client, self._session, sandbox=sandbox)

    @property
    def is_sandboxed(self) -> bool:
        """True if the server confines the requests."""
        return self._sandbox is not None

    def path(self, path: str) -> RemotePath:
        """A path with methods like those of pathlib."""
        return RemotePath(self, path)

    # Content.

    async def read_bytes(self, path: AnyPath) -> bytes:
        """The content of a file; a large file is read in blocks."""
        uri = await self.uri(path)
        if (await self.get_metadata(uri)).size <= _ONE_MESSAGE_BYTES:
            return await self.read_file(uri)
        return await self.read_stream(uri).read()

    async def read_text(self, path: AnyPath, *, encoding: str = "utf-8") -> str:
        """The content of a file, decoded."""
        return (await self.read_bytes(path)).decode(encoding)

    async def write_bytes(self, path: AnyPath, data: bytes, *, atomic: bool = False) -> None:
        """Replace the content of a file, or create it; long content is sent in blocks.

        With *atomic* readers see the old content or the new content, and never a part.
        """
        data = as_bytes(data, "data")
        uri = await self.uri(path)
        if atomic or len(data) <= _ONE_MESSAGE_BYTES:
            await self.write_file(uri, data, atomic=atomic)
            return
        async with self.write_stream(uri) as stream:
            await stream.write(data)

    async def write_text(
        self, path: AnyPath, text: str, *, encoding: str = "utf-8", atomic: bool = False
    ) -> None:
        """Replace the content of a file by *text*, or create it; see `write_bytes`."""
        if not isinstance(text, str):
            raise TypeError(f"text must be str, not {type(text).__name__}; use write_bytes")
        await self.write_bytes(path, text.encode(encoding), atomic=atomic)

    def read_stream(
        self, path: AnyPath, *, offset: int = 0, length: int | None = None, window: int = WINDOW
    ) -> ReadStream:
        """The content of a file from *offset* on, in blocks; *window* requests run at a time."""
        return ReadStream(
            self, path, offset=offset, length=length, window=window, forget=self._forget
        )

    def write_stream(self, path: AnyPath, *, window: int = WINDOW) -> WriteStream:
        """Replace the content of a file, block by block; use it with `async with`."""
        return WriteStream(self, path, window=window, forget=self._forget)

    async def exists(self, path: AnyPath) -> bool:
        """True if *path* leads to something."""
        try:
            await self.get_metadata(path)
        except NotFound:
            return False
        return True

    # Whole trees, to and from this machine.

    async def upload(
        self,
        source: str | bytes | os.PathLike[str],
        destination: AnyPath,
        *,
        verify: Verify = "size",
        on_progress: OnProgress | None = None,
        exclude: Iterable[str] = (),
        delete: bool = False,
        checksum: bool = False,
        whole_files: bool = False,
    ) -> TransferResult:
        """Copy a local file, or a directory with everything in it, to exactly *destination*.

        Modes, times and symbolic links are kept as far as the server can. A file that is already
        there with the same size and time is left alone, so calling it again finishes a copy that
        was interrupted. Of a large file that has changed only the changes are sent, unless
        *whole_files* is true. *exclude* has patterns as in .gitignore. With *delete* what is not
        in the source is removed, and with *checksum* files with the same size and time are
        compared. Raises TransferFailed if some of it could not be copied.
        """
        from exec_server.client.files.transfer.upload import upload

        # The error of a source that does not exist names it as the caller does.
        await asyncio.to_thread(os.lstat, source)
        options = _options(exclude, delete, checksum, whole_files)
        return await upload(
            self, source, destination, verify=verify, on_progress=on_progress, options=options
        )

    async def download(
        self,
        source: AnyPath,
        destination: str | bytes | os.PathLike[str],
        *,
        verify: Verify = "size",
        on_progress: OnProgress | None = None,
        exclude: Iterable[str] = (),
        delete: bool = False,
        checksum: bool = False,
        whole_files: bool = False,
    ) -> TransferResult:
        """Copy a file or directory of the server to exactly *destination*; see `upload`."""
        from exec_server.client.files.transfer.download import download

        options = _options(exclude, delete, checksum, whole_files)
        return await download(
            self, source, destination, verify=verify, on_progress=on_progress, options=options
        )


def _options(
    exclude: Iterable[str], delete: bool, checksum: bool, whole_files: bool
) -> TransferOptions:
    from exec_server.client.files.transfer.transfer_options import TransferOptions

    if isinstance(exclude, str):
        raise TypeError("exclude must be several patterns, not one str")
    return TransferOptions(
        exclude=tuple(exclude), delete=delete, checksum=checksum, whole_files=whole_files
    )
