"""A process that this program looks on at, for `attach --watch`, `attach --take` and `logs -f`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Self

from exec_server.cli.process.detached.participant_words import change_words, participant_lines
from exec_server.cli.process.own_terminal.connection_notices import Notices
from exec_server.cli.process.own_terminal.escape_keys import Key
from exec_server.cli.process.own_terminal.own_keyboard import SHOWN_SECONDS
from exec_server.cli.process.own_terminal.painted_screen import PaintedScreen, fitting
from exec_server.client.client import ExecServerClient
from exec_server.client.process.output_buffer import OutputChunk
from exec_server.client.process.watched_process import MissedOutput, TerminalSize, WatchedProcess
from exec_server.errors import (
    ConnectError,
    ControlLost,
    ControlRefused,
    ExecServerError,
    SessionLost,
)
from exec_server.protocol.participants import Kind

# A server that was restarted has so many seconds to be there again.
_RETURN_SECONDS = 60.0
_PAUSE_SECONDS = 0.5
# The screen is painted again so long after its driver has changed the size.
_SIZED_SECONDS = 0.2
_INTERRUPT = b"\x03"

Opening = Callable[[], AbstractAsyncContextManager[ExecServerClient]]


class Meant(NamedTuple):
    """The process that is looked on at, and how."""

    process_id: str
    session_id: str | None
    kind: Kind
    name: str
    # True if this program drives from the beginning.
    takes: bool = False
    # False shows the output itself and never a picture of the screen.
    pictures: bool = True
    # Output after this number is shown; None begins with a picture.
    after_seq: int | None = None


class WatchedTerminal:
    """Follows a watched process over restarts of its server; a `FollowedProcess` for a bridge."""

    def __init__(self, opening: Opening, meant: Meant, notices: Notices) -> None:
        self._opening = opening
        self._meant = meant
        self._notices = notices
        self._stack = contextlib.AsyncExitStack()
        self._watched: WatchedProcess
        self._telling: asyncio.Task[None] | None = None
        self._painting: asyncio.TimerHandle | None = None
        self._refreshing: set[asyncio.Task[None]] = set()
        self._dropped = 0
        # Called when a person who does not drive types Ctrl-C.
        self.on_interrupt: Callable[[], None] = lambda: None
        # The size of the terminal here; it counts only while this program drives.
        self.size: tuple[int, int] | None = None

    async def __aenter__(self) -> Self:
        await self._open(self._meant.after_seq)
        if self._meant.takes:
            await self._take()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _open(self, after_seq: int | None) -> None:
        client = await self._stack.enter_async_context(self._opening())
        meant = self._meant
        self._watched = await client.watch(
            meant.process_id,
            session_id=meant.session_id,
            kind=meant.kind,
            name=meant.name,
            after_seq=after_seq,
            pictures=meant.pictures,
        )
        await self._stack.enter_async_context(self._watched)
        self._telling = asyncio.get_running_loop().create_task(self._tell_changes(self._watched))

    async def _close(self) -> None:
        if self._painting is not None:
            self._painting.cancel()
        tasks = [*self._refreshing, *([self._telling] if self._telling else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stack.aclose()

    async def _reopen(self) -> None:
        """The server was restarted, and the session of this program went with it."""
        after = None if self._shows_pictures else self._watched.last_seq
        drove = self._watched.drives
        self._notices.remark("the server was restarted, reconnecting...")
        await self._close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _RETURN_SECONDS
        while True:
            try:
                await self._open(after)
                break
            except ConnectError:
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)
        if drove:
            await self._take()

    @property
    def _shows_pictures(self) -> bool:
        return self._watched.is_terminal and self._meant.pictures

    # What a bridge asks.

    @property
    def watched(self) -> WatchedProcess:
        return self._watched

    @property
    def is_terminal(self) -> bool:
        return self._watched.is_terminal

    @property
    def dropped_bytes(self) -> int:
        return self._dropped

    @property
    def drives(self) -> bool:
        return self._watched.drives

    async def __aiter__(self) -> AsyncIterator[OutputChunk | PaintedScreen]:
        while True:
            try:
                async for seen in self._watched:
                    if isinstance(seen, OutputChunk):
                        yield seen
                    elif isinstance(seen, MissedOutput):
                        self._dropped += seen.dropped_bytes
                        text = f"{seen.dropped_bytes} bytes before this could not be retained"
                        self._notices.remark(text)
                    elif isinstance(seen, TerminalSize):
                        self._sized()
                    else:
                        columns = None if self.size is None else self.size[1]
                        yield PaintedScreen(seen.seq, "pty", fitting(seen, columns))
                return
            except SessionLost:
                await self._reopen()

    async def wait(self) -> int:
        return await self._watched.wait()

    async def write(self, data: bytes) -> None:
        if not self._watched.drives:
            if _INTERRUPT in data:
                self.on_interrupt()
            return
        with contextlib.suppress(ControlLost):
            # The change is told by its own event.
            await self._watched.write(data)

    async def close_stdin(self) -> None:
        with contextlib.suppress(ControlLost):
            await self._watched.close_stdin()

    async def resize(self, rows: int, cols: int) -> None:
        self.size = rows, cols
        if self._watched.drives:
            with contextlib.suppress(ControlLost):
                await self._watched.resize(rows, cols)

    async def send_signal(self, signum: int | str) -> None:
        await self._watched.send_signal(signum)

    async def terminate(self) -> bool:
        return await self._watched.terminate()

    def abandon(self) -> None:
        """Another session has the process: it is left alone."""

    # Keys.

    async def control(self, key: Key) -> None:
        """Do what `~t`, `~g` or `~w` ask for."""
        try:
            if key == "take":
                await self._take()
            elif key == "give back":
                await self._watched.give_back()
            else:
                state = await self._watched.control_state()
                self._tell("; ".join(participant_lines(state)))
        except (ControlRefused, ControlLost) as exc:
            self._tell(str(exc))

    async def _take(self) -> None:
        await self._watched.take()
        if self.size is not None:
            await self._watched.resize(*self.size)

    async def _tell_changes(self, watched: WatchedProcess) -> None:
        async for change in watched.control_changes():
            self._tell(change_words(change))

    def _tell(self, text: str) -> None:
        """Show a line, and paint the screen again after a while."""
        self._notices.remark(text)
        if self._painting is not None:
            self._painting.cancel()
            self._painting = None
        self._paint_after(SHOWN_SECONDS)

    def _sized(self) -> None:
        """What is outside of the new size is still shown here: no program clears it."""
        if not self._watched.drives:
            self._paint_after(_SIZED_SECONDS)

    def _paint_after(self, seconds: float) -> None:
        if self._shows_pictures and self._notices.is_raw and self._painting is None:
            loop = asyncio.get_running_loop()
            self._painting = loop.call_later(seconds, self._refresh)

    def _refresh(self) -> None:
        self._painting = None
        task = asyncio.get_running_loop().create_task(_refreshed(self._watched))
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)


async def _refreshed(watched: WatchedProcess) -> None:
    # The next output shows the screen; a lost connection is told elsewhere.
    with contextlib.suppress(ExecServerError):
        await watched.refresh()
