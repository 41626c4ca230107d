"""The bytes in the queues of a node, and the shares that environments and tokens have in them.

The queues of one environment must not hold up another one. While memory is full, an environment
with more than its fair part waits. If one with less needs memory, the environment with the largest
share drops a queue. Nothing here waits or reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet, WeakValueDictionary

Wake = Callable[[], None]


class Holder(Protocol):
    """An exchange, whose queues belong to the share of its environment."""

    def largest_queue(self) -> int:
        """The bytes that `drop_largest_queue` would free."""

    def drop_largest_queue(self, reason: str) -> None:
        """Disconnect the peer that does not read its queue."""


class QueueShare:
    """The bytes that wait for the harnesses with one token, or for one environment."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[object, Wake] = {}
        self.used = 0

    @property
    def must_wait(self) -> bool:
        """True if no more should be queued."""
        return self.used > self._most

    def take(self, size: int) -> None:
        self.used += size

    def give_back(self, size: int) -> None:
        self.used -= size
        if self._waiting and self.used <= self._most * 3 // 4 and not self.must_wait:
            self.wake_all()

    def when_free(self, key: object, wake: Wake) -> None:
        """Call *wake* when more may be queued. A second call with the same key changes nothing."""
        self._waiting[key] = wake

    def wake_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for wake in waiting.values():
            wake()


class EnvironmentShare(QueueShare):
    """The share of one environment. Its bytes are also counted for the whole node."""

    def __init__(self, memory: Memory, most: int) -> None:
        super().__init__(most)
        self._memory = memory
        self.holders: WeakSet[Holder] = WeakSet()

    @property
    def must_wait(self) -> bool:
        return self.used > self._most or (self._memory.is_full and not self._memory.is_fair(self))

    def take(self, size: int) -> None:
        self._memory.take(size, is_first=not self.used)
        super().take(size)

    def give_back(self, size: int) -> None:
        super().give_back(size)
        self._memory.give_back(size, is_last=not self.used)

    def when_free(self, key: object, wake: Wake) -> None:
        super().when_free(key, wake)
        self._memory.waiting.add(self)


class Memory:
    """The bytes in all queues of a node together."""

    def __init__(self, limit: int, *, share: int | None = None) -> None:
        """*share* is the most that one environment may have, and one token."""
        self._limit = limit
        self._share = limit if share is None else share
        # Exchanges hold the shares of their environments, and harnesses those of their tokens.
        self._environments: WeakValueDictionary[str, EnvironmentShare] = WeakValueDictionary()
        self._tokens: WeakValueDictionary[str, QueueShare] = WeakValueDictionary()
        # The number of environments that have bytes in queues.
        self._active = 0
        self.waiting: WeakSet[EnvironmentShare] = WeakSet()
        self.used = 0
        # How many peers were disconnected because other environments needed memory.
        self.dropped = 0

    @property
    def is_full(self) -> bool:
        return self.used > self._limit

    def is_fair(self, share: QueueShare) -> bool:
        """True if *share* has at most its part of an equal distribution."""
        return share.used * max(self._active, 1) <= self._limit

    def environment(self, environment_id: str) -> EnvironmentShare:
        share = self._environments.get(environment_id)
        if share is None:
            share = self._environments[environment_id] = EnvironmentShare(self, self._share)
        return share

    def token(self, token_id: str) -> QueueShare:
        """The share of a harness's token; an unknown token, which is empty, has one of its own."""
        share = self._tokens.get(token_id)
        if share is None or not token_id:
            share = self._tokens[token_id] = QueueShare(self._share)
        return share

    def make_room(self) -> None:
        """Drop the longest queues of the largest environments until memory is not full."""
        while self.is_full:
            largest = max(self._environments.values(), key=lambda share: share.used)
            holder = max(largest.holders, key=lambda each: each.largest_queue(), default=None)
            if holder is None or not holder.largest_queue():
                return
            self.dropped += 1
            holder.drop_largest_queue("other environments need the registry's memory")

    # For the shares.

    def take(self, size: int, *, is_first: bool) -> None:
        self._active += is_first
        self.used += size

    def give_back(self, size: int, *, is_last: bool) -> None:
        self._active -= is_last
        self.used -= size
        if self.waiting and self.used <= self._limit * 3 // 4:
            waiting, self.waiting = self.waiting, WeakSet()
            for share in waiting:
                if share.must_wait:
                    self.waiting.add(share)
                else:
                    share.wake_all()
