"""ExecServer: accept connections, keep sessions, expire them, stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import uuid
from functools import cached_property
from typing import TYPE_CHECKING

from exec_server import host
from exec_server.errors import InternalError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.process.spawn import Spawner
from exec_server.process.table import ProcessTable
from exec_server.protocol.environment import EnvironmentInfo
from exec_server.rpc.router import Router
from exec_server.server.capabilities import CAPABILITIES
from exec_server.server.context import Context
from exec_server.server.handlers import environment, fs, lifecycle, process
from exec_server.server.session import Session
from exec_server.state.attachment import Attachments, SessionId
from exec_server.transport.connection import Connection
from exec_server.version import VERSION

if TYPE_CHECKING:
    from exec_server.files.service import FileService

logger = logging.getLogger(__name__)

ROUTES = Router(lifecycle, environment, process, fs).routes


class ExecServer:
    """The server core, without any listener: give it connections with `serve`."""

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS, resumable: bool = True) -> None:
        self.limits = limits
        self.routes = ROUTES
        # On stdio a lost connection cannot come back, so its session ends with it.
        self._resumable = resumable
        self._loop = asyncio.get_running_loop()
        self._spawner = Spawner(
            orphan_grace=limits.orphan_grace, child_descriptors=limits.child_descriptors
        )
        self._attachments: Attachments[Context] = Attachments(
            window=limits.detached_session_seconds, new_id=lambda: str(uuid.uuid4())
        )
        self._sessions: dict[SessionId, Session] = {}
        self._contexts: set[Context] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._shell = host.tty_shell()
        self._server_env = dict(os.environ)

    def prepare(self) -> None:
        """Get ready for the first process ahead of time."""
        # What the system refuses now, the first process is told.
        with contextlib.suppress(InternalError):
            self._spawner.start()

    @cached_property
    def environment_info(self) -> EnvironmentInfo:
        """Facts that stay the same as long as this process lives."""
        return host.environment_info(version=VERSION, capabilities=CAPABILITIES)

    @cached_property
    def files(self) -> FileService:
        """Loaded and made for the first client that asks, so that others start sooner."""
        from exec_server.files.service import FileService

        return FileService(self.limits)

    # Connections.

    def serve(self, connection: Connection) -> None:
        """Answer *connection* until it is lost; its session is then left detached."""
        self._contexts.add(Context(self, connection))
        self._idle.clear()
        logger.info("connection from %s (%s)", connection.peer_name, connection.transport_name)

    def release(self, context: Context) -> None:
        """A connection is lost."""
        self._contexts.discard(context)
        if not self._contexts:
            self._idle.set()
        session, context.session = context.session, None
        if session is None:
            return
        session.detach()
        if session.id not in self._sessions:
            # `stop` has ended it already.
            return
        logger.info("session %s detached", session.id)
        if not self._resumable:
            self._end(session.id)
            self._attachments.end(session.id)
            return
        self._attachments.detach(session.id, now=self._loop.time())
        if self._timer is None:
            self._schedule()

    async def wait_idle(self) -> None:
        """Until no connection is left."""
        await self._idle.wait()

    # Sessions.

    def open_session(self, context: Context, resume_session_id: str | None) -> Session:
        """A new session, or the detached one that the client asks for."""
        if resume_session_id is not None:
            now = self._loop.time()
            session = self._sessions[self._attachments.resume(resume_session_id, context, now=now)]
        else:
            session = self._new_session(context)
        session.attach(context.connection)
        context.session = session
        if context.peer.is_writing_paused:
            session.gate.close()
        logger.info("session %s attached to %s", session.id, context.connection.peer_name)
        return session

    def _new_session(self, context: Context) -> Session:
        session = Session(self._attachments.create(context))
        session.processes = ProcessTable(
            spawner=self._spawner,
            outlet=session,
            limits=self.limits,
            login_shell=self._shell,
            server_env=self._server_env,
        )
        self._sessions[session.id] = session
        return session

    def _schedule(self) -> None:
        deadline = self._attachments.next_deadline()
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        # A timer may fire a tick early; whatever it was set for is due.
        deadline = self._attachments.next_deadline() or 0.0
        for session_id in self._attachments.expire(now=max(self._loop.time(), deadline)):
            logger.info("session %s expired", session_id)
            self._end(session_id)
        self._schedule()

    def _end(self, session_id: SessionId) -> None:
        self._sessions.pop(session_id).close()

    # The end.

    async def stop(self) -> None:
        """End every connection, session and process tree; bounded in time."""
        if self._timer is not None:
            self._timer.cancel()
        for context in tuple(self._contexts):
            context.connection.close("server is shutting down")
        for session_id in tuple(self._sessions):
            self._end(session_id)
        if "files" in self.__dict__:
            self.files.stop()
        await self._spawner.stop(within=self.limits.keeper_stop_timeout)
        try:
            async with asyncio.timeout(self.limits.close_timeout):
                await self._idle.wait()
        except TimeoutError:
            for context in tuple(self._contexts):
                context.connection.abort()
