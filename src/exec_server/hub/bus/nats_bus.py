"""The bus of several nodes: subjects of a NATS cluster, and a KV bucket as its fence.

Importing it without nats-py is a ConfigurationError.
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

from exec_server.hub.bus import Answer, BusUnavailable, Held, Receive, Unsubscribe
from exec_server.hub.bus.nats_client import Client, Dialling, end
from exec_server.hub.bus.nats_compare_and_set import Fence
from exec_server.hub.bus.nats_connection import Connection
from exec_server.hub.bus.nats_outbox import Outbox
from exec_server.hub.bus.nats_url import parse_nats_url
from exec_server.hub.bus.subjects import HELD_BYTES, check_length, check_subject, check_word
from exec_server.limits import DEFAULT_LIMITS, Limits

logger = logging.getLogger(__name__)


class NatsBus:
    """One node's place in the cluster; made by `open`."""

    _fence: Fence

    def __init__(self, how: Dialling, *, name: str) -> None:
        self._how = how
        self._limits = how.limits
        # Requests are apart from messages: servers know who answers by who listens.
        self._messages = f"exec-server.{name}.message."
        self._requests = f"exec-server.{name}.request."
        self._bucket = f"exec-server-{name}"
        self._connection = Connection(how, self._move)
        self._listeners: set[_Listener] = set()
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
        """Connect to the servers at *url*, for a registry that is called *name*, a word.

        *url* is `nats://[user:password@|token@]host:port[,host:port...]`, or `tls://...` where
        nothing may travel unencrypted; *credentials* is a file of NATS's own kind. Raises
        ConfigurationError when they are not there, do not let us in or have no JetStream.
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
            self._fence = self._make_fence()
            await self._fence.prepare()
        except Error as exc:
            await self._connection.close()
            raise ConfigurationError(f"NATS at {self._how.url} has no fence: {exc}") from exc
        except BaseException:
            await self._connection.close()
            raise
        self._pump = asyncio.create_task(self._send_for_ever(), name="publish")

    def _make_fence(self) -> Fence:
        client = self._connection.client
        return Fence(client, self._bucket, servers=len(self._how.url.servers), limits=self._limits)

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
        """The servers get this node's last words, and know that it does not answer any more."""
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

    # Messages that go out.

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
        # The library may swallow a cancellation.
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
            # Waits while the socket takes no more.
            await self._connection.client.publish(subject, data)
        except Exception as exc:
            # Whatever the library thinks of one message, the next ones are sent.
            self._outbox.lose(1, f"{type(exc).__name__}: {exc}")

    # Messages that come in.

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
                logger.exception("whoever listens to %s failed", subject)

        listener = _Listener(subject, take_safely)

        with self._reaching():
            self._listeners.add(listener)
            try:
                await listener.start(self._connection.client)
                # Whoever publishes after we return is heard.
                await self._arrived()
            except BaseException:
                await self._stop(listener)
                raise

        async def unsubscribe() -> None:
            if listener in self._listeners:
                await self._stop(listener)
                # Whoever asks after we return learns that nobody answers.
                with contextlib.suppress(Error, OSError):
                    await self._arrived()

        return unsubscribe

    async def _stop(self, listener: _Listener) -> None:
        self._listeners.discard(listener)
        with contextlib.suppress(Error, OSError):
            await listener.stop()

    async def _arrived(self) -> None:
        await self._connection.client.arrived(self._limits.bus_timeout)

    async def _move(self) -> None:
        """Everything that was bound to the client before is bound to the one we have now."""
        self._fence = self._make_fence()
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

    # The fence.

    async def held(self, key: str) -> Held | None:
        check_word(key)
        with self._reaching():
            return await self._fence.held(key)

    async def hold(self, key: str, value: bytes, *, after: int) -> int | None:
        check_word(key)
        check_length(value, HELD_BYTES)
        with self._reaching():
            return await self._fence.hold(key, value, after=after)

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Around what needs an answer of the servers."""
        if self.connected_since is None:
            raise BusUnavailable("the bus is away")
        try:
            yield
        except (Error, OSError, TimeoutError, ValueError) as exc:
            raise BusUnavailable(f"the bus does not answer: {str(exc) or 'timeout'}") from exc


class _Listener:
    """A subscription, on whichever client we have."""

    def __init__(self, subject: str, take: Callable[[Msg], None]) -> None:
        self._subject = subject
        self._take = take
        self._subscription: Subscription | None = None

    async def start(self, client: Client) -> None:
        self._subscription = await client.listen(self._subject, self._take)

    async def stop(self) -> None:
        if self._subscription is not None:
            await self._subscription.unsubscribe()
