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
            answers = [each.answer for each in self._sent]
            for answer in answers:
                answer.cancel()
            await asyncio.gather(*answers, return_exceptions=True)
        finally:
            self._process._writing.release()

    async def write(self, data: bytes) -> None:
        """Send *data*, which is at most as long as one write may be."""
        if len(self._sent) >= _DEPTH:
            await self._settle_first()
        link = await self._session.link.connected_link()
        if self._sent and link is not self._link:
            await self.flush()
            link = await self._session.link.connected_link()
        self._link = link
        self._process._last_write_id += 1
        write_id = f"{self._process._write_prefix}{self._process._last_write_id}"
        params = WriteParams(self._process.process_id, Blob(data), write_id)
        # A task begins in its turn, so the writes are sent in order.
        sending = asyncio.create_task(self._session.call_on(link, WRITE, params))
        self._sent.append(_SentWrite(params, sending))

    async def flush(self) -> None:
        """Wait until the server has accepted everything."""
        while self._sent:
            await self._settle_first()

    async def _settle_first(self) -> None:
        params, answer = self._sent[0]
        try:
            result = await answer
        except ConnectionClosed:
            # Those behind it have met the same end. None of them is sent before this one again.
            result = await self._session.call(WRITE, params, seconds=None, repeat=True)
        self._sent.popleft()
        self._process._check(result.status)
