"""A bus whose messages only the nodes of one registry can write.

The servers of a bus carry messages of everyone who may connect to them. So each message has a code
(HMAC-SHA-256) with a key that the nodes derive from the registry's signing key. The code covers
the subject, the sender, the time and a number. A message that is forged, late, or heard before is
dropped and counted. Only requests get answers, and an answer is valid for its request alone.
"""

from __future__ import annotations

import hmac
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from struct import Struct

from exec_server.hub.bus import Answer, Bus, BusUnavailable, Receive, StoredValue, Unsubscribe

logger = logging.getLogger(__name__)

# A message begins with its code, its sender, the time in milliseconds and its number.
_CODE_BYTES = 16
_HEAD = Struct("!8sQQ")
_HEAD_BYTES = _CODE_BYTES + _HEAD.size
# The clocks of nodes may differ by this, and a message may take so long.
_SECONDS = 120.0
# The numbers of each sender that are remembered for a subject. Messages of one sender overtake one
# another only while the servers of the bus change.
_REMEMBERED = 1024
# At most one line is logged in this time.
_LOG_SECONDS = 60.0

_MESSAGE, _REQUEST, _ANSWER, _VALUE = b"message", b"request", b"answer", b"value"


class SignedBus:
    """A `Bus` over another one."""

    def __init__(self, bus: Bus, key: bytes, *, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._key = key
        self._clock = clock
        self._sender = os.urandom(8)
        self._number = 0
        self._logged_at: float | None = None
        # The messages, requests, answers and values that were dropped.
        self.rejected = 0

    @property
    def message_bytes(self) -> int:
        return self._bus.message_bytes - _HEAD_BYTES

    @property
    def connected_since(self) -> float | None:
        return self._bus.connected_since

    def publish(self, subject: str, data: bytes) -> None:
        self._bus.publish(subject, self._signed(_MESSAGE, subject, data))

    async def subscribe(self, subject: str, receive: Receive) -> Unsubscribe:
        heard = _Heard()

        def check(signed: bytes) -> None:
            data = self._checked(_MESSAGE, subject, signed, heard)
            if data is not None:
                receive(data)

        return await self._bus.subscribe(subject, check)

    async def answer(self, subject: str, answer: Answer) -> Unsubscribe:
        heard = _Heard()

        def check(signed: bytes) -> bytes:
            data = self._checked(_REQUEST, subject, signed, heard)
            if data is None:
                # The sender cannot read an answer anyway.
                return b""
            return self._signed(_ANSWER, _answer_subject(subject, signed), answer(data))

        return await self._bus.answer(subject, check)

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        timeout: float,  # noqa: ASYNC109 (a part of the contract)
    ) -> bytes | None:
        signed = self._signed(_REQUEST, subject, data)
        answer = await self._bus.request(subject, signed, timeout=timeout)
        if answer is None:
            return None
        found = self._checked(_ANSWER, _answer_subject(subject, signed), answer, _Heard())
        if found is None:
            raise BusUnavailable(f"an answer to {subject} is not from a node of this registry")
        return found

    async def read_value(self, key: str) -> StoredValue | None:
        """The value of *key*; a forged one is empty, and can be replaced by its revision."""
        stored = await self._bus.read_value(key)
        if stored is None:
            return None
        code, data = stored.value[:_CODE_BYTES], stored.value[_CODE_BYTES:]
        if not hmac.compare_digest(code, self._code(_VALUE, key, data)):
            self._reject(key)
            data = b""
        return StoredValue(data, stored.revision)

    async def compare_and_set(self, key: str, value: bytes, *, after: int) -> int | None:
        signed = self._code(_VALUE, key, value) + value
        return await self._bus.compare_and_set(key, signed, after=after)

    async def close(self) -> None:
        await self._bus.close()

    # Codes.

    def _code(self, kind: bytes, subject: str, data: bytes) -> bytes:
        # Neither a kind nor a subject contains a zero byte, so no two inputs are equal.
        signed = b"\0".join((kind, subject.encode(), data))
        return hmac.digest(self._key, signed, "sha256")[:_CODE_BYTES]

    def _signed(self, kind: bytes, subject: str, data: bytes) -> bytes:
        self._number += 1
        head = _HEAD.pack(self._sender, int(self._clock() * 1000), self._number)
        content = head + data
        return self._code(kind, subject, content) + content

    def _checked(self, kind: bytes, subject: str, signed: bytes, heard: _Heard) -> bytes | None:
        """The content of a message; None if it has to be dropped."""
        content = signed[_CODE_BYTES:]
        code = self._code(kind, subject, content)
        if len(signed) < _HEAD_BYTES or not hmac.compare_digest(signed[:_CODE_BYTES], code):
            self._reject(subject)
            return None
        sender, milliseconds, number = _HEAD.unpack_from(content)
        now = self._clock()
        if abs(now - milliseconds / 1000) > _SECONDS:
            self._reject(subject, "the clocks of the nodes differ too much, or it is a replay")
            return None
        if not heard.is_new(sender, number, now=now):
            # The bus doubles messages while its servers change, so this is no reason to warn.
            self.rejected += 1
            return None
        return content[_HEAD.size :]

    def _reject(self, subject: str, why: str = "it is not from a node of this registry") -> None:
        self.rejected += 1
        now = self._clock()
        if self._logged_at is None or now - self._logged_at > _LOG_SECONDS:
            self._logged_at = now
            logger.warning("a message on the bus (%s) was dropped: %s", subject, why)


def _answer_subject(subject: str, request: bytes) -> str:
    """The subject of the answer to one request."""
    return f"{subject} {request[:_CODE_BYTES].hex()}"


class _Heard:
    """The numbers that were heard on one subject, by sender."""

    def __init__(self) -> None:
        self._senders: dict[bytes, _HeardNumbers] = {}

    def is_new(self, sender: bytes, number: int, *, now: float) -> bool:
        numbers = self._senders.get(sender)
        if numbers is None:
            # A sender that was silent for so long can only come back with newer numbers, because
            # its old messages are too late.
            self._senders = {
                each: kept
                for each, kept in self._senders.items()
                if now - kept.heard_at <= 2 * _SECONDS
            }
            numbers = self._senders[sender] = _HeardNumbers()
        numbers.heard_at = now
        return numbers.add(number)


class _HeardNumbers:
    """The last numbers of one sender. All that are not larger than the first count as heard."""

    __slots__ = ("_first", "_numbers", "_order", "heard_at")

    def __init__(self) -> None:
        self._first = 0
        self._numbers: set[int] = set()
        self._order: deque[int] = deque()
        self.heard_at = 0.0

    def add(self, number: int) -> bool:
        if number <= self._first or number in self._numbers:
            return False
        self._numbers.add(number)
        self._order.append(number)
        if len(self._order) > _REMEMBERED:
            oldest = self._order.popleft()
            self._numbers.discard(oldest)
            self._first = max(self._first, oldest)
        return True
