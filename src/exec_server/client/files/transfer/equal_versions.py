"""Whether a file that was made of parts is the new version: all of it is compared by checksums."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from exec_server.client.files.transfer import changed_parts
from exec_server.client.files.transfer.changed_parts import Version, equal_bytes
from exec_server.client.files.transfer.task_pool import each
from exec_server.protocol.file_delta import SPAN_BYTES, ContentChunk

# Parts that are read at the same time: checksums take more time than reading.
_WIDTH = 2
# Smaller than the largest one, so that two processors have work until the end.
_PART_BYTES = SPAN_BYTES // 4


class RememberedVersion:
    """A version whose blocks are read once: what was compared before need not be read again."""

    def __init__(self, version: Version) -> None:
        self._version = version
        self.size = version.size
        self._blocks: dict[int, ContentChunk] = {}

    async def blocks(self, offset: int, length: int) -> list[ContentChunk]:
        found = await self._version.blocks(offset, length)
        for block in found:
            self._blocks[offset] = block
            offset += block.size
        return found

    async def places(self, offset: int, length: int) -> list[ContentChunk]:
        return await self._version.places(offset, length)

    async def chunks(self, offset: int, length: int) -> list[ContentChunk]:
        return await self._version.chunks(offset, length)

    def parts(
        self, start: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, int, list[ContentChunk] | None]]:
        """All parts: where each begins, its size, and its blocks, if they are known.

        With *start* and *end*, those of the bytes between; blocks of these are not known.
        """
        offset, end = start, self.size if end is None else end
        starts = sorted(self._blocks)
        while offset < end:
            known = self._known_from(offset)
            if known:
                size = sum(block.size for block in known)
                yield offset, size, known
            else:
                next_known = next((start for start in starts if start > offset), end)
                size = min(next_known - offset, _PART_BYTES)
                yield offset, size, None
            offset += size

    def _known_from(self, offset: int) -> list[ContentChunk]:
        """Known blocks that follow one another; only the last one may be shorter."""
        known: list[ContentChunk] = []
        size = 0
        while size < _PART_BYTES and (block := self._blocks.get(offset + size)) is not None:
            known.append(block)
            size += block.size
            if block.size != changed_parts.BLOCK_BYTES:
                break
        return known


async def is_equal(
    new: RememberedVersion, made: Version, *, start: int = 0, end: int | None = None
) -> bool:
    """True if *made* has the content of *new*, which has the same size, from *start* to *end*."""
    differences: list[int] = []

    async def check(part: tuple[int, int, list[ContentChunk] | None]) -> None:
        offset, size, known = part
        if differences:
            return
        try:
            if known is None:
                both = new.blocks(offset, size), made.blocks(offset, size)
                ours, theirs = await asyncio.gather(*both)
            else:
                ours, theirs = known, await made.blocks(offset, size)
        except ValueError:
            # A server has sent nonsense.
            differences.append(offset)
            return
        if equal_bytes(ours, theirs) != size:
            differences.append(offset)

    await each(list(new.parts(start, end)), check, width=_WIDTH)
    return not differences
