"""fs/signature and fs/copyRanges: the parts of a file that need not be sent."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from exec_server.early_writeback import begin_writing
from exec_server.errors import InvalidRequest
from exec_server.files.operations import changes, local, nofollow
from exec_server.files.operations.content import IsCancelled
from exec_server.files.operations.oserrors import os_error
from exec_server.protocol.base64 import encode_base64
from exec_server.protocol.file_delta import ContentChunk, chunk_digest, new_digest, pack_chunk
from exec_server.protocol.method import Encoded
from exec_server.state.content_chunks import chunks

# A thread that works on a piece keeps others waiting for about a millisecond.
_PIECE_BYTES = 512 * 1024
# What the kernel copies at once, and then begins to write.
_COPY_BYTES = 16 * 1024 * 1024
_NOFOLLOW = os.O_NOFOLLOW | local.QUIET
# The kernel's answer if it cannot copy between these two files itself.
_CANNOT_COPY = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)


class _Part(NamedTuple):
    """The part of a file that is asked about."""

    offset: int
    length: int
    # False if only the digest of the whole part is wanted.
    wants_chunks: bool
    # 0 if the content says where chunks end.
    block_bytes: int
    # None if the checksums are SHA-256.
    key: bytes | None


def signature(
    path: bytes,
    offset: int,
    length: int,
    wants_chunks: bool,
    block_bytes: int,
    key: bytes | None,
    is_cancelled: IsCancelled,
) -> Encoded:
    with _opened(path, os.O_RDONLY, follows=True) as fd:
        part = _Part(offset, length, wants_chunks, block_bytes, key)
        return _signature(fd, part, is_cancelled)


def signature_nofollow(
    path: bytes,
    offset: int,
    length: int,
    wants_chunks: bool,
    block_bytes: int,
    key: bytes | None,
    is_cancelled: IsCancelled,
) -> Encoded:
    with _opened(path, os.O_RDONLY, follows=False) as fd:
        part = _Part(offset, length, wants_chunks, block_bytes, key)
        return _signature(fd, part, is_cancelled)


def _signature(fd: int, part: _Part, is_cancelled: IsCancelled) -> Encoded:
    whole, packed = hashlib.sha256(), bytearray()
    if part.wants_chunks and (part.block_bytes or part.key is not None):
        listed = _blocks if part.block_bytes else _keyed_chunks
        for size, digest in listed(fd, part, is_cancelled):
            packed += pack_chunk(ContentChunk(size, digest[:16]))
            whole.update(digest)
        # The digest of the digests: the content is read once.
    else:
        pieces = _pieces(fd, part, whole, is_cancelled)
        for data in chunks(pieces) if part.wants_chunks else pieces:
            if part.wants_chunks:
                packed += pack_chunk(ContentChunk(len(data), chunk_digest(data)))
    found = os.fstat(fd)
    head, middle = b'{"chunksBase64":"', b'","digest":"%b","size":%d,"modifiedAtMs":%d}'
    facts = whole.hexdigest().encode(), found.st_size, found.st_mtime_ns // 1_000_000
    return Encoded((head, encode_base64(bytes(packed)), middle % facts))


def _blocks(fd: int, part: _Part, is_cancelled: IsCancelled) -> Iterator[tuple[int, bytes]]:
    """The size and the checksum of each block of a fixed size."""
    done = 0
    # One buffer for all of them: new memory costs as much as the reading.
    buffer = memoryview(bytearray(min(_PIECE_BYTES, part.block_bytes, max(part.length, 1))))
    while done < part.length:
        block = part._replace(
            offset=part.offset + done, length=min(part.block_bytes, part.length - done)
        )
        read, digest = _block(fd, block, buffer, is_cancelled)
        if not read:
            return
        yield read, digest
        done += read


def _block(
    fd: int, block: _Part, buffer: memoryview, is_cancelled: IsCancelled
) -> tuple[int, bytes]:
    """How much of a block could be read, and its checksum."""
    digest, done = new_digest(block.key), 0
    end = min(block.offset + block.length, (1 << 63) - 1) - block.offset
    while done < end and not is_cancelled():
        size = os.preadv(fd, [buffer[: end - done]], block.offset + done)
        if not size:
            break
        digest.update(buffer[:size])
        done += size
    return done, digest.digest()


def _keyed_chunks(fd: int, part: _Part, is_cancelled: IsCancelled) -> Iterator[tuple[int, bytes]]:
    """The size and the checksum of each chunk that the content ends."""
    for data in chunks(_pieces(fd, part, None, is_cancelled)):
        yield len(data), chunk_digest(data, part.key)


def _pieces(
    fd: int, part: _Part, digest: hashlib._Hash | None, is_cancelled: IsCancelled
) -> Iterator[bytes]:
    offset, end = part.offset, min(part.offset + part.length, (1 << 63) - 1)
    while offset < end and not is_cancelled():
        data = os.pread(fd, min(_PIECE_BYTES, end - offset), offset)
        if not data:
            return
        if digest is not None:
            digest.update(data)
        yield data
        offset += len(data)


def copy_ranges(source: bytes, destination: bytes, ranges: list[list[int]]) -> None:
    _copy_ranges(source, destination, ranges, follows=True)


def copy_ranges_nofollow(source: bytes, destination: bytes, ranges: list[list[int]]) -> None:
    _copy_ranges(source, destination, ranges, follows=False)


def _copy_ranges(
    source: bytes, destination: bytes, ranges: list[list[int]], *, follows: bool
) -> None:
    with (
        _opened(source, os.O_RDONLY, follows=follows) as origin,
        _opened(destination, os.O_WRONLY, follows=follows) as target,
    ):
        if os.path.samestat(os.fstat(origin), os.fstat(target)):
            raise InvalidRequest("the source and the destination are the same file")
        for offset, start, size in ranges:
            _copy_range(origin, offset, target, start, size)


def _copy_range(origin: int, offset: int, target: int, start: int, size: int) -> None:
    while size:
        try:
            done = os.copy_file_range(origin, target, min(size, _COPY_BYTES), offset, start)
        except OSError as exc:
            if exc.errno not in _CANNOT_COPY:
                raise
            done = os.pwrite(target, os.pread(origin, min(size, _PIECE_BYTES), offset), start)
        if not done:
            # The source is shorter than the client has seen it.
            raise os_error(errno.ESTALE)
        begin_writing(target, start, done)
        offset, start, size = offset + done, start + done, size - done


@contextlib.contextmanager
def _opened(path: bytes, flags: int, *, follows: bool) -> Iterator[int]:
    """A regular file that exists, for one block. Raises InvalidRequest and OSError."""
    if follows:
        fd, _ = local.open_regular(path, flags)
    else:
        with nofollow.parent_of(path) as (directory, name):
            fd = changes.open_file(name, flags | _NOFOLLOW, 0o666, dir_fd=directory)
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise local.not_a_file(path, mode)
        yield fd
    finally:
        os.close(fd)
