"""Receive only what has changed in a large file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from exec_server.client.files.transfer import local_tree
from exec_server.client.files.transfer.changed_parts import (
    DeltaRange,
    LocalVersion,
    RemoteVersion,
    compare,
    compare_between,
    fresh_key,
    is_worth_it,
)
from exec_server.client.files.transfer.copied_ends import CopiedEnds, write_at
from exec_server.client.files.transfer.equal_versions import RememberedVersion, is_equal
from exec_server.client.files.transfer.local_tree import Changed, LocalPlace
from exec_server.client.files.transfer.task_pool import to_its_end
from exec_server.client.files.transfer.tree import TreeEntry, delta_part_name
from exec_server.early_writeback import begin_writing

if TYPE_CHECKING:
    from exec_server.client.files.remote_files import RemoteFiles
    from exec_server.client.files.transfer.progress import Tracker

_COPY_BYTES = 16 * 1024 * 1024
# The call that gives a file the blocks of another one, from <linux/fs.h>: the file, its offset, the
# length and the offset here. A page is a block of every file system that can do it.
_FICLONERANGE = 0x4020940D
_SHARED = struct.Struct("qQQQ")
_SHARED_BYTES = 64 * 1024


class DeltaDownload:
    """Makes the new version of a file here, from its old version and from what is received."""

    def __init__(self, files: RemoteFiles, tracker: Tracker, *, follow_symlinks: bool) -> None:
        self._files = files
        self._tracker = tracker
        self._follow = follow_symlinks

    async def receive(self, path: bytes, size: int, *, old: int, part: int) -> int | None:
        """Write the new version to the descriptor *part*; returns the bytes that did not travel.

        None means that the file has to be sent whole. The result is compared by its checksums.
        Raises OSError, RpcError and Changed.
        """
        key = await fresh_key(self._files)
        there = RemoteVersion(self._files, path, size, follow_symlinks=self._follow, key=key)
        new = RememberedVersion(there)
        before = LocalVersion(old, os.fstat(old).st_size, key=key)
        first = last = 0
        try:
            if await to_its_end(_can_share, old, part):
                ranges = await compare(new, before)
            else:
                first, last = await CopiedEnds(there, old, part, key=key).copy()
                ranges = await compare_between(new, before, first, last)
        except ValueError:
            return None
        if first + sum(item.size for item in ranges) + last != size:
            raise Changed
        ends = DeltaRange(0, first + last, 0)
        if not is_worth_it([ends, *ranges]):
            return None
        matched = first + last
        self._tracker.keep(files=0, bytes=matched)
        for item in ranges:
            if item.source is None:
                await self._fetch(path, item, part)
            else:
                await to_its_end(_copy, old, part, item)
                matched += item.size
                self._tracker.keep(files=0, bytes=item.size)
        made = LocalVersion(part, size, key=key)
        if not await is_equal(new, made, start=first, end=size - last):
            self._tracker.advance(bytes=-size)
            return None
        return matched

    async def _fetch(self, path: bytes, item: DeltaRange, part: int) -> None:
        offset = item.start
        async with self._files.read_stream(path, offset=offset, length=item.size) as stream:
            async for data in stream:
                await to_its_end(write_at, part, data, offset)
                offset += len(data)
                self._tracker.advance(bytes=len(data))
        if offset != item.start + item.size:
            raise Changed


def _copy(old: int, part: int, item: DeltaRange) -> None:
    assert item.source is not None
    done = 0
    while done < item.size:
        size = min(item.size - done, _COPY_BYTES)
        copied = _copy_some(old, item.source + done, part, item.start + done, size)
        if not copied:
            raise Changed
        begin_writing(part, item.start + done, copied)
        done += copied


def _copy_some(old: int, source: int, part: int, start: int, size: int) -> int:
    """Copy some bytes in the kernel, or through this process where the kernel cannot."""
    if hasattr(os, "copy_file_range"):
        with contextlib.suppress(OSError):
            return os.copy_file_range(old, part, size, source, start)
    data = os.pread(old, size, source)
    write_at(part, data, start)
    return len(data)


def _can_share(old: int, part: int) -> bool:
    """True if the file system lets two files have the same blocks; a copy costs nothing then."""
    try:
        fcntl.ioctl(part, _FICLONERANGE, _SHARED.pack(old, 0, _SHARED_BYTES, 0))
    except OSError:
        return False
    os.ftruncate(part, 0)
    return True


async def receive_changes(
    delta: DeltaDownload,
    path: bytes,
    place: LocalPlace,
    entry: TreeEntry,
    *,
    check: Callable[[], Awaitable[None]],
) -> int | None:
    """Replace the file at *place* by its new version; returns as `DeltaDownload.receive` does.

    *check* raises Changed if the file of the server is no longer as it was listed.
    """
    part = LocalPlace(place.directory, delta_part_name(entry, place.name))
    fd = await to_its_end(local_tree.open_part, part, os.O_TRUNC, entry, undo=os.close)
    try:
        old = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=place.directory)
        try:
            matched = await delta.receive(path, entry.size, old=old, part=fd)
        finally:
            os.close(old)
        if matched is None:
            os.unlink(part.name, dir_fd=part.directory)
        else:
            await check()
            await to_its_end(local_tree.finish_part, fd, part, place, entry)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part.name, dir_fd=part.directory)
        raise
    finally:
        os.close(fd)
    return matched
