"""A connection to NATS that is kept for ever, whatever the library makes of it."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable

from nats.errors import SecureConnWantedError

from exec_server.errors import ConfigurationError
from exec_server.hub.bus.nats_client import Client, Dialling, Listening, close, dial, end

logger = logging.getLogger(__name__)

# What servers say when they will say the same again.
_REFUSALS = ("authorization violation", "authentication")


class Connection:
    """Changes servers by itself. *moved* is called when there is another client than before.

    The library finds its way back from lost servers, but closes itself at some words of theirs, and
    an error that it does not expect ends its attempts silently. Then a new client takes over.
    """

    client: Client

    def __init__(self, how: Dialling, moved: Callable[[], Awaitable[None]]) -> None:
        self._how = how
        self._moved = moved
        self._loop = asyncio.get_running_loop()
        self._listening = Listening(self._failed, self._disconnected, self._reconnected, self._lost)
        self._connected_since: float | None = None
        self._last_error: Exception | None = None
        self._is_lost = asyncio.Event()
        self._patience: asyncio.TimerHandle | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises ConfigurationError at once when asking again will not help, else at a deadline."""
        dialling = self._loop.create_task(dial(self._how, self._listening), name="dial the bus")
        try:
            await asyncio.wait({dialling}, timeout=self._how.limits.bus_start_timeout)
        finally:
            await end(dialling)
        if dialling.cancelled():
            reason = self._last_error or "no answer"
            raise ConfigurationError(f"NATS at {self._how.url} is not there: {reason}")
        self.client = dialling.result()
        self._keeper = self._loop.create_task(self._keep(), name="keep the bus")
        self._begin()

    async def close(self) -> None:
        self._end()
        if self._keeper is not None:
            await end(self._keeper)
            await close(self.client, self._how.limits)

    @property
    def since(self) -> float | None:
        """The loop's time at which it came to be or came back; None while it is away."""
        is_there = self._connected_since is not None and self.client.is_connected
        return self._connected_since if is_there else None

    def _begin(self) -> None:
        self._end()
        self._connected_since = self._loop.time()
        self._is_lost.clear()
        if not self.client.is_connected:
            # It went while we were not looking.
            self._is_lost.set()

    def _end(self) -> None:
        self._connected_since = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    # Called by the library.

    async def _failed(self, exc: Exception) -> None:
        self._last_error = exc
        logger.debug("NATS: %s", exc)
        if self._keeper is None:
            self._refuse(exc)

    def _refuse(self, exc: Exception) -> None:
        """As long as nobody relies on us, an error that will not go away is told."""
        if isinstance(exc, ssl.SSLCertVerificationError | SecureConnWantedError):
            raise ConfigurationError(f"NATS at {self._how.url} is not secure: {exc}")
        if any(word in str(exc).lower() for word in _REFUSALS):
            raise ConfigurationError(f"NATS at {self._how.url} does not let us in: {exc}")

    async def _disconnected(self) -> None:
        if self._connected_since is not None:
            logger.warning("the bus is away: %s", self._last_error or "the server has gone")
            self._end()
            self._patience = self._loop.call_later(self._how.limits.bus_patience, self._is_lost.set)

    async def _reconnected(self) -> None:
        logger.warning("the bus is back")
        self._begin()

    async def _lost(self) -> None:
        self._is_lost.set()

    # What the library does not do.

    async def _keep(self) -> None:
        while True:
            await self._is_lost.wait()
            self._end()
            await close(self.client, self._how.limits)
            try:
                self.client = await dial(self._how, self._listening)
                await self._moved()
            except Exception as exc:
                # Whatever it is, servers and credentials may be put right while we wait.
                logger.warning("the bus stays away: %s: %s", type(exc).__name__, exc)
                await asyncio.sleep(self._how.limits.bus_patience)
            else:
                await self._reconnected()
