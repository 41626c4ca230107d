"""A plugin for pytest: the SDK's tests of its local sandbox use a server of ours instead.

The URL is in EXEC_SERVER_TEST_URL. The tests put programs of their own into PATH, which commands on
this machine inherit and those of a server do not.
"""

from __future__ import annotations

import os
from typing import Any

import agents.sandbox.sandboxes.unix_local as unix_local
from agents.sandbox import Manifest

from exec_server.integrations import openai_agents_sandbox as plug


class _Session(plug.ExecServerSandboxSession):
    async def _start_options(self) -> dict[str, Any]:
        options = await super()._start_options()
        return {**options, "env": {"PATH": os.environ["PATH"], **options["env"]}}


class _Client(plug.ExecServerSandboxClient):
    # The name that the tests expect in saved states.
    backend_id = "unix_local"

    def __init__(self, *, inherit_host_environment: bool = True, **options: Any) -> None:
        super().__init__(**options)

    async def create(
        self, *, snapshot: Any = None, manifest: Manifest | None = None, options: Any = None
    ) -> Any:
        chosen = plug.ExecServerSandboxOptions(server=os.environ["EXEC_SERVER_TEST_URL"])
        return await super().create(snapshot=snapshot, manifest=manifest, options=chosen)


plug.ExecServerSandboxSession = _Session  # type: ignore[misc]
unix_local.UnixLocalSandboxClient = _Client  # type: ignore[misc,assignment]
