"""Streams of files: content in blocks, with several requests under way at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Self, TypeVar

from exec_server.client.arguments import as_bytes
from exec_server.client.os_errors import as_os_error
from exec_server.errors import InvalidParams, InvalidRequest, ProtocolError, RpcError
from exec_server.limits import MIB
from exec_server.protocol.paths import PathUri, from_uri

if TYPE_CHECKING:
    from exec_server.client.files.file_methods import AnyPath
    from exec_server.client.files.remote_files import RemoteFiles

T = TypeVar("T")

# The largest block that servers accept, which the reference's client uses, too.
BLOCK_BYTES = 1 * MIB
# Enough blocks that neither side waits for the other, and few enough for the memory.
WINDOW = 4
# The content that fits as base64 into one message of 64 MiB.
WHOLE_FILE_BYTES = 47 * MIB


def subject(*paths: PathUri) -> str:
    """The paths that a call is about, as its errors name them."""
    return " -> ".join(repr(native_text(path.text)) for path in paths)


def about_path(error: RpcError, path: PathUri) -> RpcError:
    """The *error* of a call about *path*, with that path."""
    return as_os_error(error).about(subject(path), path=native_text(path.text))


def native_text(uri: str) -> str:
    """The path that a URI names; the URI itself if the server is not a POSIX system."""
    try:
        return os.fsdecode(from_uri(uri))
    except InvalidParams:
        return uri


@lru_cache(maxsize=1)
def keep_large_blocks() -> None:
    """Make glibc keep freed memory blocks for reuse.

    After a large block was freed, glibc keeps blocks up to that size. Otherwise it returns each
    block to the kernel, which would be most of the work of a stream.
    """
    bytes(16 * MIB)


class Block(NamedTuple):
    """A part of a file."""

    data: bytes
    # True if fewer bytes came than were asked for. A full block at the end of the file has false.
    eof: bool


class _CallQueue(Generic[T]):
    """Calls under way, in the order in which their answers are needed."""

    def __init__(self) -> None:
        self._tasks: deque[asyncio.Task[T]] = deque()

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, call: Coroutine[Any, Any, T]) -> None:
        self._tasks.append(asyncio.create_task(call))

    async def next(self) -> T:
        return await self._tasks.popleft()

    async def drop(self) -> None:
        """Cancel the calls; their answers are not needed any more."""
        tasks = tuple(self._tasks)
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _OpenFile:
    """A file that is open on the server; it is closed in any case, whatever happens."""

    def __init__(self, files: RemoteFiles, forget: Callable[[str], None]) -> None:
        self.id = uuid.uuid4().hex
        self._files = files
        self._forget = forget
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._path: PathUri | None = None

    async def open(self, path: AnyPath, mode: Literal["read", "replace"]) -> None:
        keep_large_blocks()
        uri = await self._files.uri(path)
        self._path = uri
        try:
            await self._files.open(uri, mode=mode, handle_id=self.id)
        except RpcError:
            self._is_closed = True
            raise

    async def read(self, offset: int, size: int) -> tuple[int, Block]:
        """A block, after the size that was asked for. The error of a block names the file."""
        try:
            return size, await self._files.read_block(self.id, offset, size)
        except RpcError as exc:
            raise self._about(exc) from None

    async def write(self, offset: int, data: bytes) -> None:
        try:
            await self._files.write_block(self.id, offset, data)
        except RpcError as exc:
            raise self._about(exc) from None

    def _about(self, error: RpcError) -> RpcError:
        assert self._path is not None
        return about_path(error, self._path)

    def close_later(self) -> None:
        """Close it without waiting for that."""
        if not self._is_closed:
            self._is_closed = True
            self._forget(self.id)

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            try:
                await self._files.close(self.id)
            except RpcError as exc:
                raise self._about(exc) from None

    def __del__(self) -> None:
        if not self._is_closed:
            # This may run in another thread, and after the loop has closed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._forget, self.id)


class ReadStream:
    """The content of a file: an asynchronous iterator of blocks, in order.

    It belongs to one connection and fails with it. Iterate to the end, or use `async with`. The
    file is closed on the server in any case, even if the stream is only dropped.
    """

    def __init__(
        self,
        files: RemoteFiles,
        path: AnyPath,
        *,
        offset: int,
        length: int | None,
        window: int,
        forget: Callable[[str], None],
    ) -> None:
        """Use `client.fs.read_stream`. *forget* closes a handle without waiting for that."""
        self._files = files
        self._forget = forget
        self._path = path
        # The offsets of the next block to deliver, and of the next block to request.
        self._offset = self._asked = offset
        self._end = None if length is None else offset + length
        self._window = window
        # It grows with every full block, because most files are shorter than a window.
        self._width = window if length is not None else 1
        self._pending: _CallQueue[tuple[int, Block]] = _CallQueue()
        self._handle: _OpenFile | None = None
        self._is_ended = False

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            data = await self._next()
        except BaseException:
            await self.aclose()
            raise
        if not data:
            await self.aclose()
            raise StopAsyncIteration
        return data

    async def read(self) -> bytes:
        """The content up to the end."""
        return b"".join([data async for data in self])

    async def aclose(self) -> None:
        """Close the file; nothing more is read. Idempotent."""
        self._is_ended = True
        if self._handle is not None:
            self._handle.close_later()
        await self._pending.drop()

    async def _open(self) -> None:
        if self._handle is None and not self._is_ended:
            self._handle = _OpenFile(self._files, self._forget)
            await self._handle.open(self._path, "read")

    async def _next(self) -> bytes:
        """The next block; empty when there is none."""
        await self._open()
        if self._is_ended:
            return b""
        self._ask()
        if not len(self._pending):
            return b""
        asked, block = await self._pending.next()
        size = len(block.data)
        if size > asked:
            raise ProtocolError(f"a block of {size} bytes where {asked} were asked for")
        if not size and not block.eof:
            raise ProtocolError("an empty block that is not the last one")
        self._offset += size
        if block.eof:
            self._is_ended = True
        elif size < asked:
            # The blocks that were requested after it begin at the wrong offset.
            await self._pending.drop()
            self._asked = self._offset
        self._width = min(2 * self._width, self._window)
        return block.data

    def _ask(self) -> None:
        assert self._handle is not None
        while len(self._pending) < self._width:
            size = BLOCK_BYTES
            if self._end is not None:
                size = min(size, self._end - self._asked)
            if size <= 0:
                return
            self._pending.add(self._handle.read(self._asked, size))
            self._asked += size


class WriteStream:
    """Replaces the content of a file, block by block: `async with`, then `write`.

    The file is emptied at once, and complete when the `async with` block has ended without an
    error; otherwise a part of it remains. A server that takes no blocks gets the whole file at the
    end, which limits its size.
    """

    def __init__(
        self,
        files: RemoteFiles,
        path: AnyPath,
        *,
        window: int,
        forget: Callable[[str], None],
    ) -> None:
        """Use `client.fs.write_stream`. *forget* closes a handle without waiting for that."""
        self._files = files
        self._forget = forget
        self._path = path
        self._window = window
        self._buffer = bytearray()
        self._offset = 0
        self._pending: _CallQueue[None] = _CallQueue()
        self._handle: _OpenFile | None = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        if await self._files.offers("fileWriteStreaming"):
            self._handle = _OpenFile(self._files, self._forget)
            await self._handle.open(self._path, "replace")
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._is_open:
                await self._finish()
        finally:
            await self._abandon()

    async def write(self, data: bytes) -> None:
        """Write *data* after what was written; returns when little of it is still under way.

        An error may belong to an earlier block. After an error the stream cannot be used.
        """
        if not self._is_open:
            raise ValueError("the stream is not open: write inside of `async with`")
        try:
            await self._write(as_bytes(data, "data"))
        except BaseException:
            await self._abandon()
            raise

    async def _write(self, data: bytes) -> None:
        if self._handle is None:
            if len(self._buffer) + len(data) > WHOLE_FILE_BYTES:
                raise InvalidRequest(
                    "the server does not offer fileWriteStreaming: it takes no file of more than "
                    f"{WHOLE_FILE_BYTES} bytes"
                )
            self._buffer += data
            return
        if not self._buffer and len(data) == BLOCK_BYTES:
            # The block is sent without a copy.
            await self._send(data)
            return
        view = memoryview(data)
        while len(self._buffer) + len(view) >= BLOCK_BYTES:
            missing = BLOCK_BYTES - len(self._buffer)
            self._buffer += view[:missing]
            view = view[missing:]
            block = bytes(self._buffer)
            self._buffer.clear()
            await self._send(block)
        self._buffer += view

    async def _send(self, data: bytes) -> None:
        assert self._handle is not None
        while len(self._pending) >= self._window:
            await self._pending.next()
        self._pending.add(self._handle.write(self._offset, data))
        self._offset += len(data)

    async def _finish(self) -> None:
        if self._handle is None:
            await self._files.write_file(self._path, bytes(self._buffer))
            return
        if self._buffer:
            await self._send(bytes(self._buffer))
        while len(self._pending):
            await self._pending.next()
        await self._handle.close()

    async def _abandon(self) -> None:
        self._is_open = False
        self._buffer.clear()
        if self._handle is not None:
            self._handle.close_later()
        await self._pending.drop()
