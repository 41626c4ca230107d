"""The file calls of a request with a sandbox: a confined helper does them."""

from __future__ import annotations

from typing import TypeVar

from exec_server.errors import InternalError
from exec_server.files.confined.helper_calls import ConfinedCalls
from exec_server.files.confined.helper_pool import HelperPool
from exec_server.files.open_files import OpenFiles
from exec_server.files.operations.table import OPEN_FILE, OPERATIONS
from exec_server.files.runner import Runner
from exec_server.limits import Limits
from exec_server.protocol import fs
from exec_server.protocol.method import Encoded, Method
from exec_server.sandbox.model import Policy

P = TypeVar("P")
R = TypeVar("R")


class ConfinedFiles(ConfinedCalls):
    """The `FileCalls` of one connection under one policy."""

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

    async def call(self, method: Method[P, R], params: P) -> Encoded:
        operation = OPERATIONS[method.name]
        args = operation.arguments(params, self._limits)
        return await self._call(operation, args, follows=operation.follows(params))

    async def read_file(self, params: fs.ReadFileParams) -> Encoded:
        return await self.call(fs.READ_FILE, params)

    async def write_file(self, params: fs.WriteFileParams) -> Encoded:
        return await self.call(fs.WRITE_FILE, params)

    async def get_metadata(self, params: fs.GetMetadataParams) -> Encoded:
        return await self.call(fs.GET_METADATA, params)

    async def open(self, params: fs.OpenParams) -> fs.OpenResult:
        async def opened() -> int:
            fd = await self._ask(OPEN_FILE, (params.path.native, params.mode))
            if isinstance(fd, Encoded):
                raise InternalError("fs sandbox helper failed: it opened nothing")
            return fd

        return await self._open_files.adopt(params.handle_id, opened)
