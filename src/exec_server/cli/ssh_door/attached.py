"""Attaches an ssh connection to a process, as `exec-server attach` does."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from exec_server.cli.options import Token
from exec_server.cli.process.detached import detach
from exec_server.cli.process.detached.looking_on import can_watch
from exec_server.cli.process.detached.named_process import NamedProcess, find_process
from exec_server.cli.process.detached.recent_output import find_recent
from exec_server.cli.process.detached.saved_sessions import SessionStore
from exec_server.cli.process.detached.session_holder import open_held
from exec_server.cli.process.own_terminal.own_keyboard import own_name
from exec_server.cli.process.own_terminal.watched_terminal import Meant
from exec_server.cli.ssh_door.attached_process import LookedOnProcess, OwnedProcess
from exec_server.client.session_token import SessionToken
from exec_server.errors import ConfigurationError, InvalidRequest
from exec_server.ssh_door.target import AttachedProcess, AttachWish

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.client.process.remote_process import RemoteProcess

_CLIENT_NAME = "exec-server ssh-proxy"
# What may follow `ssh NAME%ID`.
_TAKE, _WATCH = "take", "watch"
# A client that is leaving has so many attempts, with a pause in seconds between two, before the
# process counts as followed by it.
_ATTEMPTS, _PAUSE = 8, 0.25


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
        self._is_attached = False

    async def client(self) -> ExecServerClient:
        """The client of the session that the process is in. Raises ExecServerError."""
        if self._client is None:
            await self._open(is_patient=True)
        assert self._client is not None
        return self._client

    async def attach(self, wish: AttachWish) -> AttachedProcess:
        """Take part in the process. Raises ExecServerError, also for a second time."""
        if self._is_attached:
            raise ConfigurationError(f"`{self._text}` is attached by this connection already")
        if wish.words not in ("", _TAKE, _WATCH):
            raise ConfigurationError(
                f"`{self._text}` runs already, and cannot run `{wish.words}`; possible words are "
                "`take` (take the keyboard) and `watch` (only look on)"
            )
        self._is_attached = True
        if wish.words != "" or not await self._continued():
            return await self._look_on(wish)
        return await self._own(wish)

    async def _own(self, wish: AttachWish) -> AttachedProcess:
        client = await self.client()
        assert self._found is not None
        session, job = self._found.session, self._found.job
        try:
            after = None if job is None else (await find_recent(client, job)).after_seq
            picture = None
            if wish.has_terminal and session.tty and await client.offers("processWatch"):
                picture = await client.screen_picture(session.process_id)
            if picture is not None:
                after = picture.seq
            self._process = await client.attach(session.process_id, after)
        except InvalidRequest as exc:
            raise detach.expired(session) from exc
        self._stack.callback(self._save)
        owned = OwnedProcess(self._process, wish, picture)
        await owned.begin()
        return owned

    async def _look_on(self, wish: AttachWish) -> AttachedProcess:
        """Look on beside the program that follows the process."""
        session = (await self._find()).session
        meant = Meant(
            session.process_id,
            SessionToken.parse(session.session_token).session_id,
            "person" if wish.has_terminal else "agent",
            own_name(),
            takes=wish.words == _TAKE,
            pictures=wish.has_terminal,
        )

        def opening() -> AbstractAsyncContextManager[ExecServerClient]:
            return detach.open_beside(session, self._access)

        looked_on = LookedOnProcess(opening, meant, wish, may_take=wish.words != _WATCH)
        await looked_on.begin()
        return looked_on

    async def _continued(self) -> bool:
        """Continue the session of the process; False if another client has it, and shares it."""
        if not await can_watch((await self._find()).session, self._access):
            await self._open(is_patient=True)
            return True
        for _ in range(_ATTEMPTS):
            try:
                await self._open(is_patient=False)
                return True
            except detach.SessionUnavailable as exc:
                if exc.state != "attached":
                    raise
            await asyncio.sleep(_PAUSE)
        return False

    async def _find(self) -> NamedProcess:
        if self._found is None:
            found = await find_process(self._store, self._server, self._text, self._access)
            session = found.session
            if session.exit_code is not None or session.lost is not None:
                raise ConfigurationError(
                    f"`{session.id}` has ended; `exec-server logs {session.id}` prints its output"
                )
            self._found = found
        return self._found

    async def _open(self, *, is_patient: bool) -> None:
        session = (await self._find()).session

        def opening(patient: bool) -> AbstractAsyncContextManager[ExecServerClient]:
            return detach.open_saved(session, self._access, is_patient=patient and is_patient)

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
