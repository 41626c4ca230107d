"""Calls to helpers under one policy, for files and for discovery."""

from __future__ import annotations

from typing import Any

from exec_server.errors import InternalError
from exec_server.files.confined.helper_pool import HelperPool
from exec_server.files.confined.interpreter import helper_plan
from exec_server.files.operations.task import FileTask
from exec_server.files.runner import Runner
from exec_server.protocol.method import Encoded
from exec_server.sandbox.model import Plan, Policy, Unenforceable


class ConfinedCalls:
    """Calls under *policy*. Each call fits the policy to the file system as it is at that time."""

    def __init__(self, policy: Policy, *, pool: HelperPool, runner: Runner) -> None:
        self._policy = policy
        self._pool = pool
        self._runner = runner

    async def _call(
        self, task: FileTask[Any], args: tuple[Any, ...], *, follows: bool = True
    ) -> Encoded:
        result = await self._ask(task, args, follows=follows)
        if not isinstance(result, Encoded):
            raise InternalError("fs sandbox helper failed: it opened a file instead")
        return result

    async def _ask(
        self, task: FileTask[Any], args: tuple[Any, ...], *, follows: bool = True
    ) -> Encoded | int:
        """Let a helper do *task*; the answer is JSON or a descriptor. Raises RpcError."""
        await self._runner.caught_up()
        async with self._pool.borrow(await self._plan()) as helper:
            if not task.has_content:
                return await helper.call(task.name, *args, follows=follows)
            *others, content = args
            return await helper.call(task.name, *others, follows=follows, content=content)

    async def _plan(self) -> Plan:
        try:
            if self._policy.globs:
                # This scans directories, which may take some time.
                return await self._runner.run(helper_plan, self._policy)
            return helper_plan(self._policy)
        except Unenforceable as exc:
            text = f"fs sandbox helper failed: error building bubblewrap command: {exc}"
            raise InternalError(text) from exc
