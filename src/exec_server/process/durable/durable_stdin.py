"""The stdin of a durable process: each write is done once, whichever server writes it."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from typing import Protocol

from exec_server.process.durable.direct_input import DirectInput
from exec_server.process.durable.kept_input import InputLog
from exec_server.process.keeping.kept_descriptors import close_all

# So much is under way to the keeper before the next write waits here.
_UNDER_WAY_BYTES = 1 << 20


class SharedInput(Protocol):
    """The input of a job, as the keeper offers it."""

    def write(self, write_id: str | None, data: bytes, accepted: Callable[[], None], /) -> None: ...

    def finish(self) -> None: ...

    def share_input(self, shared: Callable[[list[int]], None], /) -> None:
        """Ask the keeper to let this server write; *shared* gets stdin and a log, or nothing."""

    def give_back_input(self) -> None: ...


class DurableStdin:
    """Writes to the stdin of a job, in order, by itself if the keeper lets it; else through it.

    A write is accepted when it survives this server. A write that is cancelled before it was
    accepted or sent is never done.
    """

    def __init__(self, job: SharedInput, *, is_terminal: bool, is_closing: bool) -> None:
        self._job = job
        self._is_terminal = is_terminal
        self.is_closing = is_closing
        self._is_closed = False
        # The log that this server writes; without one, whether the keeper is asked for one.
        self._direct: DirectInput | None = None
        self._is_asking = False
        self._is_unable = False
        # Bytes that were sent to the keeper and are not yet accepted.
        self._under_way = 0
        # None stands for the end of the input.
        self._waiting: deque[tuple[asyncio.Future[None], str | None, bytes] | None] = deque()

    def write(self, data: bytes, write_id: str | None = None) -> asyncio.Future[None] | None:
        """A future that is done once *data* is accepted; None if it is, or nothing reads it."""
        if self._is_closed:
            return None
        direct = self._direct
        if direct is not None and not self._waiting and not direct.is_full:
            if self._write_directly(direct, write_id, data):
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
        self._close_direct()
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if entry is not None and not entry[0].done():
                entry[0].set_result(None)

    def let_go(self) -> None:
        """This server ends: what was not accepted is not answered."""
        self._is_closed = True
        self._close_direct()
        self._waiting.clear()

    def _close_direct(self) -> None:
        direct, self._direct = self._direct, None
        if direct is not None:
            direct.close()

    def _send_more(self) -> None:
        while self._waiting and not self._is_closed and self._can_send():
            entry = self._waiting.popleft()
            if entry is None:
                self._send_end()
            elif not entry[0].done():
                self._send(*entry)

    def _can_send(self) -> bool:
        if self._direct is not None:
            return not self._direct.is_full or self._waiting[0] is None
        if self._waiting[0] is None and not self._is_asking:
            return True
        if not self._is_unable and not self._is_asking and not self._under_way:
            self._is_asking = True
            self._job.share_input(self._on_shared)
        return not self._is_asking and self._under_way < _UNDER_WAY_BYTES

    def _send(self, accepted: asyncio.Future[None], write_id: str | None, data: bytes) -> None:
        if self._direct is not None and self._write_directly(self._direct, write_id, data):
            accepted.set_result(None)
            return
        self._under_way += len(data)
        self._job.write(write_id, data, functools.partial(self._on_accepted, accepted, data))

    def _send_end(self) -> None:
        if not self._is_terminal:
            # The keeper holds the pipe as well. It closes it after what is left.
            self._give_back()
            self._is_unable = True
        elif self._direct is not None and self._write_directly(self._direct, None, b"\x04"):
            return
        self._job.finish()

    def _on_accepted(self, accepted: asyncio.Future[None], data: bytes) -> None:
        self._under_way -= len(data)
        if not accepted.done():
            accepted.set_result(None)
        self._send_more()

    # Writing without the keeper.

    def _on_shared(self, fds: list[int]) -> None:
        self._is_asking = False
        if self._is_closed:
            close_all(fds)
            return
        if fds:
            fd, log = fds
            self._direct = DirectInput(
                fd,
                InputLog(log),
                is_terminal=self._is_terminal,
                on_room=self._send_more,
                on_unable=self._stop_writing_directly,
            )
            self._direct.flush()
        else:
            self._is_unable = True
        self._send_more()

    def _write_directly(self, direct: DirectInput, write_id: str | None, data: bytes) -> bool:
        """False if the keeper has to do it, because there is no memory for it here."""
        try:
            direct.write(write_id, data)
        except OSError:
            self._is_unable = True
            self._give_back()
            return False
        if direct.is_used_up:
            self._give_back()
        return True

    def _stop_writing_directly(self) -> None:
        self._is_unable = True
        self._give_back()
        self._send_more()

    def _give_back(self) -> None:
        if self._direct is not None:
            self._close_direct()
            self._job.give_back_input()
