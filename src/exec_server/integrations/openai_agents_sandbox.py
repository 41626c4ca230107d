"""A sandbox client of the OpenAI Agents SDK, whose sandboxes are directories on a server.

::

    sandbox = SandboxRunConfig(
        client=ExecServerSandboxClient(), options=ExecServerSandboxOptions(server="build-box")
    )
    await Runner.run(agent, "...", run_config=RunConfig(sandbox=sandbox))
"""

from __future__ import annotations

import posixpath
import uuid
from typing import Any, Literal

from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.sandbox_session_state import SandboxSessionState
from agents.sandbox.snapshot import resolve_snapshot

from exec_server.integrations.boxes import AsyncBox
from exec_server.integrations.openai_agents_session import (
    ExecServerSandboxSession,
    ExecServerSandboxState,
)

# A manifest with this root leaves the choice of the directory to the client.
_ANY_ROOT = Manifest().root


class ExecServerSandboxOptions(BaseSandboxClientOptions):
    """Where a sandbox is: *server* is a URL or a name, *sandbox* confines commands and files."""

    type: Literal["exec_server"] = "exec_server"
    server: str | None = None
    sandbox: str | None = None


class ExecServerSandboxClient(BaseSandboxClient[ExecServerSandboxOptions | None]):
    """Makes sandboxes on servers; *options* are those of `exec_server.connect`, such as a token."""

    backend_id = "exec_server"
    supports_default_options = True

    def __init__(
        self, *, instrumentation: Any = None, dependencies: Any = None, **options: Any
    ) -> None:
        self._instrumentation = instrumentation
        self._dependencies = dependencies
        self._options = options

    async def create(
        self,
        *,
        snapshot: Any = None,
        manifest: Manifest | None = None,
        options: ExecServerSandboxOptions | None = None,
    ) -> SandboxSession:
        """A sandbox in the root of *manifest*, or in a new directory."""
        chosen, place = options or ExecServerSandboxOptions(), manifest or Manifest()
        self._validate_manifest_for_create(place)
        number = uuid.uuid4()
        state = ExecServerSandboxState(
            session_id=number,
            snapshot=resolve_snapshot(snapshot, str(number)),
            manifest=place,
            server=chosen.server,
            sandbox=chosen.sandbox,
            workspace_root_owned=place.root == _ANY_ROOT,
        )
        box = self._box(state)
        if state.workspace_root_owned:
            await self._make_root(state, box)
        return self._session(state, box)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """The sandbox of *state*, or a new one with its snapshot if its directory is gone."""
        assert isinstance(state, ExecServerSandboxState)
        state.assert_path_grants_rebound()
        box = self._box(state)
        is_there = await (await box.client()).fs.exists(state.manifest.root)
        if not is_there:
            state.workspace_root_ready = False
            if state.workspace_root_owned:
                await self._make_root(state, box)
        return self._session(state, box, is_preserved=is_there)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Remove the directory of a sandbox, if `create` made it."""
        inner = session._inner
        assert isinstance(inner, ExecServerSandboxSession)
        await inner.remove()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """The state of a sandbox, as a run keeps it."""
        return self._deserialize_session_state_payload(payload, ExecServerSandboxState)

    def _box(self, state: ExecServerSandboxState) -> AsyncBox:
        return AsyncBox(state.server, client_name="exec-server openai_agents", **self._options)

    async def _make_root(self, state: ExecServerSandboxState, box: AsyncBox) -> None:
        client = await box.client()
        made = (await client.run(["mktemp", "-d"], check=True)).text().strip()
        root = posixpath.normpath(await client.fs.canonicalize(made))
        state.manifest = state.manifest.model_copy(update={"root": root}, deep=True)

    def _session(
        self, state: ExecServerSandboxState, box: AsyncBox, *, is_preserved: bool = False
    ) -> SandboxSession:
        inner = ExecServerSandboxSession(state, box)
        inner._set_start_state_preserved(is_preserved)
        return self._wrap_session(inner, instrumentation=self._instrumentation)
