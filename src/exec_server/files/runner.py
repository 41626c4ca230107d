"""Where the file work of one connection is done: at once, in a thread, or when the client reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

from exec_server.files.operations.oserrors import rpc_error
from exec_server.files.workers import Settle, Share, Workers

T = TypeVar("T")
Args = TypeVarTuple("Args")

# Half a millisecond of a processor's time, and less than a block of a file.
_TURN_BYTES = 512 * 1024
# Not counted.
_SMALL_BYTES = 32 * 1024


class Runner:
    """Also knows whether there is still somebody to work for, and whether they keep up."""

    def __init__(self, workers: Workers, *, width: int) -> None:
        self.workers = workers
        self._share = Share(workers, width=width)
        self._is_lost = False
        # There while the client is behind with reading, and done when it has caught up.
        self._caught_up: asyncio.Future[None] | None = None
        # What was answered at once since the loop last looked at everybody.
        self._turn_bytes = 0

    def run(
        self, function: Callable[[*Args], T], *args: *Args, after: Settle | None = None
    ) -> asyncio.Future[T]:
        """Call *function* in a thread, its OSError told as a client should hear it.

        *after* is told the outcome, also when nobody waits for the future any more.
        """
        return self._share.run(translated, function, *args, after=after)

    @property
    def is_behind(self) -> bool:
        """Whether large answers have to wait: the client has yet to read what it was sent, or
        has been served for so long that it is the others' turn."""
        return self._caught_up is not None or self._turn_bytes >= _TURN_BYTES

    def answer_now(self, size: int) -> None:
        """So many bytes are answered without a thread. A loop may read from one socket again and
        again before it looks at the others."""
        if size < _SMALL_BYTES:
            # To be called back would cost more than the answer.
            return
        if self._turn_bytes == 0:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._turn_bytes += size

    def _end_turn(self) -> None:
        self._turn_bytes = 0

    async def later(self, start: Callable[[], T | Awaitable[T]]) -> T:
        """What *start* answers, once the client has caught up."""
        await self.caught_up()
        result = start()
        return await result if isinstance(result, Awaitable) else result

    async def caught_up(self) -> None:
        """Wait until the client has read what it was sent."""
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
        """Whether the connection is gone, and with it whoever wanted an answer."""
        return self._is_lost

    def lose(self) -> None:
        self._is_lost = True
        self.catch_up()


def translated(function: Callable[[*Args], T], *args: *Args) -> T:
    """Call *function*; its OSError becomes the error that a client is told."""
    try:
        return function(*args)
    except OSError as exc:
        raise rpc_error(exc) from exc
