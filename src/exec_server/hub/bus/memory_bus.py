"""The bus of a single node, and of several nodes in one process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from exec_server.hub.bus import Answer, BusUnavailable, Receive, StoredValue, Unsubscribe
from exec_server.hub.bus.subjects import VALUE_BYTES, check_length, check_subject, check_word

logger = logging.getLogger(__name__)

Listener = TypeVar("Listener", Receive, Answer)

# The default of NATS servers, so that nodes behave alike with both buses.
_MESSAGE_BYTES = 1024 * 1024


class Medium:
    """The subscriptions and values that the buses of one process share."""

    def __init__(self, *, message_bytes: int = _MESSAGE_BYTES) -> None:
        self.message_bytes = message_bytes
        # By subject, then by an object that is unique to each subscription.
        self.receivers: dict[str, dict[object, Receive]] = {}
        self.answers: dict[str, dict[object, Answer]] = {}
        self.values: dict[str, StoredValue] = {}
        self.revision = 0


class MemoryBus:
    """One end of a medium. It is made inside a running loop, the same for all ends of a medium."""

    def __init__(self, medium: Medium | None = None) -> None:
        self._medium = medium or Medium()
        # True if other nodes may be on it.
        self.is_shared = medium is not None
        self._loop = asyncio.get_running_loop()
        self._connected_since: float | None = self._loop.time()
        self._subscriptions: dict[object, Callable[[], None]] = {}

    @property
    def message_bytes(self) -> int:
        return self._medium.message_bytes

    @property
    def connected_since(self) -> float | None:
        return self._connected_since

    def publish(self, subject: str, data: bytes) -> None:
        check_subject(subject)
        check_length(data, self.message_bytes)
        if self._connected_since is not None:
            self._loop.call_soon(self._deliver, subject, data)

    def _deliver(self, subject: str, data: bytes) -> None:
        receivers = self._medium.receivers.get(subject, {})
        for token, receive in list(receivers.items()):
            # The receiver before this one may have ended the subscription.
            if token not in receivers:
                continue
            try:
                receive(data)
            except Exception:
                logger.exception("a receiver of %s failed", subject)

    async def subscribe(self, subject: str, receive: Receive) -> Unsubscribe:
        return self._listen(self._medium.receivers, subject, receive)

    async def answer(self, subject: str, answer: Answer) -> Unsubscribe:
        return self._listen(self._medium.answers, subject, answer)

    def _listen(
        self, listeners: dict[str, dict[object, Listener]], subject: str, listener: Listener
    ) -> Unsubscribe:
        self._check_open()
        token = object()
        listeners.setdefault(check_subject(subject), {})[token] = listener

        def forget() -> None:
            here = listeners.get(subject, {})
            here.pop(token, None)
            if not here:
                listeners.pop(subject, None)

        async def unsubscribe() -> None:
            forget()
            self._subscriptions.pop(token, None)

        self._subscriptions[token] = forget
        return unsubscribe

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        timeout: float,  # noqa: ASYNC109 (a part of the contract)
    ) -> bytes | None:
        check_subject(subject)
        check_length(data, self.message_bytes)
        self._check_open()
        answered: asyncio.Future[bytes | None] = self._loop.create_future()
        self._loop.call_soon(self._ask, subject, data, answered)
        # An answer takes no time here; *timeout* is for other buses.
        return await answered

    def _ask(self, subject: str, data: bytes, answered: asyncio.Future[bytes | None]) -> None:
        answers = list(self._medium.answers.get(subject, {}).values())
        outcomes = [self._outcome(subject, answer, data) for answer in answers]
        given = [outcome for outcome in outcomes if outcome is not None]
        if answered.done():
            return
        if outcomes and not given:
            answered.set_exception(BusUnavailable(f"all receivers of requests to {subject} failed"))
        else:
            answered.set_result(given[0] if given else None)

    def _outcome(self, subject: str, answer: Answer, data: bytes) -> bytes | None:
        try:
            return check_length(answer(data), self.message_bytes)
        except Exception:
            logger.exception("an answer to %s failed", subject)
            return None

    async def read_value(self, key: str) -> StoredValue | None:
        self._check_open()
        return self._medium.values.get(check_word(key))

    async def compare_and_set(self, key: str, value: bytes, *, after: int) -> int | None:
        self._check_open()
        check_length(value, VALUE_BYTES)
        before = self._medium.values.get(check_word(key))
        if after != (before.revision if before is not None else 0):
            return None
        self._medium.revision += 1
        self._medium.values[key] = StoredValue(value, self._medium.revision)
        return self._medium.revision

    async def close(self) -> None:
        self._connected_since = None
        for forget in self._subscriptions.values():
            forget()
        self._subscriptions.clear()

    def _check_open(self) -> None:
        if self._connected_since is None:
            raise BusUnavailable("the bus is closed")
