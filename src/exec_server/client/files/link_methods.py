"""The file methods that are about symbolic links themselves, which are extensions."""

from __future__ import annotations

import os
from urllib.parse import quote_from_bytes

from exec_server.client.arguments import as_path
from exec_server.client.files.file_methods import AnyPath, FileMethods, unless
from exec_server.protocol import fs


class LinkMethods(FileMethods):
    """The part of `client.fs` for links; servers without `fsLinks` raise MethodNotFound."""

    async def lstat(self, path: AnyPath, *, follow_symlinks: bool = True) -> fs.Metadata:
        """`fs/lstat`: as `get_metadata` with attributes, of a link itself and not its target.

        A link that leads nowhere can be asked about, too. With *follow_symlinks* false it is an
        error if one of the directories above is a link.
        """
        await self._require("fsLinks")
        params = fs.LstatParams(await self.uri(path), unless(follow_symlinks), self._sandbox)
        return await self._call(fs.LSTAT, params)

    async def readlink(self, path: AnyPath, *, follow_symlinks: bool = True) -> str:
        """`fs/readLink`: the text in a link, which may be relative to the link's directory."""
        await self._require("fsLinks")
        params = fs.ReadLinkParams(await self.uri(path), unless(follow_symlinks), self._sandbox)
        return os.fsdecode((await self._call(fs.READ_LINK, params)).native)

    async def symlink(
        self, target: AnyPath, path: AnyPath, *, follow_symlinks: bool = True
    ) -> None:
        """`fs/symlink`: make *path* a link to *target*, which need not exist, as `os.symlink` does.

        It is an error if *path* exists.
        """
        await self._require("fsLinks")
        raw = os.fsencode(as_path(target, "target"))
        link = fs.LinkTarget(raw.decode("utf-8", "replace"))
        if link.target.encode() != raw:
            link.encoded_target = quote_from_bytes(raw)
        params = fs.SymlinkParams(
            await self.uri(path), link, unless(follow_symlinks), self._sandbox
        )
        await self._call(fs.SYMLINK, params)
