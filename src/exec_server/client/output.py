"""What a process has said and nobody has taken yet."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal, NamedTuple

from exec_server.client.flow import Flow
from exec_server.errors import ExecServerError, ProcessFailed
from exec_server.limits import Limits
from exec_server.protocol.process import Stream


class OutputChunk(NamedTuple):
    """A piece of output; stdout and stderr share one count with the process's other events."""

    seq: int
    stream: Stream
    data: bytes


class Exited(NamedTuple):
    """The process has exited; output may follow."""

    seq: int
    exit_code: int
    sandbox_denied: bool


class Closed(NamedTuple):
    """Nothing more comes."""

    seq: int


class Failed(NamedTuple):
    """The client can follow the process no longer; nothing more comes."""

    message: str


class ResyncRequired(NamedTuple):
    """The connection was lost after event *after_seq*; unless it fails, the process goes on.

    Nothing is missing here: the events between are fetched before the next one is handed out. It
    is for those who keep an account of their own, such as by `process/read`.
    """

    after_seq: int


Event = OutputChunk | Exited | Closed | Failed | ResyncRequired

# A terminal has a single output, which is told with stdout.
Wanted = Literal["all", "stdout", "stderr"]


class OutputBuffer:
    """Keeps chunks in order until they are taken, each by exactly one taker.

    It holds up to `untaken_max_bytes`; the connection slows down long before that where it can
    (see Flow). Beyond, output is discarded, and whoever takes what is left is told by
    ProcessFailed. A taker that waits is never the cause: then nothing is held back.
    """

    def __init__(self, flow: Flow, *, limits: Limits) -> None:
        self._flow = flow
        self._limits = limits
        self._stdout: deque[OutputChunk] = deque()
        self._stderr: deque[OutputChunk] = deque()
        # What else happened, and after which number.
        self._marks: deque[tuple[int, Event]] = deque()
        self._unread = 0
        self._discarded = 0
        self._is_behind = False
        self._is_ended = False
        self._error: ExecServerError | None = None
        self._waiters: dict[asyncio.Future[None], Wanted] = {}

    def append(self, chunk: OutputChunk) -> None:
        size = len(chunk.data)
        if self._discarded or self._unread + size > self._limits.untaken_max_bytes:
            if not self._discarded:
                self.mark(chunk.seq, Failed("output was discarded: too much had not been taken"))
            self._discarded += size
        else:
            self._unread += size
            (self._stderr if chunk.stream == "stderr" else self._stdout).append(chunk)
        self._wake("stderr" if chunk.stream == "stderr" else "stdout")
        self._update_flow()

    def mark(self, after: int, event: Event) -> None:
        """*event* comes after chunk *after*, for those who take events."""
        if not self._marks or self._marks[-1][1] != event:
            self._marks.append((after, event))
            self._wake("all")

    def cursors(self, released: int) -> tuple[int, int]:
        """Up to which number stdout and stderr were taken, of the numbers up to *released*."""
        stdout, stderr = (
            queue[0].seq - 1 if queue else released for queue in (self._stdout, self._stderr)
        )
        return stdout, stderr

    def end(self, error: ExecServerError | None = None) -> None:
        """Nothing more will come, because of *error* if there is one."""
        if self._is_ended:
            return
        self._is_ended = True
        self._error = error
        self._wake("all")
        self._update_flow()

    async def take(self, wanted: Wanted) -> OutputChunk | None:
        """The next chunk of the *wanted* output, waiting for it; None after the last one.

        Raises what ended the output, and ProcessFailed where some of it was discarded.
        """
        while True:
            chunk = self._pop(wanted)
            if chunk is not None:
                return chunk
            if self._discarded:
                raise ProcessFailed(
                    f"{self._discarded} bytes of output were discarded: "
                    f"{self._limits.untaken_max_bytes} bytes before them had not been taken"
                )
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._is_ended:
                return None
            await self._wait(wanted)

    async def take_event(self) -> Event | None:
        """The next event of any kind, waiting for it; None after the last one. Never raises."""
        while True:
            heads = [queue[0].seq for queue in (self._stdout, self._stderr) if queue]
            if self._marks and (not heads or self._marks[0][0] < min(heads)):
                return self._marks.popleft()[1]
            if heads:
                return self._pop("all")
            if self._is_ended:
                return None
            await self._wait("all")

    def _pop(self, wanted: Wanted) -> OutputChunk | None:
        queue = self._stderr if wanted == "stderr" else self._stdout
        if wanted == "all" and self._stderr and (not queue or self._stderr[0].seq < queue[0].seq):
            queue = self._stderr
        if not queue:
            return None
        chunk = queue.popleft()
        self._unread -= len(chunk.data)
        if self._is_behind:
            self._update_flow(is_progress=True)
        return chunk

    async def _wait(self, wanted: Wanted) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[future] = wanted
        self._update_flow()
        try:
            with self._flow.watching():
                await future
        finally:
            self._waiters.pop(future, None)
            self._update_flow()

    def _wake(self, changed: Wanted) -> None:
        for future, wanted in tuple(self._waiters.items()):
            if "all" in (changed, wanted) or changed == wanted:
                del self._waiters[future]
                if not future.done():
                    future.set_result(None)

    def _update_flow(self, *, is_progress: bool = False) -> None:
        bound = self._limits.untaken_bytes
        # Whoever reads one stream must not be held up by the other one.
        is_blocking = not self._is_ended and not self._waiters
        is_behind = is_blocking and self._unread > (bound // 2 if self._is_behind else bound)
        was_behind, self._is_behind = self._is_behind, is_behind
        if is_behind and (is_progress or not was_behind):
            self._flow.fall_behind(self)
        elif was_behind and not is_behind:
            self._flow.catch_up(self)


class OutputView:
    """One stream of a process: an asynchronous iterator of its bytes as they come."""

    def __init__(self, output: OutputBuffer, wanted: Wanted, *, owner: object) -> None:
        self._output = output
        self._wanted = wanted
        # Events reach a process as long as somebody holds its handle.
        self._owner = owner

    def __aiter__(self) -> OutputView:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self._output.take(self._wanted)
        if chunk is None:
            raise StopAsyncIteration
        return chunk.data

    async def read(self) -> bytes:
        """Everything up to the end of the stream, which is when the process has closed."""
        return b"".join([data async for data in self])
