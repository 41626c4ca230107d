"""A sandbox for AG2: `SandboxShellTool(ExecServerAg2Environment("build-box", "/srv/app"))`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import Any

from ag2.tools.sandbox import ExecResult, SandboxBase

import exec_server
from exec_server.integrations.boxes import AsyncBox
from exec_server.integrations.workplaces import Workplace

# Seconds for a command, and bytes of output that are kept.
TIME_LIMIT = 60.0
MAX_OUTPUT = 100_000


class ExecServerAg2Sandbox(SandboxBase):
    """A directory on a server; `aclose` ends what commands have left in the background."""

    languages = ("python", "bash")

    def __init__(
        self, server: str | None, workdir: str, *, sandbox: Any = None, **options: Any
    ) -> None:
        self._workdir = PurePosixPath(workdir)
        self._box = AsyncBox(server, client_name="exec-server ag2", **options)
        self._place = Workplace(self._box, workdir, sandbox)

    @property
    def workdir(self) -> PurePosixPath:
        """The directory on the server."""
        return self._workdir

    @property
    def host_workdir(self) -> Path | None:
        """The directory is not on this machine."""
        return None

    async def exec(
        self,
        argv: list[str],
        *,
        env: dict[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (the framework's)
    ) -> ExecResult:
        """Run a program; both outputs come together. 124: too late, 127: no such program."""
        client = await self._box.client()
        try:
            done = await client.run(
                ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *argv],
                cwd=self._workdir,
                env=env,
                timeout=timeout or TIME_LIMIT,
                max_output=MAX_OUTPUT,
                sandbox=await self._place.sandbox(),
            )
        except exec_server.CommandTimeout as exc:
            return ExecResult(f"{exc.stdout.decode(errors='replace')}\n{exc}", 124)
        return ExecResult(done.text(), done.returncode)

    async def put_file(self, path: PurePosixPath, content: bytes) -> None:
        """Write a file below the directory."""
        await self._place.write(str(self._at(path)), content)

    async def remove_file(self, path: PurePosixPath) -> None:
        """Remove a file below the directory, if it exists."""
        files = await self._place.files()
        await files.remove(str(self._at(path)), force=True)

    def _at(self, path: PurePosixPath) -> PurePosixPath:
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{path} is not below {self._workdir}")
        return self._workdir / path

    async def aclose(self) -> None:
        """Disconnect, and end what runs in the background."""
        await self._box.close()


class ExecServerAg2Environment:
    """The factory that the tools of AG2 take: a sandbox for each call."""

    def __init__(self, server: str | None = None, workdir: str = "/", **options: Any) -> None:
        self._server = server
        self._workdir = workdir
        self._options = options

    @contextlib.asynccontextmanager
    async def open(self, context: Any = None) -> AsyncIterator[ExecServerAg2Sandbox]:
        """A sandbox, which is closed at the end of the block."""
        async with ExecServerAg2Sandbox(self._server, self._workdir, **self._options) as made:
            yield made
