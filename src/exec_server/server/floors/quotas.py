"""Quotas: how many connections, sessions and processes a principal may have, and how fast."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec

from exec_server.access.principal import Principal, Quotas
from exec_server.errors import QuotaReached, RpcError
from exec_server.process.start_terms import StartTerms
from exec_server.protocol.process import StartResult
from exec_server.state.retention import RetentionBudget
from exec_server.state.slots import Slots
from exec_server.state.token_bucket import TokenBucket

NO_QUOTAS = Quotas()
WhenFull = Literal["refuse", "queue"]
Answer = asyncio.Future[StartResult]
# Starts a process under terms, and answers with the future that it is given.
Begin = Callable[[StartTerms, Answer], Answer]

# A start that is refused is answered after this time, and this much after the refusal before it, so
# that a principal that repeats its starts at once takes little of the server's time from others.
_REFUSAL_SECONDS = 0.1
# The longest time that a start waits for its refusal.
_LONGEST_REFUSAL_SECONDS = 5.0


_SINGULAR = {"processes": "process", "connections": "connection", "sessions": "session"}


class _WaitingStart(msgspec.Struct, frozen=True):
    begin: Begin
    terms: StartTerms
    answer: Answer


class ServerQuotas:
    """The quotas of a server: those *in_all*, and those of each principal.

    With *when_full* "queue", a start for which there is no room waits instead of being refused.
    """

    def __init__(self, in_all: Quotas = NO_QUOTAS, when_full: WhenFull = "refuse") -> None:
        self._in_all = in_all
        self._queues = when_full == "queue"
        self._processes: Slots[_WaitingStart] = Slots(total=in_all.max_processes)
        self._retention: dict[str, RetentionBudget] = {}
        # When the last refusal of each principal is answered.
        self._refused_at: dict[str, float] = {}
        self._buckets: dict[str, tuple[float, TokenBucket]] = {}
        self._loop = asyncio.get_running_loop()

    # Connections and sessions.

    def check_connections(self, who: Principal, *, own: Callable[[], int], total: int) -> None:
        """Raise QuotaReached if *who* may not have one more; *own* counts those it has."""
        self._check("connections", who, who.quotas.max_connections, own)
        self._check_total("connections", self._in_all.max_connections, total)

    def check_sessions(self, who: Principal, *, own: Callable[[], int], total: int) -> None:
        """Raise QuotaReached if *who* may not have one more; *own* counts those it has."""
        self._check("sessions", who, who.quotas.max_sessions, own)
        self._check_total("sessions", self._in_all.max_sessions, total)

    def _check(self, what: str, who: Principal, limit: int | None, own: Callable[[], int]) -> None:
        if limit is not None and own() >= limit:
            raise _full(f"principal `{who.name}`", limit, what)

    def _check_total(self, what: str, limit: int | None, total: int) -> None:
        if limit is not None and total >= limit:
            raise _full("the server", limit, what)

    def retention(self, who: Principal) -> RetentionBudget | None:
        """The bound over the output of *who*, if it has one of its own."""
        limit = who.quotas.max_held_bytes
        if limit is None:
            return None
        return self._retention.setdefault(who.name, RetentionBudget(total_bytes=limit))

    # Requests that start work.

    def rate_refusal(self, who: Principal) -> asyncio.Future[Any] | None:
        """An answer that fails after a while, if *who* starts more than its rate; else None."""
        seconds = self._over_rate(who)
        if not seconds:
            return None
        return self._refuse(who, self._loop.create_future(), _too_fast(who, seconds))

    def counts(self, who: Principal) -> bool:
        """True if a quota is about the starts of *who*."""
        mine = who.quotas
        limits = (mine.max_processes, mine.rate, self._in_all.max_processes, self._in_all.rate)
        return any(limit is not None for limit in limits)

    def start(self, who: Principal, begin: Begin, terms: StartTerms) -> Answer:
        """Call *begin* if there is room; otherwise wait, or fail after a while."""
        refused = self.rate_refusal(who)
        if refused is not None:
            return refused
        answer: Answer = self._loop.create_future()
        limit = who.quotas.max_processes
        waiting = _WaitingStart(begin, terms, answer)
        if self._processes.take(who.name, limit):
            return self._begin(who.name, waiting)
        if self._queues:
            self._processes.wait(who.name, limit, waiting)
            return answer
        reached = self._processes.obstacle(who.name, limit)
        whose = "the server" if self._processes.is_full else f"principal `{who.name}`"
        return self._refuse(who, answer, _full(whose, reached or 0, "processes"))

    def hold(self, name: str) -> Callable[[], None]:
        """Count a process that runs already; call the result when it has ended."""
        self._processes.hold(name)
        return _once(partial(self._release, name))

    def _begin(self, name: str, waiting: _WaitingStart) -> Answer:
        release = _once(partial(self._release, name))
        try:
            return waiting.begin(
                msgspec.structs.replace(waiting.terms, release=release), waiting.answer
            )
        except BaseException:
            release()
            raise

    def _release(self, name: str) -> None:
        self._processes.give_back(name)
        # Not now: the caller is in the middle of an exit.
        self._loop.call_soon(self._begin_next)

    def _begin_next(self) -> None:
        while (found := self._processes.next_waiter()) is not None:
            name, waiting = found
            if waiting.answer.done():
                # Its connection is lost.
                self._processes.give_back(name)
                continue
            try:
                self._begin(name, waiting)
            except RpcError as exc:
                waiting.answer.set_exception(exc)

    def _refuse(self, who: Principal, answer: Answer, error: QuotaReached) -> Answer:
        now = self._loop.time()
        due = max(now, self._refused_at.get(who.name, now)) + _REFUSAL_SECONDS
        due = min(due, now + _LONGEST_REFUSAL_SECONDS)
        self._refused_at[who.name] = due
        self._loop.call_at(due, _fail, answer, error)
        return answer

    def _over_rate(self, who: Principal) -> float:
        """The seconds until *who* may start something again; 0.0 for now."""
        for name, rate in ((who.name, who.quotas.rate), ("", self._in_all.rate)):
            if rate is None:
                continue
            now = self._loop.time()
            known, bucket = self._buckets.get(name, (0.0, None))
            if bucket is None or known != rate:
                bucket = TokenBucket(rate, now=now)
                self._buckets[name] = (rate, bucket)
            seconds = bucket.take(now)
            if seconds:
                return seconds
        return 0.0


def _full(whose: str, limit: int, what: str) -> QuotaReached:
    noun = _SINGULAR[what] if limit == 1 else what
    return QuotaReached(f"{whose} has {limit} {noun}, and may have no more (max-{what})")


def _too_fast(who: Principal, seconds: float) -> QuotaReached:
    return QuotaReached(
        f"principal `{who.name}` starts more requests per second than it may (rate); "
        f"the next one may come in {seconds:.3f} s"
    )


def _fail(answer: Answer, error: QuotaReached) -> None:
    if not answer.done():
        answer.set_exception(error)


def _once(function: Callable[[], None]) -> Callable[[], None]:
    """*function*, which is called at the first call only."""
    calls = [function]

    def call() -> None:
        if calls:
            calls.pop()()

    return call
