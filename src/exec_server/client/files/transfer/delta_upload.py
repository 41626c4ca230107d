"""Send only what has changed in a large file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exec_server.client.files.file_streams import BLOCK_BYTES, WINDOW
from exec_server.client.files.transfer.changed_parts import (
    LocalVersion,
    RemoteVersion,
    compare,
    copy_batches,
    fresh_key,
    is_worth_it,
)
from exec_server.client.files.transfer.equal_versions import RememberedVersion, is_equal
from exec_server.client.files.transfer.local_tree import Changed
from exec_server.client.files.transfer.task_pool import each

if TYPE_CHECKING:
    from exec_server.client.files.remote_files import RemoteFiles
    from exec_server.client.files.transfer.progress import Tracker
    from exec_server.client.files.transfer.source import Content


# Requests to copy parts of the old version that are under way at the same time.
_COPIES = 2


class DeltaUpload:
    """Makes the new version of a file on the server, from its old version and from what is sent."""

    def __init__(self, files: RemoteFiles, tracker: Tracker, *, follow_symlinks: bool) -> None:
        self._files = files
        self._tracker = tracker
        self._follow = follow_symlinks

    async def send(
        self, content: Content, size: int, *, old: bytes, old_size: int, part: bytes
    ) -> int | None:
        """Write the new version to *part*; returns the number of bytes that were not sent.

        None means that the file has to be sent whole: most of it is new, or the old version has
        changed meanwhile. Raises OSError, RpcError and Changed.
        """
        fd = content.descriptor
        if fd is None:
            return None
        key = await fresh_key(self._files)
        new = RememberedVersion(LocalVersion(fd, size, key=key))
        before = self._version(old, old_size, key)
        try:
            ranges = await compare(new, before)
        except ValueError:
            return None
        if sum(item.size for item in ranges) != size:
            raise Changed
        if not is_worth_it(ranges):
            return None
        missing = [(item.start, item.size) for item in ranges if item.source is None]
        await self._write(content, missing, part)
        matched = size - sum(length for _, length in missing)

        async def copy(batch: list[tuple[int, int, int]]) -> None:
            await self._files.copy_ranges(old, part, batch, follow_symlinks=self._follow)

        await each(copy_batches(ranges), copy, width=_COPIES)
        if not await is_equal(new, self._version(part, size, key)):
            self._tracker.advance(bytes=matched - size)
            return None
        self._tracker.keep(files=0, bytes=matched)
        return matched

    def _version(self, path: bytes, size: int, key: bytes | None) -> RemoteVersion:
        return RemoteVersion(self._files, path, size, follow_symlinks=self._follow, key=key)

    async def _write(self, content: Content, missing: list[tuple[int, int]], part: bytes) -> None:
        handle = await self._files.open(part, mode="replace")

        async def write(block: tuple[int, int]) -> None:
            offset, size = block
            data = await content.read(offset, size)
            if len(data) != size:
                raise Changed
            await self._files.write_block(handle, offset, data)
            self._tracker.advance(bytes=size)

        blocks = [
            (offset, min(BLOCK_BYTES, start + size - offset))
            for start, size in missing
            for offset in range(start, start + size, BLOCK_BYTES)
        ]
        try:
            await each(blocks, write, width=WINDOW)
        finally:
            await self._files.close(handle)
