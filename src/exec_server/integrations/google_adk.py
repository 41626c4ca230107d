"""An environment for Google's ADK, for `EnvironmentToolset(environment=...)`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.adk.environment import BaseEnvironment, ExecutionResult

from exec_server.integrations.boxes import AsyncBox
from exec_server.integrations.workplaces import Workplace


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
        self._is_own = cwd is None
        self._box = AsyncBox(server, client_name="exec-server google_adk", **options)
        self._place = Workplace(self._box, cwd, sandbox)

    async def initialize(self) -> None:
        """Connect, and make the directory."""
        if self._place.directory is None:
            client = await self._box.client()
            made = await client.run(["mktemp", "-d"], check=True)
            self._place.directory = made.text().strip()
        self.is_initialized = True

    async def close(self) -> None:
        """End what runs, and remove the directory if it was made here."""
        if self._is_own and self._place.directory is not None:
            client = await self._box.client()
            await client.fs.remove(self._place.directory, recursive=True, force=True)
            self._place.directory = None
        await self._box.close()
        self.is_initialized = False

    @property
    def working_dir(self) -> Path:
        """The directory on the server."""
        if self._place.directory is None:
            raise RuntimeError("the environment is not initialized")
        return Path(self._place.directory)

    async def execute(
        self,
        command: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (the framework's)
    ) -> ExecutionResult:
        """Run a command for the shell; a timeout is a result with the output so far."""
        status, out, err, _ = await self._place.shell(command, limit=timeout)
        code, is_late = (-1, True) if status is None else (status, False)
        return ExecutionResult(exit_code=code, stdout=out, stderr=err, timed_out=is_late)

    async def read_file(self, path: Path) -> bytes:
        """The content of a file. Raises FileNotFoundError."""
        files = await self._place.files()
        return await files.read_bytes(await self._place.path(str(path)))

    async def write_file(self, path: Path, content: str | bytes) -> None:
        """Write a file, and make the directories above it."""
        data = content.encode() if isinstance(content, str) else content
        await self._place.write(str(path), data)
