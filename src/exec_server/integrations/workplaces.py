"""Directories of servers in which the commands and the files of an agent are."""

from __future__ import annotations

import posixpath
from typing import Any, NamedTuple

import exec_server
from exec_server.integrations.boxes import AsyncBox, SyncBox

# Bytes of each output that are kept: the first half, and as much of the end.
MAX_OUTPUT = 1 << 20


def confined(sandbox: Any, directory: str) -> Any:
    """*sandbox*, whose name `workspace-write` means *directory*, an absolute path.

    A command has a directory, which the name would mean; a file call has none.
    """
    if not isinstance(sandbox, str) or sandbox == "read-only":
        return sandbox
    kind, equals, rest = sandbox.partition("=")
    folders = rest.split(":") if equals else ["."]
    if kind != "workspace-write" or not all(folders):
        # The client says what is wrong with it.
        return sandbox
    paths = (posixpath.normpath(posixpath.join(directory, folder)) for folder in folders)
    return exec_server.workspace_write(paths)


class Ended(NamedTuple):
    """How a command for the shell ended; without a status, its time limit ended it."""

    status: int | None
    stdout: str
    stderr: str
    is_truncated: bool


def _ended(done: exec_server.CompletedProcess) -> Ended:
    return Ended(done.returncode, done.text(), done.text("stderr"), done.truncated)


def _late(error: exec_server.CommandTimeout) -> Ended:
    out, err = (data.decode(errors="replace") for data in (error.stdout, error.stderr))
    return Ended(None, out, err, error.dropped_bytes > 0)


class Workplace:
    """A directory of a server; *directory* is the server's own if it is None.

    *sandbox* confines commands and file calls alike.
    """

    def __init__(self, box: AsyncBox, directory: str | None, sandbox: Any = None) -> None:
        self.box = box
        self.directory = directory
        self._sandbox = sandbox

    async def path(self, *parts: str) -> str:
        """An absolute path; *parts* are relative to the directory."""
        if self.directory is None or not self.directory.startswith("/"):
            client = await self.box.client()
            self.directory = await client.fs.canonicalize(self.directory or ".")
        return posixpath.join(self.directory, *parts)

    async def sandbox(self) -> Any:
        """What `run` and `start` take, or None."""
        return None if self._sandbox is None else confined(self._sandbox, await self.path())

    async def files(self) -> exec_server.RemoteFiles:
        """The files of the server, confined by the sandbox."""
        client, sandbox = await self.box.client(), await self.sandbox()
        return client.fs if sandbox is None else client.fs.sandboxed(sandbox)

    async def write(self, path: str, data: bytes) -> None:
        """Write a file, and make the directories above it."""
        files, at = await self.files(), await self.path(path)
        await files.create_directory(posixpath.dirname(at), recursive=True)
        await files.write_bytes(at, data)

    async def shell(
        self, command: str, *, limit: float | None, max_output: int = MAX_OUTPUT
    ) -> Ended:
        """Run a command; *limit* is in seconds."""
        client = await self.box.client()
        try:
            done = await client.run(
                ["/bin/sh", "-c", command],
                cwd=self.directory,
                timeout=limit,
                max_output=max_output,
                sandbox=await self.sandbox(),
            )
        except exec_server.CommandTimeout as exc:
            return _late(exc)
        return _ended(done)


class SyncWorkplace:
    """The same for code without an event loop."""

    def __init__(self, box: SyncBox, directory: str | None, sandbox: Any = None) -> None:
        self.box = box
        self.directory = directory
        self._sandbox = sandbox

    def path(self, *parts: str) -> str:
        """An absolute path; *parts* are relative to the directory."""
        if self.directory is None or not self.directory.startswith("/"):
            self.directory = self.box.client().fs.canonicalize(self.directory or ".")
        return posixpath.join(self.directory, *parts)

    def sandbox(self) -> Any:
        """What `run` and `start` take, or None."""
        return None if self._sandbox is None else confined(self._sandbox, self.path())

    def files(self) -> exec_server.sync.RemoteFiles:
        """The files of the server, confined by the sandbox."""
        client, sandbox = self.box.client(), self.sandbox()
        return client.fs if sandbox is None else client.fs.sandboxed(sandbox)

    def write(self, path: str, data: bytes) -> None:
        """Write a file, and make the directories above it."""
        files, at = self.files(), self.path(path)
        files.create_directory(posixpath.dirname(at), recursive=True)
        files.write_bytes(at, data)

    def shell(self, command: str, *, limit: float | None, max_output: int = MAX_OUTPUT) -> Ended:
        """Run a command; *limit* is in seconds."""
        try:
            done = self.box.client().run(
                ["/bin/sh", "-c", command],
                cwd=self.directory,
                timeout=limit,
                max_output=max_output,
                sandbox=self.sandbox(),
            )
        except exec_server.CommandTimeout as exc:
            return _late(exc)
        return _ended(done)
