"""How a client is connected to the NATS servers, and closed again."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from nats.aio.client import RawCredentials
from nats.errors import Error

from exec_server.errors import ConfigurationError
from exec_server.hub.bus.nats_client import NatsClient
from exec_server.hub.bus.nats_url import NatsUrl
from exec_server.limits import Limits

_CREDENTIALS_BYTES = 64 * 1024
# How many of our pings may be unanswered before the server counts as dead.
_UNANSWERED_PINGS = 2


class Dialling(msgspec.Struct, frozen=True, kw_only=True):
    """The servers and options of each connection."""

    url: NatsUrl
    # The name that the operator of the servers sees.
    label: str
    credentials: str | None
    tls: ssl.SSLContext | None
    limits: Limits


class Listening(msgspec.Struct, frozen=True):
    """Functions that are called when a connection changes, and with every error."""

    error: Callable[[Exception], Awaitable[None]]
    disconnected: Callable[[], Awaitable[None]]
    reconnected: Callable[[], Awaitable[None]]
    closed: Callable[[], Awaitable[None]]


async def dial(how: Dialling, listening: Listening) -> NatsClient:
    """Wait until a client is connected.

    Raises ConfigurationError if the credentials cannot be used, and whatever `listening.error`
    raises.
    """
    while True:
        client = NatsClient(needs_tls=how.url.is_tls)
        options = _options(how, listening)
        try:
            await client.connect(**options)
        except BaseException:
            # Waiting for the end of a connection whose handshake failed would never return.
            client.abort()
            await close(client, how.limits)
            raise
        # `connect` also returns if the server's first message was an unexpected one. Such a client
        # never becomes connected.
        if client.is_connected:
            return client
        await close(client, how.limits)


async def close(client: NatsClient, limits: Limits) -> None:
    """Close *client*, or abort its socket at a deadline."""
    try:
        async with asyncio.timeout(limits.bus_timeout):
            # The client may find or lose a server while it is being closed.
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
        # Our subjects are checked before.
        "skip_subject_validation": True,
    }


def _credentials(path: str | None) -> RawCredentials | None:
    """The content of a credentials file, checked, because the library never stops to look for a
    part that is missing.
    """
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
