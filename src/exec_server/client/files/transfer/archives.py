"""Many small files at once, as archives that tar unpacks on the server."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from exec_server.client.files.transfer import local_tree, pack
from exec_server.client.files.transfer.local_tree import Changed, LocalTree
from exec_server.client.files.transfer.remote_tree import RemoteTree
from exec_server.client.files.transfer.tree import TreeEntry
from exec_server.errors import ProcessFailed, RpcError

if TYPE_CHECKING:
    from exec_server.client.process.remote_process import RemoteProcess

logger = logging.getLogger(__name__)

# How much is packed, sent and unpacked in one go.
_PACK_BYTES = 4 * 1024 * 1024
# What a header costs, roughly.
_HEADER_BYTES = 1024
# While it is filled the owner must be able to put something into a directory.
_OWNER = 0o700

# Whoever unpacks owns it, and the modes are as they are said.
_UNPACK = (b"tar", b"-x", b"-p", b"--no-same-owner", b"-f")
# The same, but the archive is gone before, so that the directory it was in can get its time.
_SCRIPT = b"""
exec < "./$1" || exit
rm -f -- "./$1"
exec tar -x -p --no-same-owner -f -
"""
# An archive that a cut has left behind, and that is surely of no use to anybody any more.
_NAME = re.compile(rb"\.exec-server-[0-9a-f]{32}\.pack")
_STALE_SECONDS = 600


class Teller(Protocol):
    """Who wants to know how it goes."""

    def __call__(self, *, files: int, bytes: int) -> None: ...


class _Archive(NamedTuple):
    data: bytes
    # How many files are in it, and what they hold together.
    files: int
    bytes: int


class _Unpacking(NamedTuple):
    process: RemoteProcess
    # Of the archive.
    name: bytes


class Archives:
    """Sends what is new in a tree whose root is there.

    An archive is a file on the server until it is unpacked, so that a cut leaves no part of what
    is in it. Nobody is told what could not be unpacked: look at what is there afterwards.
    """

    def __init__(self, there: RemoteTree) -> None:
        self._there = there
        self._files = there.files
        # What could not be packed, and why.
        self.failed: list[tuple[TreeEntry, OSError | Changed]] = []

    async def send(self, here: LocalTree, entries: Iterable[TreeEntry], tell: Teller) -> bool:
        """Send directories, files and links, parents first; False where none can be unpacked."""
        archives = self._packed(here, entries)
        packing = asyncio.create_task(asyncio.to_thread(next, archives, None))
        unpacking: _Unpacking | None = None
        try:
            # While one is packed another one is sent, and a third one unpacked.
            while (archive := await packing) is not None:
                packing = asyncio.create_task(asyncio.to_thread(next, archives, None))
                name = await self._write(archive.data)
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
        return True

    async def set_directories(self, entries: Iterable[TreeEntry]) -> bool:
        """Give directories their modes and times; whether that was done."""
        members = [pack.member(entry, mode=entry.mode or 0) for entry in entries]
        try:
            name = await self._write(b"".join((*members, pack.END)))
            process = await self._there.start(b"sh", b"-c", _SCRIPT, b"sh", name)
            if process is None:
                await self._remove(name)
            return process is not None and await process.wait() == 0
        except (RpcError, ProcessFailed):
            return False

    async def remove_stale(self, existing: Iterable[TreeEntry]) -> None:
        """Remove archives that nobody will unpack."""
        for entry in existing:
            age = time.time() - entry.mtime_ns / 1e9
            if _NAME.fullmatch(entry.path) and age > _STALE_SECONDS:
                await self._remove(entry.path)

    async def _write(self, data: bytes) -> bytes:
        name = b".exec-server-%b.pack" % uuid.uuid4().hex.encode()
        await self._files.write_file(self._there.at(name), data)
        return name

    async def _finish(self, unpacking: _Unpacking) -> None:
        await unpacking.process.wait()
        await self._remove(unpacking.name)

    async def _remove(self, name: bytes) -> None:
        await self._files.remove(self._there.at(name), force=True)

    def _packed(self, here: LocalTree, entries: Iterable[TreeEntry]) -> Generator[_Archive]:
        """Archives of a bounded size; reads the files, and blocks meanwhile."""
        parts: list[bytes] = []
        files = content = 0
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
                    files, content = files + 1, content + len(data)
                else:
                    parts.append(pack.member(entry, mode=(entry.mode or 0) | _OWNER))
                if content + len(parts) * _HEADER_BYTES // 3 >= _PACK_BYTES:
                    yield _Archive(b"".join((*parts, pack.END)), files, content)
                    parts.clear()
                    files = content = 0
        if parts:
            yield _Archive(b"".join((*parts, pack.END)), files, content)
