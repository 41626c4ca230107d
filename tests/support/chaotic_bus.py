"""A bus that behaves as badly as its contract allows, the same way for the same seed."""

from __future__ import annotations

import asyncio
import random
from typing import Literal, NamedTuple

from exec_server.hub.bus import Answer, Bus, BusUnavailable, Receive, StoredValue, Unsubscribe

Fate = Literal["lose", "double", "delay", "pass"]

_LATE_SECONDS = 0.01


class Rates(NamedTuple):
    """The probability of each fault, between 0 and 1. With all zero the bus below is unchanged."""

    # Faults of published messages, and of the answers to requests.
    lose: float = 0.0
    double: float = 0.0
    # A message is overtaken by up to `places` later ones to any subject.
    delay: float = 0.0
    places: int = 4
    # A `compare_and_set` fails before or after it has taken effect.
    set_undone: float = 0.0
    set_done: float = 0.0


class ChaoticBus:
    """Wraps one end of a bus. Each end has its own dice, rolled in the order of its calls."""

    def __init__(self, bus: Bus, *, seed: int = 0, rates: Rates = Rates()) -> None:  # noqa: B008
        self._bus = bus
        self._random = random.Random(seed)
        self._loop = asyncio.get_running_loop()
        self.rates = rates
        self._back_since: float | None = None
        self._is_cut_off = False
        self._delayed: list[_Delayed] = []
        # The number of faults, so that a test can check that there were some.
        self.fates: dict[Fate, int] = {"lose": 0, "double": 0, "delay": 0, "pass": 0}

    # Methods for tests.

    def cut_off(self) -> None:
        """Lose all messages from and to this node from now on."""
        self._is_cut_off = True
        self._delayed.clear()

    def let_back(self) -> None:
        self._is_cut_off = False
        self._back_since = self._loop.time()

    def settle(self) -> None:
        """Cause no more faults, and deliver the delayed messages."""
        self._overtake(self.rates.places)
        self.rates = Rates()

    # The contract.

    @property
    def message_bytes(self) -> int:
        return self._bus.message_bytes

    @property
    def connected_since(self) -> float | None:
        since = self._bus.connected_since
        if since is None or self._is_cut_off:
            return None
        return max(since, self._back_since or since)

    def publish(self, subject: str, data: bytes) -> None:
        if self._is_cut_off:
            return
        fate = self._roll()
        if fate == "delay":
            self._overtake(1)
            places = self._random.randint(1, self.rates.places)
            self._delayed.append(_Delayed(places, subject, data))
            # On a quiet bus no message overtakes it, and it is only late.
            self._loop.call_later(_LATE_SECONDS, self._overtake, self.rates.places)
            return
        for _ in range({"lose": 0, "double": 2}.get(fate, 1)):
            self._bus.publish(subject, data)
        self._overtake(1)

    async def subscribe(self, subject: str, receive: Receive) -> Unsubscribe:
        self._check_reachable()

        def receive_unless_cut_off(data: bytes) -> None:
            if not self._is_cut_off:
                receive(data)

        return await self._bus.subscribe(subject, receive_unless_cut_off)

    async def answer(self, subject: str, answer: Answer) -> Unsubscribe:
        self._check_reachable()

        def answer_unless_cut_off(data: bytes) -> bytes:
            if self._is_cut_off:
                raise _NotHeard
            return answer(data)

        return await self._bus.answer(subject, answer_unless_cut_off)

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        timeout: float,  # noqa: ASYNC109 (a part of the contract)
    ) -> bytes | None:
        self._check_reachable()
        fate = self._roll()
        answer = await self._bus.request(subject, data, timeout=timeout)
        if fate == "double":
            answer = await self._bus.request(subject, data, timeout=timeout)
        if fate == "delay":
            await asyncio.sleep(0)
        self._check_reachable()
        # Servers report that no node answers, and that message can be lost as well.
        if fate == "lose":
            raise BusUnavailable("the answer was lost")
        return answer

    async def read_value(self, key: str) -> StoredValue | None:
        self._check_reachable()
        return await self._bus.read_value(key)

    async def compare_and_set(self, key: str, value: bytes, *, after: int) -> int | None:
        self._check_reachable()
        chance = self._random.random()
        if chance < self.rates.set_undone:
            raise BusUnavailable("the value was lost")
        revision = await self._bus.compare_and_set(key, value, after=after)
        if self._is_cut_off or chance > 1 - self.rates.set_done:
            raise BusUnavailable("the answer was lost")
        return revision

    async def close(self) -> None:
        self._delayed.clear()
        await self._bus.close()

    def _roll(self) -> Fate:
        chance = self._random.random()
        fate: Fate = "pass"
        if chance < self.rates.lose:
            fate = "lose"
        elif chance < self.rates.lose + self.rates.double:
            fate = "double"
        elif chance < self.rates.lose + self.rates.double + self.rates.delay:
            fate = "delay"
        self.fates[fate] += 1
        return fate

    def _overtake(self, count: int) -> None:
        """*count* messages were sent: deliver those that were overtaken often enough."""
        before, self._delayed = self._delayed, []
        for message in before:
            later = message._replace(places=message.places - count)
            if later.places > 0:
                self._delayed.append(later)
            else:
                self._bus.publish(message.subject, message.data)

    def _check_reachable(self) -> None:
        if self._is_cut_off:
            raise BusUnavailable("this node is cut off")


class _Delayed(NamedTuple):
    """A published message, and how many later ones still overtake it."""

    places: int
    subject: str
    data: bytes


class _NotHeard(Exception):
    """The answer was lost."""
