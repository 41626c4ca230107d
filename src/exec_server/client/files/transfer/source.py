"""The source of an upload: this machine, or another server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from typing import Protocol

from exec_server.client.files.transfer import local_tree
from exec_server.client.files.transfer.checksum import Digest, local_digest, remote_digest
from exec_server.client.files.transfer.local_tree import Changed, LocalTree, WithoutSize
from exec_server.client.files.transfer.remote_tree import RemoteTree
from exec_server.client.files.transfer.task_pool import to_its_end
from exec_server.client.files.transfer.tree import TreeEntry
from exec_server.errors import NotFound


class Content(Protocol):
    """The content of one large file."""

    @property
    def descriptor(self) -> int | None:
        """The open file, if it is on this machine."""

    async def read(self, offset: int, size: int) -> bytes:
        """At most *size* bytes from *offset* on."""

    def blocks(self, start: int, size: int) -> AsyncIterator[bytes]:
        """The blocks from *start* on, of at most *size* bytes. Raises Changed if some are gone."""


class Source(Protocol):
    """A tree that is read. A file that is no longer as it was listed raises Changed."""

    @property
    def local(self) -> LocalTree | None:
        """The tree on this machine, whose files can be packed; None for another server."""

    @property
    def root(self) -> bytes:
        """The path of the tree."""

    @property
    def origin(self) -> bytes:
        """A name of the source, the same for every attempt to copy it."""

    async def read(self, entry: TreeEntry) -> bytes:
        """The content of a small file."""

    def open(self, entry: TreeEntry) -> contextlib.AbstractAsyncContextManager[Content]:
        """A large file; the end of the block may raise Changed, too."""

    async def digest(self, entries: list[TreeEntry]) -> Digest:
        """The checksums of *entries*."""


class LocalSource:
    """A tree on this machine."""

    def __init__(self, tree: LocalTree) -> None:
        self.local = tree

    @property
    def root(self) -> bytes:
        return self.local.root

    @property
    def origin(self) -> bytes:
        return socket.gethostname().encode() + b":" + self.local.root

    async def read(self, entry: TreeEntry) -> bytes:
        return await asyncio.to_thread(self._read, entry)

    def _read(self, entry: TreeEntry) -> bytes:
        with self.local.places() as places:
            return local_tree.read_file(places.of(entry.path), entry)

    @contextlib.asynccontextmanager
    async def open(self, entry: TreeEntry) -> AsyncIterator[Content]:
        fd = await to_its_end(self._open, entry, undo=os.close)
        try:
            yield _LocalContent(fd, entry.size)
            local_tree.check_unchanged(fd, entry)
        finally:
            os.close(fd)

    def _open(self, entry: TreeEntry) -> int:
        with self.local.places() as places:
            return local_tree.open_file(places.of(entry.path), entry)

    async def digest(self, entries: list[TreeEntry]) -> Digest:
        return local_digest(self.local)


class _LocalContent:
    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size

    @property
    def descriptor(self) -> int | None:
        return self._fd

    async def read(self, offset: int, size: int) -> bytes:
        return await asyncio.to_thread(os.pread, self._fd, size, offset)

    async def blocks(self, start: int, size: int) -> AsyncIterator[bytes]:
        while start < self._size:
            data = await self.read(start, min(size, self._size - start))
            if not data:
                raise Changed
            yield data
            start += len(data)


class RemoteSource:
    """A tree on another server."""

    local = None

    def __init__(self, tree: RemoteTree) -> None:
        self._tree = tree

    @property
    def root(self) -> bytes:
        return self._tree.root

    @property
    def origin(self) -> bytes:
        return self._tree.root

    async def read(self, entry: TreeEntry) -> bytes:
        try:
            data = await self._tree.files.read_file(
                self._tree.at(entry.path), follow_symlinks=self._tree.follow_symlinks
            )
        except NotFound:
            raise Changed from None
        if len(data) != entry.size:
            raise Changed if entry.size else WithoutSize
        return data

    @contextlib.asynccontextmanager
    async def open(self, entry: TreeEntry) -> AsyncIterator[Content]:
        await self._check(entry)
        yield _RemoteContent(self._tree, entry)
        await self._check(entry)

    async def _check(self, entry: TreeEntry) -> None:
        tree = self._tree
        try:
            found = await tree.files.get_metadata(
                tree.at(entry.path), follow_symlinks=tree.follow_symlinks
            )
        except NotFound:
            raise Changed from None
        if not found.is_file or (found.size, found.modified_at_ms) != (entry.size, entry.mtime_ms):
            raise Changed

    async def digest(self, entries: list[TreeEntry]) -> Digest:
        return await remote_digest(self._tree, entries)


class _RemoteContent:
    descriptor = None

    def __init__(self, tree: RemoteTree, entry: TreeEntry) -> None:
        self._files = tree.files
        self._path = tree.at(entry.path)
        self._size = entry.size

    async def read(self, offset: int, size: int) -> bytes:
        async with self._files.read_stream(self._path, offset=offset, length=size) as stream:
            return b"".join([data async for data in stream])

    async def blocks(self, start: int, size: int) -> AsyncIterator[bytes]:
        left = self._size - start
        async with self._files.read_stream(self._path, offset=start, length=left) as stream:
            async for data in stream:
                left -= len(data)
                yield data
        if left:
            raise Changed
