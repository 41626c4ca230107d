"""Streams on servers that do not know them: a helper command there carries each connection.

Codex's own server is one. The helper is a few lines of Python that the server's machine runs. Its
input is framed, because such a server cannot close the input of a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from exec_server.client.streams.stream_place import StreamPlace
from exec_server.errors import ExecServerError, MethodNotFound, StdinClosed
from exec_server.protocol import streams
from exec_server.protocol.method import Event
from exec_server.streams.byte_stream import ByteStream
from exec_server.streams.turns import StreamTurns

if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession
    from exec_server.client.process.remote_process import RemoteProcess

# How many seconds a helper has to start and to connect; for the connection it takes 10 at most.
_HELPER_SECONDS = 60.0

HELPER_WORDS = (
    "it has no streams, so each connection is carried by a helper command (python3) there"
)

# It says `ok` or the number of an error, then it moves bytes. A frame of no bytes ends the input.
# It leaves by `_exit`: at a usual end Python may abort because of the thread that still runs.
_PROGRAM = """
import os, socket, sys, threading
def fail(e):
    known = e.errno and e.errno > 0
    text = b"%d\\n" % e.errno if known else b"113 %s\\n" % (e.strerror or "").encode()
    os.write(1, text); os._exit(1)
try:
    if sys.argv[1]:
        s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
    else:
        s = socket.create_connection((sys.argv[2], int(sys.argv[3])), 10); s.settimeout(None)
except OSError as e:
    fail(e)
os.write(1, b"ok\\n")
def whole(n):
    d = b""
    while len(d) < n:
        m = os.read(0, n - len(d))
        if not m: os._exit(0)
        d += m
    return d
def send():
    try:
        while True:
            n = int.from_bytes(whole(4), "big")
            if not n: break
            s.sendall(whole(n))
        s.shutdown(1)
    except OSError: pass
threading.Thread(target=send, daemon=True).start()
try:
    while True:
        d = s.recv(65536)
        if not d: os._exit(0)
        while d: d = d[os.write(1, d):]
except OSError: os._exit(1)
"""


async def open_by_helper(session: ClientSession, place: StreamPlace) -> HelperCarrier:
    """A stream to *place* through a helper command. Raises OSError as the helper reports it."""
    from exec_server.client.process.processes import Processes
    from exec_server.client.process.python_helper import start_helper

    words = [place.path or "", place.host or "", str(place.port or 0)]
    try:
        process = await start_helper(Processes(session).start, _PROGRAM, words)
    except (FileNotFoundError, PermissionError):
        raise MethodNotFound(
            "the server does not offer streams, and has no python3 for a helper command"
        ) from None
    try:
        async with asyncio.timeout(_HELPER_SECONDS):
            said = (await process.stdout.readline()).strip()
        if said != b"ok":
            raise _refusal(said, place)
    except TimeoutError:
        process.abandon()
        raise _refusal(b"%d" % errno.ETIMEDOUT, place) from None
    except BaseException:
        # It may still run, and no one else knows of it.
        process.abandon()
        raise
    return HelperCarrier(process, window=session.limits.stream_window)


def _refusal(said: bytes, place: StreamPlace) -> OSError:
    digits, _, why = said.decode(errors="replace").partition(" ")
    number = int(digits) if digits.isascii() and digits.isdigit() else errno.EIO
    return OSError(number, f"cannot connect to {place}: {why or os.strerror(number)}")


class HelperCarrier:
    """Joins a stream of this machine with the input and output of a helper command."""

    def __init__(self, process: RemoteProcess, *, window: int) -> None:
        self._process = process
        near, far = _MemoryWire(), _MemoryWire()
        # The caller has the near end; the far end is the one of the command.
        self.near = ByteStream(process.process_id, near, window=window)
        self._far = ByteStream(process.process_id, far, window=window)
        near.other, far.other = self._far, self.near
        self._input: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read()), loop.create_task(self._write())]
        near.on_over = far.on_over = self._stop
        self._ending: asyncio.Task[None] | None = None
        # Called when the command has ended.
        self.on_ended: Callable[[HelperCarrier], None] = lambda carrier: None
        self._far.use(self)

    async def _read(self) -> None:
        """Pass the output of the command on."""
        try:
            async for chunk in self._process:
                while self._far.room <= 0:
                    self._room.clear()
                    await self._room.wait()
                if chunk.stream == "stdout":
                    self._far.write(chunk.data)
            if await self._process.wait() == 0:
                self._far.end()
            else:
                self._far.break_off("Connection reset by peer")
        except (ExecServerError, OSError) as exc:
            self._far.break_off(str(exc))

    async def _write(self) -> None:
        """Pass what comes on to the command."""
        try:
            while True:
                data = await self._input.get()
                await self._process.write(len(data).to_bytes(4, "big") + data)
                self._far.took(len(data))
                if not data:
                    self._far.took_end()
                    return
        except (StdinClosed, OSError):
            # The command has ended; its output says how.
            self._far.took_end()
        except ExecServerError as exc:
            self._far.break_off(str(exc))

    def _stop(self) -> None:
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            with contextlib.suppress(ExecServerError, OSError):
                await self._process.terminate()
        finally:
            self.on_ended(self)

    # What the far end says.

    def data_received(self, data: bytes) -> None:
        self._input.put_nowait(data)

    def end_received(self, *, is_closed: bool) -> None:
        self._input.put_nowait(b"")

    def window_opened(self) -> None:
        self._room.set()

    def was_reset(self, reason: str) -> None:
        self._stop()

    def was_finished(self) -> None:
        self._stop()


class _MemoryWire:
    """Carries the messages of one end to the other end within this process."""

    other: ByteStream

    def __init__(self) -> None:
        self.turns = StreamTurns()
        self.turns.open()
        self.on_over: Callable[[], None] = lambda: None
        self._position = 0
        self._loop = asyncio.get_running_loop()

    def send_bulk(self, before: bytes, data: bytes, after: bytes) -> None:
        position, self._position = self._position, self._position + len(data)
        self._loop.call_soon(self.other.data_arrived, position, data)

    def send_event(self, event: Event[Any], params: Any) -> None:
        self._loop.call_soon(self._deliver, params)

    def _deliver(self, params: Any) -> None:
        if isinstance(params, streams.StreamAckEvent):
            self.other.acknowledged(params.position)
        elif isinstance(params, streams.EndEvent):
            self.other.end_arrived(params.position, is_closed=params.closed)
        else:
            self.other.reset_arrived(params.reason)

    def stream_over(self, stream: ByteStream) -> None:
        if self.other.is_over:
            self.on_over()
