"""LazyClient: one shared client of an environment, which is connected on first use."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Literal

import msgspec

from exec_server.client.client import ExecServerClient
from exec_server.client.connect_options import ConnectOptions
from exec_server.client.environments.kinds import Environment
from exec_server.client.environments.open_environment import Connectors, open_environment
from exec_server.errors import ConnectionClosed, ExecServerError


class EnvironmentStatus(msgspec.Struct, frozen=True):
    """The status of an environment: `ready`, `pending` until it is connected, or `disconnected`."""

    state: Literal["ready", "pending", "disconnected"]
    # The reason why it is disconnected.
    error: str | None = None


class LazyClient:
    """Connects once for all callers that wait at the same time.

    After a retryable failure the next use tries again; any other failure is final. A client that
    has lost its session is replaced on the next use, with a new session, unless that would start
    another program.
    """

    def __init__(
        self, environment: Environment, options: ConnectOptions, connectors: Connectors
    ) -> None:
        self.environment = environment
        self._options = options
        self._connectors = connectors
        self._client: ExecServerClient | None = None
        # It closes each client that there was.
        self._stack = AsyncExitStack()
        self._attempt: asyncio.Task[ExecServerClient] | None = None
        self._failure: ExecServerError | None = None
        self._is_closed = False

    async def get(self) -> ExecServerClient:
        """The client, connected now if it is not yet."""
        while not self._is_usable(self._client):
            attempt = self.start()
            # Other callers may wait for it, so it is not cancelled with this one.
            await asyncio.wait({attempt})
            if not attempt.cancelled():
                attempt.result()
        assert self._client is not None
        return self._client

    def _is_usable(self, client: ExecServerClient | None) -> bool:
        if self._is_closed:
            raise ConnectionClosed("the environment is closed", may_have_run=False)
        if client is None:
            return False
        return client.state in ("connected", "recovering") or not self.environment.can_redial

    def start(self) -> asyncio.Future[ExecServerClient]:
        """Begin to connect, unless an attempt is under way."""
        if self._attempt is None:
            self._attempt = asyncio.create_task(self._connect(), name="connect environment")
            self._attempt.add_done_callback(self._connected)
        return self._attempt

    async def _connect(self) -> ExecServerClient:
        if self._failure is not None and not self._failure.retryable:
            raise self._failure.with_traceback(None)
        old, self._stack = self._stack, AsyncExitStack()
        await old.aclose()
        opening = open_environment(self.environment, self._options, self._connectors)
        self._client = await self._stack.enter_async_context(opening)
        return self._client

    def _connected(self, attempt: asyncio.Task[ExecServerClient]) -> None:
        self._attempt = None
        if attempt.cancelled():
            return
        # Reading the exception tells asyncio that it need not warn about it.
        error = attempt.exception()
        self._failure = error if isinstance(error, ExecServerError) else None

    async def status(self) -> EnvironmentStatus:
        """The status. A connected client asks its server; nothing is connected for it."""
        if self._client is None:
            if self._failure is not None and self._attempt is None:
                return EnvironmentStatus("disconnected", str(self._failure))
            return EnvironmentStatus("pending")
        if self._client.state != "connected":
            return EnvironmentStatus("disconnected", f"the connection is {self._client.state}")
        try:
            await self._client.environment_status()
        except ExecServerError as exc:
            return EnvironmentStatus("disconnected", str(exc))
        return EnvironmentStatus("ready")

    async def close(self) -> None:
        """Disconnect for good. Idempotent."""
        self._is_closed = True
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait({self._attempt})
        await self._stack.aclose()
