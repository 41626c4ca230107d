"""Which parts of a changed file are in its old version.

Most changes are in one place, so the beginning and the end are compared first, in fixed blocks.
Programs such as databases change many places and move nothing, so what lies between is compared in
smaller blocks then. If most of it has moved, it is cut into chunks where the content says so.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple, Protocol

from exec_server.client.files.transfer.task_pool import to_its_end
from exec_server.protocol.file_delta import (
    KEY_BYTES,
    LEAST_BLOCK,
    MOST_RANGES,
    SPAN_BYTES,
    ContentChunk,
    chunk_digest,
    new_digest,
    unpack_chunks,
)
from exec_server.state.content_chunks import chunks

if TYPE_CHECKING:
    from exec_server.client.files.remote_files import RemoteFiles

# The blocks in which the beginning and the end of two versions are compared.
BLOCK_BYTES = 4 * 1024 * 1024
# The blocks of content that may have stayed where it was.
PLACE_BYTES = 64 * 1024
# Less than this is cut into chunks at once, which takes less time than a further question.
LEAST_PLACES = 16 * 1024 * 1024
# If more than this part is not where it was, content has moved.
_MOVED = 0.25
# If more than this part of a file is new, it is sent whole.
_WORTH = 0.75
_PIECE_BYTES = 1024 * 1024
# What is read and added to a checksum at once: it stays in the cache of a processor.
_READ_BYTES = 512 * 1024


class DeltaRange(NamedTuple):
    """A part of the new file: where it is there, and where in the old file, if it is."""

    start: int
    size: int
    # None if it has to be sent.
    source: int | None


class Version(Protocol):
    """A version of a file, on this machine or on a server.

    Raises OSError, RpcError, and ValueError if a server sends nonsense.
    """

    size: int

    async def blocks(self, offset: int, length: int) -> list[ContentChunk]:
        """The checksums of the blocks of a part, of at most SPAN_BYTES."""

    async def places(self, offset: int, length: int) -> list[ContentChunk]:
        """The same in smaller blocks."""

    async def chunks(self, offset: int, length: int) -> list[ContentChunk]:
        """The chunks of a part, of any length."""


class LocalVersion:
    """An open file of this machine."""

    def __init__(self, fd: int, size: int, *, key: bytes | None = None) -> None:
        self._fd = fd
        self._key = key
        self.size = size

    async def blocks(self, offset: int, length: int) -> list[ContentChunk]:
        return await to_its_end(self._blocks, offset, length, BLOCK_BYTES)

    async def places(self, offset: int, length: int) -> list[ContentChunk]:
        return await to_its_end(self._blocks, offset, length, PLACE_BYTES)

    def _blocks(self, offset: int, length: int, block_bytes: int) -> list[ContentChunk]:
        # One buffer for all of them: new memory costs as much as the reading.
        buffer = memoryview(bytearray(min(block_bytes, length, _READ_BYTES)))
        found: list[ContentChunk] = []
        end = offset + length
        while offset < end:
            block = self._block(offset, min(block_bytes, end - offset), buffer)
            if not block.size:
                break
            found.append(block)
            offset += block.size
        return found

    def _block(self, offset: int, length: int, buffer: memoryview) -> ContentChunk:
        """The block at *offset*, which is shorter only at the end of the file."""
        digest, size = new_digest(self._key), 0
        while size < length:
            read = os.preadv(self._fd, [buffer[: length - size]], offset + size)
            if not read:
                break
            digest.update(buffer[:read])
            size += read
        return ContentChunk(size, digest.digest()[:16])

    async def chunks(self, offset: int, length: int) -> list[ContentChunk]:
        return await to_its_end(self._chunks, offset, length)

    def _chunks(self, offset: int, length: int) -> list[ContentChunk]:
        pieces = _pieces(self._fd, offset, length, _PIECE_BYTES)
        return [ContentChunk(len(data), chunk_digest(data, self._key)) for data in chunks(pieces)]


def _pieces(fd: int, offset: int, length: int, size: int) -> Iterator[bytes]:
    end = offset + length
    while offset < end:
        data = os.pread(fd, min(size, end - offset), offset)
        if not data:
            return
        yield data
        offset += len(data)


class RemoteVersion:
    """A file of the server."""

    def __init__(
        self,
        files: RemoteFiles,
        path: bytes,
        size: int,
        *,
        follow_symlinks: bool,
        key: bytes | None = None,
    ) -> None:
        self._files = files
        self._path = path
        self._follow = follow_symlinks
        self._key = key
        self.size = size

    async def blocks(self, offset: int, length: int) -> list[ContentChunk]:
        return await self._ask(offset, length, block_bytes=BLOCK_BYTES)

    async def places(self, offset: int, length: int) -> list[ContentChunk]:
        return await self._ask(offset, length, block_bytes=PLACE_BYTES)

    async def chunks(self, offset: int, length: int) -> list[ContentChunk]:
        found: list[ContentChunk] = []
        end = offset + length
        while offset < end:
            size = min(SPAN_BYTES, end - offset)
            part = await self._ask(offset, size, block_bytes=0)
            if offset + size < end:
                # The last chunk was cut by the end of the span, and not by its content.
                part = part[:-1]
            found += part
            read = sum(chunk.size for chunk in part)
            if read <= size // 2 and offset + read < end:
                raise ValueError("the server sent too few chunks")
            offset += read
        return found

    async def _ask(self, offset: int, length: int, *, block_bytes: int) -> list[ContentChunk]:
        answer = await self._files.signature(
            self._path,
            offset=offset,
            length=length,
            block_bytes=block_bytes,
            key=self._key,
            follow_symlinks=self._follow,
        )
        found = list(unpack_chunks(answer.chunks_base64.data))
        if len(found) > length // LEAST_BLOCK + 1 or not all(chunk.size for chunk in found):
            raise ValueError("the server sent more chunks than there can be")
        if sum(chunk.size for chunk in found) > length:
            raise ValueError("the server sent chunks of more than was asked for")
        return found


async def fresh_key(files: RemoteFiles) -> bytes | None:
    """A key for the checksums of one file; None if the server can only do SHA-256.

    It is drawn after the contents were written, so that no content can be made to fit it.
    """
    return os.urandom(KEY_BYTES) if await files.offers("fsDeltaKeyed") else None


async def compare(new: Version, old: Version) -> list[DeltaRange]:
    """The new version in ranges, each of which is in the old version or has to be sent."""
    first = await _same_beginning(new, old)
    last = await _same_end(new, old, first)
    inner = await compare_between(new, old, first, last)
    return [*_spans(0, first, 0), *inner, *_spans(new.size - last, last, old.size - last)]


async def compare_between(new: Version, old: Version, first: int, last: int) -> list[DeltaRange]:
    """The ranges of the new version without its *first* and *last* bytes, which are the same."""
    inner_new, inner_old = new.size - first - last, old.size - first - last
    inner = await _in_place(new, old, first, inner_new, inner_old)
    return await _moved(new, old, first, inner_new, inner_old) if inner is None else inner


async def _in_place(
    new: Version, old: Version, first: int, inner_new: int, inner_old: int
) -> list[DeltaRange] | None:
    """The ranges between the beginning and the end, if most of them are where they were."""
    both = min(inner_new, inner_old)
    most, missing = _MOVED * inner_new, inner_new - both
    if both < LEAST_PLACES or missing > most:
        return None
    ranges: list[DeltaRange] = []
    offset, end = first, first + both
    while offset < end:
        size = min(SPAN_BYTES, end - offset)
        ours, theirs = await asyncio.gather(new.places(offset, size), old.places(offset, size))
        start = offset
        for one, other in zip(ours, chain(theirs, repeat(None)), strict=False):
            is_same = one == other
            _add(ranges, DeltaRange(start, one.size, start if is_same else None))
            missing += 0 if is_same else one.size
            start += one.size
        if missing > most:
            return None
        offset += size
    if inner_new > both:
        ranges.append(DeltaRange(end, inner_new - both, None))
    return ranges


async def _moved(
    new: Version, old: Version, first: int, inner_new: int, inner_old: int
) -> list[DeltaRange]:
    """The ranges between the beginning and the end, wherever they were."""
    ours, theirs = await asyncio.gather(new.chunks(first, inner_new), old.chunks(first, inner_old))
    return [
        DeltaRange(first + start, size, None if source is None else first + source)
        for start, size, source in compared(ours, theirs)
    ]


async def _same_beginning(new: Version, old: Version) -> int:
    """The number of bytes at the beginning that are the same, in whole blocks."""
    same, most = 0, min(new.size, old.size)
    while same < most:
        size = min(SPAN_BYTES, most - same)
        ours, theirs = await asyncio.gather(new.blocks(same, size), old.blocks(same, size))
        equal = equal_bytes(ours, theirs)
        same += equal
        if equal < size:
            break
    return same


async def _same_end(new: Version, old: Version, first: int) -> int:
    """The number of bytes at the end that are the same, in whole blocks, behind *first*."""
    same, most = 0, min(new.size, old.size) - first
    while size := min(SPAN_BYTES, (most - same) // BLOCK_BYTES * BLOCK_BYTES):
        before = same + size
        ours, theirs = await asyncio.gather(
            new.blocks(new.size - before, size), old.blocks(old.size - before, size)
        )
        equal = equal_bytes(ours[::-1], theirs[::-1])
        same += equal
        if equal < size:
            break
    return same


def equal_bytes(ours: list[ContentChunk], theirs: list[ContentChunk]) -> int:
    """The size of the blocks before the first difference."""
    size = 0
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            break
        size += one.size
    return size


def _spans(start: int, size: int, source: int) -> Iterator[DeltaRange]:
    """A range that is in the old version, in parts that one request can copy."""
    for done in range(0, size, SPAN_BYTES):
        yield DeltaRange(start + done, min(SPAN_BYTES, size - done), source + done)


def compared(new: Iterable[ContentChunk], old: Iterable[ContentChunk]) -> list[DeltaRange]:
    """The chunks of *new* in ranges; neighbours that come from one place are one range."""
    places: dict[ContentChunk, int] = {}
    offset = 0
    for chunk in old:
        places.setdefault(chunk, offset)
        offset += chunk.size
    ranges: list[DeltaRange] = []
    start = 0
    for chunk in new:
        _add(ranges, DeltaRange(start, chunk.size, places.get(chunk)))
        start += chunk.size
    return ranges


def _add(ranges: list[DeltaRange], item: DeltaRange) -> None:
    last = ranges[-1] if ranges else None
    if last is not None and last.size + item.size <= SPAN_BYTES:
        is_new = last.source is None and item.source is None
        follows = (
            last.source is not None
            and item.source is not None
            and last.source + last.size == item.source
        )
        if is_new or follows:
            ranges[-1] = last._replace(size=last.size + item.size)
            return
    ranges.append(item)


def is_worth_it(ranges: Iterable[DeltaRange]) -> bool:
    """True if enough of the new file is in the old one."""
    ranges = list(ranges)
    missing = sum(item.size for item in ranges if item.source is None)
    return missing <= _WORTH * sum(item.size for item in ranges)


def copy_batches(ranges: Iterable[DeltaRange]) -> Iterator[list[tuple[int, int, int]]]:
    """The ranges that are in the old file, as many at once as a request may have."""
    batch: list[tuple[int, int, int]] = []
    room = SPAN_BYTES
    for start, size, source in ranges:
        if source is None:
            continue
        if size > room or len(batch) == MOST_RANGES:
            yield batch
            batch, room = [], SPAN_BYTES
        batch.append((source, start, size))
        room -= size
    if batch:
        yield batch
