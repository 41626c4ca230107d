"""A workspace for Pydantic AI: `agent.run("...", workspace=ExecServerWorkspace("build-box"))`.

A workspace is a directory on a server. It stays when a run ends, and its `ref` reaches it again;
`destroy` removes it. Processes that a command leaves in the background end with the client.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

import exec_server
from exec_server.integrations.boxes import AsyncBox
from exec_server.integrations.workplaces import confined

PROVIDER = "exec-server"
# Bytes of each stream that a command may write.
MAX_OUTPUT = 64 << 20


class ExecServerWorkspace:
    """A directory on a server: *directory*, that of *ref*, or one that the first use makes."""

    def __init__(
        self,
        server: str | None = None,
        *,
        directory: str | None = None,
        ref: WorkspaceRef | None = None,
        sandbox: Any = None,
        **options: Any,
    ) -> None:
        """*server* is a URL or a name; *options* are those of `exec_server.connect`."""
        if ref is not None:
            server, directory = _place(ref)
        self._server = server
        self._wanted = directory
        self._directory: str | None = None
        self._ref = ref
        self._sandbox = sandbox
        self._box = AsyncBox(server, client_name="exec-server pydantic_ai", **options)
        self._making = asyncio.Lock()

    @property
    def ref(self) -> WorkspaceRef | None:
        """Where the workspace is; None until the first use."""
        return self._ref

    async def working_dir(self) -> str:
        """The directory, without links."""
        await self._client()
        assert self._directory is not None
        return self._directory

    async def _client(self) -> exec_server.ExecServerClient:
        try:
            client = await self._box.client()
            async with self._making:
                if self._directory is None:
                    await self._find(client)
            return client
        except exec_server.ConnectionClosed as exc:
            raise WorkspaceUnavailableError(str(exc)) from exc

    async def _find(self, client: exec_server.ExecServerClient) -> None:
        path = self._wanted
        if path is None:
            path = (await client.run(["mktemp", "-d"], check=True)).text().strip()
        try:
            self._directory = await client.fs.canonicalize(path)
        except FileNotFoundError as exc:
            raise WorkspaceUnavailableError(f"the workspace is gone: {exc}") from None
        if self._ref is None:
            self._ref = WorkspaceRef(
                provider=PROVIDER, id=f"{self._server or ''}\n{self._directory}"
            )

    async def close(self) -> None:
        """Disconnect, and end what runs in the background; the directory stays."""
        await self._box.close()

    async def destroy(self) -> None:
        """Remove the directory, and end what runs."""
        client = await self._client()
        await client.fs.remove(await self.working_dir(), recursive=True, force=True)
        await self._box.close()

    # Commands.

    async def run(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (the framework's)
    ) -> CommandResult:
        """Run a command to the end of the direct command; background processes run on."""
        if isinstance(command, str) is not shell:
            raise TypeError("a text needs shell=True, and a sequence of words shell=False")
        if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
            raise ValueError("timeout must be a positive number of seconds")
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        client = await self._client()
        try:
            done = await client.run(
                words,
                cwd=self._directory,
                env=env,
                timeout=timeout,
                sandbox=confined(self._sandbox, await self.working_dir()),
                max_output=MAX_OUTPUT,
            )
        except exec_server.CommandTimeout as exc:
            out, err = (data.decode(errors="replace") for data in (exc.stdout, exc.stderr))
            raise WorkspaceTimeoutError(str(exc), stdout=out, stderr=err) from None
        except FileNotFoundError as exc:
            await self._check(client)
            return CommandResult(exit_code=127, stdout="", stderr=str(exc))
        except exec_server.ConnectionClosed as exc:
            raise WorkspaceUnavailableError(str(exc)) from exc
        out, err = (data.decode(errors="replace") for data in (done.stdout, done.stderr))
        if done.truncated:
            text = f"the command wrote more than {MAX_OUTPUT} bytes"
            raise WorkspaceOutputLimitError(text, limit=MAX_OUTPUT, stdout=out, stderr=err)
        await self._check(client)
        return CommandResult(exit_code=done.returncode, stdout=out, stderr=err)

    async def _check(self, client: exec_server.ExecServerClient) -> None:
        """Raise WorkspaceUnavailableError if the directory is gone."""
        try:
            is_there = await client.fs.exists(await self.working_dir())
        except exec_server.ConnectionClosed as exc:
            raise WorkspaceUnavailableError(str(exc)) from exc
        if not is_there:
            raise WorkspaceUnavailableError("the directory of the workspace was removed")

    # Files.

    async def _at(self, path: str) -> tuple[exec_server.RemoteFiles, str]:
        client = await self._client()
        own = await self.working_dir()
        sandbox = confined(self._sandbox, own)
        files = client.fs if sandbox is None else client.fs.sandboxed(sandbox)
        return files, posixpath.join(own, path)

    async def read_bytes(self, path: str) -> bytes:
        files, at = await self._at(path)
        try:
            return await files.read_bytes(at)
        except exec_server.InvalidRequest as exc:
            if isinstance(exc, OSError):
                raise
            # A pipe, a socket or a device, which would be waited for.
            raise OSError(errno.EINVAL, "not a regular file", at) from None

    async def write_bytes(self, path: str, data: bytes) -> None:
        files, at = await self._at(path)
        await _make_directory(files, posixpath.dirname(at), under_file=NotADirectoryError)
        await files.write_bytes(at, data)

    async def stat(self, path: str) -> FileEntry:
        files, at = await self._at(path)
        found = await files.get_metadata(at)
        size = None if found.is_directory else found.size
        name = posixpath.basename(at.rstrip("/"))
        return FileEntry(name=name, path=at, is_dir=found.is_directory, size=size)

    async def list_dir(self, path: str) -> list[FileEntry]:
        files, at = await self._at(path)
        names = sorted(entry.name for entry in await files.read_directory(at))
        return [await self._entry(posixpath.join(at, name)) for name in names]

    async def _entry(self, path: str) -> FileEntry:
        try:
            return await self.stat(path)
        except OSError:
            # A link that leads nowhere, or in a circle.
            return FileEntry(name=posixpath.basename(path), path=path, is_dir=False, size=None)

    async def make_dir(self, path: str) -> None:
        files, at = await self._at(path)
        await _make_directory(files, at, under_file=FileExistsError)

    async def remove(self, path: str) -> None:
        files, at = await self._at(path)
        target, own = posixpath.normpath(at), await self.working_dir()
        if own == target or own.startswith(f"{target.rstrip('/')}/"):
            raise ValueError(f"{path} is the working directory, or above it")
        await files.remove(at, recursive=True)

    async def exists(self, path: str) -> bool:
        files, at = await self._at(path)
        return await files.exists(at)

    async def realpath(self, path: str) -> str:
        """The path without links; what does not exist is left as it is."""
        client, at = await self._client(), (await self._at(path))[1]
        done = await client.run(["realpath", "-m", "--", at])
        if done.returncode != 0:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), at)
        return os.fsdecode(done.stdout.removesuffix(b"\n"))


async def _make_directory(
    files: exec_server.RemoteFiles, path: str, *, under_file: type[OSError]
) -> None:
    try:
        await files.create_directory(path, recursive=True)
    except FileExistsError:
        # A file has the name.
        number = errno.ENOTDIR if under_file is NotADirectoryError else errno.EEXIST
        raise under_file(number, os.strerror(number), path) from None


def _place(ref: WorkspaceRef) -> tuple[str | None, str]:
    server, _, directory = ref.id.partition("\n")
    return server or None, directory


@dataclass
class ExecServerCapability(AbstractCapability[Any]):
    """The capability: `Agent(..., capabilities=[ExecServerCapability("build-box")])`."""

    server: str | None = None
    directory: str | None = None

    def get_workspace(self, ctx: Any, *, ref: WorkspaceRef | None) -> Any:
        """A workspace on the server, or the one of *ref* if it is one of ours."""
        if ref is not None and ref.provider != PROVIDER:
            return None
        return ExecServerWorkspace(self.server, directory=self.directory, ref=ref)
