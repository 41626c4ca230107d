"""What enforces sandboxes here, for `environment/info`."""

from __future__ import annotations

import asyncio
import contextlib
from functools import cached_property

from msgspec import UNSET, UnsetType

from exec_server.protocol.environment import SandboxBackend, SandboxInfo

# Trying it takes some 50 ms, once. Only a bubblewrap that hangs takes longer than this.
_PATIENCE = 3.0


class SandboxTrial:
    """Tries out what this machine offers, once, in a thread, when first asked."""

    async def found(self) -> SandboxInfo | UnsetType:
        """UNSET when it takes too long; whoever asks later is told."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                return await asyncio.shield(self._trial)
        return UNSET

    @cached_property
    def _trial(self) -> asyncio.Future[SandboxInfo]:
        return asyncio.get_running_loop().run_in_executor(None, sandbox_info)


def sandbox_info() -> SandboxInfo:
    """Every backend with what stops it. Runs bubblewrap when called first."""
    # Not every server is asked.
    from exec_server.sandbox.backends import HERE

    backends = [
        SandboxBackend(each.backend, each.works, each.found, each.obstacle, each.remedy)
        for each in HERE.reports
    ]
    return SandboxInfo(next((each.rung for each in backends if each.works), "none"), backends)
