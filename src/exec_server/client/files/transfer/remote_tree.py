"""The files of the server in a transfer."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from exec_server.client.files.transfer.remote_listing import Listing, list_tree, start_command
from exec_server.client.files.transfer.tree import below
from exec_server.client.os_errors import as_os_error
from exec_server.errors import MethodNotFound, NotFound, RpcError

if TYPE_CHECKING:
    from exec_server.client.files.file_methods import AnyPath
    from exec_server.client.files.remote_files import RemoteFiles
    from exec_server.client.process.remote_process import RemoteProcess

# The longest command line that is used; every common POSIX system allows twice as much.
_WORDS_BYTES = 64 * 1024


class RemoteTree:
    """A file, or a directory with everything below it.

    Links on the way to the root are followed, because the caller has named that path; links below
    it are not.
    """

    def __init__(self, files: RemoteFiles, root: bytes, *, exists: bool, is_resolved: bool) -> None:
        self.files = files
        self.root = root
        self.exists = exists
        # Without a resolved root the server has to follow the links on the way to it.
        self.follow_symlinks = not is_resolved

    @classmethod
    async def find(cls, files: RemoteFiles, path: AnyPath) -> RemoteTree:
        """The tree at *path*, which may be missing. Raises RpcError."""
        native = (await files.uri(path)).native
        above, missing = native, b""
        while True:
            try:
                root = below(os.fsencode(await files.canonicalize(above)), missing)
                return cls(files, root, exists=not missing, is_resolved=True)
            except NotFound:
                above, name = os.path.split(above)
                missing = below(name, missing)
            except MethodNotFound:
                exists = await files.exists(native)
                return cls(files, native, exists=exists, is_resolved=False)

    def missing(self) -> RpcError:
        """The error of a source that does not exist, in the words of a server."""
        error = NotFound(f"{os.strerror(errno.ENOENT)} (os error {errno.ENOENT})")
        path = os.fsdecode(self.root)
        return as_os_error(error).about(repr(path), path=path)

    def at(self, path: bytes) -> bytes:
        """The path on the server of *path* in the tree."""
        return below(self.root, path)

    async def list(self, *, is_full: bool = True) -> Listing:
        """All entries; none if the root is missing."""
        try:
            return await list_tree(self.files, self.root, is_full=is_full)
        except NotFound:
            return Listing()

    async def start(self, *argv: bytes, stdin: bool = False) -> RemoteProcess | None:
        """Run a program in the root, a directory; None if that is not possible."""
        return await start_command(self.files, list(argv), self.root, stdin=stdin)


def batches(groups: Iterable[tuple[bytes, ...]]) -> list[list[bytes]]:
    """The words of *groups* in lists that each fit into a command line; no group is split."""
    lists: list[list[bytes]] = []
    room = 0
    for words in groups:
        size = sum(map(len, words)) + len(words)
        if size > room:
            lists.append([])
            room = _WORDS_BYTES
        lists[-1] += words
        room -= size
    return lists


def is_text(*words: bytes) -> bool:
    """True if the words can be arguments, which the protocol sends as text."""
    try:
        b"".join(words).decode()
    except UnicodeDecodeError:
        return False
    return True
