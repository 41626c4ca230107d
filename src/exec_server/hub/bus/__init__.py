"""The bus: how the nodes of a registry talk to one another.

    subjects.py              which subjects, keys and lengths every bus accepts
    memory_bus.py            the bus of a single node, and of several nodes in one process
    signed_bus.py            a bus whose messages only nodes of this registry can write
    nats_bus.py              the bus of several nodes, over NATS
    nats_client.py           nats-py's client; the only module that uses its private parts
    nats_dialling.py         how a client is connected and closed
    nats_connection.py       a connection that is replaced whenever the library gives it up
    nats_outbox.py           the bounded queue of messages to publish
    nats_compare_and_set.py  values that change by compare-and-set, in a KV bucket of NATS
    nats_url.py              the URL of the NATS servers

A message reaches the nodes that are subscribed at that moment. It may be lost, doubled or late
while the servers of the bus change, and the users of the bus must cope with that. The bus also
keeps a few values that change by compare-and-set: a write succeeds only if its writer has seen the
last value.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from exec_server.errors import ExecServerError

# Called on the event loop; these must not wait.
Receive = Callable[[bytes], None]
Answer = Callable[[bytes], bytes]
Unsubscribe = Callable[[], Awaitable[None]]


class BusUnavailable(ExecServerError):
    """The bus cannot be reached now, or does not answer in time."""


class StoredValue(msgspec.Struct, frozen=True):
    """A value that changes by compare-and-set. Its revision grows with every change."""

    value: bytes
    revision: int


class Bus(Protocol):
    """Subjects are words of letters, digits, `-` and `_`, joined by dots.

    Each registry has subjects of its own. A subject or key with other characters, or data that is
    too long, is a ValueError.
    """

    @property
    def message_bytes(self) -> int:
        """The length of the longest message."""

    @property
    def connected_since(self) -> float | None:
        """The loop's time at which the connection was made; None while there is none."""

    def publish(self, subject: str, data: bytes) -> None:
        """Send a message without waiting. It is lost if it cannot be sent soon."""

    async def subscribe(self, subject: str, receive: Receive) -> Unsubscribe:
        """Receive the messages that are published to exactly *subject*. Raises BusUnavailable."""

    async def answer(self, subject: str, answer: Answer) -> Unsubscribe:
        """Answer requests to exactly *subject*. Raises BusUnavailable."""

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        timeout: float,  # noqa: ASYNC109 (each bus has its own way to wait)
    ) -> bytes | None:
        """The first answer; None at once if no node answers requests to *subject*.

        Raises BusUnavailable if no answer came in time, or none can come.
        """

    async def read_value(self, key: str) -> StoredValue | None:
        """The value of *key*, which is one word. Raises BusUnavailable."""

    async def compare_and_set(self, key: str, value: bytes, *, after: int) -> int | None:
        """Replace the value of revision *after* (0: there is none) and return the new revision.

        Returns None if the value has another revision by now. A value has at most 64 KiB. After
        BusUnavailable it is not known whether the value was replaced.
        """

    async def close(self) -> None: ...
