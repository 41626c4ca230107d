"""How a test and a command on this machine wait for each other."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from tests.interop.model import PATIENCE


class Fifo:
    """A named pipe that a command reads from or writes to, as if it were a file."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # Held open for both ends, so that no reader sees an end of file and opening never waits.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    async def line(self) -> str:
        """What a command wrote, once it has."""
        await _readable(self._fd)
        return os.read(self._fd, 4096).decode()

    def write(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def close(self) -> None:
        os.close(self._fd)


async def ended(pid: int) -> None:
    """Until a process that need not be our child has ended."""
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            await _readable(fd)
        finally:
            os.close(fd)


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        async with asyncio.timeout(PATIENCE):
            await ready.wait()
    finally:
        loop.remove_reader(fd)
