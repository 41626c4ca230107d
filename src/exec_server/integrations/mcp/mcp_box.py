"""The two sessions of an MCP server on the exec-server, connected at the first use.

What `run` leaves in the background belongs to the first session and ends with the MCP server. What
`start` has started belongs to the second one, which the exec-server is asked to keep: a later MCP
server on this machine continues with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Self

import exec_server
from exec_server.integrations.boxes import end_all
from exec_server.integrations.mcp.job_records import JobRecord, JobRecords
from exec_server.integrations.mcp.mcp_settings import McpSettings

# Connects for the length of a block; with a session token it continues that session.
Connect = Callable[[str | None], AbstractAsyncContextManager[exec_server.ExecServerClient]]


class McpBox:
    """Clients of one exec-server; use it with `async with`."""

    def __init__(self, connect: Connect, settings: McpSettings) -> None:
        self._connect = connect
        self._settings = settings
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._commands: exec_server.ExecServerClient | None = None
        self._jobs: exec_server.ExecServerClient | None = None
        self._record: JobRecord | None = None
        self._is_kept = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._commands is not None:
            await end_all(self._commands)
        await self._stack.aclose()
        if self._record is not None:
            self._record.release()

    async def commands(self) -> exec_server.ExecServerClient:
        """The client for commands and files."""
        async with self._lock:
            if self._commands is None or _is_over(self._commands):
                self._commands = await self._stack.enter_async_context(self._connect(None))
            return self._commands

    async def jobs(self) -> exec_server.ExecServerClient:
        """The client for jobs; the session of an earlier MCP server is continued."""
        async with self._lock:
            if self._jobs is None or _is_over(self._jobs):
                self._forget_record()
                self._jobs = await self._continued()
                if self._jobs is None:
                    self._jobs = await self._stack.enter_async_context(self._connect(None))
            return self._jobs

    async def kept_jobs(self) -> exec_server.ExecServerClient:
        """As `jobs`, and the session is kept when this program ends."""
        client = await self.jobs()
        async with self._lock:
            if not self._is_kept:
                with contextlib.suppress(exec_server.MethodNotFound):
                    await client.retain(self._settings.keep)
                if self._settings.records is not None and self._record is None:
                    self._record = self._records.new()
                if self._record is not None:
                    self._record.write(client.session_token())
                self._is_kept = True
        return client

    @property
    def _records(self) -> JobRecords:
        settings = self._settings
        assert settings.records is not None
        return JobRecords(settings.records, settings.server, settings.confinement)

    async def _continued(self) -> exec_server.ExecServerClient | None:
        if self._settings.records is None:
            return None
        for record in self._records.claim():
            try:
                client = await self._stack.enter_async_context(self._connect(record.token))
            except (exec_server.SessionLost, exec_server.RpcError, exec_server.ConfigurationError):
                # The server no longer has the session, or the record was never written.
                record.remove()
                continue
            except BaseException:
                record.release()
                raise
            self._record = record
            return client
        return None

    def _forget_record(self) -> None:
        """The session of the record is lost for good, if there was one."""
        if self._record is not None:
            self._record.remove()
        self._record, self._is_kept = None, False


def _is_over(client: exec_server.ExecServerClient) -> bool:
    return client.state in ("failed", "closed")
