"""The server's side of one helper: it sends calls, receives answers, and sees the end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from typing import Any, Protocol

import msgspec

from exec_server.errors import InternalError, RpcError
from exec_server.files.confined import packets
from exec_server.files.confined.helper_main import READY
from exec_server.files.confined.packets import HelperAnswer, HelperCall
from exec_server.files.operations.content import Content
from exec_server.protocol.method import Encoded

_decode = msgspec.msgpack.Decoder(HelperAnswer).decode
_encode = msgspec.msgpack.Encoder().encode


class HelperProcess(Protocol):
    """The process of a helper; *ended* gets a sentence that says how it ended."""

    ended: asyncio.Future[str]

    def kill(self) -> None: ...

    def discard(self) -> None:
        """Kill it; how it ends does not matter any more."""


class Helper:
    """Owns *sock* and speaks on it with *process*.

    A helper is closed if it sends nonsense, needs more than *call_seconds* for a call, or ends.
    Then every waiting call fails, and `is_closed` says that another helper is needed.
    """

    def __init__(
        self, sock: socket.socket, process: HelperProcess, *, call_seconds: float, max_calls: int
    ) -> None:
        self._sock = sock
        self._process = process
        self._call_seconds = call_seconds
        self._slots = asyncio.Semaphore(max_calls)
        self._loop = asyncio.get_running_loop()
        self._last_id = 0
        self._calls: dict[int, asyncio.Future[Encoded | int]] = {}
        self._outbox: deque[tuple[bytes, int | None]] = deque()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self.is_closed = False
        sock.setblocking(False)
        self._loop.add_reader(sock, self._on_readable)

    async def wait_ready(self) -> None:
        """Wait until the helper can take calls. Raises InternalError if it ends before."""
        await asyncio.shield(self._ready)

    async def call(
        self, task: str, *args: Any, follows: bool = True, content: Content | None = None
    ) -> Encoded | int:
        """The answer of *task*: JSON, or the descriptor of a file, which the caller closes.

        Raises RpcError.
        """
        async with self._slots:
            answer = self._start(HelperCall(self._take_id(), task, args, follows), content)
            try:
                async with asyncio.timeout(self._call_seconds):
                    return await answer
            except TimeoutError:
                text = f"fs sandbox helper failed: no answer within {self._call_seconds:g} s"
                self.close(text)
                raise InternalError(text) from None
            except asyncio.CancelledError:
                _let_go(answer)
                raise

    def _take_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _start(self, call: HelperCall, content: Content | None) -> asyncio.Future[Encoded | int]:
        if self.is_closed:
            raise InternalError("fs sandbox helper failed: it has ended")
        attached: int | None = None
        if isinstance(content, bytes) and len(content) <= packets.INLINE_BYTES:
            call.content = content
        elif content is not None:
            attached = packets.anonymous_file(content)
        answer: asyncio.Future[Encoded | int] = self._loop.create_future()
        self._calls[call.id] = answer
        answer.add_done_callback(lambda _: self._calls.pop(call.id, None))
        self._outbox.append((_encode(call), attached))
        if len(self._outbox) == 1:
            self._flush()
        return answer

    def _flush(self) -> None:
        while self._outbox:
            packet, attached = self._outbox[0]
            try:
                packets.send(self._sock, packet, attached)
            except BlockingIOError:
                self._loop.add_writer(self._sock, self._flush)
                return
            except OSError as exc:
                self.close(f"fs sandbox helper failed: {exc.strerror or exc}")
                return
            self._outbox.popleft()
            if attached is not None:
                os.close(attached)
        self._loop.remove_writer(self._sock)

    def _on_readable(self) -> None:
        try:
            packet, attached = packets.receive(self._sock)
        except BlockingIOError:
            return
        except OSError as exc:
            self.close(f"fs sandbox helper failed: {exc.strerror or exc}")
            return
        if not packet:
            self._on_end()
        elif not self._ready.done():
            self._on_first(packet, attached)
        else:
            self._on_answer(packet, attached)

    def _on_end(self) -> None:
        """The helper closed its end: fail all calls once the reason is known."""
        self.is_closed = True
        self._loop.remove_reader(self._sock)
        self._process.kill()
        self._process.ended.add_done_callback(lambda ended: self._fail(ended.result()))

    def _on_first(self, packet: bytes, attached: int | None) -> None:
        _close(attached)
        if packet == READY:
            self._ready.set_result(None)
        else:
            self.close("fs sandbox helper failed: it did not start")

    def _on_answer(self, packet: bytes, attached: int | None) -> None:
        try:
            answer = _decode(packet)
        except msgspec.MsgspecError:
            _close(attached)
            self.close("fs sandbox helper failed: it said something else than an answer")
            return
        waiting = self._calls.get(answer.id)
        if waiting is None or waiting.done():
            _close(attached)
        elif answer.code is not None:
            _close(attached)
            text = answer.payload.decode("utf-8", "replace")
            waiting.set_exception(RpcError.from_wire(answer.code, text, answer.details))
        elif not answer.is_opened:
            waiting.set_result(Encoded(_result(answer, attached)))
        elif attached is not None:
            waiting.set_result(attached)
        else:
            self.close("fs sandbox helper failed: it opened nothing")

    def close(self, reason: str) -> None:
        """End the helper; calls that wait fail with *reason*."""
        self.is_closed = True
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        self._process.discard()
        for _, attached in self._outbox:
            _close(attached)
        self._outbox.clear()
        everybody: list[asyncio.Future[Any]] = [self._ready, *self._calls.values()]
        for waiting in everybody:
            if not waiting.done():
                waiting.set_exception(InternalError(reason))
        # asyncio warns of an exception that was never retrieved.
        self._ready.exception()


def _result(answer: HelperAnswer, attached: int | None) -> tuple[bytes, ...]:
    if attached is None:
        return (answer.payload,)
    try:
        return tuple(packets.FileContent(attached).pieces())
    finally:
        os.close(attached)


def _let_go(answer: asyncio.Future[Encoded | int]) -> None:
    """Close a file that was opened for a call that has just been cancelled."""
    if answer.done() and not answer.cancelled() and answer.exception() is None:
        opened = answer.result()
        if isinstance(opened, int):
            os.close(opened)


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
