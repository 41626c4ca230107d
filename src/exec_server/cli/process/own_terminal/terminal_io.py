"""The input, output and terminal of this program, without blocking the event loop.

Reads and writes that may block happen in daemon threads. The blocking mode of a descriptor is
shared with every program that has it open, so it must not be changed. A stuck descriptor must not
keep this program from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import stat
import threading
from collections.abc import AsyncIterator, Iterator

from exec_server.cli.process.own_terminal.terminal_modes import PUSH_TITLE, TerminalModes
from exec_server.cli.process.own_terminal.terminal_queries import TerminalQueries
from exec_server.cli.standard_streams import OutputFailed, output_errors

_READ_BYTES = 64 * 1024
_STDOUT = 1
# How many seconds a terminal has to take the sequences before a picture.
_PAINT_SECONDS = 2.0


async def read_chunks(fd: int) -> AsyncIterator[bytes]:
    """The bytes of *fd* up to end of file; the next read begins when the caller asks for more."""
    loop = asyncio.get_running_loop()
    may_read = threading.Semaphore()
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        data = b"?"
        while data:
            may_read.acquire()
            try:
                data = os.read(fd, _READ_BYTES)
            except OSError:
                # A terminal that was closed counts as end of file.
                data = b""
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(arrived.put_nowait, data)

    threading.Thread(target=read, name="local input", daemon=True).start()
    while data := await arrived.get():
        yield data
        may_read.release()


class LocalOutput:
    """Writes to descriptors in the order of the calls."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[int, bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_file: dict[int, bool] = {}
        # The modes of the terminal that programs have switched on, if they are tracked.
        self._modes: TerminalModes | None = None
        self._queries: TerminalQueries | None = None
        self._last: asyncio.Future[None] | None = None

    async def write(self, fd: int, data: bytes) -> None:
        """Write all of *data*.

        Raises BrokenPipeError if the reader has left, OSError if the terminal was closed, and
        OutputFailed for every other reason.
        """
        if self._modes is not None and fd == _STDOUT:
            had_title = self._modes.has_title
            self._modes.feed(data)
            if self._modes.has_title and not had_title:
                await self._control(PUSH_TITLE)
        if self._queries is not None and fd == _STDOUT:
            data = self._queries.remove(data)
        await self._put(fd, data)

    async def _put(self, fd: int, data: bytes) -> None:
        if not data:
            return
        if self._is_regular(fd):
            _write_all(fd, data)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="local output", daemon=True)
            self._thread.start()
        self._last = done = self._loop.create_future()
        self._jobs.put((fd, data, done))
        # A caller that is cancelled does not cancel the write.
        await asyncio.shield(done)

    @property
    def is_full_screen(self) -> bool:
        """True if a program shows the alternate screen."""
        return self._modes is not None and self._modes.is_alternate

    @property
    def modes(self) -> bytes:
        """The sequences that switch on the modes that the output has left on."""
        return b"" if self._modes is None else self._modes.enter()

    async def track_modes(self, before: bytes = b"") -> None:
        """Remember which modes output switches on in the terminal; first switch on *before*."""
        self._modes = TerminalModes()
        self._modes.feed(before)
        await self._control(self._modes.enter())

    def leave_queries_out(self) -> None:
        """From now on, leave out what a terminal would answer; other outputs get every byte."""
        if os.isatty(_STDOUT):
            self._queries = TerminalQueries()

    async def show_queries(self) -> None:
        """Show everything from now on."""
        if self._queries is not None:
            rest, self._queries = self._queries.rest(), None
            await self._put(_STDOUT, rest)

    async def paint(self, data: bytes) -> None:
        """Write a picture of a whole terminal, in place of everything that is shown."""
        await self.restore_modes(_PAINT_SECONDS)
        self._modes = TerminalModes()
        # The lines above the screen belong to the user.
        await self.write(_STDOUT, data.replace(b"\x1b[3J", b"", 1))

    async def repeat_modes(self) -> None:
        """Switch the modes on again, because another program has used the terminal."""
        if self._modes is not None:
            await self._control(self._modes.enter(has_keyboard=True))

    async def restore_modes(self, seconds: float) -> None:
        """Switch off the modes that output has switched on, within *seconds*."""
        if self._modes is None:
            return
        sequences = self._modes.leave() + self._modes.leave_title()
        self._modes.has_title = False
        if not sequences:
            return
        # A terminal that was closed need not be restored.
        with contextlib.suppress(OSError, OutputFailed, TimeoutError):
            async with asyncio.timeout(seconds):
                await self._control(sequences)

    async def _control(self, sequences: bytes) -> None:
        """Write control sequences of our own, if there is a terminal."""
        if os.isatty(_STDOUT):
            await self._put(_STDOUT, sequences)

    async def settle(self, seconds: float) -> None:
        """Wait for pending writes, but at most *seconds*."""
        if self._last is not None:
            await asyncio.wait({self._last}, timeout=seconds)
            if self._last.done():
                self._last.exception()

    def _is_regular(self, fd: int) -> bool:
        if fd not in self._is_file:
            self._is_file[fd] = stat.S_ISREG(os.fstat(fd).st_mode)
        return self._is_file[fd]

    def _work(self) -> None:
        while True:
            fd, data, done = self._jobs.get()
            error: OSError | OutputFailed | None = None
            try:
                _write_all(fd, data)
            except (OSError, OutputFailed) as exc:
                error = exc
            try:
                self._loop.call_soon_threadsafe(_settle, done, error)
            except RuntimeError:
                return


def _settle(done: asyncio.Future[None], error: OSError | OutputFailed | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            with output_errors(fd):
                view = view[os.write(fd, view) :]
        except BlockingIOError:
            # Another program that shares the descriptor has made it non-blocking.
            import select

            select.select([], [fd], [])


@contextlib.contextmanager
def raw_terminal(fd: int) -> Iterator[None]:
    """Pass every key through unchanged; the end of the block restores the terminal."""
    import termios

    before = termios.tcgetattr(fd)
    try:
        make_raw(fd)
        yield
    finally:
        # A closed terminal cannot be restored, and need not be.
        with contextlib.suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


def make_raw(fd: int) -> None:
    """Make the terminal raw, and keep input that was typed ahead."""
    import termios
    import tty

    with contextlib.suppress(termios.error):
        tty.setraw(fd, termios.TCSADRAIN)


def has_terminal(fd: int) -> bool:
    """True if this program runs in the foreground of the terminal, and may change it."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def terminal_size() -> tuple[int, int] | None:
    """Rows and columns of the terminal of this program, if it has one."""
    for fd in (1, 0, 2):
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(fd)
            if size.lines and size.columns:
                return size.lines, size.columns
    return None
