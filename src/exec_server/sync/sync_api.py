"""The client for programs without an event loop, class by class.

This file is generated: change the asynchronous classes and run `scripts/sync_twin.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from ssl import SSLContext
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from exec_server.client.arguments import BytesLike, Word
from exec_server.client.client import ExecServerClient as AsyncExecServerClient
from exec_server.client.client_session import StrPath
from exec_server.client.connect_keywords import ConnectKeywords
from exec_server.client.connect_options import DEFAULT_CLIENT_NAME
from exec_server.client.discovery import KeyPaths
from exec_server.client.discovery import RemoteDiscovery as AsyncRemoteDiscovery
from exec_server.client.environments.kinds import Environment
from exec_server.client.environments.lazy import EnvironmentStatus
from exec_server.client.environments.manager import EnvironmentFacts
from exec_server.client.environments.manager import EnvironmentManager as AsyncEnvironmentManager
from exec_server.client.files.change_reports import Changes
from exec_server.client.files.change_reports import FileWatch as AsyncFileWatch
from exec_server.client.files.file_methods import WalkOutcome
from exec_server.client.files.file_streams import WINDOW, Block
from exec_server.client.files.file_streams import ReadStream as AsyncReadStream
from exec_server.client.files.file_streams import WriteStream as AsyncWriteStream
from exec_server.client.files.missing_watch import MissingWatch as AsyncMissingWatch
from exec_server.client.files.remote_files import RemoteFiles as AsyncRemoteFiles
from exec_server.client.files.remote_path import RemotePath as AsyncRemotePath
from exec_server.client.files.search_results import FileSearch as AsyncFileSearch
from exec_server.client.files.search_results import SearchHit
from exec_server.client.files.transfer.progress import OnProgress
from exec_server.client.files.transfer.result import TransferResult, Verify
from exec_server.client.http.remote_http import (
    DEFAULT_TIMEOUT,
    AnyHeaders,
    HttpHeaders,
    HttpResponse,
)
from exec_server.client.http.remote_http import RemoteHttp as AsyncRemoteHttp
from exec_server.client.http.remote_http import StreamedHttpResponse as AsyncStreamedHttpResponse
from exec_server.client.network_policy import OnPolicyDecision, OnPolicyRequest
from exec_server.client.process.denial_calls import OnDenied
from exec_server.client.process.output_buffer import Event, OutputChunk, Wanted
from exec_server.client.process.output_view import LINE_BYTES, Separator
from exec_server.client.process.output_view import OutputView as AsyncOutputView
from exec_server.client.process.processes import INHERIT_ENV
from exec_server.client.process.remote_process import RemoteProcess as AsyncRemoteProcess
from exec_server.client.process.run_to_end import CompletedProcess
from exec_server.client.process.screen_data import Screen, ScreenMatch
from exec_server.client.process.tracked_process import OnDisconnect, OnGap
from exec_server.client.process.watched_process import Seen
from exec_server.client.process.watched_process import WatchedProcess as AsyncWatchedProcess
from exec_server.client.session_link import ConnectionState
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol import environment, fs, process
from exec_server.protocol.denials import Denial, DenialsResult, GrantResult, GrantScope
from exec_server.protocol.ends import EndReport, Usage
from exec_server.protocol.env_policy import EnvPolicy
from exec_server.protocol.file_delta import SPAN_BYTES, SignatureResult
from exec_server.protocol.file_search import SearchEnd
from exec_server.protocol.fs import Metadata
from exec_server.protocol.jobs import JobInfo
from exec_server.protocol.lifecycle import WhoamiResult
from exec_server.protocol.limit_words import Limited
from exec_server.protocol.participants import Kind
from exec_server.protocol.paths import PathUri
from exec_server.protocol.process import ReadResult
from exec_server.protocol.resources import GrantedLimit
from exec_server.protocol.sandbox import Sandboxed
from exec_server.protocol.screen import (
    LastCommand,
    ScreenParams,
    ScreenResult,
    WaitForParams,
    WaitForResult,
)
from exec_server.protocol.sharing import (
    ControlAction,
    ControlChangedEvent,
    ControlState,
    Participant,
    ScreenPicture,
)
from exec_server.protocol.streams import ListeningPort, StreamInfo
from exec_server.sync.portal import (
    Twin,
    close_client,
    opened,
    opened_alone,
    unwrapped,
    wrapped_some,
)


class RemotePath(Twin[AsyncRemotePath]):
    """A path on a client's server; see `client.fs.path`.

    Methods that only concern the text work as in pathlib, and what asks the server waits.
    It is not a PathLike on purpose: `open()` would look for the file on this machine.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return self._inner.__str__()

    def __lt__(self, other: RemotePath) -> bool:
        return self._inner.__lt__(unwrapped(other))

    def __truediv__(self, other: str) -> RemotePath:
        return RemotePath(self._portal, self._inner.__truediv__(other))

    def joinpath(self, *others: str) -> RemotePath:
        """This path with *others* after it."""
        return RemotePath(self._portal, self._inner.joinpath(*others))

    def with_name(self, name: str) -> RemotePath:
        """This path with another last part."""
        return RemotePath(self._portal, self._inner.with_name(name))

    def with_suffix(self, suffix: str) -> RemotePath:
        """This path with another suffix, such as `.txt`."""
        return RemotePath(self._portal, self._inner.with_suffix(suffix))

    @property
    def parent(self) -> RemotePath:
        """The path without its last part."""
        return RemotePath(self._portal, self._inner.parent)

    @property
    def parts(self) -> Sequence[str]:
        """The parts between the slashes, and the leading slash."""
        return self._inner.parts

    @property
    def name(self) -> str:
        """The last part."""
        return self._inner.name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return self._inner.stem

    @property
    def suffix(self) -> str:
        """The suffix of the last part, such as `.txt`; empty if there is none."""
        return self._inner.suffix

    def stat(self) -> Metadata:
        """The kind, size, times and, if the server tells it, the mode. Raises NotFound."""
        return self._portal.wait(self._inner.stat())

    def lstat(self) -> Metadata:
        """The same of a link itself, also of one that leads nowhere. An extension."""
        return self._portal.wait(self._inner.lstat())

    def readlink(self) -> RemotePath:
        """The path in a link, which may be relative to the link's directory. An extension."""
        return RemotePath(self._portal, self._portal.wait(self._inner.readlink()))

    def exists(self) -> bool:
        """True if the path leads to something."""
        return self._portal.wait(self._inner.exists())

    def is_file(self) -> bool:
        """True if it is a regular file, or a link to one."""
        return self._portal.wait(self._inner.is_file())

    def is_dir(self) -> bool:
        """True if it is a directory, or a link to one."""
        return self._portal.wait(self._inner.is_dir())

    def is_symlink(self) -> bool:
        """True if it is a symbolic link; some servers do not see one that leads nowhere."""
        return self._portal.wait(self._inner.is_symlink())

    def resolve(self) -> RemotePath:
        """The path without symbolic links; unlike in pathlib it must exist."""
        return RemotePath(self._portal, self._portal.wait(self._inner.resolve()))

    def iterdir(self) -> Iterator[RemotePath]:
        """The paths in the directory, in no particular order."""
        return map(partial(RemotePath, self._portal), self._portal.iterate(self._inner.iterdir()))

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """The paths that match *pattern*, in which `**` stands for any number of directories.

        Links to directories are entered only where the pattern names them.
        """
        return map(
            partial(RemotePath, self._portal), self._portal.iterate(self._inner.glob(pattern))
        )

    def read_bytes(self) -> bytes:
        """The content of the file."""
        return self._portal.wait(self._inner.read_bytes())

    def read_text(self, encoding: str = "utf-8") -> str:
        """The content of the file, decoded."""
        return self._portal.wait(self._inner.read_text(encoding))

    def write_bytes(self, data: bytes, *, atomic: bool = False) -> None:
        """Replace the content of the file, or create it; see `RemoteFiles.write_bytes`."""
        self._portal.wait(self._inner.write_bytes(data, atomic=atomic))

    def write_text(self, text: str, encoding: str = "utf-8", *, atomic: bool = False) -> None:
        """Replace the content of the file by *text*, or create it."""
        self._portal.wait(self._inner.write_text(text, encoding, atomic=atomic))

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Create the directory, as in pathlib; but *parents* implies *exist_ok*."""
        self._portal.wait(self._inner.mkdir(parents=parents, exist_ok=exist_ok))

    def symlink_to(self, target: str | RemotePath) -> None:
        """Make this path a link to *target*, which need not exist. An extension."""
        self._portal.wait(self._inner.symlink_to(unwrapped(target)))

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the file or the symbolic link."""
        self._portal.wait(self._inner.unlink(missing_ok=missing_ok))

    def rmdir(self) -> None:
        """Remove an empty directory."""
        self._portal.wait(self._inner.rmdir())

    def rename(self, target: str | RemotePath) -> RemotePath:
        """Rename to *target*, which is replaced; a relative text starts at this path's parent."""
        return RemotePath(self._portal, self._portal.wait(self._inner.rename(unwrapped(target))))


class ReadStream(Twin[AsyncReadStream]):
    """The content of a file: an iterator of blocks, in order.

    It belongs to one connection and fails with it. Iterate to the end, or use `with`. The
    file is closed on the server in any case, even if the stream is only dropped.
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        self._portal.wait(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.wait(self._inner.__aexit__(kind, exc, traceback))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        try:
            return self._portal.wait(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def read(self) -> bytes:
        """The content up to the end."""
        return self._portal.wait(self._inner.read())

    def aclose(self) -> None:
        """Close the file; nothing more is read. Idempotent."""
        self._portal.wait(self._inner.aclose())


class WriteStream(Twin[AsyncWriteStream]):
    """Replaces the content of a file, block by block: `with`, then `write`.

    The file is emptied at once, and complete when the `with` block has ended without an
    error; otherwise a part of it remains. A server that takes no blocks gets the whole file at the
    end, which limits its size.
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        self._portal.wait(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.wait(self._inner.__aexit__(kind, exc, traceback))

    def write(self, data: bytes) -> None:
        """Write *data* after what was written; returns when little of it is still under way.

        An error may belong to an earlier block. After an error the stream cannot be used.
        """
        self._portal.wait(self._inner.write(data))


class MissingWatch(Twin[AsyncMissingWatch]):
    """A watch of paths that did not exist. It reports the first change and is over then."""

    __slots__ = ()

    def changed(self) -> None:
        """Wait until something has changed. Raises ConnectionClosed if the connection is lost."""
        self._portal.wait(self._inner.changed())


class FileSearch(Twin[AsyncFileSearch]):
    """A search: an iterator of hits. `end` says how it ended.

    Iterate to the end, or use `with`, which cancels the rest. It belongs to one connection
    and fails with it. Raises InvalidRequest if the pattern is wrong.
    """

    __slots__ = ()

    @property
    def end(self) -> SearchEnd | None:
        """How the search has ended; None before that."""
        return self._inner.end

    def __enter__(self) -> Self:
        self._portal.wait(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.wait(self._inner.__aexit__(kind, exc, traceback))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SearchHit:
        try:
            return self._portal.wait(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def cancel(self) -> None:
        """End the search; hits that have come already are discarded. Idempotent."""
        self._portal.run(lambda: self._inner.cancel())


class FileWatch(Twin[AsyncFileWatch]):
    """A watch: `with`, then an iterator of `Changes`.

    It survives lost connections: what has changed meanwhile follows, or a `rescan`. It ends with
    InvalidRequest if the server ends it, for example because the directory is gone.
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        self._portal.wait(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.wait(self._inner.__aexit__(kind, exc, traceback))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Changes:
        try:
            return self._portal.wait(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """End the watch. Idempotent."""
        self._portal.run(lambda: self._inner.close())


class RemoteFiles(Twin[AsyncRemoteFiles]):
    """The files of a client's server.

    Paths are native paths of the server, as str, bytes or PathLike, or file: URIs; answers contain
    native paths. Errors come from the server: NotFound if something does not exist, InvalidRequest
    if it is refused, InternalError otherwise. A method that the server does not offer raises
    MethodNotFound before anything is done. Nothing is repeated after a lost connection.
    """

    __slots__ = ()

    def offers(self, capability: str) -> bool:
        """True if the server says that it has *capability*."""
        return self._portal.wait(self._inner.offers(capability))

    def read_file(self, path: AnyPath, *, follow_symlinks: bool = True) -> bytes:
        """`fs/readFile`: the content of a file, in one message."""
        return self._portal.wait(
            self._inner.read_file(unwrapped(path), follow_symlinks=follow_symlinks)
        )

    def write_file(
        self, path: AnyPath, data: bytes, *, atomic: bool = False, follow_symlinks: bool = True
    ) -> None:
        """`fs/writeFile`: replace the content of a file, in one message."""
        self._portal.wait(
            self._inner.write_file(
                unwrapped(path), data, atomic=atomic, follow_symlinks=follow_symlinks
            )
        )

    def append(
        self, path: AnyPath, data: bytes, *, create: bool = True, follow_symlinks: bool = True
    ) -> int:
        """`fs/append`: write at the end of a file; returns its size after that."""
        return self._portal.wait(
            self._inner.append(
                unwrapped(path), data, create=create, follow_symlinks=follow_symlinks
            )
        )

    def open(
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
        return self._portal.wait(self._inner.open(unwrapped(path), mode=mode, handle_id=handle_id))

    def read_block(self, handle_id: str, offset: int, size: int) -> Block:
        """`fs/readBlock`: up to *size* bytes, which is at most 1 MiB."""
        return self._portal.wait(self._inner.read_block(handle_id, offset, size))

    def write_block(self, handle_id: str, offset: int, data: bytes) -> None:
        """`fs/writeBlock`: write 1 byte to 1 MiB."""
        self._portal.wait(self._inner.write_block(handle_id, offset, data))

    def close(self, handle_id: str) -> None:
        """`fs/close`; closing a handle that is not open does no harm."""
        self._portal.wait(self._inner.close(handle_id))

    def get_metadata(
        self, path: AnyPath, *, follow_symlinks: bool = True, attributes: bool = False
    ) -> fs.Metadata:
        """`fs/getMetadata`: the kind, size and times of what the path leads to.

        With *attributes* also `mode`, `uid`, `gid` and `link_count`, which are `msgspec.UNSET` from
        servers without `fsLinks`.
        """
        return self._portal.wait(
            self._inner.get_metadata(
                unwrapped(path), follow_symlinks=follow_symlinks, attributes=attributes
            )
        )

    def canonicalize(self, path: AnyPath) -> str:
        """`fs/canonicalize`: the path without symbolic links; it must exist."""
        return self._portal.wait(self._inner.canonicalize(unwrapped(path)))

    def create_directory(
        self, path: AnyPath, *, recursive: bool = False, follow_symlinks: bool = True
    ) -> None:
        """`fs/createDirectory`; *recursive* also creates its parents, and all of them may exist."""
        self._portal.wait(
            self._inner.create_directory(
                unwrapped(path), recursive=recursive, follow_symlinks=follow_symlinks
            )
        )

    def remove(
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
        self._portal.wait(
            self._inner.remove(
                unwrapped(path), recursive=recursive, force=force, follow_symlinks=follow_symlinks
            )
        )

    def copy(
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
        self._portal.wait(
            self._inner.copy(
                unwrapped(source), unwrapped(destination), recursive=recursive, archive=archive
            )
        )

    def rename(
        self,
        source: AnyPath,
        destination: AnyPath,
        *,
        overwrite: bool = True,
        follow_symlinks: bool = True,
    ) -> None:
        """`fs/rename`: rename within one file system, in one step."""
        self._portal.wait(
            self._inner.rename(
                unwrapped(source),
                unwrapped(destination),
                overwrite=overwrite,
                follow_symlinks=follow_symlinks,
            )
        )

    def set_permissions(
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
        self._portal.wait(
            self._inner.set_permissions(
                unwrapped(path),
                mode=mode,
                modified=modified,
                accessed=accessed,
                follow_symlinks=follow_symlinks,
            )
        )

    def read_directory(self, path: AnyPath) -> list[fs.DirectoryEntry]:
        """`fs/readDirectory`: the names in a directory, in no particular order.

        A link is listed as the kind that it leads to. From servers of this package, links that lead
        nowhere are listed, too, and `entry.name` is exact. Other servers leave out such links, and
        replace the bytes of names that are not UTF-8.
        """
        return self._portal.wait(self._inner.read_directory(unwrapped(path)))

    def walk(
        self,
        path: AnyPath,
        *,
        max_depth: int = 64,
        max_directories: int = 10000,
        max_entries: int = 50000,
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
        return self._portal.wait(
            self._inner.walk(
                unwrapped(path),
                max_depth=max_depth,
                max_directories=max_directories,
                max_entries=max_entries,
                follow_directory_symlinks=follow_directory_symlinks,
                prune_hidden_directories=prune_hidden_directories,
                links=links,
            )
        )

    def watch_missing(
        self, missing: Iterable[AnyPath], *, present: AnyPath | None = None
    ) -> MissingWatch | None:
        """`fs/watchMissing`: wait until one of *missing* appears, or *present* changes.

        Returns None if there is nothing to wait for, for example because one of them exists. A
        client has one such watch; the next one replaces it.
        """
        return wrapped_some(
            MissingWatch,
            self._portal,
            self._portal.wait(
                self._inner.watch_missing(
                    [unwrapped(each) for each in missing], present=unwrapped(present)
                )
            ),
        )

    def uri(self, path: AnyPath) -> PathUri:
        """A path in the form that the server wants. Raises ValueError if it cannot be a path."""
        return self._portal.wait(self._inner.uri(unwrapped(path)))

    def lstat(self, path: AnyPath, *, follow_symlinks: bool = True) -> fs.Metadata:
        """`fs/lstat`: as `get_metadata` with attributes, of a link itself and not its target.

        A link that leads nowhere can be asked about, too. With *follow_symlinks* false it is an
        error if one of the directories above is a link.
        """
        return self._portal.wait(
            self._inner.lstat(unwrapped(path), follow_symlinks=follow_symlinks)
        )

    def readlink(self, path: AnyPath, *, follow_symlinks: bool = True) -> str:
        """`fs/readLink`: the text in a link, which may be relative to the link's directory."""
        return self._portal.wait(
            self._inner.readlink(unwrapped(path), follow_symlinks=follow_symlinks)
        )

    def symlink(self, target: AnyPath, path: AnyPath, *, follow_symlinks: bool = True) -> None:
        """`fs/symlink`: make *path* a link to *target*, which need not exist, as `os.symlink` does.

        It is an error if *path* exists.
        """
        self._portal.wait(
            self._inner.symlink(unwrapped(target), unwrapped(path), follow_symlinks=follow_symlinks)
        )

    def search(
        self,
        path: AnyPath,
        pattern: str,
        *,
        mode: Literal["content", "names"] = "content",
        literal: bool = False,
        ignore_case: bool = False,
        whole_words: bool = False,
        globs: Iterable[str] = (),
        hidden: bool = False,
        ignored: bool = False,
        before: int = 0,
        after: int = 0,
        max_matches: int | None = None,
        max_seconds: float | None = None,
    ) -> FileSearch:
        """`fs/search`: the lines in files at and below *path* that match a regular expression.

        With *mode* `names` the paths below *path* are searched. Hidden files, and files that
        .gitignore names, are left out unless *hidden* and *ignored* are true. *globs* are as those
        of `rg --glob`. It starts with the first step of the iteration, or with `with`.
        """
        return FileSearch(
            self._portal,
            self._portal.run(
                lambda: self._inner.search(
                    unwrapped(path),
                    pattern,
                    mode=mode,
                    literal=literal,
                    ignore_case=ignore_case,
                    whole_words=whole_words,
                    globs=globs,
                    hidden=hidden,
                    ignored=ignored,
                    before=before,
                    after=after,
                    max_matches=max_matches,
                    max_seconds=max_seconds,
                )
            ),
        )

    def signature(
        self,
        path: AnyPath,
        *,
        offset: int = 0,
        length: int = SPAN_BYTES,
        chunks: bool = True,
        block_bytes: int = 0,
        key: bytes | None = None,
        follow_symlinks: bool = True,
    ) -> SignatureResult:
        """`fs/signature`: the checksums of a part of a file, of at most 128 MiB.

        Chunks end where the content says so, or after *block_bytes* each, if that is not 0. Their
        checksums are SHA-256, or GMAC with a *key* of 16 random bytes.
        `exec_server.protocol.file_delta.unpack_chunks` reads the chunks.
        """
        return self._portal.wait(
            self._inner.signature(
                unwrapped(path),
                offset=offset,
                length=length,
                chunks=chunks,
                block_bytes=block_bytes,
                key=key,
                follow_symlinks=follow_symlinks,
            )
        )

    def copy_ranges(
        self,
        source: AnyPath,
        destination: AnyPath,
        ranges: Sequence[tuple[int, int, int]],
        *,
        follow_symlinks: bool = True,
    ) -> None:
        """`fs/copyRanges`: copy parts of one file of the server into another one, which exists.

        A range is the offset in the source, the offset in the destination, and the length. All
        together are at most 128 MiB.
        """
        self._portal.wait(
            self._inner.copy_ranges(
                unwrapped(source), unwrapped(destination), ranges, follow_symlinks=follow_symlinks
            )
        )

    def watch(
        self, path: AnyPath, *, recursive: bool = True, ignore: Iterable[str] = ()
    ) -> FileWatch:
        """`fs/watch`: changes of a file, or in a directory and everything below it.

        *ignore* has patterns as in .gitignore. It starts with `with`; what changes after
        that is reported. Links are not followed.
        """
        return FileWatch(
            self._portal,
            self._portal.run(
                lambda: self._inner.watch(unwrapped(path), recursive=recursive, ignore=ignore)
            ),
        )

    @property
    def client(self) -> ExecServerClient:
        """The client whose files these are."""
        return ExecServerClient(self._portal, self._inner.client)

    def sandboxed(self, sandbox: Sandboxed) -> RemoteFiles:
        """The same files, with requests that the server confines as *sandbox* says."""
        return RemoteFiles(self._portal, self._portal.run(lambda: self._inner.sandboxed(sandbox)))

    @property
    def is_sandboxed(self) -> bool:
        """True if the server confines the requests."""
        return self._portal.run(lambda: self._inner.is_sandboxed)

    def path(self, path: str) -> RemotePath:
        """A path with methods like those of pathlib."""
        return RemotePath(self._portal, self._portal.run(lambda: self._inner.path(path)))

    def read_bytes(self, path: AnyPath) -> bytes:
        """The content of a file; a large file is read in blocks."""
        return self._portal.wait(self._inner.read_bytes(unwrapped(path)))

    def read_text(self, path: AnyPath, *, encoding: str = "utf-8") -> str:
        """The content of a file, decoded."""
        return self._portal.wait(self._inner.read_text(unwrapped(path), encoding=encoding))

    def write_bytes(self, path: AnyPath, data: bytes, *, atomic: bool = False) -> None:
        """Replace the content of a file, or create it; long content is sent in blocks.

        With *atomic* readers see the old content or the new content, and never a part.
        """
        self._portal.wait(self._inner.write_bytes(unwrapped(path), data, atomic=atomic))

    def write_text(
        self, path: AnyPath, text: str, *, encoding: str = "utf-8", atomic: bool = False
    ) -> None:
        """Replace the content of a file by *text*, or create it; see `write_bytes`."""
        self._portal.wait(
            self._inner.write_text(unwrapped(path), text, encoding=encoding, atomic=atomic)
        )

    def read_stream(
        self, path: AnyPath, *, offset: int = 0, length: int | None = None, window: int = WINDOW
    ) -> ReadStream:
        """The content of a file from *offset* on, in blocks; *window* requests run at a time."""
        return ReadStream(
            self._portal,
            self._portal.run(
                lambda: self._inner.read_stream(
                    unwrapped(path), offset=offset, length=length, window=window
                )
            ),
        )

    def write_stream(self, path: AnyPath, *, window: int = WINDOW) -> WriteStream:
        """Replace the content of a file, block by block; use it with `with`."""
        return WriteStream(
            self._portal,
            self._portal.run(lambda: self._inner.write_stream(unwrapped(path), window=window)),
        )

    def exists(self, path: AnyPath) -> bool:
        """True if *path* leads to something."""
        return self._portal.wait(self._inner.exists(unwrapped(path)))

    def upload(
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
        return self._portal.wait(
            self._inner.upload(
                source,
                unwrapped(destination),
                verify=verify,
                on_progress=on_progress,
                exclude=exclude,
                delete=delete,
                checksum=checksum,
                whole_files=whole_files,
            )
        )

    def download(
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
        return self._portal.wait(
            self._inner.download(
                unwrapped(source),
                destination,
                verify=verify,
                on_progress=on_progress,
                exclude=exclude,
                delete=delete,
                checksum=checksum,
                whole_files=whole_files,
            )
        )


class StreamedHttpResponse(Twin[AsyncStreamedHttpResponse]):
    """An answer whose body has not arrived yet: iterate over it, or `read` it."""

    __slots__ = ()

    @property
    def status(self) -> int:
        """The status code; every status is an answer."""
        return self._inner.status

    @property
    def headers(self) -> HttpHeaders:
        """The headers of the answer."""
        return self._inner.headers

    def __iter__(self) -> Iterator[bytes]:
        return self._portal.iterate(self._inner.__aiter__())

    def read(self) -> bytes:
        """The rest of the body."""
        return self._portal.wait(self._inner.read())


class RemoteHttp(Twin[AsyncRemoteHttp]):
    """Makes HTTP requests from the server's machine, with its network and its environment.

    No request is repeated: if the connection to the server is lost, ConnectionClosed says that the
    request may have been made. If the target cannot be reached, RpcError is raised.
    """

    __slots__ = ()

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: AnyHeaders = (),
        content: bytes | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        follow_redirects: bool = True,
    ) -> HttpResponse:
        """Make a request and wait for the whole answer.

        *timeout*, in seconds, covers everything from the connection to the end of the body; None
        waits for ever. The value of a header may be a `FromEnvironment`.
        """
        return self._portal.wait(
            self._inner.request(
                method,
                url,
                headers=headers,
                content=content,
                timeout=timeout,
                follow_redirects=follow_redirects,
            )
        )

    def get(self, url: str, **options: Any) -> HttpResponse:
        """Make a GET request; *options* are those of `request`."""
        return self._portal.wait(self._inner.get(url, **options))

    def post(self, url: str, **options: Any) -> HttpResponse:
        """Make a POST request; *options* are those of `request`."""
        return self._portal.wait(self._inner.post(url, **options))

    def stream(
        self,
        method: str,
        url: str,
        *,
        headers: AnyHeaders = (),
        content: bytes | None = None,
        timeout: float | None = None,
        answer_timeout: float | None = DEFAULT_TIMEOUT,
        follow_redirects: bool = True,
    ) -> AbstractContextManager[StreamedHttpResponse]:
        """Make a request whose body is read inside of the block, as it arrives.

        *timeout* covers everything including the body. *answer_timeout* covers the wait until the
        body begins; after that CallTimeout is raised. None waits for ever.

        Leaving the block early drops the rest of the body. The server still fetches and sends it,
        because the protocol has no method to stop it.
        """
        return self._portal.entered(
            self._portal.run(
                lambda: self._inner.stream(
                    method,
                    url,
                    headers=headers,
                    content=content,
                    timeout=timeout,
                    answer_timeout=answer_timeout,
                    follow_redirects=follow_redirects,
                )
            ),
            StreamedHttpResponse,
        )


class RemoteDiscovery(Twin[AsyncRemoteDiscovery]):
    """Reads the configuration of programs on the server's machine."""

    __slots__ = ()

    def read_config(
        self,
        config_paths: KeyPaths,
        requirements_paths: KeyPaths = (),
        *,
        cwd: StrPath | None = None,
    ) -> environment.ConfigReadResult:
        """Parts of the configuration that applies in *cwd*; each path is a list of keys."""
        return self._portal.wait(self._inner.read_config(config_paths, requirements_paths, cwd=cwd))

    def discover(
        self, *, cwd: StrPath | None = None, sandbox: Sandboxed = None
    ) -> environment.CapabilitiesResult:
        """The skills and plugins that are installed, as far as *sandbox* makes them visible."""
        return self._portal.wait(self._inner.discover(cwd=cwd, sandbox=sandbox))

    def discover_roots(
        self, roots: Mapping[str, StrPath], *, sandbox: Sandboxed = None
    ) -> dict[str, environment.DiscoveredRoot]:
        """The skills and plugins below directories, by the names that *roots* gives them."""
        return self._portal.wait(self._inner.discover_roots(roots, sandbox=sandbox))


class OutputView(Twin[AsyncOutputView]):
    """One stream of a process: an iterator of its bytes as they arrive.

    The methods work like those of a file. If the process was started with
    `text=True`, they return texts; bytes that are not UTF-8 are replaced by U+FFFD.
    """

    __slots__ = ()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        try:
            return self._portal.wait(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def read(self) -> Any:
        """Everything up to the end of the stream, which comes when the process has closed."""
        return self._portal.wait(self._inner.read())

    def readline(self, *, timeout: float | None = None) -> Any:
        """The next line, with its newline; the last one may have none, and then nothing comes.

        Raises TimeoutError after *timeout* seconds; then nothing of the output is lost.
        """
        return self._portal.wait(self._inner.readline(timeout=timeout))

    def read_until(
        self, separator: Separator = b"\n", *, limit: int = LINE_BYTES, timeout: float | None = None
    ) -> Any:
        """Everything up to *separator*, with it; of several separators, the first that comes.

        What follows stays for the next reader. Raises asyncio.IncompleteReadError, which has the
        rest, if the output ends before, asyncio.LimitOverrunError after *limit* bytes without a
        separator, and TimeoutError after *timeout* seconds. After the last two, and if it is
        cancelled, nothing of the output is lost.
        """
        return self._portal.wait(self._inner.read_until(separator, limit=limit, timeout=timeout))

    def lines(self, *, limit: int = LINE_BYTES) -> Iterator[Any]:
        """Each line, with its newline; the last one may have none."""
        return self._portal.iterate(self._inner.lines(limit=limit))


class RemoteProcess(Twin[AsyncRemoteProcess]):
    """A process on the server, with methods like those of `subprocess.Popen`.

    Iterate over it to get all output as OutputChunks in the order of their numbers, or use
    `stdout` and `stderr`; each chunk is delivered once. The output of a terminal is in `stdout`.

    Read the output, even if you drop it. Servers of this package make a process wait, as at a
    full pipe, while 4 MiB of its output are not read; other processes are not affected. The process
    continues after 5 seconds without a reader if `wait()` is called, or if the program waits for
    other processes and has never read this one. Then up to 64 MiB are kept and the rest is
    discarded; a later reader gets ProcessFailed.

    Other servers cannot make one process wait. There, up to 1 MiB waits here without harm; after
    that the connection is read only while another task needs it, and if other tasks keep needing
    it, the same bound applies. Answers to calls are never delayed.

    When the connection is lost the handle waits for the next one and continues: every byte comes
    once, and every write is done once. It fails with ConnectionClosed when the session is lost,
    and with ProcessFailed when a server without windows could not retain all of the output
    meanwhile. If you drop the handle, the process runs on and its output is no longer received.

    With `with` the end of the block ends the process and everything that it has started.
    """

    __slots__ = ()

    def screen(
        self,
        *,
        cells: bool = False,
        history: int = 0,
        since: Screen | None = None,
        at: int | None = None,
    ) -> Screen:
        """What the terminal shows: text, cursor, title, whether it is the alternate screen.

        With *cells* it has the styles as well, with *history* so many rows above the screen. With
        *since* only the changes since that screen cross the network. With *at* it is the screen as
        it was after the event with that number, which an `OutputChunk` and `ControlLost` have; it
        is `inexact` if output before it is not retained any more. The server makes its model of
        the terminal with the first call, from the output that it retains, unless the process was
        started with `screen=True`. An extension: other servers raise MethodNotFound.
        """
        return self._portal.wait(
            self._inner.screen(cells=cells, history=history, since=since, at=at)
        )

    def wait_for(
        self,
        text: str | None = None,
        *,
        regex: str | None = None,
        gone: str | None = None,
        still: float | None = None,
        prompt: bool = False,
        exit: bool = False,
        timeout: float | None = 30.0,
        after: int | None = None,
    ) -> ScreenMatch:
        """Wait until the terminal shows something; of several conditions the first one counts.

        *text* and *regex* (of Python's `re`) are searched in the rows, and in those that have left
        the screen since the wait began. *gone* holds when a text is not on the screen, *still*
        after so many seconds without output, *prompt* when a shell with integration waits for a
        command, *exit* when the program has ended.

        What was there before does not count if keys were sent: a wait begins after the version
        *after*, which is by default that of the last `send_keys`. Nor does what is typed at a
        prompt, if the shell has integration. Raises ScreenTimeout after *timeout* seconds, and
        ScreenEnded, which is one, as soon as the program has ended without it.
        """
        return self._portal.wait(
            self._inner.wait_for(
                text,
                regex=regex,
                gone=gone,
                still=still,
                prompt=prompt,
                exit=exit,
                timeout=timeout,
                after=after,
            )
        )

    def send_keys(self, *keys: str) -> None:
        """Type keys such as `"ctrl-c"`, `"up"`, `"enter"`; other words are typed as they are.

        They are encoded for the modes that the program has set. The next `wait_for` begins here.
        Raises ValueError for `ctrl-` before a key that does not exist; then nothing is typed.
        """
        self._portal.wait(self._inner.send_keys(*keys))

    def screenshot(
        self, path: str | os.PathLike[str] | None = None, *, at: int | None = None
    ) -> bytes:
        """A picture of the screen; it is written to *path* if that is given.

        The format follows from the name: `.svg`, or `.png`, which needs Pillow (extra `png`).
        Without a path it is SVG. With *at* it is an earlier screen, as for `screen`.
        """
        return self._portal.wait(self._inner.screenshot(path, at=at))

    def last_command(self) -> LastCommand:
        """The last command of a shell with integration: its words, cwd, exit status and output.

        Its `state` is `none` before the first one, `running`, `done`, or `unconfirmed` if the shell
        has stopped to tell: then nothing is known.
        """
        return self._portal.wait(self._inner.last_command())

    def __enter__(self) -> Self:
        self._portal.wait(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.wait(self._inner.__aexit__(kind, exc, traceback))

    def leave_running(self) -> None:
        """Let the process run on when this client leaves it: it waits for no reader any more.

        The server keeps the newest output. Of a durable process, that is all of it up to the bounds
        of its journal.
        """
        self._portal.run(lambda: self._inner.leave_running())

    @property
    def process_id(self) -> str:
        """The id of the process in its session."""
        return self._inner.process_id

    @property
    def is_terminal(self) -> bool:
        """True if the process runs on a terminal."""
        return self._inner.is_terminal

    @property
    def on_disconnect(self) -> OnDisconnect:
        """What the handle does when the connection is lost: `hold` or `fail`; see `start`."""
        return self._inner.on_disconnect

    @property
    def is_started(self) -> bool:
        """True once the server has said that the process runs."""
        return self._inner.is_started

    @property
    def is_truncated(self) -> bool:
        """True if output is missing, because the server could not retain it during an outage."""
        return self._inner.is_truncated

    @property
    def dropped_bytes(self) -> int:
        """The number of bytes that are missing, as far as the server tells."""
        return self._inner.dropped_bytes

    @property
    def sandbox_type(self) -> str | None:
        """How the server confines the process; None if it does not say."""
        return self._inner.sandbox_type

    @property
    def sandbox_rung(self) -> str | None:
        """The backend that enforces it: bubblewrap, landlock, seccomp or none; None if unknown."""
        return self._inner.sandbox_rung

    @property
    def sandbox_denied(self) -> bool:
        """True if the process has exited and the sandbox has probably refused it something."""
        return self._inner.sandbox_denied

    @property
    def returncode(self) -> int | None:
        """The exit status, 128 + n after signal n; None until the process has exited.

        It stays None if the process is `lost`: no exit status is ever invented.
        """
        return self._inner.returncode

    @property
    def lost(self) -> str | None:
        """Why the process is gone with an unknown exit status; None if it is not.

        For example `machine restarted`. Its output up to that moment can be read.
        """
        return self._inner.lost

    @property
    def is_durable(self) -> bool:
        """True if the process outlives the server; see `start`."""
        return self._inner.is_durable

    @property
    def limits(self) -> dict[str, GrantedLimit]:
        """What became of each limit that was asked for, or that the server imposes; see `start`.

        Its mechanism is `none` if the server does not hold it. It is empty without limits, and for
        a process that was attached to.
        """
        return self._portal.run(lambda: self._inner.limits)

    @property
    def signal(self) -> int | None:
        """The signal that has ended the process, such as `signal.SIGKILL`, on a terminal, too.

        It is None if the process has exited by itself, if it runs inside of bubblewrap, and if the
        server does not say: a status above 128 alone proves nothing.
        """
        return self._inner.signal

    @property
    def end(self) -> EndReport | None:
        """Why the process ended; None while it runs, and if the server does not say.

        It is never guessed: the cause may be `unknown`, and the evidence says why.
        """
        return self._inner.end

    @property
    def usage(self) -> Usage | None:
        """What it has used; None while it runs, and if the server does not say."""
        return self._inner.usage

    @property
    def pid(self) -> int | None:
        """The process id on the server's machine; None if the server does not say."""
        return self._inner.pid

    @property
    def is_done(self) -> bool:
        """True if the process has closed and all of its output was read."""
        return self._portal.run(lambda: self._inner.is_done)

    @property
    def denials_unavailable(self) -> str | None:
        """Why the server does not record everything that the sandbox refuses; None if it does."""
        return self._inner.denials_unavailable

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> OutputChunk:
        try:
            return self._portal.wait(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    @property
    def stdout(self) -> OutputView:
        """The output on stdout or, if there is one, on the terminal."""
        return OutputView(self._portal, self._portal.run(lambda: self._inner.stdout))

    @property
    def stderr(self) -> OutputView:
        """The output on stderr; nothing if the process runs on a terminal."""
        return OutputView(self._portal, self._portal.run(lambda: self._inner.stderr))

    def lines(self, stream: Wanted = "all", *, limit: int = LINE_BYTES) -> Iterator[Any]:
        """Each line of the output, with its newline; the last one may have none.

        Lines of stdout and stderr come in the order in which they end; *stream* chooses one of the
        two. A line of more than *limit* bytes raises asyncio.LimitOverrunError. A reader that
        leaves early loses nothing: the next one continues where it has stopped.
        """
        return self._portal.iterate(self._inner.lines(stream, limit=limit))

    def read_until(
        self, separator: Separator = b"\n", *, limit: int = LINE_BYTES, timeout: float | None = None
    ) -> Any:
        """Everything on stdout or the terminal up to *separator*, with it.

        See `OutputView.read_until`: of several separators the first that comes counts, and what
        follows stays for the next reader. Raises asyncio.IncompleteReadError at the end, and
        TimeoutError after *timeout* seconds.
        """
        return self._portal.wait(self._inner.read_until(separator, limit=limit, timeout=timeout))

    def communicate(self, input: BytesLike | str | None = None) -> tuple[Any, Any]:
        """Write *input*, end the input, and collect stdout and stderr until the process closes.

        Everything is kept in memory; `run` has a bound. The exit status is in `returncode` after
        that. The input is ended also without *input*, if the server can do that. Raises StdinClosed
        if there is *input* and the process was started without `stdin=True`.
        """
        return self._portal.wait(self._inner.communicate(input))

    def events(self) -> Iterator[Event]:
        """Everything that happens, in order, until Closed or Failed.

        Output counts as read, as with any other reader. ResyncRequired reports a lost connection.
        """
        return self._portal.iterate(self._inner.events())

    @property
    def wake_seq(self) -> int:
        """The highest event number that was received, plus one after a failure; it only grows."""
        return self._inner.wake_seq

    def wait_wake(self, after: int) -> int:
        """Wait until `wake_seq` is above *after* or nothing more can come; returns `wake_seq`."""
        return self._portal.wait(self._inner.wait_wake(after))

    def read(
        self, *, after_seq: int = 0, max_bytes: int | None = None, wait: float = 0.0
    ) -> ReadResult:
        """What the server retains after a number, in the form of `process/read`."""
        return self._portal.wait(
            self._inner.read(after_seq=after_seq, max_bytes=max_bytes, wait=wait)
        )

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status; output may still follow it.

        Raises ProcessLost if the status is unknown and stays so, and TimeoutError after *timeout*
        seconds; the process runs on then.
        """
        return self._portal.wait(self._inner.wait(timeout))

    def write(self, data: BytesLike | str) -> None:
        """Write to stdin or the terminal; returns when the server has accepted all of it.

        It waits as long as the process does not read.
        Raises StdinClosed when the process takes no input or has ended. A text is accepted if the
        process was started with `text=True`.
        """
        self._portal.wait(self._inner.write(data))

    def close_stdin(self) -> None:
        """End the input after what was written; on a terminal, type the end-of-file character.

        This is an extension: servers without it raise MethodNotFound. Repeating it does no harm.
        """
        self._portal.wait(self._inner.close_stdin())

    def send_signal(self, signum: int | str) -> None:
        """Signal the process's group; an ended process is left alone.

        *signum* is a number, `signal.SIGTERM`, or a name such as "SIGTERM", "TERM" or "term".

        Every server knows SIGINT. Other signals are an extension: servers without it raise
        InvalidParams.
        """
        self._portal.wait(self._inner.send_signal(signum))

    def terminate(self) -> bool:
        """Kill the process at once, by SIGKILL; True if it was still running.

        All processes that it has started end as well, also those that it has left in the background
        when it exited; other servers only kill its group, and only while it runs.
        """
        return self._portal.wait(self._inner.terminate())

    def kill(self) -> bool:
        """The same as `terminate`, under the name that `subprocess.Popen` has for it."""
        return self._portal.wait(self._inner.kill())

    @property
    def viewers(self) -> list[Participant]:
        """All who take part, with the one that drives; empty if the process was never shared."""
        return self._inner.viewers

    @property
    def drives(self) -> bool:
        """True unless another participant has taken the input."""
        return self._inner.drives

    @property
    def epoch(self) -> int:
        """The number of the last change of the driver; it only grows."""
        return self._inner.epoch

    def take(
        self, *, kind: Kind | None = None, name: str | None = None, epoch: int | None = None
    ) -> ControlState:
        """Take the input back. Raises ControlRefused if a person drives and this is an agent.

        *kind* and *name* say who this client is; before that it is an agent. With *epoch* it is
        also refused if the driver has changed since then.
        """
        return self._portal.wait(self._inner.take(kind=kind, name=name, epoch=epoch))

    def offer(self, to: Participant | str | None = None) -> ControlState:
        """Let *to*, or any participant, take the input, even an agent from a person."""
        return self._portal.wait(self._inner.offer(to))

    def give_back(self) -> ControlState:
        """Let the participant drive that drove before. Raises ControlLost if another one drives."""
        return self._portal.wait(self._inner.give_back())

    def control_state(self, *, kind: Kind | None = None, name: str | None = None) -> ControlState:
        """Ask who takes part and who drives; *kind* and *name* say who this client is."""
        return self._portal.wait(self._inner.control_state(kind=kind, name=name))

    def control_changes(self) -> Iterator[ControlChangedEvent]:
        """Each change of the driver, and each offer, until the session is lost.

        After a change the next write raises ControlLost, which says who drives, and what to read
        again after that.
        """
        return self._portal.iterate(self._inner.control_changes())

    def denials(self) -> DenialsResult:
        """What the sandbox refused so far, with true counts, if it was started with `denials`."""
        return self._portal.wait(self._inner.denials())

    def grant(self, denial: Denial | str, scope: GrantScope = "once") -> GrantResult:
        """Allow what was refused: once (a held call goes on), to the process, or to the session.

        The scope "never" refuses the held call for good. Raises InvalidRequest if the server does
        not let it be granted: protected names and the server's own files stay closed.
        """
        return self._portal.wait(self._inner.grant(denial, scope))

    def abandon(self) -> None:
        """Have the process killed without waiting for that, and stop receiving its output."""
        self._portal.run(lambda: self._inner.abandon())

    def resize(self, rows: int, cols: int) -> None:
        """Give the terminal another size. An extension: other servers raise MethodNotFound."""
        self._portal.wait(self._inner.resize(rows, cols))


class WatchedProcess(Twin[AsyncWatchedProcess]):
    """A process that is looked on at; any number of clients can do that at the same time.

    Iterate over it to see its terminal or its output: a `ScreenPicture` paints the whole screen, an
    `OutputChunk` continues it. A watcher that reads too slowly gets a new picture instead of
    everything that it has missed, and holds up neither the process nor others.

    Only one participant drives: its input and its sizes reach the program. `take` takes the input,
    `give_back` returns it. A lost connection is replaced, and the watch goes on with a new picture.
    With `with` the end of the block ends the watch and leaves the process alone.
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        self._portal.wait(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.wait(self._inner.__aexit__(kind, exc, traceback))

    def close(self) -> None:
        """End the watch. The input goes back to the participant that had it before."""
        self._portal.wait(self._inner.close())

    @property
    def process_id(self) -> str:
        """The id of the process in its session."""
        return self._inner.process_id

    @property
    def watch_id(self) -> str:
        """The id of the watch in this session."""
        return self._inner.watch_id

    @property
    def argv(self) -> list[str]:
        """The command line of the process."""
        return self._inner.argv

    @property
    def is_terminal(self) -> bool:
        """True if the process runs on a terminal."""
        return self._inner.is_terminal

    @property
    def shows_pictures(self) -> bool:
        """True if the watch has begun with a picture of a terminal."""
        return self._inner.shows_pictures

    @property
    def size(self) -> tuple[int, int] | None:
        """The rows and columns of its terminal; None if it has none, or has ended."""
        return self._inner.size

    @property
    def returncode(self) -> int | None:
        """The exit status; None until the process has exited, and if it is lost."""
        return self._inner.returncode

    @property
    def signal(self) -> int | None:
        """The signal that has ended the process, if the server says so."""
        return self._inner.signal

    @property
    def lost(self) -> str | None:
        """Why the exit status is unknown and stays so; None if it is not."""
        return self._inner.lost

    @property
    def end(self) -> EndReport | None:
        """Why the process ended; None while it runs, and if the server does not say."""
        return self._inner.end

    @property
    def usage(self) -> Usage | None:
        """What it has used; None while it runs, and if the server does not say."""
        return self._inner.usage

    @property
    def sandbox_denied(self) -> bool:
        """True if the process has exited and the sandbox has probably refused it something."""
        return self._inner.sandbox_denied

    @property
    def last_seq(self) -> int:
        """The number of the last event that was taken by a reader."""
        return self._inner.last_seq

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Seen:
        try:
            return self._portal.wait(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def refresh(self) -> None:
        """Begin again with a new picture of the screen."""
        self._portal.wait(self._inner.refresh())

    def wait(self) -> int:
        """Wait for the exit status. Raises ProcessLost if it is unknown and stays so."""
        return self._portal.wait(self._inner.wait())

    @property
    def viewers(self) -> list[Participant]:
        """All who take part, with the one that drives, as the server has told last."""
        return self._inner.viewers

    @property
    def drives(self) -> bool:
        """True if this client drives."""
        return self._inner.drives

    @property
    def epoch(self) -> int:
        """The number of the last change of the driver."""
        return self._inner.epoch

    def take(self, *, epoch: int | None = None) -> ControlState:
        """Take the input. Raises ControlRefused if a person drives and this client is an agent.

        With *epoch* it is also refused if the driver has changed since then.
        """
        return self._portal.wait(self._inner.take(epoch=epoch))

    def offer(self, to: Participant | str | None = None) -> ControlState:
        """Let *to*, or any participant, take the input, even an agent from a person."""
        return self._portal.wait(self._inner.offer(to))

    def give_back(self) -> ControlState:
        """Let the participant drive that drove before. Raises ControlLost if another one drives."""
        return self._portal.wait(self._inner.give_back())

    def control_state(self) -> ControlState:
        """Ask the server who takes part and who drives."""
        return self._portal.wait(self._inner.control_state())

    def control_changes(self) -> Iterator[ControlChangedEvent]:
        """Each change of the driver, and each offer, until the process or the watch ends."""
        return self._portal.iterate(self._inner.control_changes())

    def write(self, data: BytesLike) -> None:
        """Type to the process. Raises ControlLost unless this client drives."""
        self._portal.wait(self._inner.write(data))

    def resize(self, rows: int, cols: int) -> None:
        """Give the terminal another size. Raises ControlLost unless this client drives."""
        self._portal.wait(self._inner.resize(rows, cols))

    def close_stdin(self) -> None:
        """End the input of the process. Raises ControlLost unless this client drives."""
        self._portal.wait(self._inner.close_stdin())

    def send_signal(self, signum: int | str) -> None:
        """Signal the process's group; see `RemoteProcess.send_signal`."""
        self._portal.wait(self._inner.send_signal(signum))

    def terminate(self) -> bool:
        """Kill the process and all that it has started; True if it was still running."""
        return self._portal.wait(self._inner.terminate())

    def denials(self) -> DenialsResult:
        """What the sandbox refused so far; see `RemoteProcess.denials`."""
        return self._portal.wait(self._inner.denials())


class ExecServerClient(Twin[AsyncExecServerClient]):
    """A client of one server, with one session there.

    Every call has a deadline. It raises RpcError with what the server says, and ConnectionClosed
    or CallTimeout if it is not known whether the server has acted. Ask `exc.retryable` and
    `exc.may_have_run`.

    When the connection is lost it is replaced and the session resumed: processes continue as if
    nothing had happened, and new calls wait for the new connection. Reads and writes of processes
    that were under way are repeated; all other calls fail, because the client cannot know whether
    they were carried out.
    """

    __slots__ = ()

    def run(
        self,
        argv: Sequence[Word],
        *,
        input: BytesLike | None = None,
        timeout: float | None = None,
        check: bool = False,
        cwd: Word | None = None,
        env: Mapping[str, Word] | None = None,
        env_policy: EnvPolicy | None = INHERIT_ENV,
        tty: bool = False,
        sandbox: Sandboxed = None,
        user: str | None = None,
        ensure: bool = True,
        limits: Limited = None,
        max_output: int | None = DEFAULT_LIMITS.run_output_bytes,
        drain: float | None = DEFAULT_LIMITS.run_drain,
    ) -> CompletedProcess:
        """Run a command to its end, like `subprocess.run`.

        Without *input* its stdin is empty. *input* needs a server that can close stdin; another
        server raises MethodNotFound before anything runs. After *timeout* the command is killed,
        and CommandTimeout has its output so far. With *check* a status other than 0 raises
        CommandFailed. The other parameters are those of `start`; unlike there, *ensure* is true, so
        that a connection that is lost during the start does not matter.

        Of each stream at most *max_output* bytes are kept, 64 MiB by default: the first half, and
        as much of the end; None keeps everything. If there was more, or if the server could not
        retain all output during an outage, the result's `truncated` is true and its
        `dropped_bytes` says how much is missing; in its `text()` a line says where. Use `start` to
        read a long output piece by piece.

        The end is the exit of the command itself. What it has left in the background, as in
        `sh -c 'server & echo up'`, runs on. If that holds the output open, `run` returns when no
        output has come for *drain* seconds after the exit, or after five times as long, and the
        result's `has_background` is true; with None the output is awaited to its end, as
        `subprocess.run` does.
        """
        return self._portal.wait(
            self._inner.run(
                argv,
                input=input,
                timeout=timeout,
                check=check,
                cwd=cwd,
                env=env,
                env_policy=env_policy,
                tty=tty,
                sandbox=sandbox,
                user=user,
                ensure=ensure,
                limits=limits,
                max_output=max_output,
                drain=drain,
            )
        )

    def start(
        self,
        argv: Sequence[Word],
        *,
        cwd: Word | None = None,
        env: Mapping[str, Word] | None = None,
        env_policy: EnvPolicy | None = INHERIT_ENV,
        tty: bool = False,
        stdin: bool = False,
        arg0: str | None = None,
        rows: int | None = None,
        cols: int | None = None,
        sandbox: Sandboxed = None,
        limits: Limited = None,
        user: str | None = None,
        name: str | None = None,
        driver: Kind | None = None,
        process_id: str | None = None,
        durable: bool = False,
        ensure: bool = False,
        on_disconnect: OnDisconnect = "hold",
        on_gap: OnGap = "fail",
        text: bool = False,
        denials: bool = False,
        denial_hold: float = 0.0,
        on_denied: OnDenied | None = None,
        learn: bool = False,
        granted: Sequence[str] = (),
        screen: bool = False,
        shell_integration: bool = False,
    ) -> RemoteProcess:
        """Start a program on the server.

        *cwd* is a path on the server or a file: URI; a relative path starts at the server's own
        directory, which is also the default. *env* is added to the server's environment, because a
        client cannot know the server's PATH and HOME. *env_policy* chooses what is inherited; with
        None *env* is the whole environment.

        With *tty* the program runs on a terminal of *rows* and *cols*. Otherwise its stdin is
        empty unless *stdin* is true. *arg0* replaces the name that the program sees as its own.
        *process_id* must not be in use in this session; by default it is random. *name* is shown in
        lists. *driver* says who types at first, a `person` or an `agent`; see `watch`. Servers that
        know neither ignore them.

        *sandbox* says what the program may access, for example `read_only()`. The handle's
        `sandbox_type` says how the server enforces it; a server without sandboxes does not.

        *limits* says what the program and all that it starts may use: `ResourceLimits` or a mapping
        such as `{"memory": "2G", "wall": 30}`. The handle's `limits` says how each is held. With
        `"require": True` a server that cannot hold them raises InvalidRequest or MethodNotFound.
        *user* is the Unix user that the program runs as; by default it is the server's own, or the
        one of the client's principal. The server has to run as root, and the client to be an admin
        there; a server that is not root raises MethodNotFound.

        A *durable* process outlives the server: if the server is killed, restarted or replaced by
        another release, the process runs on, and the next server on the same state directory
        continues with it. The session is kept for as long as the server allows, as after `retain`.
        Servers that cannot do this raise MethodNotFound, and those without a state directory
        InvalidRequest; then nothing has run.

        A start that is cancelled or not answered in time is undone as far as possible. The same
        happens if the connection is lost; then ConnectionClosed says that it may have run. With
        *ensure* the client asks the server after that, if it can list processes: a program that
        runs is continued, and one that does not is started, so that it runs once.

        When the connection is lost later, the handle continues with the next one; with
        *on_disconnect* `fail` it fails at once. If the server could not retain all output
        meanwhile, the handle fails and the process is killed; with *on_gap* `skip` the missing
        output is left out.

        With *denials* the server records what *sandbox* refuses; see `RemoteProcess.denials`.
        *on_denied*, a plain function, is called with each new record. A refused call waits
        *denial_hold* seconds for `RemoteProcess.grant`. Each of these two implies *denials*. With
        *learn* the program is not confined: it is only recorded what *sandbox* would refuse.
        *granted* are grants of earlier records, which widen *sandbox*. Servers that cannot record
        raise MethodNotFound.

        With *screen* the server keeps a model of the terminal from the first output on, and answers
        the program's queries to it, whether a client is attached or not; see
        `RemoteProcess.screen`, which makes one later otherwise. With *shell_integration* bash, zsh
        and fish tell where commands begin and end; see `RemoteProcess.last_command`. Servers
        without models raise MethodNotFound.

        With *text* the handle's `lines`, `read_until`, `communicate` and its streams' `read` give
        texts, decoded as UTF-8, and `write` takes them; chunks and events stay bytes.
        """
        return RemoteProcess(
            self._portal,
            self._portal.wait(
                self._inner.start(
                    argv,
                    cwd=cwd,
                    env=env,
                    env_policy=env_policy,
                    tty=tty,
                    stdin=stdin,
                    arg0=arg0,
                    rows=rows,
                    cols=cols,
                    sandbox=sandbox,
                    limits=limits,
                    user=user,
                    name=name,
                    driver=driver,
                    process_id=process_id,
                    durable=durable,
                    ensure=ensure,
                    on_disconnect=on_disconnect,
                    on_gap=on_gap,
                    text=text,
                    denials=denials,
                    denial_hold=denial_hold,
                    on_denied=on_denied,
                    learn=learn,
                    granted=granted,
                    screen=screen,
                    shell_integration=shell_integration,
                )
            ),
        )

    def start_process(
        self,
        params: process.StartParams,
        *,
        ensure: bool = False,
        on_disconnect: OnDisconnect = "hold",
        on_gap: OnGap = "fail",
        text: bool = False,
        on_denied: OnDenied | None = None,
    ) -> RemoteProcess:
        """Start a program exactly as *params* say; the other parameters are those of `start`."""
        return RemoteProcess(
            self._portal,
            self._portal.wait(
                self._inner.start_process(
                    params,
                    ensure=ensure,
                    on_disconnect=on_disconnect,
                    on_gap=on_gap,
                    text=text,
                    on_denied=on_denied,
                )
            ),
        )

    def attach(
        self,
        process_id: str,
        after_seq: int | None = None,
        *,
        on_disconnect: OnDisconnect = "hold",
        on_gap: OnGap = "skip",
        text: bool = False,
    ) -> RemoteProcess:
        """Continue with a process of this session that has no handle here.

        Output is delivered from event *after_seq* on; the default is where the session token says
        that reading has stopped, or the start. Output that the server no longer has is left out and
        `is_truncated` is true; with *on_gap* `fail` the handle fails instead. *text* is as in
        `start`. Raises InvalidRequest if the server does not know the process.
        """
        return RemoteProcess(
            self._portal,
            self._portal.wait(
                self._inner.attach(
                    process_id, after_seq, on_disconnect=on_disconnect, on_gap=on_gap, text=text
                )
            ),
        )

    def abandon(self, process_id: str) -> None:
        """Have a process killed without waiting for that, and stop receiving its output.

        While there is no connection, the request waits for the next one.
        """
        self._portal.run(lambda: self._inner.abandon(process_id))

    def read(
        self,
        process_id: str,
        *,
        after_seq: int = 0,
        max_bytes: int | None = None,
        wait: float = 0.0,
    ) -> process.ReadResult:
        """The retained output after a number; waits up to *wait* seconds for some."""
        return self._portal.wait(
            self._inner.read(process_id, after_seq=after_seq, max_bytes=max_bytes, wait=wait)
        )

    def write(
        self, process_id: str, data: bytes, *, write_id: str | None = None
    ) -> process.WriteStatus:
        """Write to a process's stdin or terminal; a known *write_id* is not written again.

        With an id the write is repeated if the connection is lost before the answer. Without one it
        is not repeated, and a random id is sent, because some servers require an id.

        This is the only call without a deadline: its answer waits until the process reads.
        """
        return self._portal.wait(self._inner.write(process_id, data, write_id=write_id))

    def close_stdin(self, process_id: str, *, repeat: bool = False) -> process.WriteStatus:
        """End a process's input. An extension: other servers raise MethodNotFound.

        With *repeat* it is done again if the connection is lost before the answer.
        """
        return self._portal.wait(self._inner.close_stdin(process_id, repeat=repeat))

    def signal(self, process_id: str, signum: int | str) -> None:
        """Signal a process's group; unknown and ended processes are left alone."""
        self._portal.wait(self._inner.signal(process_id, signum))

    def terminate(self, process_id: str) -> bool:
        """Kill a process and all that it has started; True if it was still running."""
        return self._portal.wait(self._inner.terminate(process_id))

    def resize(self, process_id: str, rows: int, cols: int) -> None:
        """Give a terminal another size. An extension: other servers raise MethodNotFound."""
        self._portal.wait(self._inner.resize(process_id, rows, cols))

    def list_processes(self) -> list[process.ProcessInfo]:
        """The session's processes. An extension: other servers raise MethodNotFound."""
        return self._portal.wait(self._inner.list_processes())

    def watch(
        self,
        process_id: str,
        *,
        session_id: str | None = None,
        kind: Kind = "agent",
        name: str = "",
        window: int | None = None,
        after_seq: int | None = None,
        pictures: bool = True,
    ) -> WatchedProcess:
        """Look on at a process of any session of the same principal; an admin at every process.

        *session_id* is that of its session, as `jobs` lists it. It can be left out for a process of
        this session, and if only one session has such a process. *kind* and *name* say who looks
        on: a person may take the input from an agent, an agent never from a person.

        The first thing that a watcher of a terminal sees is a picture of its screen, if the server
        has a model of it; otherwise it is the retained output. Output after *after_seq* comes
        without a picture, and without *pictures* there are none at all. *window* is how many bytes
        may be under way to a slow reader.

        Raises InvalidRequest if there is no such process. An extension: other servers raise
        MethodNotFound.
        """
        return WatchedProcess(
            self._portal,
            self._portal.wait(
                self._inner.watch(
                    process_id,
                    session_id=session_id,
                    kind=kind,
                    name=name,
                    window=window,
                    after_seq=after_seq,
                    pictures=pictures,
                )
            ),
        )

    def screen_picture(
        self, process_id: str, *, session_id: str | None = None
    ) -> ScreenPicture | None:
        """The screen of a terminal as control sequences; None without a model of it.

        The process and its session are those of `watch`.
        """
        return self._portal.wait(self._inner.screen_picture(process_id, session_id=session_id))

    def control(
        self,
        process_id: str,
        action: ControlAction = "state",
        *,
        to: Participant | str | None = None,
        epoch: int | None = None,
        kind: Kind | None = None,
        name: str | None = None,
    ) -> ControlState:
        """Take, offer or give back the input of a process of this session, or of a watch.

        *kind* and *name* say who this client is for the processes that it has started. Raises
        ControlRefused if a person drives, or the driver has changed since *epoch*, and ControlLost
        for an offer of one that does not drive.
        """
        return self._portal.wait(
            self._inner.control(process_id, action, to=to, epoch=epoch, kind=kind, name=name)
        )

    def list_denials(self, process_id: str) -> DenialsResult:
        """What was refused to a process that was started with `denials`, with true counts.

        An extension: other servers raise MethodNotFound.
        """
        return self._portal.wait(self._inner.list_denials(process_id))

    def grant_denied(
        self,
        process_id: str,
        denial: Denial | str,
        scope: GrantScope = "once",
        *,
        restart: bool = False,
    ) -> GrantResult:
        """Allow what was refused to a process; *denial* is a record, or its `grant`.

        With *restart* the process is ended and started again, with the same id and a wider sandbox;
        `attach` gives a handle of the new one. Raises InvalidRequest if it cannot be allowed.
        """
        return self._portal.wait(
            self._inner.grant_denied(process_id, denial, scope, restart=restart)
        )

    def read_screen(self, params: ScreenParams) -> ScreenResult:
        """What a terminal shows, in the form of `process/screen`.

        An extension: other servers raise MethodNotFound.
        """
        return self._portal.wait(self._inner.read_screen(params))

    def screen(
        self,
        process_id: str,
        *,
        cells: bool = False,
        history: int = 0,
        since: Screen | None = None,
        at: int | None = None,
    ) -> Screen:
        """What the terminal of a process shows; see `RemoteProcess.screen`."""
        return self._portal.wait(
            self._inner.screen(process_id, cells=cells, history=history, since=since, at=at)
        )

    def screenshot(
        self,
        process_id: str,
        path: str | os.PathLike[str] | None = None,
        *,
        png: bool = False,
        at: int | None = None,
    ) -> bytes:
        """A picture of the terminal of a process; see `RemoteProcess.screenshot`.

        Without a path it is SVG, or PNG if *png* is true.
        """
        return self._portal.wait(self._inner.screenshot(process_id, path, png=png, at=at))

    def wait_for_screen(self, params: WaitForParams) -> WaitForResult:
        """Wait for what a terminal shows, in the form of `process/waitFor`."""
        return self._portal.wait(self._inner.wait_for_screen(params))

    def list_streams(self, *, all_sessions: bool = False) -> list[StreamInfo]:
        """The streams and listeners that the server has for this client.

        With *all_sessions* those of all sessions of its principal; an admin gets those of all.
        """
        return self._portal.wait(self._inner.list_streams(all_sessions=all_sessions))

    def listening_ports(
        self, process_id: str | None = None, *, all_sessions: bool = False
    ) -> list[ListeningPort]:
        """The TCP ports that processes of this session listen on, or only one of them.

        With *all_sessions* those of all sessions of its principal.
        """
        return self._portal.wait(self._inner.listening_ports(process_id, all_sessions=all_sessions))

    @property
    def fs(self) -> RemoteFiles:
        """The server's files."""
        return RemoteFiles(self._portal, self._inner.fs)

    @property
    def http(self) -> RemoteHttp:
        """HTTP requests that the server's machine makes."""
        return RemoteHttp(self._portal, self._inner.http)

    @property
    def discovery(self) -> RemoteDiscovery:
        """The configuration, skills and plugins that are installed on the server's machine."""
        return RemoteDiscovery(self._portal, self._inner.discovery)

    @property
    def concurrency(self) -> int:
        """The number of calls that the server runs at once for this client."""
        return self._inner.concurrency

    def environment_info(self) -> environment.EnvironmentInfo:
        """What the server says about its machine; it is asked at most once."""
        return self._portal.wait(self._inner.environment_info())

    @property
    def server_instance(self) -> str | None:
        """A random text that names this run of the server; None if the server does not say.

        Only the run that created a session can say that the session has expired.
        """
        return self._inner.server_instance

    def sandbox_info(self) -> environment.SandboxInfo | None:
        """How the server enforces sandboxes; None from a server that does not say."""
        return self._portal.wait(self._inner.sandbox_info())

    def offers(self, capability: str) -> bool:
        """True if the server says that it has *capability*, for example `processDurable`."""
        return self._portal.wait(self._inner.offers(capability))

    def environment_status(self) -> str:
        """Ask the server for its status, which is `ready`."""
        return self._portal.wait(self._inner.environment_status())

    def jobs(self, *, all_principals: bool = False, every: bool = False) -> list[JobInfo]:
        """All durable processes of this principal on the server, whichever session has them.

        With *every* those that are not durable, too, if the server can list them: `watch` looks on
        at any of them.

        With *all_principals* those of all others, too, each with its `owner`; only an admin may ask
        for them, and others get ScopeRefused.
        `connect(resume_session_id=job.session_id)` and `attach(job.process_id)` continue with one.
        This is an extension: servers without it raise MethodNotFound.
        """
        return self._portal.wait(self._inner.jobs(all_principals=all_principals, every=every))

    def prune_jobs(
        self,
        *,
        older_than: float | None = None,
        session_id: str | None = None,
        process_id: str | None = None,
        all_principals: bool = False,
    ) -> int:
        """Let the server forget durable processes that are over or lost, with their output.

        Without parameters all of them are forgotten; *older_than* leaves those whose end was less
        than so many seconds ago. An admin may mean those of *all_principals*. Returns how many were
        forgotten. This is an extension: servers without it raise MethodNotFound.
        """
        return self._portal.wait(
            self._inner.prune_jobs(
                older_than=older_than,
                session_id=session_id,
                process_id=process_id,
                all_principals=all_principals,
            )
        )

    def stop_server(self, *, end_jobs: bool = False) -> None:
        """Stop the server as SIGTERM does; durable processes run on unless *end_jobs* is true.

        They get SIGTERM then, and after some seconds SIGKILL. This is an extension: servers without
        it raise MethodNotFound.
        """
        self._portal.wait(self._inner.stop_server(end_jobs=end_jobs))

    def whoami(self) -> WhoamiResult:
        """The principal that the server takes this client for, with its scopes and floors.

        This is an extension: servers without it raise MethodNotFound.
        """
        return self._portal.wait(self._inner.whoami())

    @property
    def session_id(self) -> str | None:
        """The id of the session; None from a server that has no sessions."""
        return self._inner.session_id

    @property
    def is_connected(self) -> bool:
        """True while there is a connection."""
        return self._portal.run(lambda: self._inner.is_connected)

    @property
    def state(self) -> ConnectionState | None:
        """`connected`, `recovering`, `failed` or `closed`; None before the first connection."""
        return self._inner.state

    def session_token(self) -> str:
        """The text with which another client, in any program, continues this session.

        Give it to `connect` after this client is closed, and before the server forgets the session.
        Output that was not read here comes there. Keep the token secret.
        """
        return self._portal.run(lambda: self._inner.session_token())

    def retain(self, seconds: float) -> float:
        """Ask the server to keep this session, with its processes, while no client is connected.

        Returns the number of seconds that the server grants, counted anew from each disconnect; 0
        or less asks for the server's usual time. This is an extension: servers without it raise
        MethodNotFound.
        """
        return self._portal.wait(self._inner.retain(seconds))

    def close(self) -> None:
        """Disconnect; processes are left to the server. Idempotent.

        It waits until the connection is gone.
        A client of `open` has to be closed in this way; the end of a block does it by itself.
        The processes of a session that was retained do not wait for a reader of their output.
        """
        close_client(self._portal, self._inner)

    def wait_closed(self) -> None:
        """Wait until the connection is gone for good, for whatever reason."""
        self._portal.wait(self._inner.wait_closed())

    def __enter__(self) -> Self:
        self._portal.wait(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.wait(self._inner.__aexit__(kind, exc, traceback))
        self.close()


class EnvironmentManager(Twin[AsyncEnvironmentManager]):
    """Environments by name, several at once, each connected on its first use.

    All callers that ask for the same name share a client and its session. Leaving the block, or
    `close`, disconnects all clients and ends the programs that were started for them.
    """

    __slots__ = ()

    @property
    def default(self) -> str | None:
        """The environment that is used if none is named; None if there is no default."""
        return self._inner.default

    @property
    def names(self) -> tuple[str, ...]:
        """All environments, the default first."""
        return self._portal.run(lambda: self._inner.names)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Texts for people about keys of the configuration that Codex refuses."""
        return self._inner.warnings

    def describe(self, servers: Iterable[str] | None = None) -> list[EnvironmentFacts]:
        """The facts about each environment, or about *servers*, which are names or URLs.

        Raises ConfigurationError for a name that is not configured.
        """
        return self._portal.run(lambda: self._inner.describe(servers))

    def resolve(self, name_or_url: str | None = None) -> Environment:
        """The environment of a name, the default environment, or the one at a URL.

        Raises ConfigurationError for a name that is not configured.
        """
        return self._portal.run(lambda: self._inner.resolve(name_or_url))

    def client(self, name: str | None = None) -> ExecServerClient:
        """The shared client of an environment, connected now if it is not yet.

        Do not close it: other callers may use it, and the manager closes it.
        """
        return ExecServerClient(self._portal, self._portal.wait(self._inner.client(name)))

    def connect(
        self, name_or_url: str | None = None, **options: Unpack[ConnectKeywords]
    ) -> AbstractContextManager[ExecServerClient]:
        """A client that is not shared; leaving the block disconnects it. See `exec_server.connect`.

        *options* replace those of the manager.
        """
        return self._portal.entered(
            self._portal.run(lambda: self._inner.connect(name_or_url, **options)), ExecServerClient
        )

    def status(self, name: str | None = None) -> EnvironmentStatus:
        """The status of an environment; it is not connected for that."""
        return self._portal.wait(self._inner.status(name))

    def warm_up(self) -> None:
        """Begin to connect to the servers that have a URL; programs are started on first use."""
        self._portal.run(lambda: self._inner.warm_up())

    def add(
        self,
        name: str,
        url: str,
        *,
        token: str | None = None,
        connect_timeout: float = DEFAULT_LIMITS.connect_timeout,
    ) -> None:
        """Add a WebSocket environment, or replace one; the default stays what it is."""
        self._portal.wait(self._inner.add(name, url, token=token, connect_timeout=connect_timeout))

    def close(self) -> None:
        """Disconnect all clients, at the same time. Idempotent."""
        self._portal.wait(self._inner.close())

    def __enter__(self) -> Self:
        self._portal.wait(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.wait(self._inner.__aexit__(kind, exc, traceback))


def connect(
    url: str,
    *,
    client_name: str = DEFAULT_CLIENT_NAME,
    call_timeout: float | None = DEFAULT_LIMITS.call_timeout,
    recover_for: float | None = None,
    token: str | Callable[[], str] | None = None,
    pin: str | None = None,
    session_token: str | None = None,
    take_over: bool = False,
    reconnect: bool = True,
    on_state: Callable[[ConnectionState], None] | None = None,
    on_policy_request: OnPolicyRequest | None = None,
    on_policy_decision: OnPolicyDecision | None = None,
    ca_file: str | None = None,
    client_cert: str | None = None,
    client_key: str | None = None,
    ssl_context: SSLContext | None = None,
    limits: Limits = DEFAULT_LIMITS,
    connect_timeout: float = DEFAULT_LIMITS.connect_timeout,
    initialize_timeout: float = DEFAULT_LIMITS.initialize_timeout,
    resume_session_id: str | None = None,
) -> AbstractContextManager[ExecServerClient]:
    """Connect to a server; leaving the block disconnects.

    *url* is `ws://HOST:PORT`, `wss://HOST`, `unix://PATH`, `stdio:PROGRAM ARGS...` for a server
    that is started as a child and reached through its stdin and stdout, or
    `noise+https://REGISTRY/ENVIRONMENT` for a server behind a registry. *token* is sent as a bearer
    token, to the server or to the registry. Raises ConnectError if no connection is made. After
    the block the server ends what still runs, unless the session is resumed in time.

    A lost connection is replaced and the session resumed, unless *reconnect* is false; *on_state*
    is called with each new state. The client tries for 25 seconds, or for as long as `retain` has
    granted, or for *recover_for* seconds. *session_token* comes from `session_token()` of an
    earlier client: its session is resumed, and `attach` continues its processes; *take_over* takes
    it from a client that still holds it.
    *on_policy_request* decides which hosts processes with a managed network may reach, and
    *on_policy_decision* is called with each decision.

    *pin* is for servers behind a registry, and replaces trust in that registry: it is the
    fingerprint of the executor's key, or `first-use` to trust the first key that is seen and no
    other key after that. UntrustedExecutor is raised for another key.

    Over TLS the authorities of the system are trusted, or instead those in *ca_file*. A server or
    registry that asks for a certificate gets *client_cert*, with *client_key*.
    """
    from exec_server.client_urls import connect as async_connect

    return opened(
        lambda: async_connect(
            url,
            client_name=client_name,
            call_timeout=call_timeout,
            recover_for=recover_for,
            token=token,
            pin=pin,
            session_token=session_token,
            take_over=take_over,
            reconnect=reconnect,
            on_state=on_state,
            on_policy_request=on_policy_request,
            on_policy_decision=on_policy_decision,
            ca_file=ca_file,
            client_cert=client_cert,
            client_key=client_key,
            ssl_context=ssl_context,
            limits=limits,
            connect_timeout=connect_timeout,
            initialize_timeout=initialize_timeout,
            resume_session_id=resume_session_id,
        ),
        ExecServerClient,
    )


def local(
    *,
    client_name: str = DEFAULT_CLIENT_NAME,
    call_timeout: float | None = DEFAULT_LIMITS.call_timeout,
    on_state: Callable[[ConnectionState], None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> AbstractContextManager[ExecServerClient]:
    """Run processes on this machine with the interface of a remote client.

    The server lives in the caller's event loop; leaving the block ends everything it has started.
    """
    from exec_server.local_server import local as async_local

    return opened(
        lambda: async_local(
            client_name=client_name, call_timeout=call_timeout, on_state=on_state, limits=limits
        ),
        ExecServerClient,
    )


def environments(
    home: Path | None = None,
    env: Mapping[str, str] = os.environ,
    **options: Unpack[ConnectKeywords],
) -> AbstractContextManager[EnvironmentManager]:
    """The environments of `environments.toml` and of the variables, including this machine.

    *options* are those of `connect`, for everything that is connected here.
    """
    from exec_server.local_server import environments as async_environments

    return opened(lambda: async_environments(home, env, **options), EnvironmentManager)


def open(
    url: str,
    *,
    client_name: str = DEFAULT_CLIENT_NAME,
    call_timeout: float | None = DEFAULT_LIMITS.call_timeout,
    recover_for: float | None = None,
    token: str | Callable[[], str] | None = None,
    pin: str | None = None,
    session_token: str | None = None,
    take_over: bool = False,
    reconnect: bool = True,
    on_state: Callable[[ConnectionState], None] | None = None,
    on_policy_request: OnPolicyRequest | None = None,
    on_policy_decision: OnPolicyDecision | None = None,
    ca_file: str | None = None,
    client_cert: str | None = None,
    client_key: str | None = None,
    ssl_context: SSLContext | None = None,
    limits: Limits = DEFAULT_LIMITS,
    connect_timeout: float = DEFAULT_LIMITS.connect_timeout,
    initialize_timeout: float = DEFAULT_LIMITS.initialize_timeout,
    resume_session_id: str | None = None,
) -> ExecServerClient:
    """Connect to a server without a block, for notebooks and for objects that hold a client.

    The parameters are those of `connect`. Close it with `client.close()`; a client that is
    dropped before that is disconnected with a ResourceWarning.
    """
    from exec_server.client_urls import open as async_open

    return opened_alone(
        lambda: async_open(
            url,
            client_name=client_name,
            call_timeout=call_timeout,
            recover_for=recover_for,
            token=token,
            pin=pin,
            session_token=session_token,
            take_over=take_over,
            reconnect=reconnect,
            on_state=on_state,
            on_policy_request=on_policy_request,
            on_policy_decision=on_policy_decision,
            ca_file=ca_file,
            client_cert=client_cert,
            client_key=client_key,
            ssl_context=ssl_context,
            limits=limits,
            connect_timeout=connect_timeout,
            initialize_timeout=initialize_timeout,
            resume_session_id=resume_session_id,
        ),
        ExecServerClient,
    )


AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes] | RemotePath | PathUri
