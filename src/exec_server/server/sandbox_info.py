"""The sandbox backends of this machine, for `environment/info`."""

from __future__ import annotations

import asyncio
import contextlib
from functools import cached_property

from msgspec import UNSET, UnsetType

from exec_server.protocol.environment import SandboxBackend, SandboxInfo

# A trial takes about 50 ms. Only a bubblewrap that hangs takes longer than this.
_PATIENCE = 3.0


class SandboxTrial:
    """Tries out the backends of this machine, once and in a thread, when it is first asked."""

    async def found(self) -> SandboxInfo | UnsetType:
        """The outcome; UNSET if it takes too long. A later call gets it."""
        with contextlib.suppress(TimeoutError, OSError, MemoryError):
            async with asyncio.timeout(_PATIENCE):
                return await asyncio.shield(self._trial)
        if self._trial.done() and not self._trial.cancelled() and self._trial.exception():
            # The machine lacked something, which a later trial may find.
            del self._trial
        return UNSET

    @cached_property
    def _trial(self) -> asyncio.Future[SandboxInfo]:
        return asyncio.get_running_loop().run_in_executor(None, sandbox_info)


def sandbox_info() -> SandboxInfo:
    """Every backend with its obstacle, if any. The first call runs bubblewrap."""
    # Most servers are never asked, so the module is loaded here.
    from exec_server.sandbox.backends import HERE

    backends = [
        SandboxBackend(each.backend, each.works, each.found, each.obstacle, each.remedy)
        for each in HERE.reports
    ]
    return SandboxInfo(next((each.rung for each in backends if each.works), "none"), backends)
