"""fs/open, fs/readBlock, fs/writeBlock and fs/close: files that are read and written in blocks."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar, TypeVarTuple

from exec_server.errors import InvalidRequest
from exec_server.files import handles
from exec_server.files.handles import Handle, Handles
from exec_server.files.nowait.mounts import Pace
from exec_server.files.nowait.nonblocking import Quick
from exec_server.files.operations import local
from exec_server.files.operations.oserrors import os_error, rpc_error
from exec_server.files.runner import Runner, translated
from exec_server.files.workers import Settle
from exec_server.limits import Limits
from exec_server.protocol import fs
from exec_server.protocol.base64 import encode_base64
from exec_server.protocol.method import NOTHING, Encoded, Nothing

T = TypeVar("T")
Args = TypeVarTuple("Args")

_OFFSET_MAX = (1 << 63) - 1
# The answer of fs/readBlock up to its base64.
_BEFORE = b'{"chunk":"'


class OpenFiles:
    """The open files of one connection."""

    def __init__(self, runner: Runner, quick: Quick, limits: Limits, *, is_packed: bool) -> None:
        self._block = _packed_block if is_packed else _block
        self._runner = runner
        self._quick = quick
        self._limits = limits
        self._handles = Handles(limits, self._close)

    def open(self, params: fs.OpenParams) -> fs.OpenResult | Awaitable[fs.OpenResult]:
        self._handles.check_id(params.handle_id)
        handle = self._handles.reserve(params.handle_id)
        try:
            path = params.path.native
            opened = translated(self._quick.open, path) if params.mode == "read" else None
        except BaseException:
            self._handles.drop(params.handle_id, handle)
            raise
        if opened is None:
            return self._open_slowly(params, handle, path)
        handle.opened(opened.fd, opened.pace)
        return fs.OpenResult(params.handle_id)

    async def _open_slowly(
        self, params: fs.OpenParams, handle: Handle, path: bytes
    ) -> fs.OpenResult:
        def after(opened: tuple[int, int] | None, error: BaseException | None) -> None:
            if opened is None:
                self._handles.drop(params.handle_id, handle)
            else:
                handle.opened(opened[0], self._quick.pace(opened[0]))

        flags = local.OPEN_FLAGS[params.mode]
        await self._runner.run(local.open_regular, path, flags, after=after)
        return fs.OpenResult(params.handle_id)

    async def adopt(self, handle_id: str, open_it: Callable[[], Awaitable[int]]) -> fs.OpenResult:
        """Keep the descriptor that *open_it* returns; the name is reserved before the call."""
        self._handles.check_id(handle_id)
        handle = self._handles.reserve(handle_id)
        try:
            fd = await open_it()
        except BaseException:
            self._handles.drop(handle_id, handle)
            raise
        handle.opened(fd, self._quick.pace(fd))
        return fs.OpenResult(handle_id)

    def read_block(self, params: fs.ReadBlockParams) -> Encoded | Awaitable[Encoded]:
        self._handles.check_id(params.handle_id)
        self._check_size("read", params.len)
        handle = self._handles.get(params.handle_id)
        if self._runner.must_wait(params.len):
            return self._runner.later(partial(self.read_block, params))
        try:
            if params.offset > _OFFSET_MAX:
                raise os_error(errno.EINVAL)
            found = self._quick.read_block(handle.fd, params.offset, params.len, handle.pace)
        except OSError as exc:
            self._handles.drop(params.handle_id, handle)
            raise rpc_error(exc) from exc
        if found is not None:
            self._runner.answer_now(len(found))
            return self._block(found, params.len)

        def after(outcome: object, error: BaseException | None) -> None:
            if error is not None:
                self._handles.drop(params.handle_id, handle)

        return self._use(handle, after, self._read_block, handle.fd, params.offset, params.len)

    def _read_block(self, fd: int, offset: int, size: int) -> Encoded:
        return self._block(handles.read_block(fd, offset, size), size)

    def write_block(self, params: fs.WriteBlockParams) -> Nothing | Awaitable[Nothing]:
        self._handles.check_id(params.handle_id)
        data, offset = params.chunk.data, params.offset
        self._check_size("write", len(data))
        if offset + len(data) > _OFFSET_MAX:
            raise InvalidRequest("file write range exceeds the signed 64-bit file offset limit")
        handle = self._handles.get(params.handle_id)
        # A failed write keeps the handle; a failed read closes it.
        if self._quick.may_write(len(data), handle.pace):
            return translated(_write_block, handle.fd, offset, data)
        return self._use(handle, None, _write_block, handle.fd, offset, data)

    def close(self, params: fs.CloseParams) -> Nothing:
        self._handles.check_id(params.handle_id)
        self._handles.close(params.handle_id)
        return NOTHING

    def close_all(self) -> None:
        self._handles.close_all()

    def _check_size(self, kind: str, size: int) -> None:
        if not 1 <= size <= self._limits.block_bytes:
            raise InvalidRequest(
                f"file {kind} block length must be between 1 and {self._limits.block_bytes}"
            )

    def _use(
        self,
        handle: Handle,
        after: Settle | None,
        function: Callable[[*Args], T],
        *args: *Args,
    ) -> Awaitable[T]:
        """Call *function* in a thread and then *after*; *handle* stays open until then."""

        def release(outcome: object, error: BaseException | None) -> None:
            if after is not None:
                after(outcome, error)
            handle.release()

        handle.acquire()
        return self._runner.run(function, *args, after=release)

    def _close(self, handle: Handle) -> None:
        if handle.pace is Pace.SLOW:
            self._runner.workers.call(os.close, handle.fd)
        else:
            os.close(handle.fd)


def _block(data: bytes | memoryview, wanted: int) -> Encoded:
    return Encoded((_BEFORE, encode_base64(data), _after(data, wanted)))


def _packed_block(data: bytes | memoryview, wanted: int) -> Encoded:
    """The same with the bytes as they are. They are copied if they are in a buffer."""
    return Encoded((_BEFORE, _after(data, wanted)), bulk=bytes(data))


def _after(data: bytes | memoryview, wanted: int) -> bytes:
    return b'","eof":true}' if len(data) < wanted else b'","eof":false}'


def _write_block(fd: int, offset: int, data: bytes) -> Nothing:
    handles.write_block(fd, offset, data)
    return NOTHING
