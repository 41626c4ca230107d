"""What is asked of a helper under one policy, whatever it is about."""

from __future__ import annotations

from typing import Any

from exec_server.errors import InternalError
from exec_server.files.confined.helper_pool import HelperPool
from exec_server.files.confined.interpreter import helper_plan
from exec_server.files.operations.content import Content
from exec_server.files.runner import Runner
from exec_server.protocol.method import Encoded
from exec_server.sandbox.model import Plan, Policy, Unenforceable


class ConfinedCalls:
    """Calls under *policy*, which is fitted to the file system as it is, for every call anew."""

    def __init__(self, policy: Policy, *, pool: HelperPool, runner: Runner) -> None:
        self._policy = policy
        self._pool = pool
        self._runner = runner

    async def _call(self, operation: str, *args: Any, content: Content | None = None) -> Encoded:
        result = await self._ask(operation, *args, content=content)
        if not isinstance(result, Encoded):
            raise InternalError("fs sandbox helper failed: it opened a file instead")
        return result

    async def _ask(
        self, operation: str, *args: Any, content: Content | None = None
    ) -> Encoded | int:
        await self._runner.caught_up()
        async with self._pool.borrow(await self._plan()) as helper:
            return await helper.call(operation, *args, content=content)

    async def _plan(self) -> Plan:
        try:
            if self._policy.globs:
                # A scan of directories, which may take its time.
                return await self._runner.run(helper_plan, self._policy)
            return helper_plan(self._policy)
        except Unenforceable as exc:
            text = f"fs sandbox helper failed: error building bubblewrap command: {exc}"
            raise InternalError(text) from exc
