"""The server's side of a transfer."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from exec_server.client.files.transfer.remote_listing import Listing, list_tree, start_command
from exec_server.client.files.transfer.tree import below
from exec_server.errors import MethodNotFound, NotFound

if TYPE_CHECKING:
    from exec_server.client.files.file_methods import AnyPath
    from exec_server.client.files.remote_files import RemoteFiles
    from exec_server.client.process.remote_process import RemoteProcess

# What one command line may be long; the least that POSIX systems in use allow is twice as much.
_WORDS_BYTES = 64 * 1024


class RemoteTree:
    """A file, or a directory with all below it.

    Links on the way to its root are followed, because whoever names it knows them, and none below.
    """

    def __init__(self, files: RemoteFiles, root: bytes, *, exists: bool, is_resolved: bool) -> None:
        self.files = files
        self.root = root
        self.exists = exists
        # A server that cannot resolve the way to the root may find links on it.
        self.follow_symlinks = not is_resolved

    @classmethod
    async def find(cls, files: RemoteFiles, path: AnyPath) -> RemoteTree:
        """The tree at *path*, which need not exist. Raises RpcError."""
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

    def at(self, path: bytes) -> bytes:
        """Where *path* of the tree is on the server."""
        return below(self.root, path)

    async def list(self, *, is_full: bool = True) -> Listing:
        """Everything that there is, which is nothing where the root is missing."""
        try:
            return await list_tree(self.files, self.root, is_full=is_full)
        except NotFound:
            return Listing()

    async def start(self, *argv: bytes, stdin: bool = False) -> RemoteProcess | None:
        """Run a program in the root, a directory; None where that cannot be done."""
        return await start_command(self.files, list(argv), self.root, stdin=stdin)


def batches(groups: Iterable[tuple[bytes, ...]]) -> list[list[bytes]]:
    """The words of *groups* in lists that each fit into a command line; groups stay together."""
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
    """Whether they can be arguments: the protocol has only text for those."""
    try:
        b"".join(words).decode()
    except UnicodeDecodeError:
        return False
    return True
