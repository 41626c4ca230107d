"""The recordings that the writer writes now: what the spool says, in files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from exec_server.recording.cast_writer import CastWriter
from exec_server.recording.recording_files import RecordingFiles
from exec_server.recording.spool import SpoolFrame
from exec_server.recording.writer_messages import (
    BeginCast,
    CastMark,
    CastResize,
    EndCast,
    ResumedCast,
    WriterAnswer,
    WriterEvent,
    decode_event,
)

# Output in bytes after which the quota is looked at again.
_BETWEEN_CHECKS = 1 << 20
# Output of one terminal within this time is one event of the recording.
_TOGETHER_SECONDS = 0.01


class _GatheredOutput:
    """Output of a terminal that becomes one event."""

    def __init__(self, time: float) -> None:
        self.time = time
        self.parts: list[memoryview] = []


class OpenCasts:
    """Writes frames into files. A failure ends one recording, and is told."""

    def __init__(self, files: RecordingFiles) -> None:
        self._files = files
        self._writers: dict[int, CastWriter] = {}
        self._next_checks: dict[int, int] = {}
        self._gathered: dict[int, _GatheredOutput] = {}
        # What was not told yet: see `tell`.
        self._touched: set[int] = set()
        self._paths: dict[int, str] = {}
        self._failures: dict[int, str] = {}

    def resume(self, casts: dict[int, ResumedCast]) -> None:
        for number, cast in casts.items():
            self._touched.add(number)
            with self._failing(number):
                self._add(number, CastWriter.resumed(cast.state, secrets=cast.secrets))

    def take(self, frames: Iterable[SpoolFrame], *, is_again: bool) -> None:
        """Write what *frames* say. An earlier writer may have begun with it if *is_again*."""
        for number, time, data in frames:
            self._touched.add(number)
            if time is None:
                self._write(number)
                with self._failing(number):
                    self._do(number, decode_event(data), is_again=is_again)
            else:
                self._gather(number, time, data)
        for number in tuple(self._gathered):
            self._write(number)

    def tell(self, count: int, *, is_idle: bool) -> WriterAnswer:
        """What has happened since the last call."""
        goes_on = self._touched & self._writers.keys()
        states = {each: self._writers[each].state for each in goes_on}
        ended = sorted(self._touched - goes_on)
        answer = WriterAnswer(count, is_idle, states, ended, self._paths, self._failures)
        self._touched, self._paths, self._failures = set(), {}, {}
        return answer

    def close(self) -> None:
        """Nothing follows: what was held back is written as far as it is no secret."""
        for number in tuple(self._writers):
            self._give_up(number)

    def _gather(self, number: int, time: float, data: memoryview) -> None:
        gathered = self._gathered.get(number)
        if gathered is not None and time - gathered.time >= _TOGETHER_SECONDS:
            self._write(number)
            gathered = None
        if gathered is None:
            gathered = self._gathered[number] = _GatheredOutput(time)
        gathered.parts.append(data)

    def _write(self, number: int) -> None:
        """Write the output that was gathered."""
        gathered = self._gathered.pop(number, None)
        writer = self._writers.get(number)
        if gathered is None or writer is None:
            return
        parts = gathered.parts
        with self._failing(number):
            writer.output(gathered.time, parts[0] if len(parts) == 1 else b"".join(parts))
            self._check(number, writer, gathered.time)

    def _do(self, number: int, event: WriterEvent, *, is_again: bool) -> None:
        if isinstance(event, BeginCast):
            self._begin(number, event, is_again=is_again)
        elif (writer := self._writers.get(number)) is None:
            return
        elif isinstance(event, CastResize):
            writer.resized(event.time, event.columns, event.rows)
        elif isinstance(event, CastMark):
            writer.mark(event.time, event.text)
        else:
            self._end(number, event, writer)

    def _begin(self, number: int, event: BeginCast, *, is_again: bool) -> None:
        self._files.make_room()
        for path in self._files.free_paths(event.name):
            with contextlib.suppress(FileExistsError):
                secrets = event.secrets
                writer = CastWriter(path, event.header, secrets=secrets, is_again=is_again)
                self._add(number, writer)
                return

    def _add(self, number: int, writer: CastWriter) -> None:
        self._files.begun(writer.path)
        self._writers[number] = writer
        self._next_checks[number] = 0
        self._paths[number] = writer.path

    def _check(self, number: int, writer: CastWriter, time: float) -> None:
        if writer.size >= self._next_checks[number]:
            self._next_checks[number] = writer.size + _BETWEEN_CHECKS
            if not self._files.make_room():
                writer.mark(time, "the recording ends here: the quota is used up")
                raise OSError("the quota of recordings is used up")

    def _end(self, number: int, event: EndCast, writer: CastWriter) -> None:
        del self._writers[number]
        self._files.finished(writer.path)
        try:
            if event.status is not None:
                writer.exited(event.time, event.status)
        finally:
            writer.close(event.time)

    @contextlib.contextmanager
    def _failing(self, number: int) -> Iterator[None]:
        try:
            yield
        except Exception as exc:
            self._failures[number] = str(exc) or type(exc).__name__
            self._give_up(number)

    def _give_up(self, number: int) -> None:
        self._touched.add(number)
        if (writer := self._writers.pop(number, None)) is not None:
            self._files.finished(writer.path)
            with contextlib.suppress(OSError):
                writer.close(0.0)
