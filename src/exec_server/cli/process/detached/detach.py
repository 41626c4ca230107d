"""Detach a process, and resume its session later from another program."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal

import msgspec

from exec_server.cli import server_access
from exec_server.cli.options import Token, token_in_file
from exec_server.cli.process.detached.saved_sessions import SavedSession, SessionStore
from exec_server.cli.process.own_terminal.connection_notices import say
from exec_server.client.client import ExecServerClient
from exec_server.client.session_link import ConnectionState
from exec_server.errors import (
    ConnectError,
    ConnectionRejected,
    ExecServerError,
    InvalidRequest,
    MethodNotFound,
    SessionAttached,
)
from exec_server.limits import DEFAULT_LIMITS
from exec_server.protocol.jobs import JobInfo

State = Literal["attached", "expired", "unknown here", "refused", "unreachable"]


class ServerAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How the commands for detached processes reach a server, as their options say."""

    client_name: str
    token: Token | None = None
    token_file: str | None = None
    pin: str | None = None

    def __repr__(self) -> str:
        return f"ServerAccess({self.client_name!r})"

    @property
    def token_path(self) -> str | None:
        """The file of the token in a form that is valid in every directory."""
        return None if self.token_file is None else os.path.abspath(self.token_file)

    def open(self, server: str) -> AbstractAsyncContextManager[ExecServerClient]:
        """Connect to *server*, with a new session, for the length of a block."""
        return server_access.open_server(
            server, token=self.token, pin=self.pin, client_name=self.client_name
        )


class SessionUnavailable(ExecServerError):
    """A saved session cannot be resumed now; `state` says why."""

    def __init__(self, message: str, state: State) -> None:
        super().__init__(message)
        self.state: State = state


async def keep(client: ExecServerClient, seconds: float) -> float | None:
    """Ask the server to keep the session; the time it grants, or None if it cannot be asked."""
    try:
        return await client.retain(seconds)
    except (MethodNotFound, InvalidRequest):
        return None


def tell_kept(kept: float | None, asked: float, *, is_raw: bool = False) -> None:
    """Report if a server keeps a session for a shorter time than requested."""
    if kept is None:
        usual = f"{DEFAULT_LIMITS.detached_session_seconds:g}"
        say(
            f"this server cannot be asked to keep it: it may end after {usual} seconds detached",
            is_raw=is_raw,
        )
    elif kept < asked:
        say(f"this server keeps it for {kept:g} seconds while it is detached", is_raw=is_raw)


def new_record(
    store: SessionStore,
    client: ExecServerClient,
    process_id: str,
    *,
    server: str,
    argv: list[str],
    tty: bool,
    started_at: float,
    token_file: str | None,
    pin: str | None = None,
    kept: float | None,
    durable: bool = False,
    name: str | None = None,
) -> SavedSession:
    """Save the record of a process, before or after it is started."""
    session = SavedSession(
        id=store.free_id(process_id),
        server=server,
        session_token=client.session_token(),
        process_id=process_id,
        argv=argv,
        tty=tty,
        started_at=started_at,
        kept_seconds=kept,
        token_file=None if token_file is None else os.path.abspath(token_file),
        pin=pin,
        server_instance=client.server_instance,
        durable=durable,
        name=name,
    )
    store.save(session)
    return session


def update(
    store: SessionStore,
    client: ExecServerClient,
    session: SavedSession,
    *,
    exit_code: int | None = None,
    lost: str | None = None,
) -> SavedSession:
    """Save how much of the output was shown so far, and how the process has ended, if it has."""
    token = client.session_token()
    session = msgspec.structs.replace(session, session_token=token, exit_code=exit_code, lost=lost)
    store.save(session)
    return session


@contextlib.asynccontextmanager
async def open_saved(
    session: SavedSession,
    access: ServerAccess,
    *,
    on_state: Callable[[ConnectionState], None] | None = None,
    is_patient: bool = True,
    force: bool = False,
) -> AsyncIterator[ExecServerClient]:
    """Resume a saved session for the length of a block. Raises SessionUnavailable.

    If *is_patient*, it waits some seconds for a session that is attached elsewhere; with *force* it
    takes the session from there at once. Only the run of
    the server that had a session can say that it has expired; another server may have the name by
    now. No answer removes the record, which may be the only way back to the process.
    """
    access = access_to(session, access)
    limits = DEFAULT_LIMITS
    if not is_patient:
        # With this pause a second attempt does not fit into the time.
        limits = msgspec.structs.replace(limits, recovery_pause=limits.connect_timeout)
    opening = server_access.open_server(
        session.server,
        token=access.token,
        pin=access.pin,
        client_name=access.client_name,
        session_token=session.session_token,
        take_over=force,
        on_state=on_state,
        limits=limits,
    )
    async with contextlib.AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(opening)
        except InvalidRequest as exc:
            found = await _instance_at(session, access)
            if found is not None and found == session.server_instance:
                raise expired(session) from exc
            raise _unknown_here(session) from exc
        except (SessionAttached, ConnectError) as exc:
            raise _unavailable(session, exc) from exc
        yield client


def access_to(session: SavedSession, access: ServerAccess) -> ServerAccess:
    """How the server of *session* is reached: as the options say, or else as its record does."""
    if access.token is None and session.token_file is not None:
        token = token_in_file(session.token_file)
        access = msgspec.structs.replace(access, token=token)
    return msgspec.structs.replace(access, pin=access.pin or session.pin)


def open_beside(
    session: SavedSession,
    access: ServerAccess,
    *,
    on_state: Callable[[ConnectionState], None] | None = None,
) -> AbstractAsyncContextManager[ExecServerClient]:
    """Connect to the server of *session* with a session of its own, which disturbs no other."""
    found = access_to(session, access)
    return server_access.open_server(
        session.server,
        token=found.token,
        pin=found.pin,
        client_name=found.client_name,
        on_state=on_state,
    )


async def jobs_of(session: SavedSession, access: ServerAccess) -> list[JobInfo]:
    """The durable jobs on the server of *session*. Raises the errors of a connection and a call."""
    async with access_to(session, access).open(session.server) as client:
        return await client.jobs(every=True)


async def _instance_at(session: SavedSession, access: ServerAccess) -> str | None:
    """The run of the server that is reached now; None if it does not say."""
    try:
        async with access.open(session.server) as client:
            return client.server_instance
    except ExecServerError:
        return None


def expired(session: SavedSession) -> SessionUnavailable:
    """The error for a process that its own server no longer has."""
    text = (
        f"`{session.id}` has expired: its server no longer has it; remove the record with "
        f"`exec-server ps --forget {session.id}`"
    )
    return SessionUnavailable(text, "expired")


def _unknown_here(session: SavedSession) -> SessionUnavailable:
    # A durable job outlives its server, but not `jobs prune` and the server's own limits.
    why = "it was forgotten there" if session.durable else "it was restarted"
    text = (
        f"the server that answers now does not know `{session.id}`: {why}, or it is another server "
        "under the same name; remove the record with `exec-server ps --prune`"
    )
    return SessionUnavailable(text, "unknown here")


def _unavailable(session: SavedSession, exc: ExecServerError) -> SessionUnavailable:
    if isinstance(exc, SessionAttached):
        text = (
            f"`{session.id}` is attached elsewhere; look on with `exec-server attach --watch "
            f"{session.id}`, drive it with --take, detach it there, or take it from there with "
            "--force"
        )
        return SessionUnavailable(text, "attached")
    is_refused = isinstance(exc, ConnectionRejected)
    return SessionUnavailable(str(exc), "refused" if is_refused else "unreachable")
