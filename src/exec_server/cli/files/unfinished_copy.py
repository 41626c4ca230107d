"""A note beside the destination of a tree that is not complete yet.

`cp -r SRC DST` makes DST if it does not exist, and copies into DST/SRC if it does. After an
interrupted copy DST exists, and the same command must finish DST instead of making DST/SRC. The
note tells the two cases apart; the copy that finishes removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
from typing import Self

from exec_server.cli.files.targets import Servers, Target
from exec_server.errors import RpcError

_TEXT = "This copy is not complete. Repeat the command `exec-server cp -r` to finish it.\n"
# The longest name that every common file system allows, less the rest of a note's name.
_NAME_BYTES = 200


class UnfinishedCopy:
    """The note for one source and one destination; every attempt finds the same note."""

    def __init__(self, servers: Servers, identity: bytes, destination: Target) -> None:
        """*identity* is that of the source; use `of`."""
        self._servers = servers
        directory, name = os.path.split(destination.path.rstrip("/"))
        digest = hashlib.blake2b(identity, digest_size=4).hexdigest()
        shown = os.fsdecode(os.fsencode(name)[:_NAME_BYTES])
        self._directory = directory
        self._note = Target(
            destination.url, os.path.join(directory, f".{shown}.{digest}.unfinished")
        )

    @classmethod
    async def of(cls, servers: Servers, source: Target, destination: Target) -> Self:
        """The note for these two, whichever way the source is written."""
        return cls(servers, await _identity(servers, source), destination)

    async def exists(self) -> bool:
        """True if an earlier attempt has made the destination and has not finished it."""
        if not self._note.is_remote:
            return _is_here(self._note.path)
        files = await self._servers.files(self._note)
        try:
            return await files.exists(self._note.path)
        except RpcError:
            return False

    async def begin(self) -> None:
        """Write the note. If that cannot be done, the copy itself tells why."""
        with contextlib.suppress(RpcError, OSError):
            if self._note.is_remote:
                files = await self._servers.files(self._note)
                if self._directory:
                    await files.create_directory(self._directory, recursive=True)
                await files.write_file(self._note.path, _TEXT.encode())
            else:
                _write_here(self._note.path)

    async def finish(self) -> None:
        """Remove the note: the copy is complete."""
        with contextlib.suppress(RpcError, OSError):
            if self._note.is_remote:
                files = await self._servers.files(self._note)
                await files.remove(self._note.path, force=True)
            else:
                os.unlink(self._note.path)


def _is_here(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)


def _write_here(path: str) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    # In a directory that others may write to, the name could be a link to a file of this user.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(_TEXT)


async def _identity(servers: Servers, source: Target) -> bytes:
    if not source.is_remote:
        path = await asyncio.to_thread(os.path.realpath, source.path)
        return os.fsencode(f"{socket.gethostname()}:{path}")
    # The URL may have another port after the server was started again.
    files = await servers.files(source)
    try:
        return os.fsencode(await files.canonicalize(source.path or "."))
    except RpcError:
        return os.fsencode(source.path.rstrip("/"))
