"""Open files of an sftp client: they are read ahead and written behind, in large blocks.

An sftp client asks for small pieces. The server is asked for whole blocks, several at a time, so
that a large file moves at the speed of the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal

from exec_server.client.files.file_streams import BLOCK_BYTES, WINDOW, Block
from exec_server.client.files.remote_files import RemoteFiles
from exec_server.errors import ConnectionClosed, NotFound

OpenMode = Literal["read", "replace", "update"]


class SftpFile:
    """One open file. It survives a lost connection: then it is opened again."""

    def __init__(
        self, files: RemoteFiles, path: bytes, mode: OpenMode, *, appends: bool = False
    ) -> None:
        self.path = path
        self._files = files
        self._mode = mode
        self._appends = appends
        self._handle: str | None = None
        self._opening = asyncio.Lock()
        # Blocks that were asked for, by their number, and the number that comes next.
        self._blocks: dict[int, asyncio.Task[Block]] = {}
        self._next = 0
        # Bytes that are not sent yet, and where they belong. A client does not wait for the answer
        # to one write before the next, and while one waits for its turn another must not add to it.
        self._writing = asyncio.Lock()
        self._buffer = bytearray()
        self._buffer_at = 0
        self._writes: deque[asyncio.Task[None]] = deque()

    async def open(self) -> None:
        """Open it on the server; the errors are those of `fs/open`."""
        self._handle = await self._files.open(self.path, mode=self._mode)

    async def close(self) -> None:
        """Write what is left, and close it. An error may belong to an earlier write."""
        try:
            await self.flush()
        finally:
            for task in self._blocks.values():
                task.cancel()
            self._forget_blocks()
            handle, self._handle = self._handle, None
            if handle is not None:
                await self._files.close(handle)

    # Reading.

    async def read(self, offset: int, size: int) -> bytes:
        """Up to *size* bytes; nothing at the end of the file."""
        if self._buffer or self._writes:
            await self.flush()
        parts: list[bytes] = []
        while size:
            part = await self._read_part(offset, min(size, BLOCK_BYTES))
            if not part:
                break
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _read_part(self, offset: int, size: int) -> bytes:
        """The part of a read that is in one block."""
        number, start = divmod(offset, BLOCK_BYTES)
        if number not in self._blocks and number != self._next:
            # Here and there: only what is asked for.
            return (await self._read_block(offset, size)).data
        block = await self._read_ahead(number)
        part = block.data[start : start + size]
        if not part and len(block.data) < BLOCK_BYTES:
            # The file may have grown.
            return (await self._read_block(offset, size)).data
        return part

    async def _read_ahead(self, number: int) -> Block:
        # A client may wait for an older block, which is then not here yet.
        for old in [each for each in self._blocks if each < number - 1]:
            if self._blocks[old].done():
                _retrieved(self._blocks.pop(old))
        # Most files are shorter than a block.
        ahead = WINDOW if number else 1
        for each in range(number, number + ahead):
            if each not in self._blocks:
                call = self._read_block(each * BLOCK_BYTES, BLOCK_BYTES)
                self._blocks[each] = asyncio.create_task(call)
        self._next = number + 1
        return await self._blocks[number]

    async def _read_block(self, offset: int, size: int) -> Block:
        handle = await self._opened()
        try:
            return await self._files.read_block(handle, offset, size)
        except (ConnectionClosed, NotFound):
            return await self._files.read_block(await self._again(handle), offset, size)

    def _forget_blocks(self) -> None:
        """Ask again for what is read next; those who wait for a block get it."""
        for task in self._blocks.values():
            task.add_done_callback(_retrieved)
        self._blocks.clear()
        self._next = 0

    # Writing.

    async def write(self, offset: int, data: bytes) -> int:
        """Take *data*; it is on its way when enough of it has come together."""
        if self._appends:
            await self._files.append(self.path, data)
            return len(data)
        async with self._writing:
            await self._write(offset, data)
        return len(data)

    async def _write(self, offset: int, data: bytes) -> None:
        if self._blocks:
            self._forget_blocks()
        if self._buffer and offset != self._buffer_at + len(self._buffer):
            await self._send()
        if not self._buffer:
            self._buffer_at = offset
        self._buffer += data
        while len(self._buffer) >= BLOCK_BYTES:
            await self._send()

    async def flush(self) -> None:
        """Wait until everything is written. Raises the first error of a write."""
        async with self._writing:
            while self._buffer:
                await self._send()
            while self._writes:
                await self._settle_one()

    async def _send(self) -> None:
        """Begin to write a block; it waits for an older one if too many are under way."""
        while len(self._writes) >= WINDOW:
            await self._settle_one()
        data = bytes(self._buffer[:BLOCK_BYTES])
        del self._buffer[:BLOCK_BYTES]
        self._writes.append(asyncio.create_task(self._write_block(self._buffer_at, data)))
        self._buffer_at += len(data)

    async def _settle_one(self) -> None:
        try:
            await self._writes.popleft()
        except BaseException:
            # The rest is of no use, and the client is told once.
            self._buffer.clear()
            for task in self._writes:
                task.add_done_callback(_retrieved)
            self._writes.clear()
            raise

    async def _write_block(self, offset: int, data: bytes) -> None:
        handle = await self._opened()
        try:
            await self._files.write_block(handle, offset, data)
        except (ConnectionClosed, NotFound):
            # The same bytes at the same place: doing it twice does no harm.
            await self._files.write_block(await self._again(handle), offset, data)

    # The handle.

    async def _opened(self) -> str:
        if self._handle is None:
            await self.open()
        assert self._handle is not None
        return self._handle

    async def _again(self, lost: str) -> str:
        """Another handle after one that was lost with its connection."""
        async with self._opening:
            if self._handle == lost:
                mode: OpenMode = "read" if self._mode == "read" else "update"
                self._handle = await self._files.open(self.path, mode=mode)
            assert self._handle is not None
            return self._handle


def _retrieved(task: asyncio.Task[Block] | asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
