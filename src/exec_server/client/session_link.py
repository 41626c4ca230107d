"""SessionLink: keeps the connection of a session, and replaces it when it is lost."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

import msgspec

from exec_server.client.connect_options import ExecServerClientConnectOptions
from exec_server.client.connection_link import ConnectionLink, announces
from exec_server.client.flow.flow_control import FlowControl
from exec_server.errors import (
    ConnectError,
    ConnectionClosed,
    ExecServerError,
    SessionForgotten,
    SessionLost,
)
from exec_server.limits import Limits
from exec_server.protocol.lifecycle import InitializeResult, TakeOver
from exec_server.rpc.router import Route
from exec_server.state.reconnect import Reconnect
from exec_server.transport.connection import Connection

logger = logging.getLogger(__name__)

# `recovering` leads to `connected` or to `failed`; `failed` and `closed` are final.
ConnectionState = Literal["connected", "recovering", "failed", "closed"]
Dialler = Callable[[], Awaitable[Connection]]

DISCONNECTED = "exec-server transport disconnected"
_CLOSED = "the client is closed"


class SessionListener(Protocol):
    """The owner of a session link, which hears about the connection."""

    @property
    def routes(self) -> dict[str, Route]:
        """The handlers of the server's own requests, by method."""

    def flow_taken(self) -> dict[str, int]:
        """The processes with windows, and the number up to which the output of each was taken."""

    def event_received(self, event: Any) -> None:
        """The server has sent an event, over the connection in use or the next one."""

    def connection_lost(self) -> None:
        """The connection is lost, and with it what belongs to it; the session may go on."""

    async def restore(self, result: InitializeResult, link: ConnectionLink) -> None:
        """Catch up over a connection that is not in use yet; *result* is that of its handshake.

        After a retryable error the whole attempt is repeated; any other error ends the session.
        """

    def connected(self, result: InitializeResult, link: ConnectionLink) -> None:
        """Calls are made over *link* from now on; calls that have waited follow."""

    def session_lost(self, error: ConnectionClosed) -> None:
        """The session is lost for good."""


class SessionLink:
    """The connection of one session, whichever it is now.

    When it is lost, one task replaces it: it resumes the session, lets the listener catch up, and
    then lets the calls that wait go on. Without a *dialler*, or with a server that has no sessions,
    the first loss is final.
    """

    def __init__(
        self,
        listener: SessionListener,
        options: ExecServerClientConnectOptions,
        *,
        limits: Limits,
        flow: FlowControl,
        dialler: Dialler | None,
        on_state: Callable[[ConnectionState], None] | None = None,
    ) -> None:
        self.state: ConnectionState | None = None
        self.session_id: str | None = None
        # The connection in use; None while there is none.
        self.link: ConnectionLink | None = None
        # How long the server has granted to keep the session without a connection, if it has.
        self.retained_seconds: float | None = None
        self._listener = listener
        self._options = options
        self._limits = limits
        self._flow = flow
        self._dialler = dialler
        self._on_state = on_state
        self._error: ConnectionClosed | None = None
        # It is set unless it is worth waiting for a connection.
        self._is_decided = asyncio.Event()
        self._is_over = asyncio.Event()
        self._recovery: asyncio.Task[None] | None = None
        self._last_link: ConnectionLink | None = None
        self._connected_at = 0.0
        # True if the server lets the client take its session over from a lost connection. Then the
        # generation of the last connection is known, and each attempt has a number.
        self._can_take_over = False
        self._generation: int | None = None
        self._client_key = uuid.uuid4().hex
        self._attempts = 0
        # True if the last connection was silent and was given up, so that the server may still
        # believe in it.
        self._has_given_up = False

    async def open(
        self, connection: Connection, *, takes_over: bool = False, force: bool = False
    ) -> None:
        """Do the first handshake; it is not repeated.

        With *takes_over* the session is taken from another connection if that one is silent, and
        with *force* in any case.
        """
        take_over = self._take_over(force=force) if takes_over else None
        link, result = await self._shake_hands(connection, self._options, take_over)
        self.session_id = result.session_id
        self._install(link, connection, result)

    async def connected_link(self) -> ConnectionLink:
        """The connection in use; it is waited for while a new one may come.

        Raises ConnectionClosed if there will be none; then nothing was sent.
        """
        while self.link is None:
            if self._error is not None:
                raise type(self._error)(str(self._error), may_have_run=False)
            await self._is_decided.wait()
        return self.link

    def give_up(self, link: ConnectionLink) -> None:
        """Replace *link*, which carries nothing any more."""
        if link is self.link:
            self._has_given_up = True
        link.abort()

    def close(self) -> None:
        """Disconnect for good. Idempotent."""
        if self.state in ("closed", "failed"):
            return
        self._set_state("closed")
        if self._recovery is not None:
            self._recovery.cancel()
        if self.link is not None:
            # `_on_lost` does the rest when the connection is gone.
            self._error = ConnectionClosed(_CLOSED)
            link, self.link = self.link, None
            link.close(settle=self._limits.close_timeout)
        else:
            self._end(ConnectionClosed(_CLOSED))

    async def wait_closed(self) -> None:
        """Wait until there is no connection and none will come."""
        await self._is_over.wait()
        if self._recovery is not None and not self._recovery.done():
            await asyncio.wait({self._recovery})
        if self._last_link is not None:
            await self._last_link.wait_lost()

    # One connection after another.

    async def _shake_hands(
        self,
        connection: Connection,
        options: ExecServerClientConnectOptions,
        take_over: TakeOver | None,
    ) -> tuple[ConnectionLink, InitializeResult]:
        link = ConnectionLink(
            connection,
            limits=self._limits,
            on_event=self._listener.event_received,
            on_lost=self._on_lost,
            routes=self._listener.routes,
        )
        try:
            windows = self._listener.flow_taken() if options.resume_session_id is not None else None
            result = await link.initialize(options, flow_processes=windows, take_over=take_over)
        except BaseException:
            link.close()
            raise
        self._can_take_over = announces(result, "sessionTakeOver")
        self._generation = result.generation
        return link, result

    def _take_over(self, *, force: bool = False) -> TakeOver:
        self._attempts += 1
        return TakeOver(self._generation, self._client_key, self._attempts, force)

    def _install(
        self, link: ConnectionLink, connection: Connection, result: InitializeResult
    ) -> None:
        self.link = self._last_link = link
        self._connected_at = asyncio.get_running_loop().time()
        self._has_given_up = False
        self.retained_seconds = result.retained_seconds or self.retained_seconds
        self._flow.use(connection)
        self._listener.connected(result, link)
        self._set_state("connected")
        self._is_decided.set()
        if link.is_lost:
            self._on_lost(link)

    def _on_lost(self, link: ConnectionLink) -> None:
        # The loss of a connection that was never in use, or was given up, does not matter.
        if link is not self._last_link or self.state not in ("connected", "closed"):
            return
        self.link = None
        self._flow.use(None)
        self._listener.connection_lost()
        if self._error is not None:
            self._end(self._error)
        elif self._dialler is None or self.session_id is None:
            self._fail(DISCONNECTED)
        else:
            logger.info("session %s has lost its connection", self.session_id)
            self._is_decided.clear()
            self._set_state("recovering")
            recovery = self._recover(self._dialler, self.session_id)
            self._recovery = asyncio.get_running_loop().create_task(recovery, name="reconnect")

    async def _recover(self, dialler: Dialler, session_id: str) -> None:
        try:
            await self._retry(dialler, session_id)
        except Exception as exc:
            # After a bug in this package, callers must not wait for ever.
            logger.exception("recovery of session %s failed", session_id)
            self._fail(f"{DISCONNECTED}; failed to resume exec-server session: {exc!r}")

    async def _retry(self, dialler: Dialler, session_id: str) -> None:
        loop = asyncio.get_running_loop()
        plan = Reconnect(
            DISCONNECTED,
            now=loop.time(),
            connected_at=self._connected_at,
            window=self._recovery_window,
            takes_over=self._can_take_over,
            limits=self._limits,
        )
        while plan.retry_at is not None:
            await asyncio.sleep(plan.retry_at - loop.time())
            try:
                async with asyncio.timeout_at(plan.deadline):
                    await self._attempt(dialler, session_id, plan.dial_seconds)
                return
            except TimeoutError:
                plan.ran_out()
            except ExecServerError as exc:
                logger.debug("session %s is not resumed: %s", session_id, exc)
                plan.failed(exc, now=loop.time())
        self._fail(plan.message, is_forgotten=plan.is_forgotten)

    @property
    def _recovery_window(self) -> float:
        """The number of seconds for which it is worth trying to resume the session."""
        if self._options.recover_for is not None:
            return self._options.recover_for
        window = self._limits.recovery_window
        if self._has_given_up:
            # The server has heard as little as the client. It keeps the connection for this time,
            # and the session for the usual time after that.
            window += self._limits.pong_timeout
        return max(window, self.retained_seconds or 0.0)

    async def _attempt(self, dialler: Dialler, session_id: str, dial_seconds: float) -> None:
        try:
            async with asyncio.timeout(dial_seconds):
                connection = await dialler()
        except TimeoutError:
            raise ConnectError(f"there was no connection within {dial_seconds:g} s") from None
        take_over = self._take_over() if self._can_take_over else None
        seconds = dial_seconds
        if take_over is not None and take_over.generation is None:
            # The server waits for a sign of life from the old connection before it answers.
            seconds += self._limits.take_over_probe
        options = msgspec.structs.replace(
            self._options,
            resume_session_id=session_id,
            initialize_timeout=min(seconds, self._options.initialize_timeout),
        )
        link, result = await self._shake_hands(connection, options, take_over)
        try:
            await self._listener.restore(result, link)
            if link.is_lost:
                raise ConnectionClosed("the connection was lost during the recovery")
        except BaseException:
            link.close()
            raise
        self._install(link, connection, result)

    # The end.

    def _fail(self, message: str, *, is_forgotten: bool = False) -> None:
        self._set_state("failed")
        self._end(SessionForgotten(message) if is_forgotten else SessionLost(message))

    def _end(self, error: ConnectionClosed) -> None:
        self._error = error
        self._is_decided.set()
        self._is_over.set()
        self._listener.session_lost(error)

    def _set_state(self, state: ConnectionState) -> None:
        self.state = state
        if self._on_state is not None:
            try:
                self._on_state(state)
            except Exception:
                logger.exception("an observer of the connection failed")
