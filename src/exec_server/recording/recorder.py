"""Records the terminals of a server, by a process of its own that writes the files.

The server's loop only puts what happens into batches, and a thread passes them on. They share an
interpreter, so the thread does as little as it can. What does not fit into the queue is left out,
and a mark in the recording says so: a recording never makes a process wait.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from exec_server.recording.cast_format import CastHeader
from exec_server.recording.event_batch import EventBatch
from exec_server.recording.recording_files import RecordingFiles
from exec_server.recording.writer_link import WriterLink
from exec_server.recording.writer_messages import (
    BeginCast,
    CastMark,
    CastResize,
    EndCast,
    WriterEvent,
    WriterTerms,
)

logger = logging.getLogger(__name__)

# So much output may wait for the disk, of all terminals together.
QUEUE_BYTES = 16 << 20
# What an event takes in the queue at least.
_LEAST_SIZE = 64
# Output that comes so soon after other output is sent with it, unless a batch is full by then.
_GATHER_SECONDS = 0.02
# How many seconds the end of the server waits for the disk.
_LAST_WRITES = 15.0

Work = Callable[[], None]
_Item = EventBatch | Work | None


class TerminalRecorder:
    """The recordings of one server in one directory, within a quota."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        quota: int,
        secrets: Iterable[str] = (),
        queue_bytes: int = QUEUE_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes the directory. Raises OSError if that fails or if it cannot be written."""
        self.files = RecordingFiles(os.path.abspath(directory), quota=quota)
        self.files.make()
        self.secrets = tuple(secrets)
        self.clock = clock
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._queue_bytes = queue_bytes
        # The batch at the end of the queue that takes more, until the thread has it.
        self._open: EventBatch | None = None
        self._opening = threading.Lock()
        # Each has one writer: the loop, and the thread.
        self._put_bytes = 0
        self._done_bytes = 0
        self._numbers = count(1)
        # The recordings that go on.
        self._terminals: dict[int, RecordedTerminal] = {}
        # Used by the thread only.
        self._link = WriterLink(WriterTerms(str(self.files.directory), quota))
        self._paths: dict[int, str] = {}
        self._thread = threading.Thread(target=self._work, name="recordings", daemon=True)
        self._thread.start()

    def record(
        self, name: str, header: CastHeader, secrets: Iterable[str] = ()
    ) -> RecordedTerminal:
        """Begin a recording; the result is a tap for the process. It never fails."""
        terminal = RecordedTerminal(self, next(self._numbers))
        self._terminals[terminal.number] = terminal
        self._add(BeginCast(terminal.number, name, header, (*self.secrets, *secrets)), 0)
        return terminal

    def put(self, work: Work) -> None:
        """Let the thread do *work* when everything before it is in the files."""
        with self._opening:
            self._shut()
            self._queue.put(work)

    def has_room(self, size: int) -> bool:
        return self._put_bytes - self._done_bytes + max(size, _LEAST_SIZE) <= self._queue_bytes

    def put_output(self, number: int, at: float, data: bytes) -> bool:
        """Let output be written; False if there is no room for it."""
        size = len(data) if len(data) > _LEAST_SIZE else _LEAST_SIZE
        if self._put_bytes - self._done_bytes + size > self._queue_bytes:
            return False
        with self._opening:
            batch = self._open
            if batch is None or batch.is_full:
                batch = self._next_batch()
            batch.add_output(number, at, data)
            self._put_bytes += size
        return True

    def put_event(self, event: CastResize | CastMark) -> bool:
        """Let *event* be written; False if there is no room for it."""
        if not self.has_room(0):
            return False
        self._add(event, _LEAST_SIZE)
        return True

    def put_end(self, event: EndCast) -> None:
        """The end of a recording, which always has room."""
        self._add(event, 0)

    def _add(self, event: WriterEvent, size: int) -> None:
        with self._opening:
            batch = self._open
            if batch is None or batch.is_full:
                batch = self._next_batch()
            batch.add(event)
            self._put_bytes += size

    # Called with the lock.

    def _next_batch(self) -> EventBatch:
        self._shut()
        batch = self._open = EventBatch()
        self._queue.put(batch)
        return batch

    def _shut(self) -> None:
        """Nothing else comes into the batch."""
        if self._open is not None:
            self._open.put_bytes = self._put_bytes
            self._open = None

    @property
    def writer_pid(self) -> int | None:
        """The process that writes; None while there is none."""
        return self._link.pid

    def close(self) -> None:
        """Write what waits, within a limited time, and end the thread and the process."""
        self._queue.put(None)
        self._thread.join(_LAST_WRITES)
        if self._thread.is_alive():
            self._link.kill()

    # Called in the thread.

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, EventBatch):
                self._pass_on(item)
            else:
                self._do(item)
        self._link.close()

    def _do(self, work: Work) -> None:
        try:
            work()
        except Exception as exc:
            logger.warning("a recorder could not do something: %s", exc)

    def _pass_on(self, batch: EventBatch) -> None:
        if batch.is_output_only and not batch.is_full:
            time.sleep(_GATHER_SECONDS)
        with self._opening:
            if self._open is batch:
                self._shut()
        events, output = batch.sealed()
        # A recording that has ended is unknown to the writer, which ignores what comes for it.
        self._write([self._named(each) for each in events if self._is_known(each)], output)
        self._done_bytes = batch.put_bytes

    def _is_known(self, event: WriterEvent) -> bool:
        return not isinstance(event, BeginCast) or event.terminal in self._terminals

    def _named(self, begin: WriterEvent) -> WriterEvent:
        """With the file, if a recording begins."""
        if not isinstance(begin, BeginCast):
            return begin
        path = str(self.files.new_path(begin.path))
        self.files.begun(path)
        self._paths[begin.terminal] = path
        return BeginCast(begin.terminal, path, begin.header, begin.secrets)

    def _write(self, events: list[WriterEvent], output: Sequence[bytes]) -> None:
        if not events:
            return
        try:
            answer = self._link.write(events, output)
        except Exception as exc:
            for number in tuple(self._terminals):
                self._ended(number, str(exc) or type(exc).__name__)
            return
        for number, state in answer.states.items():
            self._terminals[number].path = state.path
        for number, why in answer.failures.items():
            self._ended(number, why)
        for event in events:
            if isinstance(event, EndCast):
                self._ended(event.terminal)

    def _ended(self, number: int, why: str | None = None) -> None:
        terminal = self._terminals.pop(number, None)
        if terminal is not None:
            if (path := self._paths.pop(number, None)) is not None:
                self.files.finished(path)
            if why is not None:
                logger.warning("a recording of a terminal ends: %s", why)


class RecordedTerminal:
    """The recording of one process: a tap. What fails is logged once, and ends the recording."""

    def __init__(self, recorder: TerminalRecorder, number: int) -> None:
        self.number = number
        # Asked at the end; None if the status is unknown.
        self.exit_status: Callable[[], int | None] = lambda: None
        # The file, once it is made.
        self.path: str | None = None
        self._recorder = recorder
        self._started = recorder.clock()
        self._lost = 0
        self._lost_size: tuple[int, int] | None = None

    def output(self, seq: int, stream: str, data: bytes) -> None:
        if (self._lost or self._lost_size) and self._recorder.has_room(len(data)):
            self._tell_lost()
        if not self._recorder.put_output(self.number, self._now(), data):
            self._lost += len(data)

    def resized(self, rows: int, cols: int) -> None:
        event = CastResize(self.number, self._now(), cols, rows)
        self._lost_size = None if self._recorder.put_event(event) else (rows, cols)

    def mark(self, text: str) -> None:
        """Put a mark, such as who drives now."""
        self._recorder.put_event(CastMark(self.number, self._now(), text))

    def driven(self, name: str, kind: str) -> None:
        self.mark(f"{name} ({kind}) drives")

    def exited(self, seq: int) -> None:
        """Output may follow, so the status is written at the end."""

    def closed(self) -> None:
        self._tell_lost()
        self._recorder.put_end(EndCast(self.number, self._now(), self.exit_status()))

    def _now(self) -> float:
        return self._recorder.clock() - self._started

    def _tell_lost(self) -> None:
        if self._lost:
            self.mark(f"{self._lost} bytes are missing: the disk was too slow")
            self._lost = 0
        if self._lost_size is not None:
            self.resized(*self._lost_size)
