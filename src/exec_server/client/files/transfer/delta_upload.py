"""Send only what has changed in a large file."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from exec_server.client.files.file_streams import BLOCK_BYTES, WINDOW
from exec_server.client.files.transfer.changed_parts import (
    LocalChunks,
    compared,
    copy_batches,
    is_worth_it,
    local_chunks,
    remote_chunks,
)
from exec_server.client.files.transfer.local_tree import Changed
from exec_server.client.files.transfer.task_pool import each
from exec_server.protocol.file_delta import SPAN_BYTES

if TYPE_CHECKING:
    from exec_server.client.files.remote_files import RemoteFiles
    from exec_server.client.files.transfer.progress import Tracker
    from exec_server.client.files.transfer.source import Content


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
        reading = asyncio.create_task(asyncio.to_thread(local_chunks, fd, size))
        try:
            theirs = await remote_chunks(self._files, old, old_size, follow_symlinks=self._follow)
        except ValueError:
            theirs = []
        finally:
            # The descriptor must not be closed while the thread reads.
            ours = await reading
        if sum(chunk.size for chunk in ours.chunks) != size:
            raise Changed
        ranges = compared(ours.chunks, theirs)
        if not is_worth_it(ranges):
            return None
        missing = [(item.start, item.size) for item in ranges if item.source is None]
        await self._write(content, missing, part)
        matched = size - sum(length for _, length in missing)
        for batch in copy_batches(ranges):
            await self._files.copy_ranges(old, part, batch, follow_symlinks=self._follow)
        if not await self._is_equal(ours, part):
            self._tracker.advance(bytes=matched - size)
            return None
        self._tracker.keep(files=0, bytes=matched)
        return matched

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

    async def _is_equal(self, ours: LocalChunks, part: bytes) -> bool:
        """True if the server has made the same file."""
        for number, digest in enumerate(ours.span_digests):
            answer = await self._files.signature(
                part, offset=number * SPAN_BYTES, chunks=False, follow_symlinks=self._follow
            )
            if answer.digest != digest:
                return False
        return True
