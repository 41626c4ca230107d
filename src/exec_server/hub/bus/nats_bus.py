"""The bus of several nodes: subjects of a NATS cluster, and a KV bucket for compare-and-set.

Importing this module without nats-py raises ConfigurationError.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterator

from exec_server.errors import ConfigurationError

try:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.errors import Error, NoRespondersError
except ImportError as exc:
    raise ConfigurationError(
        "a registry of several nodes needs more packages: pip install 'exec-server[cluster]'"
    ) from exc

from exec_server.hub.bus import Answer, BusUnavailable, Receive, StoredValue, Unsubscribe
from exec_server.hub.bus.nats_client import NatsClient, end
from exec_server.hub.bus.nats_compare_and_set import CompareAndSet
from exec_server.hub.bus.nats_connection import NatsConnection
from exec_server.hub.bus.nats_dialling import Dialling
from exec_server.hub.bus.nats_outbox import Outbox
from exec_server.hub.bus.nats_url import parse_nats_url
from exec_server.hub.bus.subjects import VALUE_BYTES, check_length, check_subject, check_word
from exec_server.limits import DEFAULT_LIMITS, Limits

logger = logging.getLogger(__name__)


class NatsBus:
    """One node's connection to the NATS cluster; made by `open`."""

    _values: CompareAndSet

    def __init__(self, how: Dialling, *, name: str) -> None:
        self._how = how
        self._limits = how.limits
        # Requests have subjects of their own. NATS reports "no responders" if a subject has no
        # subscription, so only those that answer may subscribe to it.
        self._messages = f"exec-server.{name}.message."
        self._requests = f"exec-server.{name}.request."
        self._bucket = f"exec-server-{name}"
        self._connection = NatsConnection(how, self._move)
        self._listeners: set[_NatsListener] = set()
        self._outbox = Outbox(how.limits.bus_waiting_bytes)
        self._pump: asyncio.Task[None] | None = None
        self._is_closed = False

    @staticmethod
    async def open(
        url: str,
        *,
        name: str,
        credentials: str | None = None,
        tls: ssl.SSLContext | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> NatsBus:
        """Connect to the servers at *url*, for the registry with this *name*, which is one word.

        *url* is `nats://[user:password@|token@]host:port[,host:port...]`, or `tls://...` to refuse
        unencrypted connections; *credentials* is a credentials file of NATS. Raises
        ConfigurationError if the servers do not answer, refuse us or have no JetStream.
        """
        how = Dialling(
            url=parse_nats_url(url),
            label=f"exec-server {check_word(name)}",
            credentials=credentials,
            tls=tls,
            limits=limits,
        )
        bus = NatsBus(how, name=name)
        await bus._open()
        return bus

    def __repr__(self) -> str:
        return f"NatsBus({self._how.url})"

    async def _open(self) -> None:
        await self._connection.open()
        try:
            self._values = self._make_values()
            await self._values.prepare()
        except Error as exc:
            await self._connection.close()
            raise ConfigurationError(f"NATS at {self._how.url} cannot keep values: {exc}") from exc
        except BaseException:
            await self._connection.close()
            raise
        self._pump = asyncio.create_task(self._send_for_ever(), name="publish")

    def _make_values(self) -> CompareAndSet:
        client = self._connection.client
        return CompareAndSet(
            client, self._bucket, servers=len(self._how.url.servers), limits=self._limits
        )

    async def close(self) -> None:
        if self._is_closed or self._pump is None:
            return
        self._is_closed = True
        with contextlib.suppress(Error, OSError, TimeoutError):
            async with asyncio.timeout(self._limits.bus_timeout):
                await self._leave()
        self._outbox.clear("the bus was closed")
        await end(self._pump)
        await self._connection.close()
        self._listeners.clear()

    async def _leave(self) -> None:
        """Send the last messages, and end the subscriptions."""
        await self._outbox.emptied()
        for listener in list(self._listeners):
            await self._stop(listener)
        if self._connection.since is not None:
            await self._arrived()

    @property
    def message_bytes(self) -> int:
        return self._connection.client.max_payload

    @property
    def connected_since(self) -> float | None:
        return None if self._is_closed else self._connection.since

    @property
    def lost_messages(self) -> int:
        """How many of this node's messages were not sent."""
        return self._outbox.lost

    # Outgoing messages.

    def publish(self, subject: str, data: bytes) -> None:
        check_subject(subject)
        check_length(data, self.message_bytes)
        self._send(self._messages + subject, data)

    def _send(self, subject: str, data: bytes) -> None:
        if self.connected_since is None:
            self._outbox.lose(1, "the bus is away")
        else:
            self._outbox.put(subject, data)

    async def _send_for_ever(self) -> None:
        # The library may swallow a cancellation, so the flag ends this loop as well.
        while not self._is_closed or self._outbox:
            await self._outbox.filled()
            while self._outbox:
                await self._send_next()
            self._outbox.went_out()

    async def _send_next(self) -> None:
        if self._connection.since is None:
            self._outbox.clear("the bus is away")
            return
        subject, data = self._outbox.take()
        try:
            # This waits while the socket is full.
            await self._connection.client.publish(subject, data)
        except Exception as exc:
            # An error with one message must not stop the next ones.
            self._outbox.lose(1, f"{type(exc).__name__}: {exc}")

    # Incoming messages.

    async def subscribe(self, subject: str, receive: Receive) -> Unsubscribe:
        def take(message: Msg) -> None:
            receive(message.data)

        return await self._listen(self._messages + check_subject(subject), take)

    async def answer(self, subject: str, answer: Answer) -> Unsubscribe:
        def take(message: Msg) -> None:
            self._send(message.reply, check_length(answer(message.data), self.message_bytes))

        return await self._listen(self._requests + check_subject(subject), take)

    async def _listen(self, subject: str, take: Callable[[Msg], None]) -> Unsubscribe:
        def take_safely(message: Msg) -> None:
            try:
                take(message)
            except Exception:
                logger.exception("a receiver of %s failed", subject)

        listener = _NatsListener(subject, take_safely)

        with self._reaching():
            self._listeners.add(listener)
            try:
                await listener.start(self._connection.client)
                # A message that is published after we return is received.
                await self._arrived()
            except BaseException:
                await self._stop(listener)
                raise

        async def unsubscribe() -> None:
            if listener in self._listeners:
                await self._stop(listener)
                # A request that is sent after we return is told that there is no responder.
                with contextlib.suppress(Error, OSError):
                    await self._arrived()

        return unsubscribe

    async def _stop(self, listener: _NatsListener) -> None:
        self._listeners.discard(listener)
        with contextlib.suppress(Error, OSError):
            await listener.stop()

    async def _arrived(self) -> None:
        await self._connection.client.arrived(self._limits.bus_timeout)

    async def _move(self) -> None:
        """Move the values and all subscriptions to the new client."""
        self._values = self._make_values()
        for listener in list(self._listeners):
            if listener in self._listeners:
                await listener.start(self._connection.client)

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        timeout: float,  # noqa: ASYNC109 (a part of the contract)
    ) -> bytes | None:
        check_subject(subject)
        check_length(data, self.message_bytes)
        with self._reaching():
            try:
                answer = await self._connection.client.request(
                    self._requests + subject, data, timeout=timeout
                )
            except NoRespondersError:
                return None
            return answer.data

    # Compare-and-set.

    async def read_value(self, key: str) -> StoredValue | None:
        check_word(key)
        with self._reaching():
            return await self._values.read_value(key)

    async def compare_and_set(self, key: str, value: bytes, *, after: int) -> int | None:
        check_word(key)
        check_length(value, VALUE_BYTES)
        with self._reaching():
            return await self._values.compare_and_set(key, value, after=after)

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turn errors of a call that needs the servers into BusUnavailable."""
        if self.connected_since is None:
            raise BusUnavailable("the bus is away")
        try:
            yield
        except (Error, OSError, TimeoutError, ValueError) as exc:
            raise BusUnavailable(f"the bus does not answer: {str(exc) or 'timeout'}") from exc


class _NatsListener:
    """A subscription, which moves from one client to the next."""

    def __init__(self, subject: str, take: Callable[[Msg], None]) -> None:
        self._subject = subject
        self._take = take
        self._subscription: Subscription | None = None

    async def start(self, client: NatsClient) -> None:
        self._subscription = await client.listen(self._subject, self._take)

    async def stop(self) -> None:
        if self._subscription is not None:
            await self._subscription.unsubscribe()
