"""Records the terminals of a server, by a process of its own that writes the files.

The server's loop only appends what happens to the spool, which is memory that the process shares,
and a thread waits for its answers. What does not fit into the spool is left out, and a mark in the
recording says so: a recording never makes a process wait.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count

from exec_server.recording.cast_format import CastHeader
from exec_server.recording.recording_files import RecordingFiles, new_name
from exec_server.recording.writer_link import WriterEnded, WriterLink
from exec_server.recording.writer_messages import (
    BeginCast,
    CastMark,
    CastResize,
    EndCast,
    WriterAnswer,
)

logger = logging.getLogger(__name__)

# So much may wait for the writer, of all terminals together. It is memory, which is taken only
# during a flood of output.
SPOOL_BYTES = 64 << 20
# How many seconds the end of the server waits for the disk.
_LAST_WRITES = 15.0

Work = Callable[[], None]


class TerminalRecorder:
    """The recordings of one server in one directory, within a quota."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        quota: int,
        secrets: Iterable[str] = (),
        spool_bytes: int = SPOOL_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes the directory. Raises OSError if that fails or if it cannot be written."""
        self.files = RecordingFiles(os.path.abspath(directory), quota=quota)
        self.files.make()
        self.secrets = tuple(secrets)
        self.clock = clock
        self._spool_bytes = spool_bytes
        self._numbers = count(1)
        # The recordings that go on.
        self._terminals: dict[int, RecordedTerminal] = {}
        # The names that were given last, so that none of them is given twice.
        self._names: deque[str] = deque(maxlen=1000)
        self._link = WriterLink(str(self.files.directory), quota)
        # Each is done when everything before its position is in the files.
        self._works: deque[tuple[int, Work]] = deque()
        self._thread = threading.Thread(target=self._work, name="recordings", daemon=True)
        self._thread.start()

    def record(
        self, name: str, header: CastHeader, secrets: Iterable[str] = ()
    ) -> RecordedTerminal:
        """Begin a recording; the result is a tap for the process. It never fails."""
        terminal = RecordedTerminal(self, self._link, next(self._numbers))
        self._terminals[terminal.number] = terminal
        begin = BeginCast(self._new_name(name), header, (*self.secrets, *secrets))
        try:
            self._link.event(terminal.number, begin)
        except OSError as exc:
            self._ended(terminal.number, str(exc))
        return terminal

    def _new_name(self, name: str) -> str:
        first = new_name(name)
        names = (first if number == 1 else f"{first}-{number}" for number in count(1))
        fresh = next(each for each in names if each not in self._names)
        self._names.append(fresh)
        return fresh

    def put(self, work: Work) -> None:
        """Let the thread do *work* when everything before it is in the files."""
        # It is in the list before the answer comes, and behind works of earlier positions.
        self._works.append((self._link.end, work))
        self._link.hurry()

    def has_room(self, size: int) -> bool:
        return self._link.waiting + size <= self._spool_bytes

    @property
    def writer_pid(self) -> int | None:
        """The process that writes; None while there is none."""
        return self._link.pid

    def close(self) -> None:
        """Write what waits, within a limited time, and end the thread and the process."""
        self._link.close()
        self._thread.join(_LAST_WRITES)
        if self._thread.is_alive():
            self._link.kill()

    # Called in the thread.

    def _work(self) -> None:
        while True:
            try:
                answer = self._link.next_answer()
            except WriterEnded as exc:
                for number in tuple(self._terminals):
                    self._ended(number, str(exc))
                answer = WriterAnswer(0, is_idle=False)
            if answer is not None:
                self._take(answer)
            self._do_works()
            if answer is None and not self._link.wait_needed():
                return

    def _take(self, answer: WriterAnswer) -> None:
        for number, path in answer.paths.items():
            if (terminal := self._terminals.get(number)) is not None:
                terminal.path = path
        for number in answer.ended:
            self._ended(number, answer.failures.get(number))

    def _do_works(self) -> None:
        while self._works and self._works[0][0] <= self._link.confirmed:
            _, work = self._works.popleft()
            try:
                work()
            except Exception as exc:
                logger.warning("a recorder could not do something: %s", exc)

    def _ended(self, number: int, why: str | None = None) -> None:
        terminal = self._terminals.pop(number, None)
        if terminal is not None:
            terminal.is_over = True
            if why is not None:
                logger.warning("a recording of a terminal ends: %s", why)


class RecordedTerminal:
    """The recording of one process: a tap. What fails is logged once, and ends the recording."""

    def __init__(self, recorder: TerminalRecorder, link: WriterLink, number: int) -> None:
        self.number = number
        # Asked at the end; None if the status is unknown.
        self.exit_status: Callable[[], int | None] = lambda: None
        # The file, once it is made.
        self.path: str | None = None
        # True if nothing more is written.
        self.is_over = False
        self._recorder = recorder
        self._link = link
        self._started = recorder.clock()
        self._lost = 0
        self._lost_size: tuple[int, int] | None = None

    def output(self, seq: int, stream: str, data: bytes) -> None:
        if self.is_over:
            return
        if not self._recorder.has_room(len(data)):
            self._lost += len(data)
            return
        if self._lost or self._lost_size:
            self._tell_lost()
        try:
            self._link.output(self.number, self._now(), data)
        except OSError:
            self._lost += len(data)

    def resized(self, rows: int, cols: int) -> None:
        is_told = self._put(CastResize(self._now(), cols, rows))
        self._lost_size = None if is_told else (rows, cols)

    def mark(self, text: str) -> None:
        """Put a mark, such as who drives now."""
        self._put(CastMark(self._now(), text))

    def driven(self, name: str, kind: str) -> None:
        self.mark(f"{name} ({kind}) drives")

    def exited(self, seq: int) -> None:
        """Output may follow, so the status is written at the end."""

    def closed(self) -> None:
        self._tell_lost()
        self._put(EndCast(self._now(), self.exit_status()), always=True)

    def _put(self, event: CastResize | CastMark | EndCast, *, always: bool = False) -> bool:
        """Let *event* be written; False if there is no room for it."""
        if self.is_over or not (always or self._recorder.has_room(0)):
            return self.is_over
        try:
            self._link.event(self.number, event)
        except OSError:
            return False
        return True

    def _now(self) -> float:
        return self._recorder.clock() - self._started

    def _tell_lost(self) -> None:
        if self._lost:
            self.mark(f"{self._lost} bytes are missing: the disk was too slow")
            self._lost = 0
        if self._lost_size is not None:
            self.resized(*self._lost_size)
