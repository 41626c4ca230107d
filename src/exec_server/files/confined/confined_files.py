"""The file methods for one sandbox: the same as without one, done by a confined helper."""

from __future__ import annotations

from typing import Any

import msgspec

from exec_server.errors import InternalError
from exec_server.files.confined.helper_calls import ConfinedCalls
from exec_server.files.confined.helper_pool import HelperPool
from exec_server.files.open_files import OpenFiles
from exec_server.files.operations.content import content_of
from exec_server.files.operations.walk import check_limits
from exec_server.files.runner import Runner
from exec_server.limits import Limits
from exec_server.protocol import fs
from exec_server.protocol.method import Encoded
from exec_server.sandbox.model import Policy


class ConfinedFiles(ConfinedCalls):
    """What one connection may do with files under one policy."""

    def __init__(
        self,
        policy: Policy,
        *,
        pool: HelperPool,
        runner: Runner,
        open_files: OpenFiles,
        limits: Limits,
    ) -> None:
        super().__init__(policy, pool=pool, runner=runner)
        self._open_files = open_files
        self._limits = limits

    # Content.

    async def read_file(self, params: fs.ReadFileParams) -> Encoded:
        limit = self._limits.read_file_bytes
        return await self._call("read_file", params.path.native, _follows(params), limit)

    async def write_file(self, params: fs.WriteFileParams) -> Encoded:
        content = content_of(params.data_base64)
        path = params.path.native
        return await self._call(
            "write_file", path, _follows(params), params.atomic, content=content
        )

    async def append(self, params: fs.AppendParams) -> Encoded:
        data = params.data_base64.data
        path = params.path.native
        return await self._call("append", path, _follows(params), params.create, content=data)

    async def open(self, params: fs.OpenParams) -> fs.OpenResult:
        async def opened() -> int:
            is_replaced = params.mode == "replace"
            fd = await self._ask("open_file", params.path.native, is_replaced)
            if isinstance(fd, Encoded):
                raise InternalError("fs sandbox helper failed: it opened nothing")
            return fd

        return await self._open_files.adopt(params.handle_id, opened)

    # Names.

    async def get_metadata(self, params: fs.GetMetadataParams) -> Encoded:
        return await self._call("get_metadata", params.path.native, _follows(params))

    async def canonicalize(self, params: fs.CanonicalizeParams) -> Encoded:
        return await self._call("canonicalize", params.path.native)

    async def create_directory(self, params: fs.CreateDirectoryParams) -> Encoded:
        recursive = params.recursive is not False
        return await self._call("create_directory", params.path.native, _follows(params), recursive)

    async def remove(self, params: fs.RemoveParams) -> Encoded:
        recursive, force = params.recursive is not False, params.force is not False
        return await self._call("remove", params.path.native, _follows(params), recursive, force)

    async def rename(self, params: fs.RenameParams) -> Encoded:
        source, destination = params.source_path.native, params.destination_path.native
        return await self._call("rename", source, destination, params.overwrite, _follows(params))

    async def set_permissions(self, params: fs.SetPermissionsParams) -> Encoded:
        return await self._call(
            "set_permissions",
            params.path.native,
            params.mode,
            params.modified_at_ms,
            params.accessed_at_ms,
            _follows(params),
        )

    # Trees.

    async def read_directory(self, params: fs.ReadDirectoryParams) -> Encoded:
        limit = self._limits.directory_entries
        return await self._call("read_directory", params.path.native, limit)

    async def walk(self, params: fs.WalkParams) -> Encoded:
        check_limits(params.options, self._limits)
        options = msgspec.to_builtins(params.options)
        limit = self._limits.walk_answer_bytes
        return await self._call("walk", params.path.native, options, limit)

    async def copy(self, params: fs.CopyParams) -> Encoded:
        source, destination = params.source_path.native, params.destination_path.native
        return await self._call("copy", source, destination, params.recursive)


def _follows(params: Any) -> bool:
    return params.follow_symlinks is not False
