"""The writer: the process that writes the recordings of a recorder.

It reads batches from the socket that is its stdin until the recorder is gone, and then ends all
recordings. Nothing is lost if it is killed: the recorder starts another one, which cuts what was
not confirmed, and gets it again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket

from exec_server.own_interpreter import give_way, hide
from exec_server.recording.cast_format import WriterState
from exec_server.recording.cast_writer import CastWriter
from exec_server.recording.recording_files import RecordingFiles
from exec_server.recording.writer_messages import (
    BeginCast,
    CastMark,
    CastOutput,
    CastResize,
    EndCast,
    ResumeCast,
    WriterAnswer,
    WriterEvent,
    WriterTerms,
    receive_events,
    receive_terms,
    send,
)

# Output in bytes after which the quota is looked at again.
_BETWEEN_CHECKS = 1 << 20


class WriterProcess:
    """Writes batches into files."""

    def __init__(self, terms: WriterTerms) -> None:
        self._files = RecordingFiles(terms.directory, quota=terms.quota)
        self._writers: dict[int, CastWriter] = {}
        self._next_checks: dict[int, int] = {}

    def take(self, events: list[WriterEvent], output: memoryview) -> WriterAnswer:
        """Do what a batch says. A failure ends one recording, and the answer tells it."""
        touched, failures, at = set(), {}, 0
        for event in events:
            number = event.terminal
            size = event.size if isinstance(event, CastOutput) else 0
            try:
                self._do(event, output[at : at + size])
            except Exception as exc:
                failures[number] = str(exc) or type(exc).__name__
                self._give_up(number)
            touched.add(number)
            at += size
        states = {each: self._state(each) for each in touched if each in self._writers}
        return WriterAnswer(states, failures)

    def _do(self, event: WriterEvent, output: memoryview) -> None:
        if isinstance(event, BeginCast | ResumeCast):
            self._open(event)
        elif (writer := self._writers.get(event.terminal)) is None:
            return
        elif isinstance(event, CastOutput):
            writer.output(event.time, output)
            self._check(event.terminal, writer, event.time)
        elif isinstance(event, CastResize):
            writer.resized(event.time, event.columns, event.rows)
        elif isinstance(event, CastMark):
            writer.mark(event.time, event.text)
        else:
            self._end(event, writer)

    def _open(self, event: BeginCast | ResumeCast) -> None:
        self._files.make_room()
        if isinstance(event, BeginCast):
            if event.is_again:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(event.path)
            writer = CastWriter(event.path, event.header, secrets=event.secrets)
        else:
            writer = CastWriter.resumed(event.state, secrets=event.secrets)
        self._files.begun(writer.path)
        self._writers[event.terminal] = writer
        self._next_checks[event.terminal] = 0

    def _check(self, number: int, writer: CastWriter, time: float) -> None:
        if writer.size >= self._next_checks[number]:
            self._next_checks[number] = writer.size + _BETWEEN_CHECKS
            if not self._files.make_room():
                writer.mark(time, "the recording ends here: the quota is used up")
                raise OSError("the quota of recordings is used up")

    def _end(self, event: EndCast, writer: CastWriter) -> None:
        del self._writers[event.terminal]
        self._files.finished(writer.path)
        try:
            if event.status is not None:
                writer.exited(event.time, event.status)
        finally:
            writer.close(event.time)

    def _give_up(self, number: int) -> None:
        if (writer := self._writers.pop(number, None)) is not None:
            self._files.finished(writer.path)
            with contextlib.suppress(OSError):
                writer.close(0.0)

    def _state(self, number: int) -> WriterState:
        return self._writers[number].state

    def close(self) -> None:
        """The recorder is gone: what was held back is written as far as it is no secret."""
        for number in tuple(self._writers):
            self._give_up(number)


def main() -> None:
    # A signal to the whole group or unit is for the recorder; this process ends with it.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    give_way()
    # It knows the secrets.
    hide()
    with socket.socket(fileno=0) as sock, contextlib.suppress(EOFError, OSError):
        process = WriterProcess(receive_terms(sock))
        try:
            while True:
                send(sock, process.take(*receive_events(sock)))
        finally:
            process.close()
