"""Connects a process on a server to the descriptors, the terminal and the signals here.

The module is long because each way out has to restore what all ways in have changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Literal, Protocol

import msgspec

from exec_server.cli import exit_codes
from exec_server.cli.process.own_terminal import terminal_io
from exec_server.cli.process.own_terminal.connection_notices import Notices, say
from exec_server.cli.process.own_terminal.escape_keys import CONTROL_KEYS, HELP, EscapeKeys, Key
from exec_server.cli.process.own_terminal.painted_screen import PaintedScreen, fitting
from exec_server.cli.process.own_terminal.shortened_output import ShortenedOutput
from exec_server.cli.process.own_terminal.type_ahead import TypeAhead
from exec_server.cli.recordings.record_option import LocalRecording
from exec_server.client.process.bounded_output import BoundedOutput
from exec_server.client.process.output_buffer import OutputChunk
from exec_server.errors import ControlLost, ExecServerError, MethodNotFound, StdinClosed
from exec_server.protocol.sharing import ScreenPicture

logger = logging.getLogger(__name__)

# How many seconds a killed command has to close its output before we leave.
_LAST_WORDS = 2.0
# A picture of a screen that is older than what is shown is asked for again, so many times in all.
_PICTURES = 3
# How many seconds a program has to notice the first of two sizes.
_BETWEEN_SIZES = 0.1
# How many seconds a shell has to end by itself after SIGHUP.
_FAREWELL = 1.0

_STDIN, _STDOUT, _STDERR = 0, 1, 2

# Ctrl-D, and the pauses in seconds before it is repeated.
_END_OF_FILE = b"\x04"
_FIRST_PAUSE, _LAST_PAUSE = 0.25, 5.0


# The fate of the process when this program has to end: it is killed, it gets SIGHUP before it is
# killed, or it runs on.
AtEnd = Literal["kill", "hang up", "leave"]

# The output of each stream.
Collected = dict[str, BoundedOutput]


class FollowedProcess(Protocol):
    """What a bridge needs of a process: that of `RemoteProcess`, and of one that is watched."""

    @property
    def is_terminal(self) -> bool: ...

    @property
    def dropped_bytes(self) -> int: ...

    @property
    def drives(self) -> bool: ...

    def __aiter__(self) -> AsyncIterator[OutputChunk | PaintedScreen]: ...

    async def wait(self) -> int: ...

    async def write(self, data: bytes) -> None: ...

    async def close_stdin(self) -> None: ...

    async def resize(self, rows: int, cols: int) -> None: ...

    async def send_signal(self, signum: int | str) -> None: ...

    async def terminate(self) -> bool: ...

    def abandon(self) -> None: ...


class BridgeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a process is connected."""

    # True if the process has a terminal: ours is made raw, and its size is passed on.
    is_terminal: bool = False
    has_input: bool = True
    has_escape_keys: bool = False
    # The output is added to this instead of shown, if it is given.
    collected: Collected | None = None
    # How much of each stream is shown: the first half at once, and as much of its end at the end.
    max_output: int | None = None
    time_limit: float | None = None
    at_end: AtEnd = "kill"
    # True if the process runs on without a word to its server, as a durable one does.
    outlives: bool = False
    # The current size of the terminal of the process, if it is known.
    size: tuple[int, int] | None = None
    # True if the program has to draw its screen again, because this terminal does not show it.
    redraws: bool = False
    # The modes of the terminal that the program has switched on before, as `modes` has told them.
    modes: bytes = b""
    # Queries of the program to its terminal are shown after this event, or never: the answers to
    # older ones would be typed into the program, or left for the shell here.
    queries_after: int | None = 0
    # A picture of the terminal that is shown first.
    picture: bytes = b""
    # Gets what the terminal shows, if it is recorded.
    recording: LocalRecording | None = None


class TerminalBridge:
    """Connects one process until it has closed, its time is over, or this program has to leave.

    The end of the block always restores the terminal, also the modes that the program has switched
    on: the alternate screen, the mouse and so on. Then the process is killed if it still runs,
    unless it was detached or the options say that it runs on.
    """

    def __init__(self, process: FollowedProcess, options: BridgeOptions, notices: Notices) -> None:
        self.is_detached = False
        self.is_timed_out = False
        # True if the process should have ended with this program, and the server has not said so.
        self.may_run_on = False
        # Called before `~d` detaches; False refuses, and the callback itself has said why.
        self.on_detach: Callable[[], Awaitable[bool]] | None = None
        # Called for `~t`, `~g` and `~w`; without it they are typed.
        self.on_control: Callable[[Key], Awaitable[None]] | None = None
        self._process = process
        self._options = options
        self._notices = notices
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        # Set when this program has to end although the command has not closed.
        self._left: asyncio.Future[None] = self._loop.create_future()
        # The exit status if it is not that of the command.
        self._status: int | None = None
        self._interrupts = 0
        self._cleanup = contextlib.ExitStack()
        # The number of bytes of output that are known to be missing.
        self._missing = process.dropped_bytes
        self._output = terminal_io.LocalOutput()
        # The numbers of the last output that was shown, and of the last that a picture contains.
        self._shown_seq = self._painted_seq = -1
        self._painting = asyncio.Lock()
        self._copying: asyncio.Task[None] | None = None
        self._drawing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> TerminalBridge:
        # Signals are handled before the terminal is changed, so that none leaves it raw.
        self._on_signal(signal.SIGINT, self._interrupt)
        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            self._on_signal(signum, self._end, signum)
        self._notices.on_reconnected = self._reconnected
        self._notices.is_full_screen = lambda: self._output.is_full_screen
        if self._options.is_terminal:
            self._on_signal(signal.SIGWINCH, self._resize)
            if self._options.has_input and os.isatty(_STDIN):
                self._cleanup.enter_context(terminal_io.raw_terminal(_STDIN))
                self._notices.is_raw = True
                self._on_signal(signal.SIGCONT, self._continued)
            if self._options.redraws:
                self._drawing = self._keep(_quietly(self._redraw()))
            elif terminal_io.terminal_size() != self._options.size:
                self._resize()
        return self

    @property
    def modes(self) -> bytes:
        """The modes of the terminal that the program has left on; for `BridgeOptions.modes`."""
        return self._output.modes

    async def __aexit__(self, *_: object) -> None:
        self._notices.on_reconnected = None
        tasks = [*self._tasks, *([self._copying] if self._copying else [])]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            # Output that was taken from the process must be written while the terminal is raw.
            await self._output.settle(_LAST_WORDS)
            await self._output.restore_modes(_LAST_WORDS)
        finally:
            self._notices.is_raw = False
            self._cleanup.close()
        if not self.is_detached and self._options.at_end != "leave":
            self._process.abandon()

    async def follow(self) -> int:
        """Wait until the command has closed, its time is over, or we have to leave.

        The exit status is returned.
        """
        if self._process.is_terminal:
            await self._output.track_modes(self._options.modes)
            if self._options.queries_after != 0:
                self._output.leave_queries_out()
            if self._options.picture:
                await self._output.paint(self._options.picture)
                if self._options.recording is not None:
                    self._options.recording.output(self._options.picture)
        if self._options.has_input:
            self._help(self._forward_input())
        copying = self._copying = self._loop.create_task(self._copy())
        await asyncio.wait(
            {copying, self._left},
            timeout=self._options.time_limit,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not copying.done() and not self._left.done():
            self.is_timed_out = True
            self._status = exit_codes.TIMED_OUT
            await self._kill()
        return await self._settle(copying)

    @property
    def has_interrupted(self) -> bool:
        """True if the user, or a signal to this program, has asked for the end of the command."""
        return self._interrupts > 0 or self._left.done()

    async def show(self, data: bytes) -> None:
        """Write to standard output, after the output of the command."""
        await self._output.write(_STDOUT, data)

    async def repaint(
        self, ask: Callable[[], Awaitable[ScreenPicture | None]], in_any_case: bool
    ) -> None:
        """Show the screen of the process anew, unless nothing has changed: what *ask* answers."""
        is_new = in_any_case or self._shown_seq > self._painted_seq
        for _ in range(_PICTURES if is_new and os.isatty(_STDOUT) else 0):
            picture = await ask()
            async with self._painting:
                # Newer output is shown already if the answer took long.
                if picture is not None and picture.seq >= self._shown_seq:
                    self._painted_seq = picture.seq
                    size = terminal_io.terminal_size()
                    columns = None if size is None else size[1]
                    await self._output.paint(fitting(picture, columns))
                    return

    async def _settle(self, copying: asyncio.Task[None]) -> int:
        if copying.done():
            try:
                copying.result()
            except BrokenPipeError:
                # The reader of our output has closed it, as `| head` does.
                return exit_codes.BY_SIGNAL + signal.SIGPIPE
            except OSError:
                # The terminal was closed.
                return exit_codes.BY_SIGNAL + signal.SIGHUP
        if self._status is not None:
            return self._status
        return await self._process.wait() & 0xFF

    async def _copy(self) -> None:
        limit = self._options.max_output
        short = {} if limit is None else {fd: ShortenedOutput(limit) for fd in (_STDOUT, _STDERR)}
        queries_after = self._options.queries_after
        async for chunk in self._process:
            if isinstance(chunk, PaintedScreen):
                await self._output.paint(chunk.data)
                continue
            if queries_after is not None and chunk.seq > queries_after:
                await self._output.show_queries()
            if self._options.recording is not None:
                self._options.recording.output(chunk.data)
            is_error = chunk.stream == "stderr"
            if self._options.collected is not None:
                self._options.collected["stderr" if is_error else "stdout"] += chunk.data
                continue
            fd = _STDERR if is_error else _STDOUT
            async with self._painting:
                if chunk.seq > self._painted_seq:
                    self._shown_seq = chunk.seq
                    shown = short[fd].show(chunk.data) if short else chunk.data
                    await self._output.write(fd, shown)
        for fd, shortened in short.items():
            await self._output.write(fd, shortened.rest())
        await self._output.show_queries()

    # Input.

    async def _forward_input(self) -> None:
        """Pass input on; escape keys work even while there is no connection."""
        typed = TypeAhead(self._write)
        writing = self._keep(_quietly(typed.pass_on()))
        keys = EscapeKeys() if self._options.has_escape_keys else None
        async for data in terminal_io.read_chunks(_STDIN):
            if keys is not None and not self._process.drives:
                keys.begin_line()
            for part in (data,) if keys is None else keys.feed(data):
                if isinstance(part, bytes):
                    await typed.put(part)
                elif part in CONTROL_KEYS:
                    await self._control(part, typed)
                else:
                    await self._obey(part, typed)
            if writing.done():
                return
        typed.end()
        if self._options.at_end == "hang up" or self._options.has_escape_keys:
            # The terminal was closed: there is no input and no reader any more. A process that
            # runs on must not read the end of its input.
            self._end(signal.SIGHUP)
            return
        await writing
        if self._options.is_terminal:
            await self._type_end_of_file()
        else:
            await self._close_input()

    async def _write(self, data: bytes) -> None:
        if self._drawing is not None:
            # A program must not see the wrong size in answer to a key.
            await asyncio.wait({self._drawing}, timeout=_FAREWELL)
        # One who does not drive is told so by the change itself, and types in vain.
        with contextlib.suppress(ControlLost):
            await self._process.write(data)

    async def _type_end_of_file(self) -> None:
        """Type the key for end of file until the process ends, with growing pauses.

        One key may be lost: a shell that changes the mode of its terminal, as it does around every
        command, then reads a NUL instead. A key that is not read yet does no harm.
        """
        pause = _FIRST_PAUSE
        while True:
            await self._process.write(_END_OF_FILE)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    async def _close_input(self) -> None:
        try:
            await self._process.close_stdin()
        except MethodNotFound:
            logger.debug("this server cannot end a command's input; it stays open")

    async def _obey(self, key: Key, typed: TypeAhead) -> None:
        if key == "help":
            leave = ", and end the process" if self._options.at_end != "leave" else ""
            text = HELP.format(leave=leave)
            with contextlib.suppress(OSError):
                os.write(_STDERR, b"\r\n" + text.replace("\n", "\r\n").encode())
        elif key == "leave" and self._options.at_end != "leave":
            self._end(signal.SIGHUP)
        elif await self._may_detach(typed):
            self.leave()

    async def _control(self, key: Key, typed: TypeAhead) -> None:
        if self.on_control is None:
            await typed.put(CONTROL_KEYS[key])
        else:
            self._help(self.on_control(key))

    async def _may_detach(self, typed: TypeAhead) -> bool:
        """Wait until earlier input has arrived; False if the process would not be kept."""
        if self._options.at_end == "leave" and self._notices.is_lost:
            return True
        try:
            async with asyncio.timeout(0 if self._notices.is_lost else _LAST_WORDS):
                await typed.settle()
                return await self._is_kept()
        except TimeoutError:
            if self._options.outlives:
                return await self._is_kept()
            say("cannot detach: the server does not answer", is_raw=self._notices.is_raw)
            return False

    async def _is_kept(self) -> bool:
        return self.on_detach is None or await self.on_detach()

    # Signals.

    def _on_signal(self, signum: int, callback: Any, *args: Any) -> None:
        self._loop.add_signal_handler(signum, callback, *args)
        self._cleanup.callback(self._loop.remove_signal_handler, signum)

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._options.at_end == "leave":
            self._end(signal.SIGINT)
        elif self._interrupts == 1:
            self._help(self._process.send_signal(signal.SIGINT))
        else:
            self._help(self._kill_or_leave())

    async def _kill_or_leave(self) -> None:
        if not await self._process.terminate():
            # It has exited, but a process that it started keeps its output open.
            self._leave()

    def _end(self, signum: int) -> None:
        """Leave because of a signal; the options decide what happens to the process."""
        self._status = exit_codes.BY_SIGNAL + signum
        if self._options.at_end == "leave":
            self.is_detached = True
            self._leave()
        else:
            self._help(self._kill_and_leave())

    async def _kill_and_leave(self) -> None:
        if self._notices.is_lost:
            # We do not wait for a connection: the server ends a session that is not resumed.
            self.may_run_on = True
            self._leave()
            return
        if self._options.at_end == "hang up":
            await self._hang_up()
        await self._kill()
        self.may_run_on = self._copying is not None and not self._copying.done()
        self._leave()

    async def _hang_up(self) -> None:
        """Send SIGHUP, as a closed terminal does: a shell then saves its history and ends."""
        with contextlib.suppress(ExecServerError, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await self._process.send_signal(signal.SIGHUP)
                await self._closed()

    def leave(self) -> None:
        """End the bridge; the process runs on."""
        self.is_detached = True
        self._status = exit_codes.OK
        self._leave()

    def _leave(self) -> None:
        if not self._left.done():
            self._left.set_result(None)

    def _reconnected(self) -> None:
        missing, self._missing = self._missing, self._process.dropped_bytes
        if self._missing > missing:
            count = self._missing - missing
            say(f"{count} bytes of output could not be retained", is_raw=self._notices.is_raw)
        if self._options.is_terminal:
            # A new size may have been lost with the connection.
            self._resize()

    def _continued(self) -> None:
        """This program was stopped, and the shell here has used the terminal meanwhile."""
        if terminal_io.has_terminal(_STDIN):
            terminal_io.make_raw(_STDIN)
            self._help(self._output.repeat_modes())
            self._help(self._redraw())

    def _resize(self) -> None:
        size = terminal_io.terminal_size()
        if size is not None:
            self._help(self._resize_to(*size))

    async def _resize_to(self, rows: int, cols: int) -> None:
        if self._options.recording is not None:
            self._options.recording.resized(rows, cols)
        await self._process.resize(rows, cols)

    async def _redraw(self) -> None:
        """Make the program draw its screen again: it does so when the size changes."""
        size = terminal_io.terminal_size()
        if size is not None:
            rows, cols = size
            await self._resize_to(rows - 1 if rows > 1 else rows + 1, cols)
            # A program that sees only the last size would notice no change.
            await asyncio.sleep(_BETWEEN_SIZES)
            # The size may have changed meanwhile.
            await self._resize_to(*(terminal_io.terminal_size() or size))

    async def _kill(self) -> None:
        """Kill the command, unless it has closed, and wait for its last output."""
        if self._copying is not None and self._copying.done():
            return
        with contextlib.suppress(ExecServerError, TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._closed()

    async def _closed(self) -> None:
        if self._copying is not None:
            await asyncio.wait({self._copying})

    # Tasks beside the output.

    def _help(self, work: Awaitable[Any]) -> None:
        self._keep(_quietly(work))

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _quietly(work: Awaitable[Any]) -> None:
    """Await *work* and only log its errors; the copying of output reports a lost connection."""
    try:
        await work
    except StdinClosed:
        return
    except ExecServerError as exc:
        logger.debug("%s", exc)
