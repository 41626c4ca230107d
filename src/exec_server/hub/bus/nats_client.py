"""nats-py's client, changed where a long-lived node needs it.

This is the only module that uses private parts of the library. It overrides methods that would send
secrets unencrypted or stop working for good. `tests/hub/bus/test_nats_private_parts.py` lists these
parts and fails if a release of the library changes them. pyproject.toml excludes releases that were
not tested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from nats.aio.client import PING_PROTO
from nats.aio.client import Client as LibraryClient
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import SecureConnWantedError, StaleConnectionError

_CANCEL_SECONDS = 0.1


class Delivery(asyncio.Future[Any]):
    """A future that passes every result to *take*, so that the library calls us with each message.

    The library offers a queue with a task for each subscription, or a future for a single message.
    This future takes any number of messages. It needs no queue and no task, and drops nothing.
    """

    def __init__(self, take: Callable[[Msg], None]) -> None:
        super().__init__()
        self._take = take

    def set_result(self, result: Any) -> None:
        self._take(result)


class NatsClient(LibraryClient):
    """The library's client with our overrides."""

    def __init__(self, *, needs_tls: bool) -> None:
        super().__init__()
        self._needs_tls = needs_tls

    @property
    def known_servers(self) -> int:
        """The number of servers that the connected server knows of."""
        return len(self._server_info.get("connect_urls") or ())

    @property
    def has_jetstream(self) -> bool:
        """True if the connected server offers JetStream. Another one of its cluster may differ."""
        return bool(self._server_info.get("jetstream"))

    async def listen(self, subject: str, take: Callable[[Msg], None]) -> Subscription:
        """Call *take* with each message to *subject*."""
        return await self.subscribe(subject, future=Delivery(take))

    async def arrived(self, patience: float) -> None:
        """Return when the server has received everything that was sent before."""
        # The library's annotation is narrower than what it does.
        await self.flush(patience)  # type: ignore[arg-type]
        if not self.is_connected:
            raise StaleConnectionError

    def abort(self) -> None:
        """Drop the socket at once, without a goodbye."""
        writer = getattr(self._transport, "_io_writer", None)
        self._transport = None
        if writer is not None:
            writer.transport.abort()

    async def stop_reconnecting(self) -> None:
        if self._reconnection_task is not None:
            await end(self._reconnection_task)

    def _connect_command(self) -> bytes:
        # The library encrypts only if the server asks for it. An attacker who answers in place of
        # the server would not ask, and would receive the password in this command.
        if self._needs_tls and not self._server_info.get("tls_required"):
            raise SecureConnWantedError
        return super()._connect_command()

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        # The library writes a ping ahead of commands that wait to be flushed, so the answer would
        # not prove that these have arrived.
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    async def _process_pong(self) -> None:
        # The library stops reading at the answer to a flush that was cancelled.
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()


async def end(task: asyncio.Task[Any]) -> None:
    """Cancel *task*, which waits for the library, until it is done.

    The library loses a cancellation that comes at the end of an attempt to connect, and would try
    to connect for ever.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_SECONDS)
