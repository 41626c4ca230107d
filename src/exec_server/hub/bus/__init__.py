"""How the nodes of a registry talk to one another.

A bus is fast and forgetful: what is published reaches everybody who has subscribed and nobody else,
and may be lost, doubled or late while its servers change. Whoever uses it copes with that. Beside
the messages it keeps a fence: values that change only when the writer has seen the last one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from exec_server.errors import ExecServerError

# Called on the loop; must not wait.
Receive = Callable[[bytes], None]
Answer = Callable[[bytes], bytes]
Unsubscribe = Callable[[], Awaitable[None]]


class BusUnavailable(ExecServerError):
    """The bus cannot be reached now, or does not answer in time."""


class Held(msgspec.Struct, frozen=True):
    """A value behind the fence. Its revision grows with every change."""

    value: bytes
    revision: int


class Bus(Protocol):
    """Subjects are words of letters, digits, `-` and `_` between dots; they are this registry's.

    What no bus could carry, a name of other letters or something too long, is a ValueError.
    """

    @property
    def message_bytes(self) -> int:
        """The longest message."""

    @property
    def connected_since(self) -> float | None:
        """The loop's time at which messages began to flow again; None while they do not."""

    def publish(self, subject: str, data: bytes) -> None:
        """Never waits. What cannot be sent soon is lost."""

    async def subscribe(self, subject: str, receive: Receive) -> Unsubscribe:
        """Hear what is published to exactly *subject*. Raises BusUnavailable."""

    async def answer(self, subject: str, answer: Answer) -> Unsubscribe:
        """Answer requests to exactly *subject*. Raises BusUnavailable."""

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        timeout: float,  # noqa: ASYNC109 (whoever implements it knows best how)
    ) -> bytes | None:
        """The first answer; None at once when nobody answers to *subject*.

        Raises BusUnavailable when no answer came in time, or none can come.
        """

    async def held(self, key: str) -> Held | None:
        """What the fence holds for *key*, a word. Raises BusUnavailable."""

    async def hold(self, key: str, value: bytes, *, after: int) -> int | None:
        """Replace the value of revision *after* (0: there is none) and return the new revision.

        A value has 64 KiB at most.

        None when another value has come meanwhile. Raises BusUnavailable; then it is not known
        whether the value was replaced.
        """

    async def close(self) -> None: ...
