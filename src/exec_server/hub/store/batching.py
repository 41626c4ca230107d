"""Reads rows that many callers ask for at the same time with one statement.

An executor's socket needs three rows, and for a node a statement costs more than all the rest of
the work. While no statement runs, a call gets one of its own at once; it does not wait for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar

from exec_server.hub.store import StoreUnavailable

_K = TypeVar("_K")
_V = TypeVar("_V")

MOST = 64


class Lookups(Generic[_K, _V]):
    """Values by their keys. A value is never older than the call that returns it."""

    def __init__(
        self, read: Callable[[Collection[_K]], Awaitable[Mapping[_K, _V]]], *, seconds: float
    ) -> None:
        """*read* gets at most MOST keys; *seconds* is the timeout of one `find`."""
        self._read = read
        self._seconds = seconds
        self._asked: dict[_K, asyncio.Future[_V | None]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def find(self, key: _K) -> _V | None:
        """Raises StoreUnavailable."""
        answer = self._asked.get(key)
        if answer is None:
            answer = self._asked[key] = asyncio.get_running_loop().create_future()
        if self._reading is None:
            self._reading = asyncio.create_task(self._answer_all(), name="look up rows")
        try:
            async with asyncio.timeout(self._seconds):
                # Other callers may wait for the same future.
                return await asyncio.shield(answer)
        except TimeoutError:
            raise StoreUnavailable("the state is too slow") from None

    async def close(self) -> None:
        """Stop; callers that still wait get StoreUnavailable."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _answer_all(self) -> None:
        batch: dict[_K, asyncio.Future[_V | None]] = {}
        try:
            while self._asked:
                # A later call for the same key must not get this batch's value, which may be older.
                batch = {key: self._asked.pop(key) for key in [*self._asked][:MOST]}
                await self._answer(batch)
        finally:
            self._reading = None
            _refuse((*batch.values(), *self._asked.values()), StoreUnavailable("it was closed"))
            self._asked.clear()

    async def _answer(self, batch: Mapping[_K, asyncio.Future[_V | None]]) -> None:
        try:
            found = await self._read(batch.keys())
        except Exception as exc:
            _refuse(batch.values(), exc)
            return
        for key, answer in batch.items():
            answer.set_result(found.get(key))


def _refuse(answers: Iterable[asyncio.Future[Any]], reason: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(reason)
            # Mark the exception as seen, because all callers may have gone.
            answer.exception()
