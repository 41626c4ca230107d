"""Open files of an sftp client: they are read ahead, and written in large blocks.

An sftp client asks for small pieces, and does not wait for each answer. The server is asked for
whole blocks, several at a time, so that a large file moves at the speed of the connection. A write
is answered once it is written: sshfs lets a program close its file after the last answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Literal

from exec_server.client.files.file_streams import BLOCK_BYTES, WINDOW, Block
from exec_server.client.files.remote_files import RemoteFiles
from exec_server.errors import ConnectionClosed, NotFound
from exec_server.ssh_door.target import FilePlace

OpenMode = Literal["read", "replace", "update"]


# Blocks that are written at the same time.
_WRITES = 2


class _WriteBlock:
    """Bytes of several writes that follow one another."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.data = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def end(self) -> int:
        return self.at + len(self.data)


class SftpFile:
    """One open file. It survives a lost connection: then it is opened again."""

    def __init__(
        self,
        files: RemoteFiles,
        path: bytes,
        mode: OpenMode,
        *,
        appends: bool = False,
        empties: bool = False,
        place: FilePlace | None = None,
    ) -> None:
        """With *empties*, `open` drops the content of a file that is there.

        With *place* the file is opened at the client of that place, and not at *files*.
        """
        self.path = path
        self._files = files
        self._mode = mode
        self._appends = appends
        self._empties = empties
        self._place = place
        self._handle: str | None = None
        self._opening = asyncio.Lock()
        # Blocks that were asked for, by their number, and the number that comes next.
        self._blocks: dict[int, asyncio.Task[Block]] = {}
        self._next = 0
        # What waits to be written, and what is being written, in the order of the requests.
        self._waiting: deque[_WriteBlock] = deque()
        self._under_way: list[_WriteBlock] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Open it on the server; the errors are those of `fs/open`."""
        try:
            await self._open()
        except BaseException:
            self._leave_place()
            raise

    async def _open(self) -> None:
        await self._reach()
        if self._empties and self._mode == "update":
            # This mode keeps the content, and the other one cannot be read.
            await self._files.close(await self._files.open(self.path, mode="replace"))
            self._empties = False
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
            self._leave_place()
            if handle is not None:
                # A lost session has no open files.
                with contextlib.suppress(ConnectionClosed):
                    await self._files.close(handle)

    # Reading.

    async def read(self, offset: int, size: int) -> bytes:
        """Up to *size* bytes; nothing at the end of the file."""
        if self._waiting or self._under_way:
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
            handle = await self._again(handle)
            return await self._files.read_block(handle, offset, size)

    def _forget_blocks(self) -> None:
        """Ask again for what is read next; those who wait for a block get it."""
        for task in self._blocks.values():
            task.add_done_callback(_retrieved)
        self._blocks.clear()
        self._next = 0

    # Writing.

    async def write(self, offset: int, data: bytes) -> int:
        """Write *data*, together with what comes behind it while others are being written."""
        if self._appends:
            await self._reach()
            await self._files.append(self.path, data)
            return len(data)
        if self._blocks:
            self._forget_blocks()
        view, blocks = memoryview(data), list[_WriteBlock]()
        while view:
            blocks.append(self._take(offset, view[:BLOCK_BYTES]))
            offset, view = offset + BLOCK_BYTES, view[BLOCK_BYTES:]
        self._send()
        for block in blocks:
            await asyncio.shield(block.done)
        return len(data)

    def _take(self, offset: int, data: memoryview) -> _WriteBlock:
        """Add *data* to the last block that waits, if it belongs there."""
        last = self._waiting[-1] if self._waiting else None
        if last is None or offset != last.end or len(last.data) + len(data) > BLOCK_BYTES:
            last = _WriteBlock(offset)
            self._waiting.append(last)
        last.data += data
        return last

    async def flush(self) -> None:
        """Wait until everything is written. Raises the first error of a write."""
        blocks = [*self._under_way, *self._waiting]
        results = await asyncio.gather(*(each.done for each in blocks), return_exceptions=True)
        for error in results:
            if error is not None:
                raise error

    def _send(self) -> None:
        """Begin to write what waits: few blocks at once, so that the next ones grow meanwhile."""
        while self._waiting and len(self._under_way) < _WRITES:
            block = self._waiting[0]
            if any(block.at < each.end and each.at < block.end for each in self._under_way):
                # The same place twice: the later one counts.
                return
            self._waiting.popleft()
            self._under_way.append(block)
            task = asyncio.create_task(self._write_one(block))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write_one(self, block: _WriteBlock) -> None:
        try:
            await self._write_block(block.at, bytes(block.data))
        except BaseException as exc:
            failed = ConnectionClosed("the file was closed") if _is_cancelled(exc) else exc
            block.done.set_exception(failed)
            # A writer that has left does not ask.
            block.done.exception()
            if _is_cancelled(exc):
                raise
        else:
            block.done.set_result(None)
        finally:
            self._under_way.remove(block)
            self._send()

    async def _write_block(self, offset: int, data: bytes) -> None:
        handle = await self._opened()
        try:
            await self._files.write_block(handle, offset, data)
        except (ConnectionClosed, NotFound):
            # The same bytes at the same place: doing it twice does no harm.
            handle = await self._again(handle)
            await self._files.write_block(handle, offset, data)

    # The handle.

    async def _opened(self) -> str:
        if self._handle is None:
            await self.open()
        assert self._handle is not None
        return self._handle

    def _leave_place(self) -> None:
        if self._place is not None:
            self._place.leave()

    async def _reach(self) -> None:
        """Use a client whose session is there."""
        if self._place is not None:
            self._files = (await self._place.client()).fs

    async def _again(self, lost: str) -> str:
        """Another handle after one that was lost with its connection."""
        async with self._opening:
            if self._handle == lost:
                await self._reach()
                mode: OpenMode = "read" if self._mode == "read" else "update"
                self._handle = await self._files.open(self.path, mode=mode)
            assert self._handle is not None
            return self._handle


def _is_cancelled(exc: BaseException) -> bool:
    return isinstance(exc, asyncio.CancelledError)


def _retrieved(task: asyncio.Task[Block]) -> None:
    if not task.cancelled():
        task.exception()
