"""Input with two writes under way: while the server takes one, the next one is prepared."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from exec_server.errors import ConnectionClosed
from exec_server.protocol.base64 import Blob
from exec_server.protocol.process import WRITE, WriteParams, WriteResult

if TYPE_CHECKING:
    from exec_server.client.connection_link import ConnectionLink
    from exec_server.client.process.remote_process import RemoteProcess

# More of them leave the caches of the processor, and bring nothing.
_DEPTH = 2


async def can_write_ahead(process: RemoteProcess) -> bool:
    """True if the server accepts writes in the order in which they come, as ours does."""
    return await process._client._session.offers("processCloseStdin")


class _SentWrite(NamedTuple):
    """A write that was not answered when it was last looked at."""

    params: WriteParams
    answer: asyncio.Task[WriteResult]


class InputAhead:
    """Writes to *process*, in order, ahead of the server's answers.

    For processes of which `can_write_ahead` is true. All writes under way go through one
    connection. If it is lost, they are repeated one after the other, and those that the server
    knows are not written again. An error of a write is raised by a later call.

    Use `async with`; other writes to the process wait until it ends.
    """

    def __init__(self, process: RemoteProcess) -> None:
        self._process = process
        self._session = process._client._session
        self._sent: deque[_SentWrite] = deque()
        # The connection of all writes under way.
        self._link: ConnectionLink | None = None
        # Takes the answers; a write is repeated at once, whether or not another one follows.
        self._settling: asyncio.Task[None] | None = None
        self._progress = asyncio.Event()
        self._error: Exception | None = None

    async def __aenter__(self) -> Self:
        await self._process._writing.acquire()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            tasks: list[asyncio.Task[WriteResult] | asyncio.Task[None]]
            tasks = [each.answer for each in self._sent]
            tasks += [] if self._settling is None else [self._settling]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._process._writing.release()

    async def write(self, data: bytes) -> None:
        """Send *data*, which is at most as long as one write may be."""
        await self._settled(_DEPTH - 1)
        link = await self._session.link.connected_link()
        if self._sent and link is not self._link:
            await self.flush()
            link = await self._session.link.connected_link()
        self._link = link
        self._process._last_write_id += 1
        write_id = f"{self._process._write_prefix}{self._process._last_write_id}"
        params = WriteParams(self._process.process_id, Blob(data), write_id)
        self._session.streams.typed(len(data))
        # A task begins in its turn, so the writes are sent in order.
        sending = asyncio.create_task(self._session.call_on(link, WRITE, params))
        self._sent.append(_SentWrite(params, sending))
        if self._settling is None or self._settling.done():
            self._settling = asyncio.create_task(self._settle())

    async def flush(self) -> None:
        """Wait until the server has accepted everything."""
        await self._settled(0)

    async def _settled(self, most: int) -> None:
        """Wait until at most so many writes are under way. Raises the error of a write."""
        while len(self._sent) > most and self._error is None:
            self._progress.clear()
            await self._progress.wait()
        if self._error is not None:
            raise self._error

    async def _settle(self) -> None:
        try:
            while self._sent:
                self._process._check((await self._accepted(self._sent[0])).status)
                self._sent.popleft()
                self._progress.set()
        except Exception as exc:
            self._error = exc
            self._progress.set()

    async def _accepted(self, write: _SentWrite) -> WriteResult:
        try:
            return await write.answer
        except ConnectionClosed:
            # Those behind it have met the same end. None of them is sent before this one again.
            return await self._session.call(WRITE, write.params, seconds=None, repeat=True)
