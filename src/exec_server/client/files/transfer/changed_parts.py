"""Which parts of a changed file the other side has already."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from exec_server.protocol.file_delta import (
    MOST_RANGES,
    SPAN_BYTES,
    ContentChunk,
    chunk_digest,
    unpack_chunks,
)
from exec_server.state.content_chunks import chunks

if TYPE_CHECKING:
    from exec_server.client.files.remote_files import RemoteFiles

# If more than this part of a file is new, it is sent whole.
_WORTH = 0.75
_PIECE_BYTES = 1024 * 1024


class DeltaRange(NamedTuple):
    """A part of the new file: where it is there, and where in the old file, if it is."""

    start: int
    size: int
    # None if it has to be sent.
    source: int | None


class LocalChunks(NamedTuple):
    """The chunks of a file of this machine, and the SHA-256 of each span of it."""

    chunks: list[ContentChunk]
    span_digests: list[str]


def local_chunks(fd: int, size: int) -> LocalChunks:
    """Read an open file. It blocks."""
    digests: list[str] = []
    found = [
        ContentChunk(len(data), chunk_digest(data)) for data in chunks(_pieces(fd, size, digests))
    ]
    return LocalChunks(found, digests)


def _pieces(fd: int, size: int, digests: list[str]) -> Iterator[bytes]:
    offset, digest = 0, hashlib.sha256()
    while offset < size:
        left = SPAN_BYTES - offset % SPAN_BYTES
        data = os.pread(fd, min(_PIECE_BYTES, left, size - offset), offset)
        if not data:
            break
        digest.update(data)
        yield data
        offset += len(data)
        if offset % SPAN_BYTES == 0:
            digests.append(digest.hexdigest())
            digest = hashlib.sha256()
    if offset % SPAN_BYTES:
        digests.append(digest.hexdigest())


async def remote_chunks(
    files: RemoteFiles, path: bytes, size: int, *, follow_symlinks: bool
) -> list[ContentChunk]:
    """The chunks of a file of the server. Raises RpcError, and ValueError for nonsense."""
    found: list[ContentChunk] = []
    offset = 0
    while offset < size:
        answer = await files.signature(path, offset=offset, follow_symlinks=follow_symlinks)
        part = list(unpack_chunks(answer.chunks_base64.data))
        is_last = offset + SPAN_BYTES >= size
        if not is_last:
            # The last chunk was cut by the end of the span, and not by its content.
            part = part[:-1]
        if not part:
            raise ValueError("the server sent no chunks")
        found += part
        offset += sum(chunk.size for chunk in part)
    return found


def compared(new: Iterable[ContentChunk], old: Iterable[ContentChunk]) -> list[DeltaRange]:
    """The new file in ranges; neighbours that come from one place are one range."""
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
