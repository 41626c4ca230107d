"""Whole process trees: each holds one end of a FIFO, whose end of file says that none is left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.wire import PATIENCE


class Tether:
    """A FIFO that the first process of a tree opens for writing and all others inherit."""

    def __init__(self, folder: Path, name: str = "tether") -> None:
        self.path = str(folder / name)
        # What they have written so far.
        self.said = b""

    def __enter__(self) -> Self:
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._fd)
        os.unlink(self.path)

    @property
    def is_held(self) -> bool:
        """True if a process has the other end open."""
        try:
            while data := os.read(self._fd, 1 << 16):
                self.said += data
        except BlockingIOError:
            return True
        return False

    async def heard(self, text: bytes) -> None:
        """Returns once *text* was written."""
        await self._until(lambda is_held: text in self.said)

    async def released(self) -> bytes:
        """Everything that was written, once no process holds the other end any more.

        A process must have held it before.
        """
        await self._until(lambda is_held: not is_held)
        return self.said

    async def _until(self, is_enough: Callable[[bool], bool]) -> None:
        """Listen until *is_enough*, which is told if a writer is left."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def listen() -> None:
            if is_enough(self.is_held) and not done.done():
                done.set_result(None)

        loop.add_reader(self._fd, listen)
        try:
            listen()
            async with asyncio.timeout(PATIENCE):
                await done
        finally:
            loop.remove_reader(self._fd)
