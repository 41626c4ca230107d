"""A sandbox for Deep Agents: `create_deep_agent(backend=ExecServerSandbox("build-box"))`."""

from __future__ import annotations

import weakref
from typing import Any

from deepagents.backends.protocol import (
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

import exec_server
from exec_server.integrations.boxes import AsyncBox, SyncBox
from exec_server.integrations.workplaces import Ended, SyncWorkplace, Workplace

# Seconds that a command may take if the agent does not say.
TIME_LIMIT = 1800
# Bytes of output that are kept: the first half, and as much of the end.
MAX_OUTPUT = 4 << 20
_TIMED_OUT = 124


class ExecServerSandbox(BaseSandbox):
    """A server as a sandbox; *server* is a URL or a name.

    *options* are those of `exec_server.connect`. What commands leave in the background ends with
    `close`, with the program, or 30 seconds after the program was killed.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        cwd: str | None = None,
        sandbox: Any = None,
        timeout: float = TIME_LIMIT,
        **options: Any,
    ) -> None:
        super().__init__()
        self._server = server
        self._timeout = timeout
        options.setdefault("client_name", "exec-server deepagents")
        self._box = SyncBox(server, **options)
        self._async_box = AsyncBox(server, **options)
        self._place = SyncWorkplace(self._box, cwd, sandbox)
        self._async_place = Workplace(self._async_box, cwd, sandbox)
        self._finalizer = weakref.finalize(self, self._box.close)

    @property
    def id(self) -> str:
        """The server, as it was named."""
        return self._server or "exec-server"

    def close(self) -> None:
        """Disconnect, and end what runs in the background."""
        self._finalizer()

    async def aclose(self) -> None:
        """The same for the client of this event loop, too."""
        await self._async_box.close()
        self.close()

    # Commands.

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command for the shell; both outputs come together, in their order."""
        limit = self._limit(timeout)
        done = self._place.shell(_together(command), limit=limit, max_output=MAX_OUTPUT)
        return _answer(done, limit)

    async def aexecute(
        self,
        command: str,
        *,
        timeout: int | None = None,  # noqa: ASYNC109 (the framework's)
    ) -> ExecuteResponse:
        """As `execute`."""
        limit, place = self._limit(timeout), self._async_place
        done = await place.shell(_together(command), limit=limit, max_output=MAX_OUTPUT)
        return _answer(done, limit)

    def _limit(self, timeout: int | None) -> float | None:
        # 0 means none.
        return (self._timeout if timeout is None else timeout) or None

    # Files. An error of one file does not stop the others.

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files, and make the directories above them."""
        return [FileUploadResponse(path, self._upload(path, data)) for path, data in files]

    def _upload(self, path: str, data: bytes) -> str | None:
        if not path.startswith("/"):
            return "invalid_path"
        try:
            self._place.write(path, data)
        except (OSError, exec_server.RpcError) as exc:
            return _code(exc)
        return None

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """As `upload_files`."""
        return [FileUploadResponse(path, await self._aupload(path, data)) for path, data in files]

    async def _aupload(self, path: str, data: bytes) -> str | None:
        if not path.startswith("/"):
            return "invalid_path"
        try:
            await self._async_place.write(path, data)
        except (OSError, exec_server.RpcError) as exc:
            return _code(exc)
        return None

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files."""
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path, error="invalid_path")
        try:
            return FileDownloadResponse(path, self._place.files().read_bytes(path))
        except (OSError, exec_server.RpcError) as exc:
            return FileDownloadResponse(path, error=_code(exc))

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """As `download_files`."""
        return [await self._adownload(path) for path in paths]

    async def _adownload(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path, error="invalid_path")
        try:
            files = await self._async_place.files()
            return FileDownloadResponse(path, await files.read_bytes(path))
        except (OSError, exec_server.RpcError) as exc:
            return FileDownloadResponse(path, error=_code(exc))


def _together(command: str) -> str:
    return f"exec 2>&1\n{command}"


def _answer(done: Ended, limit: float | None) -> ExecuteResponse:
    if done.status is None:
        output = f"{done.stdout}\nthe command took longer than {limit:g} seconds"
        return ExecuteResponse(output, _TIMED_OUT, done.is_truncated)
    return ExecuteResponse(done.stdout, done.status, done.is_truncated)


def _code(error: Exception) -> str:
    """The framework's word for an error, or the error's own."""
    codes = {
        FileNotFoundError: "file_not_found",
        PermissionError: "permission_denied",
        IsADirectoryError: "is_directory",
        NotADirectoryError: "invalid_path",
    }
    return next((code for kind, code in codes.items() if isinstance(error, kind)), str(error))


class ExecServerProvider:
    """The provider for the command line `deepagents-code`, by an entry point."""

    @property
    def metadata(self) -> Any:
        """What the command line shows."""
        from deepagents_code.integrations.sandbox_provider import SandboxProviderMetadata

        return SandboxProviderMetadata(
            name="exec-server", working_dir="/", install="exec-server", supports_sandbox_id=True
        )

    def get_or_create(self, *, sandbox_id: str | None = None, **kwargs: Any) -> ExecServerSandbox:
        """The server *sandbox_id*, or the default of environments.toml."""
        return ExecServerSandbox(sandbox_id)

    def delete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        """Servers are not made here, so none is removed."""
