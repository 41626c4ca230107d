"""An environment for Google's ADK, for `EnvironmentToolset(environment=...)`."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

from google.adk.environment import BaseEnvironment, ExecutionResult

import exec_server
from exec_server.integrations.boxes import AsyncBox

# Bytes of each output that are kept: the first half, and as much of the end.
MAX_OUTPUT = 1 << 20


class ExecServerAdkEnvironment(BaseEnvironment):
    """A directory on a server; without *cwd* a new one, which `close` removes.

    *server* is a URL or a name, *options* are those of `exec_server.connect`. `close` ends what
    commands have left in the background.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        cwd: str | None = None,
        sandbox: Any = None,
        **options: Any,
    ) -> None:
        self._cwd = cwd
        self._is_own = cwd is None
        self._sandbox = sandbox
        self._box = AsyncBox(server, client_name="exec-server google_adk", **options)

    async def initialize(self) -> None:
        """Connect, and make the directory."""
        if self._cwd is None:
            client = await self._box.client()
            self._cwd = (await client.run(["mktemp", "-d"], check=True)).text().strip()
        self.is_initialized = True

    async def close(self) -> None:
        """End what runs, and remove the directory if it was made here."""
        if self._is_own and self._cwd is not None:
            client = await self._box.client()
            await client.fs.remove(self._cwd, recursive=True, force=True)
            self._cwd = None
        await self._box.close()
        self.is_initialized = False

    @property
    def working_dir(self) -> Path:
        """The directory on the server."""
        if self._cwd is None:
            raise RuntimeError("the environment is not initialized")
        return Path(self._cwd)

    async def execute(
        self,
        command: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (the framework's)
    ) -> ExecutionResult:
        """Run a command for the shell; a timeout is a result with the output so far."""
        client = await self._box.client()
        try:
            done = await client.run(
                ["/bin/sh", "-c", command],
                cwd=self.working_dir,
                timeout=timeout,
                max_output=MAX_OUTPUT,
                sandbox=self._sandbox,
            )
        except exec_server.CommandTimeout as exc:
            out, err = (data.decode(errors="replace") for data in (exc.stdout, exc.stderr))
            return ExecutionResult(exit_code=-1, stdout=out, stderr=err, timed_out=True)
        out, err = done.text(), done.text("stderr")
        return ExecutionResult(exit_code=done.returncode, stdout=out, stderr=err)

    async def read_file(self, path: Path) -> bytes:
        """The content of a file. Raises FileNotFoundError."""
        return await (await self._files()).read_bytes(self._at(path))

    async def write_file(self, path: Path, content: str | bytes) -> None:
        """Write a file, and make the directories above it."""
        files, at = await self._files(), self._at(path)
        await files.create_directory(posixpath.dirname(at), recursive=True)
        await files.write_bytes(at, content.encode() if isinstance(content, str) else content)

    async def _files(self) -> exec_server.RemoteFiles:
        client = await self._box.client()
        return client.fs if self._sandbox is None else client.fs.sandboxed(self._sandbox)

    def _at(self, path: Path) -> str:
        return posixpath.join(str(self.working_dir), str(path))
