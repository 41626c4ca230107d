"""Send many small files at once, as archives that tar unpacks on the server."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
import uuid
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from exec_server.client.files.transfer import local_tree, pack
from exec_server.client.files.transfer.leftovers import discard
from exec_server.client.files.transfer.local_tree import Changed, LocalTree
from exec_server.client.files.transfer.private_files import is_private_file, make_private
from exec_server.client.files.transfer.remote_tree import RemoteTree
from exec_server.client.files.transfer.tree import TreeEntry
from exec_server.errors import ProcessFailed, RpcError

if TYPE_CHECKING:
    from exec_server.client.process.remote_process import RemoteProcess

logger = logging.getLogger(__name__)

# The size of one archive.
_PACK_BYTES = 4 * 1024 * 1024
# What the headers of one file cost, roughly.
_HEADER_BYTES = 1024
# The owner must be able to write into a directory while it is filled.
_OWNER = 0o700

# The user that unpacks owns the files, and the modes are those of the archive.
_UNPACK = (b"tar", b"-x", b"-p", b"--no-same-owner", b"-f")
# The same, but the archive is removed first, so that its directory can get its time.
_SCRIPT = b"""
exec < "./$1" || exit
rm -f -- "./$1"
exec tar -x -p --no-same-owner -f -
"""
# An archive of this name and age was left behind by a connection that was cut.
_NAME = re.compile(rb"\.exec-server-([0-9a-f]{16})[0-9a-f]{16}\.pack")
_STALE_SECONDS = 600


class OnAdvance(Protocol):
    """Called with the files and bytes that were sent."""

    def __call__(self, *, files: int, bytes: int) -> None: ...


class _Archive(NamedTuple):
    data: bytes
    # The number of files in it, and the size of their content.
    files: int
    bytes: int
    # True if others may not read one of the files.
    is_private: bool


class _Unpacking(NamedTuple):
    process: RemoteProcess
    # The name of the archive.
    name: bytes


class Archives:
    """Sends the new files of a tree whose root exists.

    An archive is a file on the server until it is unpacked, so a cut connection leaves no partial
    files. Failures to unpack are not reported: list the tree afterwards.
    """

    def __init__(self, there: RemoteTree, *, origin: bytes) -> None:
        """*origin* names the source, so that a later attempt finds what this one may leave."""
        self._there = there
        self._files = there.files
        self._prefix = hashlib.blake2b(origin, digest_size=8).hexdigest().encode()
        # The archives that are on the server now.
        self._written: set[bytes] = set()
        # The entries that could not be packed, and why.
        self.failed: list[tuple[TreeEntry, OSError | Changed]] = []

    async def send(self, here: LocalTree, entries: Iterable[TreeEntry], tell: OnAdvance) -> bool:
        """Send directories, files and links, parents first; False if the server cannot unpack."""
        archives = self._packed(here, entries)
        packing = asyncio.create_task(asyncio.to_thread(next, archives, None))
        unpacking: _Unpacking | None = None
        try:
            # Packing, sending and unpacking of three archives overlap.
            while (archive := await packing) is not None:
                packing = asyncio.create_task(asyncio.to_thread(next, archives, None))
                name = await self._write(archive.data, is_private=archive.is_private)
                if unpacking is not None:
                    await self._finish(unpacking)
                process = await self._there.start(*_UNPACK, b"./" + name)
                if process is None:
                    await self._remove(name)
                    return False
                unpacking = _Unpacking(process, name)
                tell(files=archive.files, bytes=archive.bytes)
            if unpacking is not None:
                await self._finish(unpacking)
        except (RpcError, ProcessFailed):
            logger.debug("the server does not take archives", exc_info=True)
        finally:
            await asyncio.gather(packing, return_exceptions=True)
            archives.close()
            await self._remove_written()
        return True

    async def set_directories(self, entries: Iterable[TreeEntry]) -> bool:
        """Set the modes and times of directories; True if that was done."""
        members = [pack.member(entry, mode=entry.mode or 0) for entry in entries]
        try:
            name = await self._write(b"".join((*members, pack.END)))
            process = await self._there.start(b"sh", b"-c", _SCRIPT, b"sh", name)
            if process is None:
                await self._remove(name)
            # The script removes the archive itself, before it sets the time of the directory.
            self._written.discard(name)
            return process is not None and await process.wait() == 0
        except (RpcError, ProcessFailed):
            return False
        finally:
            await self._remove_written()

    async def remove_stale(self, existing: Iterable[TreeEntry]) -> None:
        """Remove archives that earlier attempts have left: those of this source, and old ones."""
        for entry in existing:
            match = _NAME.fullmatch(entry.path)
            age = time.time() - entry.mtime_ns / 1e9
            if match is not None and (match[1] == self._prefix or age > _STALE_SECONDS):
                await self._remove(entry.path)

    async def _write(self, data: bytes, *, is_private: bool = False) -> bytes:
        suffix = uuid.uuid4().hex[:16].encode()
        name = b".exec-server-%b%b.pack" % (self._prefix, suffix)
        self._written.add(name)
        if is_private and await self._files.offers("fsSetPermissions"):
            await make_private(self._files, self._there.at(name))
        await self._files.write_file(self._there.at(name), data)
        return name

    async def _remove_written(self) -> None:
        """Remove what an error, a full disk or Ctrl-C has left on the server, if it can be done."""
        for name in tuple(self._written):
            await discard(self._files, self._there.at(name))
            self._written.discard(name)

    async def _finish(self, unpacking: _Unpacking) -> None:
        await unpacking.process.wait()
        await self._remove(unpacking.name)

    async def _remove(self, name: bytes) -> None:
        await self._files.remove(self._there.at(name), force=True)
        self._written.discard(name)

    def _packed(self, here: LocalTree, entries: Iterable[TreeEntry]) -> Generator[_Archive]:
        """Archives of a bounded size. It reads the files, so it blocks."""
        parts: list[bytes] = []
        files = content = 0
        is_private = False
        with here.places() as places:
            for entry in entries:
                if entry.kind == "file":
                    try:
                        data = local_tree.read_file(places.of(entry.path), entry)
                    except (OSError, Changed) as exc:
                        self.failed.append((entry, exc))
                        continue
                    parts += (pack.member(entry, mode=entry.mode or 0), data)
                    parts.append(pack.padding(len(data)))
                    is_private = is_private or is_private_file(entry.mode)
                    files, content = files + 1, content + len(data)
                else:
                    parts.append(pack.member(entry, mode=(entry.mode or 0) | _OWNER))
                if content + len(parts) * _HEADER_BYTES // 3 >= _PACK_BYTES:
                    yield _Archive(b"".join((*parts, pack.END)), files, content, is_private)
                    parts.clear()
                    files = content = 0
                    is_private = False
        if parts:
            yield _Archive(b"".join((*parts, pack.END)), files, content, is_private)
