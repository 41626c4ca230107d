"""A process that an ssh connection attaches to, as `exec-server attach` does."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from exec_server.cli.options import Token
from exec_server.cli.process import detach
from exec_server.cli.process.named_process import NamedProcess, find_process
from exec_server.cli.process.recent_output import find_recent
from exec_server.cli.process.saved_sessions import SessionStore
from exec_server.cli.process.session_holder import open_held
from exec_server.errors import ConfigurationError, InvalidRequest

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.client.process.remote_process import RemoteProcess

_CLIENT_NAME = "exec-server ssh-proxy"


class Attaching:
    """Opens the session of a process when a channel asks for it; *stack* closes it."""

    def __init__(
        self,
        server: str,
        process: str,
        *,
        token: Token | None,
        token_file: str | None,
        stack: contextlib.AsyncExitStack,
    ) -> None:
        self._server = server
        self._text = process
        self._access = detach.ServerAccess(
            client_name=_CLIENT_NAME, token=token, token_file=token_file
        )
        self._stack = stack
        self._store = SessionStore()
        self._found: NamedProcess | None = None
        self._client: ExecServerClient | None = None
        self._process: RemoteProcess | None = None

    async def client(self) -> ExecServerClient:
        """The client of the session that the process is in. Raises ExecServerError."""
        if self._client is None:
            await self._open()
        assert self._client is not None
        return self._client

    async def attach(self) -> RemoteProcess:
        """Follow the process. Raises ExecServerError, also for a second follower."""
        if self._process is not None:
            raise ConfigurationError(f"`{self._text}` is attached by this connection already")
        client = await self.client()
        assert self._found is not None
        session, job = self._found.session, self._found.job
        try:
            after = None if job is None else (await find_recent(client, job)).after_seq
            self._process = await client.attach(session.process_id, after)
        except InvalidRequest as exc:
            raise detach.expired(session) from exc
        self._stack.callback(self._save)
        return self._process

    async def _open(self) -> None:
        found = self._found = await find_process(
            self._store, self._server, self._text, self._access
        )
        session = found.session
        if session.exit_code is not None or session.lost is not None:
            raise ConfigurationError(
                f"`{session.id}` has ended; `exec-server logs {session.id}` prints its output"
            )

        def opening(is_patient: bool) -> contextlib.AbstractAsyncContextManager[ExecServerClient]:
            return detach.open_saved(session, self._access, is_patient=is_patient)

        command = f"ssh {self._server}%{self._text}"
        held = open_held(opening, session, force=False, command=command)
        self._client = await self._stack.enter_async_context(held)

    def _save(self) -> None:
        """Remember how much was shown, for the next one who attaches."""
        assert self._found is not None and self._client is not None and self._process is not None
        process, session = self._process, self._found.session
        is_over = process.is_done and not (process.returncode is None and process.lost is None)
        code = None if process.returncode is None else process.returncode & 0xFF
        if not is_over:
            detach.update(self._store, self._client, session)
        elif self._found.is_saved:
            detach.update(self._store, self._client, session, exit_code=code, lost=process.lost)
