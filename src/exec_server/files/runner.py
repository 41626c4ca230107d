"""Runs the file work of one connection in threads, and delays large answers for slow readers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, TypeVarTuple

from exec_server.files.operations.oserrors import rpc_error
from exec_server.files.workers import Settle, Share, Workers

T = TypeVar("T")
Args = TypeVarTuple("Args")

# This takes half a millisecond of a processor's time, and is less than a block of a file.
_TURN_BYTES = 512 * 1024
# Smaller answers are not counted.
_SMALL_BYTES = 32 * 1024


class Rests(Protocol):
    """When large answers rest, because another client types."""

    @property
    def is_resting(self) -> bool: ...

    def bulk_passed(self, size: int) -> None: ...

    async def rested(self) -> None: ...


class Runner:
    """The threads of one connection; also knows if it is lost, and if its client is behind."""

    def __init__(self, workers: Workers, *, width: int, rests: Rests | None = None) -> None:
        self.workers = workers
        self._rests = rests
        self._share = Share(workers, width=width)
        self._is_lost = False
        # Exists while the client is behind with reading; it is done when the client has caught up.
        self._caught_up: asyncio.Future[None] | None = None
        # Bytes that were answered without a thread in this turn of the event loop.
        self._turn_bytes = 0

    def run(
        self, function: Callable[[*Args], T], *args: *Args, after: Settle | None = None
    ) -> asyncio.Future[T]:
        """Call *function* in a thread; its OSError becomes an RpcError.

        *after* gets the outcome in any case, also if the future was cancelled.
        """
        return self._share.run(translated, function, *args, after=after)

    @property
    def is_behind(self) -> bool:
        """True if large answers have to wait: the client does not read what it was sent, or it
        was served for so long that other clients have their turn."""
        return self._caught_up is not None or self._turn_bytes >= _TURN_BYTES

    def must_wait(self, size: int) -> bool:
        """True if an answer of *size* bytes has to wait, also for one that another client types."""
        if self.is_behind:
            return True
        return size >= _SMALL_BYTES and self._rests is not None and self._rests.is_resting

    def answer_now(self, size: int) -> None:
        """Count *size* bytes that are answered without a thread. An event loop may read from one
        socket many times before it serves the others."""
        if size < _SMALL_BYTES:
            # A callback would cost more than the answer.
            return
        if self._turn_bytes == 0:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._turn_bytes += size
        if self._rests is not None:
            self._rests.bulk_passed(size)

    def _end_turn(self) -> None:
        self._turn_bytes = 0

    async def later(self, start: Callable[[], T | Awaitable[T]]) -> T:
        """Call *start* when the client has caught up, and return its result."""
        await self.caught_up()
        if self._rests is not None:
            await self._rests.rested()
        result = start()
        return await result if isinstance(result, Awaitable) else result

    async def caught_up(self) -> None:
        """Wait until the client has read the answers so far."""
        while self.is_behind:
            if self._caught_up is None:
                await asyncio.sleep(0)
            else:
                await asyncio.shield(self._caught_up)

    def fall_behind(self) -> None:
        if self._caught_up is None:
            self._caught_up = asyncio.get_running_loop().create_future()

    def catch_up(self) -> None:
        caught_up, self._caught_up = self._caught_up, None
        if caught_up is not None:
            caught_up.set_result(None)

    def is_lost(self) -> bool:
        """True if the connection is lost, so that an answer has no use any more."""
        return self._is_lost

    def lose(self) -> None:
        self._is_lost = True
        self.catch_up()


def translated(function: Callable[[*Args], T], *args: *Args) -> T:
    """Call *function*; its OSError becomes an RpcError for the client."""
    try:
        return function(*args)
    except OSError as exc:
        raise rpc_error(exc) from exc
