"""Copies the beginning and the end that two versions share, while they are compared.

A block is read once: the same bytes are written and added to its checksum, which is compared with
that of the new version. So what is copied is verified, and neither the old version nor the copy is
read again. What has turned out to be different is written over by what it should be. Meanwhile the
server makes the checksums of the next part.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from exec_server.client.files.transfer import changed_parts
from exec_server.client.files.transfer.changed_parts import equal_bytes
from exec_server.client.files.transfer.task_pool import to_its_end
from exec_server.early_writeback import begin_writing
from exec_server.protocol.file_delta import SPAN_BYTES, ContentChunk, new_digest

# The server is asked for little first, so that the work here begins soon.
_FIRST_BLOCKS = 4
# What is copied before the kernel is told to write it.
_WRITEBACK_BYTES = 16 * 1024 * 1024
# What is read at once and then written, and how many of them are in memory.
_PIECE_BYTES = 512 * 1024
_PIECES = 4


class _Blocks(Protocol):
    """The new version, as `changed_parts.Version`."""

    size: int

    async def blocks(self, offset: int, length: int) -> list[ContentChunk]: ...


class CopiedEnds:
    """Copies from the descriptor *old* to *part* what the new version has in common with it."""

    def __init__(self, new: _Blocks, old: int, part: int, *, key: bytes | None) -> None:
        self._new = new
        self._old, self._old_size = old, os.fstat(old).st_size
        self._part = part
        self._key = key

    async def copy(self) -> tuple[int, int]:
        """How many bytes at the beginning and at the end are the same; they are in the part now.

        Raises OSError, RpcError, and ValueError if the server sends nonsense.
        """
        most = min(self._new.size, self._old_size)
        first = await self._same(0, most)
        inner = most - first
        size = inner // changed_parts.BLOCK_BYTES * changed_parts.BLOCK_BYTES
        last = await self._same(self._new.size - size, size, is_end=True) if size else 0
        return first, last

    async def _same(self, start: int, size: int, *, is_end: bool = False) -> int:
        """The bytes that are the same in a part of the new version, from its beginning or end."""
        spans = _spans(start, size, is_end=is_end)
        same = 0
        asked = self._ask(spans[0]) if spans else None
        try:
            for place, span in enumerate(spans):
                assert asked is not None
                blocks = await asked
                asked = self._ask(spans[place + 1]) if place + 1 < len(spans) else None
                if is_end and sum(block.size for block in blocks) != span[1]:
                    # The new version is shorter now, and these are not the blocks of its end.
                    break
                equal = await to_its_end(partial(self._copy_equal, span[0], blocks, is_end=is_end))
                same += equal
                if equal < span[1]:
                    break
        finally:
            if asked is not None:
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)
        return same

    def _ask(self, span: tuple[int, int]) -> asyncio.Task[list[ContentChunk]]:
        return asyncio.create_task(self._new.blocks(*span))

    def _copy_equal(self, start: int, blocks: list[ContentChunk], *, is_end: bool) -> int:
        """Copy what the old version has in the place of *blocks*, seen from that end.

        Returns the size of those that are the same, until the first difference from that end.
        """
        shift = self._old_size - self._new.size if is_end else 0
        found: list[ContentChunk] = []
        with _Writer(self._part) as writer:
            for block in blocks:
                found.append(self._copy_block(start, start + shift, block.size, writer))
                start += block.size
                if found[-1] != block and not is_end:
                    break
        return equal_bytes(found[::-1], blocks[::-1]) if is_end else equal_bytes(found, blocks)

    def _copy_block(self, start: int, source: int, size: int, writer: _Writer) -> ContentChunk:
        """Copy a block, as far as there is one; what was copied."""
        digest, done = new_digest(self._key), 0
        while done < size:
            buffer = writer.buffer()
            read = os.preadv(self._old, [buffer[: size - done]], source + done)
            if not read:
                writer.take_back(buffer)
                break
            digest.update(buffer[:read])
            writer.write(buffer, read, start + done)
            done += read
        return ContentChunk(done, digest.digest()[:16])


class _Writer:
    """Writes in a thread of its own, so that the next piece is read meanwhile."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pool = ThreadPoolExecutor(1)
        self._under_way: deque[tuple[Future[None], memoryview]] = deque()
        self._free = [memoryview(bytearray(_PIECE_BYTES)) for _ in range(_PIECES)]
        # What is written and not yet on its way to the disk: where it begins and ends.
        self._dirty = (0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.shutdown()
        if exc is None:
            while self._under_way:
                self._under_way.popleft()[0].result()
            self._begin_writing()

    def buffer(self) -> memoryview:
        """A buffer that nothing is written from. Raises OSError if a write has failed."""
        if not self._free:
            done, buffer = self._under_way.popleft()
            done.result()
            self._free.append(buffer)
        return self._free.pop()

    def take_back(self, buffer: memoryview) -> None:
        """Nothing has to be written from *buffer*."""
        self._free.append(buffer)

    def write(self, buffer: memoryview, size: int, offset: int) -> None:
        """Write the beginning of a *buffer*, which belongs to the writer again."""
        done = self._pool.submit(self._write, buffer[:size], offset)
        self._under_way.append((done, buffer))

    def _write(self, data: memoryview, offset: int) -> None:
        write_at(self._fd, data, offset)
        if self._dirty[1] != offset:
            self._begin_writing()
            self._dirty = (offset, offset)
        self._dirty = (self._dirty[0], offset + len(data))
        if self._dirty[1] - self._dirty[0] >= _WRITEBACK_BYTES:
            self._begin_writing()

    def _begin_writing(self) -> None:
        start, end = self._dirty
        if end > start:
            begin_writing(self._fd, start, end - start)
        self._dirty = (end, end)


def _spans(start: int, size: int, *, is_end: bool) -> list[tuple[int, int]]:
    """The parts in which a part of a file is compared, in that order, as offsets and lengths."""
    found: list[tuple[int, int]] = []
    done, length = 0, _FIRST_BLOCKS * changed_parts.BLOCK_BYTES
    while done < size:
        length = min(length, size - done)
        found.append((start + size - done - length if is_end else start + done, length))
        done += length
        length = SPAN_BYTES
    return found


def write_at(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of *data*."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
