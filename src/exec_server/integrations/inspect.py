"""A sandbox provider for Inspect AI: `inspect eval task.py --sandbox exec-server:build-box`.

Each sample has a session and a directory of its own on the server. The end of the sample ends what
it has started, and so does the server 30 seconds after Inspect was killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
from pathlib import Path
from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel

import exec_server
from exec_server.integrations.boxes import AsyncBox, Users

# The program of Inspect that runs over there, and the variable for the directory that it uses.
_TOOLS = "inspect-sandbox-tools"
_TOOLS_DIRECTORY = "INSPECT_SANDBOX_TOOLS_DIR"


class ExecServerConfig(BaseModel, frozen=True):
    """The configuration in a task, or in `exec-server.yaml` beside it."""

    # A URL or a name; None is the default of environments.toml.
    server: str | None = None
    # The samples' directories are made in it; None is the server's own directory for such.
    directory: str | None = None


def _config(given: Any) -> ExecServerConfig:
    if isinstance(given, ExecServerConfig):
        return given
    if isinstance(given, str) and given.endswith((".yaml", ".yml")):
        import yaml

        return ExecServerConfig(**(yaml.safe_load(Path(given).read_text()) or {}))
    return ExecServerConfig(server=_server(given) if given else None)


def _server(given: str) -> str:
    """The URL or name in the text after `exec-server:`.

    Inspect takes it for a file beside the task: it makes the path absolute, and joins slashes.
    """
    if url := re.search(r"(?:^|/)([a-z][a-z0-9+.-]*):/+(.*)", given):
        scheme, rest = url.groups()
        return f"{scheme}:{'///' if scheme == 'unix' else '//'}{rest}"
    return posixpath.basename(given)


@sandboxenv(name="exec-server")
class ExecServerSandboxEnvironment(SandboxEnvironment):
    """One sample on a server."""

    def __init__(self, box: AsyncBox, directory: str) -> None:
        super().__init__()
        self._box = box
        self.directory = directory
        self._tools: str | None = None
        self._users = Users()

    # The lifecycle.

    @classmethod
    def config_files(cls) -> list[str]:
        return ["exec-server.yaml"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return ExecServerConfig(**config)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Any, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        settings = _config(config)
        box = AsyncBox(settings.server, client_name="exec-server inspect")
        parent = ["-p", settings.directory] if settings.directory else []
        try:
            made = await (await box.client()).run(["mktemp", "-d", *parent], check=True)
        except BaseException:
            await box.close()
            raise
        return {"default": cls(box, made.text().strip())}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Any,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for each in environments.values():
            if isinstance(each, cls):
                await each._end()

    async def _end(self) -> None:
        with contextlib.suppress(exec_server.ExecServerError, OSError):
            client = await self._box.client()
            if self._tools is not None:
                env = {_TOOLS_DIRECTORY: self._tools_directory}
                await client.run([self._tools, "stop-server"], env=env, timeout=10)
            await client.fs.remove(self.directory, recursive=True, force=True)
        await self._box.close()

    @property
    def _tools_directory(self) -> str:
        return posixpath.join(self.directory, ".inspect-tools")

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        server = self._box.server or exec_server.environments().default
        return SandboxConnection(type="exec-server", command=f"exec-server shell {server}")

    def default_polling_interval(self) -> float:
        return 0.2

    # Commands. Inspect looks at the number of parameters of `exec`: it has to be eight.

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,  # noqa: ASYNC109 (the framework's)
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        variables = dict(env or {})
        if posixpath.basename(cmd[0]) == _TOOLS:
            self._tools = cmd[0]
            variables[_TOOLS_DIRECTORY] = self._tools_directory
        client = await self._client()
        words = [*await self._as_user(client, user), *cmd]
        try:
            done = await client.run(
                words,
                input=input.encode() if isinstance(input, str) else input or b"",
                cwd=self._at(cwd or ""),
                env=variables,
                timeout=timeout,
                # Of more than this, the last half is the tail that Inspect wants.
                max_output=2 * limit,
            )
        except exec_server.CommandTimeout as exc:
            error = TimeoutError(str(exc))
            output = (exc.stdout + exc.stderr)[-limit:].decode(errors="replace")
            error.truncated_output = output  # type: ignore[attr-defined]
            raise error from None
        except FileNotFoundError as exc:
            # A missing program is a result like any other.
            return ExecResult(False, 127, "", str(exc))
        except exec_server.ConnectionClosed as exc:
            raise SandboxUnavailableError(str(exc)) from exc
        out, err = (data[-limit:].decode(errors="replace") for data in (done.stdout, done.stderr))
        return ExecResult(done.returncode == 0, done.returncode, out, err)

    async def _as_user(self, client: exec_server.ExecServerClient, user: str | None) -> list[str]:
        try:
            return await self._users.prefix(client, user)
        except PermissionError as exc:
            raise SandboxUserUnsupportedError(str(exc)) from None

    async def _client(self) -> exec_server.ExecServerClient:
        try:
            return await self._box.client()
        except exec_server.ConnectionClosed as exc:
            raise SandboxUnavailableError(str(exc)) from exc

    def _at(self, path: str) -> str:
        return posixpath.join(self.directory, path)

    # Files.

    async def write_file(self, file: str, contents: str | bytes) -> None:
        client, path = await self._client(), self._at(file)
        await client.fs.create_directory(posixpath.dirname(path), recursive=True)
        await client.fs.write_bytes(
            path, contents.encode() if isinstance(contents, str) else contents
        )

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        client, path = await self._client(), self._at(file)
        found = await client.fs.get_metadata(path)
        if found.is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if found.size > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
            shown = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR
            raise OutputLimitExceededError(limit_str=shown, truncated_output=None)
        data = await client.fs.read_bytes(path)
        return data.decode() if text else data
