"""nats-py's client with what a long-lived node needs of it, and how one is connected.

The library is good at the protocol and at changing servers. What is overridden here are places
where it would send secrets in the clear, or stop for good.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from nats.aio.client import PING_PROTO, RawCredentials
from nats.aio.client import Client as LibraryClient
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error, SecureConnWantedError, StaleConnectionError

from exec_server.errors import ConfigurationError
from exec_server.hub.bus.nats_url import NatsUrl
from exec_server.limits import Limits

_CREDENTIALS_BYTES = 64 * 1024
# How many of our pings may be unanswered before the server counts as dead.
_UNANSWERED_PINGS = 2
_CANCEL_SECONDS = 0.1


class Dialling(msgspec.Struct, frozen=True, kw_only=True):
    """How to connect, again and again."""

    url: NatsUrl
    # What the server's operator sees.
    label: str
    credentials: str | None
    tls: ssl.SSLContext | None
    limits: Limits


class Listening(msgspec.Struct, frozen=True):
    """What is called when a connection changes, and with every error of the library."""

    error: Callable[[Exception], Awaitable[None]]
    disconnected: Callable[[], Awaitable[None]]
    reconnected: Callable[[], Awaitable[None]]
    closed: Callable[[], Awaitable[None]]


class Delivery(asyncio.Future[Any]):
    """Makes the library call us with each message at once.

    It offers a queue and a task for each subscription, or a future for a single message. The future
    of a subscription without end costs neither: nothing waits or is dropped between socket and us.
    """

    def __init__(self, take: Callable[[Msg], None]) -> None:
        super().__init__()
        self._take = take

    def set_result(self, result: Any) -> None:
        self._take(result)


class NatsClient(LibraryClient):
    def __init__(self, *, needs_tls: bool) -> None:
        super().__init__()
        self._needs_tls = needs_tls

    @property
    def known_servers(self) -> int:
        """How many servers the one we are connected to knows of."""
        return len(self._server_info.get("connect_urls") or ())

    @property
    def has_jetstream(self) -> bool:
        """Whether the server we are connected to offers it; another one of its cluster may."""
        return bool(self._server_info.get("jetstream"))

    async def listen(self, subject: str, take: Callable[[Msg], None]) -> Subscription:
        return await self.subscribe(subject, future=Delivery(take))

    async def arrived(self, patience: float) -> None:
        """Returns when the server has got everything that was sent before."""
        # The library's annotation is narrower than what it does.
        await self.flush(patience)  # type: ignore[arg-type]
        if not self.is_connected:
            raise StaleConnectionError

    def abort(self) -> None:
        """Let go of the socket without a word, and without waiting for its end."""
        writer = getattr(self._transport, "_io_writer", None)
        self._transport = None
        if writer is not None:
            writer.transport.abort()

    async def stop_reconnecting(self) -> None:
        if self._reconnection_task is not None:
            await end(self._reconnection_task)

    def _connect_command(self) -> bytes:
        # The library encrypts when the server asks for it. Who can answer in the server's place
        # would not ask, and get the password that comes next.
        if self._needs_tls and not self._server_info.get("tls_required"):
            raise SecureConnWantedError
        return super()._connect_command()

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        # The library's own goes out before commands that wait to be flushed, so that its answer
        # says nothing of them.
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    async def _process_pong(self) -> None:
        # The library would stop to read at the answer to a flush for which nobody waits any more.
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()


async def dial(how: Dialling, listening: Listening) -> NatsClient:
    """A client that is connected, whenever that comes about.

    Raises ConfigurationError when the credentials cannot be used, and what `listening.error` does.
    """
    while True:
        client = NatsClient(needs_tls=how.url.is_tls)
        options = _options(how, listening)
        try:
            await client.connect(**options)
        except BaseException:
            # A handshake that failed has no end for which one could wait.
            client.abort()
            await close(client, how.limits)
            raise
        # It also returns when the server had something else to say first, and then stays dumb.
        if client.is_connected:
            return client
        await close(client, how.limits)


async def end(task: asyncio.Task[Any]) -> None:
    """Returns when *task*, which waits for the library, is done.

    A cancellation that meets the end of an attempt to connect is lost in it, and the library tries
    again without end.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_SECONDS)


async def close(client: NatsClient, limits: Limits) -> None:
    """Returns when *client* holds nothing any more, before a deadline."""
    try:
        async with asyncio.timeout(limits.bus_timeout):
            # It may have found a server, or lost one, while it was being closed.
            while not client.is_closed:
                await client.stop_reconnecting()
                await client.close()
                await client.stop_reconnecting()
    except (Error, OSError, TimeoutError):
        client.abort()


def _options(how: Dialling, listening: Listening) -> dict[str, Any]:
    limits = how.limits
    return {
        "servers": list(how.url.servers),
        "name": how.label,
        "user": how.url.user,
        "password": how.url.password,
        "token": how.url.token,
        "user_credentials": _credentials(how.credentials),
        "tls": how.tls,
        "error_cb": listening.error,
        "disconnected_cb": listening.disconnected,
        "reconnected_cb": listening.reconnected,
        "closed_cb": listening.closed,
        "connect_timeout": limits.bus_timeout,
        "max_reconnect_attempts": -1,
        # Nodes that lost the same server do not all come back at the same moment.
        "reconnect_time_wait": limits.bus_pause * random.uniform(1, 2),
        "ping_interval": limits.bus_ping_interval,
        "max_outstanding_pings": _UNANSWERED_PINGS,
        "flush_timeout": limits.bus_timeout,
        # Ours are checked before.
        "skip_subject_validation": True,
    }


def _credentials(path: str | None) -> RawCredentials | None:
    """What a credentials file holds: the library would look for its parts without end."""
    if path is None:
        return None
    try:
        import nkeys  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "a credentials file for NATS needs one more package: pip install 'exec-server[cluster]'"
        ) from None
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_CREDENTIALS_BYTES)
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "it is not text"
        raise ConfigurationError(f"the credentials for NATS cannot be read: {reason}") from None
    if "BEGIN NATS USER JWT" not in text or "BEGIN USER NKEY SEED" not in text:
        raise ConfigurationError("the credentials file for NATS has no user JWT and NKEY seed")
    return RawCredentials(text)
