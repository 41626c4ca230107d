"""The output of a process that is not read yet, and the events that users see."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal, NamedTuple

from exec_server.client.flow.process_flow import ProcessFlow
from exec_server.errors import ExecServerError, ProcessFailed
from exec_server.limits import Limits
from exec_server.protocol.ends import EndReport, Usage
from exec_server.protocol.process import Stream


class OutputChunk(NamedTuple):
    """A piece of output; all events of a process, of both streams, are numbered together."""

    seq: int
    stream: Stream
    data: bytes


class Exited(NamedTuple):
    """The process has exited; output may follow.

    If the exit status is unknown and stays so, `exit_code` is None and `lost` says why.
    """

    seq: int
    exit_code: int | None
    sandbox_denied: bool
    lost: str | None = None
    # The signal that has ended it; None if none has, or the server does not say.
    signal: int | None = None
    # Why it ended, and what it used; None if the server does not say.
    end: EndReport | None = None
    usage: Usage | None = None


class Closed(NamedTuple):
    """The output has ended; nothing more comes."""

    seq: int


class Failed(NamedTuple):
    """The client can no longer follow the process; nothing more comes."""

    message: str


class ResyncRequired(NamedTuple):
    """The connection was lost after event *after_seq*; the process continues unless it fails.

    No event is missing: the client fetches those in between before it delivers the next one. This
    event is for programs that read by themselves, for example with `process/read`.
    """

    after_seq: int


Event = OutputChunk | Exited | Closed | Failed | ResyncRequired

# A terminal has a single output, which is delivered as stdout.
Wanted = Literal["all", "stdout", "stderr"]


class OutputBuffer:
    """Keeps chunks in order until they are taken; each chunk is given to one reader.

    It holds up to `untaken_max_bytes`, and reports to *flow*, which slows the process or the
    connection down long before that. Beyond that output is discarded, and a reader that takes the
    rest gets ProcessFailed. This cannot happen to a reader that waits.
    """

    def __init__(self, flow: ProcessFlow, *, limits: Limits) -> None:
        self._flow = flow
        self._limits = limits
        self._stdout: deque[OutputChunk] = deque()
        self._stderr: deque[OutputChunk] = deque()
        # Other events, each with the number that it comes after.
        self._marks: deque[tuple[int, Event]] = deque()
        self._unread = 0
        self._discarded = 0
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
        if self._waiters:
            self._wake("stderr" if chunk.stream == "stderr" else "stdout")
        is_free = self._is_ended or bool(self._waiters)
        self._flow.receive(chunk.seq, chunk.data, self._first(), self._unread, is_free=is_free)

    def mark(self, after: int, event: Event) -> None:
        """Put *event* after chunk *after*, for readers of events."""
        if not self._marks or self._marks[-1][1] != event:
            self._marks.append((after, event))
            self._wake("all")

    def cursors(self, released: int) -> tuple[int, int]:
        """The numbers up to which stdout and stderr were taken, if *released* is the last one."""
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
        self._report()

    # Readers.

    async def take(self, wanted: Wanted) -> OutputChunk | None:
        """Wait for the next chunk of the *wanted* output; None after the last one.

        Raises the error that ended the output, and ProcessFailed where some of it was discarded.
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

    def take_now(self) -> OutputChunk | None:
        """The next chunk of any output, if there is one."""
        return self._pop("all")

    def put_back(self, chunk: OutputChunk) -> None:
        """The rest of a chunk that was taken; it is the next one again."""
        (self._stderr if chunk.stream == "stderr" else self._stdout).appendleft(chunk)
        self._unread += len(chunk.data)
        self._wake("stderr" if chunk.stream == "stderr" else "stdout")
        self._report()

    async def take_event(self) -> Event | None:
        """Wait for the next event of any kind; None after the last one. Never raises."""
        while True:
            first = self._first()
            if self._marks and (first is None or self._marks[0][0] < first):
                return self._marks.popleft()[1]
            if first is not None:
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
        if self._flow.has_window or self._flow.is_behind:
            is_free = self._is_ended or bool(self._waiters)
            self._flow.took(self._first(), self._unread, is_free=is_free)
        return chunk

    async def _wait(self, wanted: Wanted) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[future] = wanted
        self._report()
        try:
            with self._flow.watching():
                await future
        finally:
            self._waiters.pop(future, None)
            self._report()

    def _wake(self, changed: Wanted) -> None:
        for future, wanted in tuple(self._waiters.items()):
            if "all" in (changed, wanted) or changed == wanted:
                del self._waiters[future]
                if not future.done():
                    future.set_result(None)

    # Reports to flow control.

    def _report(self) -> None:
        """Report that the process has to wait for a reader, or no longer.

        It need not wait while a reader waits: a reader of one stream must not be held up by the
        other stream.
        """
        is_free = self._is_ended or bool(self._waiters)
        self._flow.changed(self._first(), self._unread, is_free=is_free)

    def _first(self) -> int | None:
        """The number of the oldest chunk that is not taken."""
        stdout, stderr = self._stdout, self._stderr
        if stdout and (not stderr or stdout[0].seq < stderr[0].seq):
            return stdout[0].seq
        return stderr[0].seq if stderr else None
