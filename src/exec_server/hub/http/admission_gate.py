"""How many are served at once, so that those who are let in are done before they give up.

Thousands of executors come back together when a node dies. Served all at once, each would take as
long as all of them, and dial again before it is done. So few are at work, the others wait in the
order in which they came, and whoever would wait too long is told so before anything was done.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextvars import ContextVar

import msgspec

from exec_server.errors import ExecServerError
from exec_server.hub.observe.metrics import Metric
from exec_server.limits import Limits

logger = logging.getLogger(__name__)


class Overloaded(ExecServerError):
    """Nothing was done. There is too much to do now."""

    retryable = True


class Patience(msgspec.Struct, frozen=True):
    """Who waits: behind how many others, and for how long."""

    others: int
    seconds: float


class AdmissionGate:
    """The places of one node. First come, first served."""

    def __init__(self, *, limits: Limits) -> None:
        self._limits = limits
        self._free = limits.hub_admissions
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._refused = 0
        self._is_overloaded = False
        # Of harnesses that ask again soon; of executors that dial again, after pauses that grow;
        # and of those for whom a refusal is the end. Their queue goes on where the others' is full.
        waiting, seconds = limits.hub_admissions_waiting, limits.hub_long_admission_seconds
        self.brief = Patience(waiting, limits.hub_admission_seconds)
        self.dialling = Patience(waiting, seconds)
        self.long = Patience(2 * waiting, seconds)

    def metrics(self) -> list[Metric]:
        at_work = self._limits.hub_admissions - self._free
        return [
            Metric("admitted", "gauge", "Requests and upgrades at work.", at_work),
            Metric("waiting", "gauge", "Those that wait for their turn.", len(self._waiting)),
            Metric("overloads_total", "counter", "Those that were not let in.", self._refused),
        ]

    async def enter(self, patience: Patience) -> None:
        """Take a place, which is this task's until it calls `leave`. Raises Overloaded.

        It is no block: a socket would keep that for hours, and there are thousands.
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
        _place.set(_Place(self))

    async def _turn(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        try:
            await turn
        except BaseException:
            if not turn.cancelled():
                # It came in the same moment.
                self.pass_on()
            raise
        finally:
            self._waiting.pop(turn, None)

    def pass_on(self) -> None:
        """A place is free."""
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
            logger.warning("too much to do: %d wait, others are sent away", len(self._waiting))
        return Overloaded("the registry has too much to do")


class _Place:
    def __init__(self, admission: AdmissionGate) -> None:
        self._admission = admission
        self._is_left = False

    def leave(self) -> None:
        if not self._is_left:
            self._is_left = True
            self._admission.pass_on()


# Where whoever runs here has been let in.
_place: ContextVar[_Place | None] = ContextVar("_place", default=None)


def leave(seconds: float = 0.0) -> None:
    """Let the next one in, at once or soon: the work is done, or waits for others.

    Nothing happens when this task has no place, or has left it.
    """
    place = _place.get()
    if place is None:
        return
    if seconds:
        asyncio.get_running_loop().call_later(seconds, place.leave)
    else:
        place.leave()
