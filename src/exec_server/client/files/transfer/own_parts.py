"""Incomplete copies in directories where every user may write, such as /tmp.

Their names can be guessed, so that a second copy continues what a first one has begun. Another user
could make such a file first. That user could read what is written to it, and the complete file
would be that user's. So the file has to belong to the user that the server writes as.
"""

from __future__ import annotations

import errno
import os
import uuid
from typing import TYPE_CHECKING

from exec_server.client.files.transfer.leftovers import discard
from exec_server.errors import NotFound

if TYPE_CHECKING:
    from exec_server.client.files.remote_files import RemoteFiles
    from exec_server.protocol.fs import Metadata

_ALL_MAY_WRITE = 0o002
# It is removed, made, and looked at; another user may be in the way once more.
_LOOKS = 4


class OwnParts:
    """Looks after the parts of one upload."""

    def __init__(self, files: RemoteFiles, *, follow_symlinks: bool) -> None:
        self._files = files
        self._follow = follow_symlinks
        # Who owns what the server makes in a directory; None where others cannot write.
        self._owners: dict[bytes, int | None] = {}

    async def ensure(self, part: bytes) -> None:
        """Let *part* be a file of the server's own user, if its directory is everybody's.

        An own file keeps its content. Raises RpcError, and OSError if others are in the way.
        """
        directory = os.path.dirname(part)
        if directory not in self._owners:
            self._owners[directory] = await self._owner(directory)
        owner = self._owners[directory]
        if owner is None:
            return
        for _ in range(_LOOKS):
            found = await self._found(part)
            if found is None:
                await self._files.write_file(part, b"", follow_symlinks=self._follow)
            elif found.is_file and found.uid == owner and found.link_count == 1:
                return
            else:
                await self._files.remove(part)
        raise PermissionError(errno.EPERM, "another user makes files of that name")

    async def _found(self, path: bytes) -> Metadata | None:
        try:
            return await self._files.lstat(path)
        except NotFound:
            return None

    async def _owner(self, directory: bytes) -> int | None:
        if not await self._files.offers("fsLinks"):
            return None
        mode = (await self._files.get_metadata(directory, attributes=True)).mode
        if not isinstance(mode, int) or not mode & _ALL_MAY_WRITE:
            return None
        mine = os.path.join(directory, b".exec-server-" + uuid.uuid4().hex.encode())
        try:
            await self._files.write_file(mine, b"", follow_symlinks=self._follow)
            owner = (await self._files.lstat(mine)).uid
        finally:
            await discard(self._files, mine)
        return owner if isinstance(owner, int) else None
