"""A sandbox session of the OpenAI Agents SDK: a directory on a server, in which an agent works."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.pty_types import PtyExecUpdate
from agents.sandbox.session.sandbox_session_state import SandboxSessionState
from agents.sandbox.types import ExecResult
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes

import exec_server
from exec_server.integrations.boxes import AsyncBox
from exec_server.integrations.openai_agents_terminals import Terminals
from exec_server.integrations.workplaces import Workplace

# Bytes of a workspace that is kept as a snapshot.
MAX_SNAPSHOT = 1 << 30


class ExecServerSandboxState(SandboxSessionState):
    """What is needed to come back to a sandbox; it has no secrets."""

    type: Literal["exec_server"] = "exec_server"
    server: str | None = None
    sandbox: str | None = None
    # True if the client made the directory, and therefore removes it.
    workspace_root_owned: bool = False


class ExecServerSandboxSession(BaseSandboxSession):
    """A directory on a server, in which an agent works."""

    def __init__(self, state: ExecServerSandboxState, box: AsyncBox) -> None:
        self.state: ExecServerSandboxState = state
        self._box = box
        self._terminals = Terminals()

    @property
    def _place(self) -> Workplace:
        return Workplace(self._box, self.state.manifest.root, self.state.sandbox)

    # The lifecycle.

    async def _prepare_backend_workspace(self) -> None:
        client = await self._box.client()
        await client.fs.create_directory(self.state.manifest.root, recursive=True)

    async def _shutdown_backend(self) -> None:
        await self._box.close()

    async def running(self) -> bool:
        try:
            return await (await self._box.client()).fs.exists(self.state.manifest.root)
        except exec_server.ExecServerError:
            return False

    async def remove(self) -> None:
        """Remove the directory if the client made it, and disconnect."""
        await self._terminals.end_all()
        if self.state.workspace_root_owned:
            client = await self._box.client()
            await client.fs.remove(self.state.manifest.root, recursive=True, force=True)
        await self._box.close()

    # Commands.

    async def _start_options(self) -> dict[str, Any]:
        env = await self.state.manifest.environment.resolve()
        place = self._place
        return {"cwd": place.directory, "env": env, "sandbox": await place.sandbox()}

    async def _exec_internal(
        self,
        *command: str | Path,
        timeout: float | None = None,  # noqa: ASYNC109 (the framework's)
    ) -> ExecResult:
        words = [str(word) for word in command]
        try:
            client = await self._box.client()
            done = await client.run(words, timeout=timeout, **await self._start_options())
        except exec_server.CommandTimeout as exc:
            raise ExecTimeoutError(command=words, timeout_s=timeout, cause=exc) from exc
        except FileNotFoundError as exc:
            return ExecResult(stdout=b"", stderr=str(exc).encode(), exit_code=127)
        except (exec_server.ExecServerError, OSError) as exc:
            has_run = getattr(exc, "may_have_run", False)
            context = {} if has_run else {"retry_safe": True}
            raise ExecTransportError(command=words, context=context, cause=exc) from exc
        return ExecResult(stdout=done.stdout, stderr=done.stderr, exit_code=done.returncode)

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,  # noqa: ASYNC109 (the framework's)
        shell: bool | list[str] = True,
        user: Any = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        words = self._prepare_exec_command(*command, shell=shell, user=user)
        try:
            client = await self._box.client()
            options = await self._start_options()
            process = await client.start(words, tty=tty, ensure=True, on_gap="skip", **options)
        except (exec_server.ExecServerError, OSError) as exc:
            raise ExecTransportError(command=words, cause=exc) from exc
        return await self._terminals.add(
            process, is_tty=tty, seconds=yield_time_s, max_tokens=max_output_tokens
        )

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        return await self._terminals.write(
            session_id, chars, seconds=yield_time_s, max_tokens=max_output_tokens
        )

    async def pty_terminate_all(self) -> None:
        await self._terminals.end_all()

    # Files. The SDK finds out over there whether a link leads out of the workspace.

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return Path(await self._validate_remote_path_access(path, for_write=for_write))

    async def read(self, path: Path, *, user: Any = None) -> io.IOBase:
        at = await self._validate_path_access(path)
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        try:
            return io.BytesIO(await (await self._place.files()).read_bytes(at.as_posix()))
        except FileNotFoundError as exc:
            raise WorkspaceReadNotFoundError(path=path, cause=exc) from exc
        except (exec_server.ExecServerError, OSError) as exc:
            raise WorkspaceArchiveReadError(path=path, cause=exc) from exc

    async def write(self, path: Path, data: io.IOBase, *, user: Any = None) -> None:
        content = data.read()
        if isinstance(content, str):
            content = content.encode()
        if not isinstance(content, bytes | bytearray):
            raise WorkspaceWriteTypeError(path=path, actual_type=type(content).__name__)
        at = await self._validate_path_access(path, for_write=True)
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        try:
            await self._place.write(at.as_posix(), bytes(content))
        except (exec_server.ExecServerError, OSError) as exc:
            raise WorkspaceArchiveWriteError(path=path, cause=exc) from exc

    async def rm(self, path: Path | str, *, recursive: bool = False, user: Any = None) -> None:
        if user is not None:
            return await super().rm(path, recursive=recursive, user=user)
        at = await self._validate_remote_path_access(
            path, for_write=True, recursive_remove=recursive
        )
        try:
            files = await self._place.files()
            await files.remove(at.as_posix(), recursive=recursive, force=recursive)
        except (exec_server.ExecServerError, OSError) as exc:
            raise WorkspaceArchiveWriteError(path=Path(path), cause=exc) from exc

    # Snapshots are archives, whose names are relative to the workspace.

    async def persist_workspace(self) -> io.IOBase:
        root = self.state.manifest.root
        skipped = sorted(path.as_posix() for path in self._persist_workspace_skip_relpaths())
        without = [f"--exclude=./{path}" for path in skipped]
        # The SDK takes no hard links.
        words = ["tar", "-C", root, "--hard-dereference", *without, "-cf", "-", "."]
        client = await self._box.client()
        sandbox = None if self.state.sandbox is None else exec_server.read_only()
        done = await client.run(words, max_output=MAX_SNAPSHOT, sandbox=sandbox)
        if done.returncode != 0 or done.truncated:
            reason = "too large" if done.truncated else done.text("stderr").strip()
            raise WorkspaceArchiveReadError(path=Path(root), context={"reason": reason})
        return io.BytesIO(done.stdout)

    async def _restore_snapshot_into_workspace_on_resume(self) -> None:
        # A workspace is not cleared for an archive that cannot take its place.
        with await self.state.snapshot.restore(dependencies=self.dependencies) as data:
            archive = self._checked(data)
        await self._clear_workspace_root_on_resume()
        await self.hydrate_workspace(io.BytesIO(archive))

    def _checked(self, data: io.IOBase) -> bytes:
        archive = bytes(data.read())
        try:
            validate_tar_bytes(archive)
        except UnsafeTarMemberError as exc:
            context = {"reason": exc.reason, "member": exc.member}
            root = Path(self.state.manifest.root)
            raise WorkspaceArchiveWriteError(path=root, context=context) from exc
        return archive

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root, archive = self.state.manifest.root, self._checked(data)
        client = await self._box.client()
        await client.fs.create_directory(root, recursive=True)
        words = ["tar", "-C", root, "--no-same-owner", "-xf", "-"]
        sandbox = None
        if self.state.sandbox is not None:
            # A command of the agent may put links in the way meanwhile. They lead nowhere.
            sandbox = exec_server.workspace_write(root, exclude_tmp=True, protect_metadata=False)
        done = await client.run(words, input=archive, sandbox=sandbox)
        if done.returncode != 0:
            context = {"reason": done.text("stderr").strip()}
            raise WorkspaceArchiveWriteError(path=Path(root), context=context)
