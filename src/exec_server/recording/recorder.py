"""Records the terminals of a server, in a thread of its own.

The server's loop only puts what happens into a queue. What does not fit any more is left out, and a
mark in the recording says so: a recording never makes a process wait.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from exec_server.recording.cast_format import CastHeader
from exec_server.recording.cast_writer import CastWriter
from exec_server.recording.recording_files import RecordingFiles

logger = logging.getLogger(__name__)

# So much output may wait for the disk, of all terminals together.
QUEUE_BYTES = 16 << 20
# Output in bytes after which the quota is looked at again.
_BETWEEN_CHECKS = 1 << 20
# How many seconds the end of the server waits for the disk.
_LAST_WRITES = 5.0

Work = Callable[[], None]


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
        self.files = RecordingFiles(directory, quota=quota)
        self.files.make()
        self.secrets = tuple(secrets)
        self.clock = clock
        self._queue: queue.SimpleQueue[tuple[Work, int] | None] = queue.SimpleQueue()
        self._queue_bytes = queue_bytes
        # Each has one writer: the loop, and the thread.
        self._put_bytes = 0
        self._done_bytes = 0
        self._thread = threading.Thread(target=self._work, name="recordings", daemon=True)
        self._thread.start()

    def record(
        self, name: str, header: CastHeader, secrets: Iterable[str] = ()
    ) -> RecordedTerminal:
        """Begin a recording; the result is a tap for the process. It never fails."""
        return RecordedTerminal(self, name, header, (*self.secrets, *secrets))

    def put(self, work: Work, size: int = 0) -> bool:
        """Let the thread do *work*; False if its output of *size* bytes finds no room."""
        if size and not self.has_room(size):
            return False
        self._put_bytes += size
        self._queue.put((work, size))
        return True

    def has_room(self, size: int) -> bool:
        return self._put_bytes - self._done_bytes + size <= self._queue_bytes

    def close(self) -> None:
        """Write what waits, within a limited time, and end the thread."""
        self._queue.put(None)
        self._thread.join(_LAST_WRITES)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            work, size = item
            work()
            self._done_bytes += size


class RecordedTerminal:
    """The recording of one process: a tap. What fails is logged once, and ends the recording."""

    def __init__(
        self, recorder: TerminalRecorder, name: str, header: CastHeader, secrets: tuple[str, ...]
    ) -> None:
        self._recorder = recorder
        self._started = recorder.clock()
        self._lost = 0
        # Asked at the end; None if the status is unknown.
        self.exit_status: Callable[[], int | None] = lambda: None
        # The file, once the thread has made it.
        self.path: str | None = None
        # Used by the thread only.
        self._writer: CastWriter | None = None
        self._next_check = 0
        recorder.put(partial(self._try, partial(self._open, name, header, secrets)))

    # Called in the loop.

    def output(self, seq: int, stream: str, data: bytes) -> None:
        if self._lost and self._recorder.has_room(len(data)):
            self._tell_lost()
        if not self._put(partial(self._output, self._now(), data), len(data)):
            self._lost += len(data)

    def resized(self, rows: int, cols: int) -> None:
        self._put(partial(self._resized, self._now(), cols, rows))

    def mark(self, text: str) -> None:
        """Put a mark, such as who drives now."""
        self._put(partial(self._mark, self._now(), text))

    def driven(self, name: str, kind: str) -> None:
        self.mark(f"{name} ({kind}) drives")

    def exited(self, seq: int) -> None:
        """Output may follow, so the status is written at the end."""

    def closed(self) -> None:
        self._tell_lost()
        self._put(partial(self._close, self._now(), self.exit_status()))

    def _now(self) -> float:
        return self._recorder.clock() - self._started

    def _put(self, work: Work, size: int = 0) -> bool:
        return self._recorder.put(partial(self._try, work), size)

    def _tell_lost(self) -> None:
        if self._lost:
            text = f"{self._lost} bytes are missing: the disk was too slow"
            self._put(partial(self._mark, self._now(), text))
            self._lost = 0

    # Called in the thread.

    def _try(self, work: Work) -> None:
        try:
            work()
        except Exception as exc:
            self._give_up(str(exc) or type(exc).__name__)

    def _give_up(self, why: str) -> None:
        logger.warning("a recording of a terminal ends: %s", why)
        writer, self._writer = self._writer, None
        if writer is not None:
            self._recorder.files.finished(writer.path)
            with contextlib.suppress(OSError):
                writer.close(0.0)

    def _open(self, name: str, header: CastHeader, secrets: tuple[str, ...]) -> None:
        files = self._recorder.files
        files.make_room()
        self._writer = CastWriter(files.new_path(name), header, secrets=secrets)
        self.path = self._writer.path
        files.begun(self._writer.path)

    def _output(self, at: float, data: bytes) -> None:
        if self._writer is None:
            return
        self._writer.output(at, data)
        if self._writer.size >= self._next_check:
            self._next_check = self._writer.size + _BETWEEN_CHECKS
            if not self._recorder.files.make_room():
                self._writer.mark(at, "the recording ends here: the quota is used up")
                self._give_up("the quota of recordings is used up")

    def _resized(self, at: float, columns: int, rows: int) -> None:
        if self._writer is not None:
            self._writer.resized(at, columns, rows)

    def _mark(self, at: float, text: str) -> None:
        if self._writer is not None:
            self._writer.mark(at, text)

    def _close(self, at: float, status: int | None) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            self._recorder.files.finished(writer.path)
            if status is not None:
                writer.exited(at, status)
            writer.close(at)
