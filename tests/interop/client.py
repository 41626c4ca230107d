"""The unmodified Codex CLI, in a home of its own, with a scripted model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from tests.interop.columns import Column
from tests.interop.executors import Executor
from tests.interop.model import PATIENCE, Model, scripted_model

CONFIG = """\
model = "{model}"
model_provider = "scripted"
approval_policy = "{approval}"
sandbox_mode = "{sandbox}"
[model_providers.scripted]
name = "scripted"
wire_api = "responses"
base_url = "http://127.0.0.1:{port}/v1"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = false

[features]
unified_exec = true

[analytics]
enabled = false
{config}
"""
# In `workspace-write`, nothing but the workspace; the tests themselves work below /tmp.
NARROW = """
[sandbox_workspace_write]
exclude_slash_tmp = true
exclude_tmpdir_env_var = true
"""


class Codex:
    """What a scenario is given: a client, a server, and a directory to work in."""

    def __init__(
        self, binary: Path, column: Column, executor: Executor, home: Path, work: Path
    ) -> None:
        self.binary = binary
        self.column = column
        self.executor = executor
        self.home = home
        self.work = work

    @contextlib.asynccontextmanager
    async def model(
        self,
        *,
        sandbox: str = "danger-full-access",
        approval: str = "never",
        config: str = "",
    ) -> AsyncIterator[Model]:
        """A model that this client is configured to ask; *config* extends its file."""
        async with scripted_model() as made:
            text = CONFIG.format(
                model=self.column.model,
                sandbox=sandbox,
                approval=approval,
                port=made.port,
                config=config,
            )
            (self.home / "config.toml").write_text(text)
            if self.executor.environments is not None:
                (self.home / "environments.toml").write_text(self.executor.environments)
            yield made

    @contextlib.asynccontextmanager
    async def exec(self, **settings: str) -> AsyncIterator[Model]:
        """`codex exec` for one turn: the block is its model, and its end the end of the turn."""
        async with self.model(**settings) as model, self._one_turn() as process:
            watching = asyncio.ensure_future(model.abandon_after(process.wait()))
            try:
                yield model
                await model.finish()
                async with asyncio.timeout(PATIENCE):
                    assert await process.wait() == 0
            finally:
                watching.cancel()

    @contextlib.asynccontextmanager
    async def killed(self) -> AsyncIterator[Model]:
        """`codex exec` that is killed at the end of the block."""
        async with self.model() as model, self._one_turn():
            yield model

    def _one_turn(self) -> contextlib.AbstractAsyncContextManager[asyncio.subprocess.Process]:
        return self.run("exec", "--skip-git-repo-check", "--cd", str(self.work), "go")

    @contextlib.asynccontextmanager
    async def run(
        self, *words: str, stdin: int = subprocess.DEVNULL, stdout: int | None = None
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """`codex WORDS...`, ended with the block; what it has to say is shown with a failure."""
        process = await asyncio.create_subprocess_exec(
            str(self.binary),
            *words,
            stdin=stdin,
            stdout=stdout,
            limit=1 << 26,
            env=self._environment(),
            cwd=self.work,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    def _environment(self) -> dict[str, str]:
        """Ours without what configures another Codex; nothing but the loopback is reached."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CODEX_", "OPENAI_"))}
        closed = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
        return {**kept, **closed, "CODEX_HOME": str(self.home), **self.executor.env}
