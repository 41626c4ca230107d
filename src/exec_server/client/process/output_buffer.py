"""What a process has said and nobody has taken yet."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from exec_server.client.flow.pacing import Flow
from exec_server.errors import ExecServerError, ProcessFailed
from exec_server.limits import Limits
from exec_server.protocol.process import Stream
from exec_server.state.window import Credit


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

    With `credit` the process has a window: what was taken is acknowledged by *on_due*, which says
    whether it could, and the server lets the process wait for that. Nothing is discarded then,
    unless somebody waits for the end of a process and nobody takes what it says.
    """

    def __init__(
        self,
        flow: Flow,
        *,
        limits: Limits,
        credit: Credit | None = None,
        on_due: Callable[[int], bool] = lambda seq: False,
    ) -> None:
        self.credit = credit
        self._on_due = on_due
        # Somebody awaits the exit; and all that comes counts as taken, because of that.
        self._awaiting = 0
        self._has_given_way = False
        self._was_taken = False
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
        if self.credit is not None:
            self.credit.receive(chunk.seq, chunk.data)
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

    # The window.

    def grant(self, window: int | None) -> None:
        """The process has this window, or none (any more)."""
        if self.credit is None:
            return
        if window is None:
            self._flow.withheld.no_longer_by(self)
            self.credit, self._is_behind = None, False
        else:
            self.credit.window = window
        self._update_flow()

    def skip(self, seq: int, data: bytes) -> None:
        """A chunk came that nobody wants."""
        if self.credit is not None:
            self.credit.receive(seq, data)
            self.acknowledge()

    def acknowledge(self, *, at_once: bool = False) -> None:
        """Acknowledge what was taken, if that is due or wanted *at_once*."""
        if self.credit is None:
            return
        seq = self.settled_seq
        if (self.credit.take(seq) or at_once) and self._on_due(seq):
            self.credit.acknowledge(seq)

    @property
    def settled_seq(self) -> int:
        """Up to which number the process need not wait for anybody."""
        assert self.credit is not None
        heads = [queue[0].seq for queue in (self._stdout, self._stderr) if queue]
        if not heads or self._waiters or self._has_given_way or self._is_ended:
            return self.credit.received
        return min(heads) - 1

    @contextlib.contextmanager
    def awaiting(self) -> Iterator[None]:
        """The exit of the process is awaited inside."""
        self._awaiting += 1
        try:
            yield
        finally:
            self._awaiting -= 1

    def give_way(self, *, is_watched: bool) -> None:
        """Nobody takes anything. A reader of its own may be slow and is never hurried by others."""
        if self._awaiting or (is_watched and not self._was_taken):
            self._has_given_way = True
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
        self._was_taken, self._has_given_way = True, False
        if self._is_behind or self.credit is not None:
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
        if self.credit is not None:
            self._update_window(self.credit, is_progress=is_progress)
            return
        bound = self._limits.untaken_bytes
        # Whoever reads one stream must not be held up by the other one.
        is_blocking = not self._is_ended and not self._waiters
        is_behind = is_blocking and self._unread > (bound // 2 if self._is_behind else bound)
        was_behind, self._is_behind = self._is_behind, is_behind
        if is_behind and (is_progress or not was_behind):
            self._flow.fall_behind(self)
        elif was_behind and not is_behind:
            self._flow.catch_up(self)

    def _update_window(self, credit: Credit, *, is_progress: bool) -> None:
        self.acknowledge()
        was_behind, self._is_behind = self._is_behind, credit.is_withheld
        if self._is_behind and (is_progress or not was_behind):
            self._flow.withheld.by(self)
        elif was_behind and not self._is_behind:
            self._flow.withheld.no_longer_by(self)


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
