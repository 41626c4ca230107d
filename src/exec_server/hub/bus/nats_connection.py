"""A connection to NATS that is replaced whenever the library gives it up."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable

from nats.errors import SecureConnWantedError

from exec_server.errors import ConfigurationError
from exec_server.hub.bus.nats_client import NatsClient, end
from exec_server.hub.bus.nats_dialling import Dialling, Listening, close, dial

logger = logging.getLogger(__name__)

# Parts of those answers of a server that will not change when we ask again.
_REFUSALS = ("authorization violation", "authentication")


class NatsConnection:
    """A client that is always connected or about to be. *moved* is called with each new client.

    The library reconnects after the loss of a server. But some answers of a server make it close
    for good, and an unexpected error ends its attempts silently. Then a new client takes over.
    """

    client: NatsClient

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
        """Connect for the first time.

        Raises ConfigurationError, at once if another attempt cannot help, else at a deadline.
        """
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
        """The loop's time at which the connection was made; None while there is none."""
        is_there = self._connected_since is not None and self.client.is_connected
        return self._connected_since if is_there else None

    def _begin(self) -> None:
        self._end()
        self._connected_since = self._loop.time()
        self._is_lost.clear()
        if not self.client.is_connected:
            # The client was lost again before this method ran.
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
        """Raise a permanent error while the bus is being opened; later ones are only logged."""
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

    # Replacing the client.

    async def _keep(self) -> None:
        while True:
            await self._is_lost.wait()
            self._end()
            await close(self.client, self._how.limits)
            try:
                self.client = await dial(self._how, self._listening)
                await self._moved()
            except Exception as exc:
                # An operator may repair servers and credentials while we wait.
                logger.warning("the bus stays away: %s: %s", type(exc).__name__, exc)
                await asyncio.sleep(self._how.limits.bus_patience)
            else:
                await self._reconnected()
