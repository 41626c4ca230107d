"""The stdin of a durable process: the keeper owns it, and each write is done once."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable

# So much is under way to the keeper before the next write waits here.
_UNDER_WAY_BYTES = 1 << 20

Send = Callable[[str | None, bytes, Callable[[], None]], None]


class DurableStdin:
    """Sends writes to the keeper with *send*, in order, and its end with *finish*.

    A write is accepted when the keeper has it. A write that is cancelled before it was sent is
    never done.
    """

    def __init__(
        self, send: Send, finish: Callable[[], None], *, is_terminal: bool, is_closing: bool
    ) -> None:
        self._send = send
        self._finish = finish
        self._is_terminal = is_terminal
        self.is_closing = is_closing
        self._is_closed = False
        self._under_way = 0
        # None stands for the end of the input.
        self._waiting: deque[tuple[asyncio.Future[None], str | None, bytes] | None] = deque()

    def write(self, data: bytes, write_id: str | None = None) -> asyncio.Future[None] | None:
        """A future that is done once *data* is accepted; None if nothing reads it any more."""
        if self._is_closed:
            return None
        accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((accepted, write_id, data))
        self._send_more()
        return accepted

    def end(self) -> None:
        """Close stdin after what was written; on a terminal, type Ctrl-D."""
        if self._is_closed or self.is_closing:
            return
        self.is_closing = not self._is_terminal
        self._waiting.append(None)
        self._send_more()

    def close(self) -> None:
        """The process is over: accept and discard everything."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if entry is not None and not entry[0].done():
                entry[0].set_result(None)

    def let_go(self) -> None:
        """This server ends: what was not accepted is not answered."""
        self._is_closed = True
        self._waiting.clear()

    def _send_more(self) -> None:
        while self._waiting and self._under_way < _UNDER_WAY_BYTES:
            entry = self._waiting.popleft()
            if entry is None:
                self._finish()
                continue
            accepted, write_id, data = entry
            if not accepted.done():
                self._under_way += len(data)
                self._send(write_id, data, functools.partial(self._on_accepted, accepted, data))

    def _on_accepted(self, accepted: asyncio.Future[None], data: bytes) -> None:
        self._under_way -= len(data)
        if not accepted.done():
            accepted.set_result(None)
        self._send_more()
