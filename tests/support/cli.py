"""Commands as processes of their own, with pipes or on a real terminal."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.support.leaks import eventually
from tests.support.servers import OURS
from tests.support.wire import PATIENCE


class Finished:
    def __init__(self, status: int, stdout: bytes, stderr: bytes) -> None:
        self.status = status
        self.stdout = stdout
        self.stderr = stderr.decode()


@contextlib.asynccontextmanager
async def running(*words: str, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """`exec-server WORDS...`, killed at the end if it still runs."""
    options.setdefault("stdin", subprocess.DEVNULL)
    process = await asyncio.create_subprocess_exec(
        *OURS, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def finished(*words: str, input: bytes | None = None, **options: Any) -> Finished:
    """`exec-server WORDS...`, after its end."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    async with asyncio.timeout(PATIENCE), running(*words, **options) as process:
        stdout, stderr = await process.communicate(input)
    assert process.returncode is not None
    return Finished(process.returncode, stdout, stderr)


async def line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        return await process.stdout.readline()


async def status(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(PATIENCE):
        return await process.wait()


class Cue:
    """An event that a child waits for before it continues; it can be given once."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.wait = f"read x < {path}"
        self._path = path

    async def give(self) -> None:
        """Wait until the child has taken it."""
        await eventually(self._try)

    def _try(self) -> bool:
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as exc:
            # The child does not read yet.
            assert exc.errno == errno.ENXIO
            return False
        os.write(fd, b"go\n")
        os.close(fd)
        return True


class Terminal:
    """`exec-server WORDS...` on a terminal of its own."""

    def __init__(
        self, *words: str, rows: int = 30, cols: int = 90, env: dict[str, str] | None = None
    ) -> None:
        self.fd, self._far = pty.openpty()
        self.resize(rows, cols)
        self.before = termios.tcgetattr(self._far)
        self.process = subprocess.Popen(
            [*OURS, *words],
            stdin=self._far,
            stdout=self._far,
            stderr=self._far,
            env={**os.environ, **(env or {})},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        # The output after the last match of `until`, and all output so far.
        self.shown = b""
        self.all = b""
        os.set_blocking(self.fd, False)

    def resize(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self._far, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    @property
    def attributes(self) -> list[Any]:
        return termios.tcgetattr(self._far)

    @attributes.setter
    def attributes(self, attributes: list[Any]) -> None:
        termios.tcsetattr(self._far, termios.TCSANOW, attributes)

    @property
    def is_raw(self) -> bool:
        return not self.attributes[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def hang_up(self) -> None:
        """Close the window of the terminal."""
        os.close(self.fd)
        self.fd = -1

    def _look(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.fd, 65536)
            self.shown += data
            self.all += data

    async def until(self, text: bytes) -> None:
        """Wait until *text* is shown; the next call looks after it."""

        def is_shown() -> bool:
            self._look()
            return text in self.shown

        try:
            await eventually(is_shown)
        except AssertionError:
            raise AssertionError(f"{text!r} was not shown, but {self.shown[-500:]!r}") from None
        self.shown = self.shown[self.shown.index(text) + len(text) :]

    async def until_so(self, is_so: Callable[[bytes], bool]) -> None:
        """Wait until *is_so* is true of all output so far."""

        def is_shown() -> bool:
            self._look()
            return is_so(self.all)

        await eventually(is_shown, "it was not shown")

    async def status(self) -> int:
        def is_over() -> bool:
            if self.fd != -1:
                self._look()
            return self.process.poll() is not None

        await eventually(is_over, "it did not end")
        if self.fd != -1:
            self._look()
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.fd != -1:
            os.close(self.fd)
        os.close(self._far)


MakeTerminal = Callable[..., Terminal]


@contextlib.contextmanager
def terminals() -> Any:
    """A function that opens terminals, which are closed at the end."""
    opened: list[Terminal] = []

    def make(*words: str, **options: Any) -> Terminal:
        opened.append(Terminal(*words, **options))
        return opened[-1]

    try:
        yield make
    finally:
        for each in opened:
            each.close()
