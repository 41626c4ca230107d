"""The clients of one ssh connection: the one that its channels use, and more for many open files.

A client whose session is lost, because the server was killed for example, is replaced by a new one
when a channel asks for it. So a master connection of ssh goes on as soon as the server is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Self

from exec_server.client.client import ExecServerClient
from exec_server.errors import ExecServerError

# More clients of one ssh connection than this are not opened for its files.
_MOST_CLIENTS = 16

Opening = Callable[[], AbstractAsyncContextManager[ExecServerClient]]


class _DoorClient:
    """A client that is being opened or is open, and how many files use it."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[ExecServerClient] = asyncio.get_running_loop().create_future()
        self.files = 0

    async def client(self) -> ExecServerClient:
        """The client once it is open. Several wait for it, and each of them may be cancelled."""
        return self.opened.result() if self.opened.done() else await asyncio.shield(self.opened)

    @property
    def is_over(self) -> bool:
        """True if it could not be opened, or its session is lost."""
        if not self.opened.done():
            return False
        if self.opened.cancelled() or self.opened.exception() is not None:
            return True
        return self.opened.result().state in ("failed", "closed")


class _PlaceForFile:
    """Room for one open file, at a client whose session is there."""

    def __init__(self, clients: DoorClients) -> None:
        self._clients = clients
        self._slot: _DoorClient | None = None

    async def client(self) -> ExecServerClient:
        """The client for this file; another one if the session of the last one is lost."""
        if self._slot is None or self._slot.is_over:
            self.leave()
            self._slot = self._clients.slot_with_room()
            self._slot.files += 1
        return await self._slot.client()

    def leave(self) -> None:
        """The file is closed."""
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.files -= 1


class DoorClients:
    """Opens clients when they are needed, and closes them at the end of its block."""

    def __init__(self, opening: Opening, files_each: int, tasks: asyncio.TaskGroup) -> None:
        self._opening = opening
        self._files_each = files_each
        self._tasks = tasks
        self._left = asyncio.Event()
        self._holding: dict[asyncio.Task[None], _DoorClient] = {}
        # The first one is for everything; the others are for files.
        self._slots = [self._open()]

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, opening: Opening, files_each: int) -> AsyncIterator[Self]:
        """Begin to connect at once; the end of the block closes all clients.

        A server keeps *files_each* files open for each client.
        """
        async with asyncio.TaskGroup() as tasks:
            clients = cls(opening, files_each, tasks)
            try:
                yield clients
            finally:
                clients._leave()

    async def client(self) -> ExecServerClient:
        """The client, or a new one if its session is lost. Raises what connecting raises."""
        return await self._usable(0).client()

    def file_place(self) -> _PlaceForFile:
        """Room for a file that is about to be opened."""
        return _PlaceForFile(self)

    def slot_with_room(self) -> _DoorClient:
        """A client that can keep one more file open; the first one if all are full."""
        for number in range(len(self._slots)):
            if self._usable(number).files < self._files_each:
                return self._slots[number]
        if len(self._slots) < _MOST_CLIENTS:
            self._slots.append(self._open())
            return self._slots[-1]
        return self._slots[0]

    def _usable(self, number: int) -> _DoorClient:
        if self._slots[number].is_over:
            self._slots[number] = self._open()
        return self._slots[number]

    def _open(self) -> _DoorClient:
        slot = _DoorClient()
        task = self._tasks.create_task(self._hold(slot.opened))
        self._holding[task] = slot
        task.add_done_callback(self._holding.pop)
        return slot

    async def _hold(self, opened: asyncio.Future[ExecServerClient]) -> None:
        """Keep a client open. One task does it all: a client closes where it was opened."""
        try:
            async with self._opening() as client:
                opened.set_result(client)
                async with asyncio.TaskGroup() as tasks:
                    lost = tasks.create_task(client.wait_closed())
                    left = tasks.create_task(self._left.wait())
                    await asyncio.wait({lost, left}, return_when=asyncio.FIRST_COMPLETED)
                    lost.cancel()
                    left.cancel()
        except BaseException as exc:
            if not opened.done():
                opened.set_exception(exc)
                # It may be that no channel asks for it.
                opened.exception()
            elif not isinstance(exc, ExecServerError):
                raise

    def _leave(self) -> None:
        self._left.set()
        for task, slot in self._holding.items():
            if not slot.opened.done():
                task.cancel()
