"""Bounds the requests that run at the same time, so that each is done before its client gives up.

Thousands of executors come back together when a node dies. If all of them ran at once, each would
take as long as all together, and its executor would dial again before it is done. So a bounded
number of requests have a slot and run. The others wait in the order in which they came. A request
that would wait too long is refused before any of its work is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextvars import ContextVar

import msgspec

from exec_server.errors import ExecServerError
from exec_server.limits import Limits
from exec_server.prometheus import Metric

logger = logging.getLogger(__name__)


class Overloaded(ExecServerError):
    """The request was refused before any work was done, because too many wait."""

    retryable = True


class Patience(msgspec.Struct, frozen=True):
    """How a request waits: behind how many others at most, and for how many seconds."""

    others: int
    seconds: float


class AdmissionGate:
    """The slots of one node. They are given in the order of arrival."""

    def __init__(self, *, limits: Limits) -> None:
        self._limits = limits
        self._free = limits.hub_admissions
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._refused = 0
        self._is_overloaded = False
        # `brief` is for harnesses, which ask again soon. `dialling` is for executors, which dial
        # again after growing pauses. `long` is for clients that end after a refusal; they may still
        # queue when the queue is full for the others.
        waiting, seconds = limits.hub_admissions_waiting, limits.hub_long_admission_seconds
        self.brief = Patience(waiting, limits.hub_admission_seconds)
        self.dialling = Patience(waiting, seconds)
        self.long = Patience(2 * waiting, seconds)

    def metrics(self) -> list[Metric]:
        at_work = self._limits.hub_admissions - self._free
        return [
            Metric("admitted", "gauge", "Requests and upgrades that run.", at_work),
            Metric("waiting", "gauge", "Requests that wait for a slot.", len(self._waiting)),
            Metric(
                "overloads_total",
                "counter",
                "Requests that were refused because too many wait.",
                self._refused,
            ),
        ]

    async def enter(self, patience: Patience) -> None:
        """Take a slot for this task, until it calls `leave`. Raises Overloaded.

        This is not a context manager, because a socket would keep its slot for hours.
        """
        if self._free:
            self._free -= 1
        elif len(self._waiting) >= patience.others:
            raise self._overloaded()
        else:
            try:
                async with asyncio.timeout(patience.seconds):
                    await self._turn()
            except TimeoutError:
                raise self._overloaded() from None
        _slot.set(_Slot(self))

    async def _turn(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        try:
            await turn
        except BaseException:
            if not turn.cancelled():
                # The slot came at the moment of the cancellation, so it goes to the next one.
                self.pass_on()
            raise
        finally:
            self._waiting.pop(turn, None)

    def pass_on(self) -> None:
        """Give a free slot to the next request."""
        while self._waiting:
            turn, _ = self._waiting.popitem(last=False)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
        self._is_overloaded = False

    def _overloaded(self) -> Overloaded:
        self._refused += 1
        if not self._is_overloaded:
            self._is_overloaded = True
            logger.warning("too much to do: %d wait, others are refused", len(self._waiting))
        return Overloaded("the registry has too much to do")


class _Slot:
    def __init__(self, admission: AdmissionGate) -> None:
        self._admission = admission
        self._is_left = False

    def leave(self) -> None:
        if not self._is_left:
            self._is_left = True
            self._admission.pass_on()


# The slot of the current task.
_slot: ContextVar[_Slot | None] = ContextVar("_slot", default=None)


def leave(seconds: float = 0.0) -> None:
    """Give up this task's slot, now or after some seconds.

    A task does so when its work is done, or when it waits for others. Nothing happens if the task
    has no slot.
    """
    slot = _slot.get()
    if slot is None:
        return
    if seconds:
        asyncio.get_running_loop().call_later(seconds, slot.leave)
    else:
        slot.leave()
