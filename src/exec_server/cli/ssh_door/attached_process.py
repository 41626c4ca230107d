"""The process of `ssh NAME%ID`: its output, its keys, and who drives it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from exec_server.cli.process.detached.participant_words import shown
from exec_server.cli.process.own_terminal.connection_notices import Notices
from exec_server.cli.process.own_terminal.escape_keys import CONTROL_KEYS, EscapeKeys, Key
from exec_server.cli.process.own_terminal.own_keyboard import OwnKeyboard
from exec_server.cli.process.own_terminal.painted_screen import PaintedScreen
from exec_server.cli.process.own_terminal.terminal_modes import TerminalModes
from exec_server.cli.process.own_terminal.terminal_queries import TerminalQueries
from exec_server.cli.process.own_terminal.watched_terminal import Meant, Opening, WatchedTerminal
from exec_server.client.process.output_buffer import OutputChunk
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.errors import ControlLost
from exec_server.protocol.sharing import Participant, ScreenPicture
from exec_server.ssh_door.target import AttachWish, LeaveProcess

_INTERRUPT = b"\x03"


class ChannelNotices(Notices):
    """Remarks that go to the ssh client."""

    def __init__(self, wish: AttachWish) -> None:
        super().__init__(is_verbose=True)
        self._client_shows = wish.show
        self.is_raw = wish.has_terminal

    def _show(self, text: str) -> None:
        self._client_shows(text)


class _Attached:
    """What a process that is continued and one that is looked on at have in common."""

    def __init__(self, wish: AttachWish) -> None:
        self.wish = wish
        self.notices = ChannelNotices(wish)
        self.notices.is_full_screen = lambda: self._modes.is_alternate
        self.on_control: Callable[[Key], Awaitable[None]] | None = None
        self.stack = contextlib.AsyncExitStack()
        self._keys = EscapeKeys()
        self._modes = TerminalModes()
        self._is_told = False

    async def leave(self) -> bytes:
        """End the following; the process runs on. What restores the terminal is returned."""
        await self.stack.aclose()
        sequences = self._modes.leave() + self._modes.leave_title()
        self._modes = TerminalModes()
        return sequences

    def seen(self, chunk: OutputChunk | PaintedScreen) -> OutputChunk | PaintedScreen:
        """Remember what output does to the terminal of the one who looks at it."""
        if isinstance(chunk, PaintedScreen):
            before, self._modes = self._modes.leave(), TerminalModes()
            # The lines above the screen belong to the user.
            picture = chunk.data.replace(b"\x1b[3J", b"", 1)
            chunk = chunk._replace(data=before + picture)
        if chunk.stream != "stderr":
            self._modes.feed(chunk.data)
        return chunk

    async def obey_keys(
        self, data: bytes, type_keys: Callable[[bytes], Awaitable[None]], *, drives: bool
    ) -> None:
        """Pass keys on to *type_keys*, except for those that are commands."""
        if not drives:
            self._keys.begin_line()
        for part in self._keys.feed(data):
            if isinstance(part, bytes):
                await type_keys(part)
            elif part in CONTROL_KEYS and self.on_control is not None:
                await self.on_control(part)
            elif part in ("detach", "leave"):
                raise LeaveProcess
            else:
                await type_keys(CONTROL_KEYS.get(part, b"~?"))

    def tell_driver(self, driver: Participant | None) -> None:
        """Say once why keys go nowhere."""
        if not self._is_told:
            self._is_told = True
            name = "another client" if driver is None else shown(driver)
            self.notices.remark(f"{name} has the keyboard; ~t takes it, ~d leaves")

    def forget_telling(self) -> None:
        self._is_told = False


class OwnedProcess(_Attached):
    """A process whose session this connection has continued: it drives until another one takes."""

    def __init__(
        self, process: RemoteProcess, wish: AttachWish, picture: ScreenPicture | None
    ) -> None:
        super().__init__(wish)
        self._process = process
        self._picture = picture

    async def begin(self) -> None:
        """Begin to hear who takes the keyboard; a picture is not of the size of this terminal."""
        keyboard = OwnKeyboard(self._process, self, self.notices, is_person=self.wish.has_terminal)
        await self.stack.enter_async_context(keyboard)
        self.stack.callback(self._process.leave_running)
        if self.wish.has_terminal and self._process.is_terminal and self.wish.size is not None:
            rows, cols = self.wish.size
            with contextlib.suppress(ControlLost):
                if self._picture is None:
                    # The program draws its screen when the size changes.
                    await self._process.resize(rows - 1 if rows > 1 else rows + 1, cols)
                await self._process.resize(rows, cols)

    @property
    def is_terminal(self) -> bool:
        return self._process.is_terminal

    @property
    def signal(self) -> int | None:
        return self._process.signal

    async def __aiter__(self) -> AsyncIterator[OutputChunk | PaintedScreen]:
        if self._picture is not None:
            yield self.seen(PaintedScreen(self._picture.seq, "pty", self._picture.data.data))
        async for chunk in self._process:
            yield self.seen(chunk)

    async def wait(self) -> int:
        return await self._process.wait()

    async def write(self, data: bytes) -> None:
        if self.wish.has_terminal and self._process.is_terminal:
            await self.obey_keys(data, self._type, drives=self._process.drives)
        else:
            await self._process.write(data)

    async def _type(self, data: bytes) -> None:
        try:
            await self._process.write(data)
            self.forget_telling()
        except ControlLost:
            self.tell_driver(_driver(self._process.viewers))

    async def resize(self, rows: int, cols: int) -> None:
        with contextlib.suppress(ControlLost):
            await self._process.resize(rows, cols)

    async def send_signal(self, signum: int | str) -> None:
        await self._process.send_signal(signum)


class LookedOnProcess(_Attached):
    """A process that another client follows: keys count while this connection drives."""

    def __init__(self, opening: Opening, meant: Meant, wish: AttachWish, *, may_take: bool) -> None:
        super().__init__(wish)
        self._process = WatchedTerminal(opening, meant, self.notices)
        self._may_take = may_take
        self.on_control = self._process.control
        self._queries = TerminalQueries()

    async def begin(self) -> None:
        """Begin to look on."""
        self._process.size = self.wish.size
        await self.stack.enter_async_context(self._process)

    @property
    def is_terminal(self) -> bool:
        return self._process.is_terminal

    @property
    def signal(self) -> int | None:
        return self._process.watched.signal

    async def __aiter__(self) -> AsyncIterator[OutputChunk | PaintedScreen]:
        async for chunk in self._process:
            # The server answers the queries of a program that is shared.
            if self.is_terminal and isinstance(chunk, OutputChunk):
                chunk = chunk._replace(data=self._queries.remove(chunk.data))
            yield self.seen(chunk)
            if self.wish.has_terminal and not self._process.drives:
                # A picture has covered everything that was said before.
                self.tell_driver(_driver(self._process.watched.viewers))

    async def wait(self) -> int:
        return await self._process.wait()

    async def write(self, data: bytes) -> None:
        if self.wish.has_terminal and self._process.is_terminal:
            await self.obey_keys(data, self._type, drives=self._process.drives)
        else:
            # A program that pipes into ssh has to hear that another one drives.
            await self._process.watched.write(data)

    async def _type(self, data: bytes) -> None:
        driver = _driver(self._process.watched.viewers)
        if not self._process.drives and self._may_take and driver and not driver.connected:
            # The one who drove has left.
            await self._process.control("take")
        if self._process.drives:
            self.forget_telling()
            await self._process.write(data)
        elif _INTERRUPT in data:
            raise LeaveProcess
        else:
            self.tell_driver(driver)

    async def resize(self, rows: int, cols: int) -> None:
        await self._process.resize(rows, cols)

    async def send_signal(self, signum: int | str) -> None:
        await self._process.send_signal(signum)


def _driver(viewers: list[Participant]) -> Participant | None:
    return next((each for each in viewers if each.drives), None)
