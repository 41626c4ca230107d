"""The server's side of the host: it sends packets, receives answers, and sees the end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections import deque
from typing import Any, Protocol

import msgspec

from exec_server.errors import InternalError, RpcError
from exec_server.own_interpreter import command_of
from exec_server.process.spawn import Launch, OnExit, Spawned
from exec_server.screens import host_messages as messages
from exec_server.screens.host_messages import PACKET_BYTES

logger = logging.getLogger(__name__)

_MODULE = "exec_server.screens.host_main"
_PASSED_ON = ("PATH", "TMPDIR", "LD_LIBRARY_PATH")
_LAST_WORDS_BYTES = 4096
# So many packets are read in one turn of the event loop.
_PACKETS_A_TURN = 32
# Beside this much, output waits in the logs of the processes, not here.
_SEND_BUFFER_BYTES = 1 << 20


class HostStarter(Protocol):
    """What starts the host; see `Spawner`."""

    def spawn(self, launch: Launch, on_exit: OnExit) -> asyncio.Future[Spawned]: ...

    def signal_group(self, pid: int, signum: int) -> None: ...


class HostReceiver(Protocol):
    """What a link tells."""

    def replied(self, reply: messages.Reply) -> None: ...

    def checkpointed(self, checkpoint: messages.Checkpoint) -> None: ...

    def writable(self) -> None:
        """More output can be sent."""

    def lost(self, reason: str) -> None:
        """The host has ended; nothing else follows."""


class HostLink:
    """One host; it ends with `close`, or by itself, and is never used again then."""

    def __init__(self, starter: HostStarter, receiver: HostReceiver) -> None:
        self._starter = starter
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._sock: socket.socket | None = None
        self._stderr: int | None = None
        self._pid: int | None = None
        self._outbox: deque[bytes] = deque()
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._parts: dict[int, list[bytes]] = {}
        self._ready: asyncio.Future[str] = self._loop.create_future()
        self._is_over = False

    async def start(self) -> None:
        """Start the host and wait until it can take packets. Raises RpcError."""
        env = {os.fsencode(k): os.fsencode(os.environ[k]) for k in _PASSED_ON if k in os.environ}
        argv = list(command_of(_MODULE))
        launch = Launch(argv[0], argv, env, b"/", size=None, wants_stdin="socket")
        spawned = await self._starter.spawn(launch, self._on_exit)
        stdout, self._stderr, stdin = spawned.fds
        os.close(stdout)
        os.set_blocking(self._stderr, False)
        self._pid = spawned.pid
        self._sock = socket.socket(fileno=stdin)
        self._sock.setblocking(False)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._loop.add_reader(self._sock, self._on_readable)
        try:
            engine = await asyncio.shield(self._ready)
        except asyncio.CancelledError:
            self.close()
            raise
        logger.info("models of terminals run on %s in process %d", engine, self._pid)

    @property
    def pid(self) -> int | None:
        return self._pid

    @property
    def is_over(self) -> bool:
        return self._is_over

    # Sending.

    @property
    def has_room(self) -> bool:
        """True if nothing waits to be sent."""
        return not self._outbox and not self._is_over and self._sock is not None

    def send(self, message: messages.ToHost) -> None:
        """Send a packet, or queue it; output is sent only while there is room."""
        if self._is_over:
            return
        self._outbox.append(messages.encode(message))
        if len(self._outbox) == 1:
            self._flush()

    def _flush(self) -> None:
        assert self._sock is not None
        while self._outbox:
            try:
                self._sock.send(self._outbox[0])
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._sock, self._on_writable)
                return
            except OSError as exc:
                self._end(f"the host of models is gone: {exc.strerror or exc}")
                return
            self._outbox.popleft()

    def _on_writable(self) -> None:
        if self._sock is not None:
            self._loop.remove_writer(self._sock)
            self._flush()
            if self.has_room:
                self._receiver.writable()

    async def ask(self, model: int, call: int, what: str, params: bytes) -> bytes:
        """The answer to a question. Raises RpcError; HostLost if the host ends before."""
        answer: asyncio.Future[bytes] = self._loop.create_future()
        if self._is_over:
            raise HostLost("the host of models has ended")
        self._calls[call] = answer
        self.send(messages.Question(model, call, what, params))
        try:
            return await answer
        except asyncio.CancelledError:
            self.send(messages.Cancel(model, call))
            raise
        finally:
            self._calls.pop(call, None)
            self._parts.pop(call, None)

    # Receiving.

    def _on_readable(self) -> None:
        assert self._sock is not None
        for _ in range(_PACKETS_A_TURN):
            try:
                packet = self._sock.recv(PACKET_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as exc:
                self._end(f"the host of models is gone: {exc.strerror or exc}")
                return
            if not packet:
                self._end("the host of models has ended")
                return
            try:
                self._take(messages.decode_from_host(packet))
            except msgspec.MsgspecError:
                self._end("the host of models sent something else than a message")
            if self._is_over:
                return

    def _take(self, message: messages.FromHost) -> None:
        if isinstance(message, messages.AnswerPart):
            self._take_part(message)
        elif isinstance(message, messages.Reply):
            self._receiver.replied(message)
        elif isinstance(message, messages.Checkpoint):
            self._receiver.checkpointed(message)
        elif not self._ready.done():
            self._ready.set_result(message.engine)

    def _take_part(self, message: messages.AnswerPart) -> None:
        waiting = self._calls.get(message.call)
        if waiting is None or waiting.done():
            return
        if message.code is not None:
            waiting.set_exception(RpcError.from_wire(message.code, message.data.decode(), None))
            return
        parts = self._parts.setdefault(message.call, [])
        parts.append(message.data)
        if message.is_last:
            waiting.set_result(b"".join(parts))

    # The end.

    def _on_exit(self, status: int | None, reason: str | None = None, *facts: object) -> None:
        self._end(f"the host of models has ended: {self._last_words() or status}")

    def _last_words(self) -> str:
        if self._stderr is None:
            return ""
        try:
            return os.read(self._stderr, _LAST_WORDS_BYTES).decode("utf-8", "replace").strip()
        except BlockingIOError:
            return ""

    def close(self) -> None:
        """End the host."""
        self._receiver = _Silent()
        self._end("the server stops")

    def _end(self, reason: str) -> None:
        if self._is_over:
            return
        self._is_over = True
        words = self._last_words()
        if self._sock is not None:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
        if self._stderr is not None:
            os.close(self._stderr)
            self._stderr = None
        if self._pid is not None:
            self._starter.signal_group(self._pid, signal.SIGKILL)
        self._outbox.clear()
        everything: list[asyncio.Future[Any]] = [self._ready, *self._calls.values()]
        for waiting in everything:
            if not waiting.done():
                waiting.set_exception(HostLost(reason))
        # asyncio warns of an exception that was never retrieved.
        self._ready.exception()
        self._receiver.lost(words or reason)


class HostLost(InternalError):
    """The host has ended before it answered; ask the next one."""


class _Silent:
    """Receives nothing any more."""

    def replied(self, reply: messages.Reply) -> None: ...

    def checkpointed(self, checkpoint: messages.Checkpoint) -> None: ...

    def writable(self) -> None: ...

    def lost(self, reason: str) -> None: ...
