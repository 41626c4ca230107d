"""The recorder's side of the writer: it starts it, sends batches, and starts another if it dies."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections import deque
from collections.abc import Sequence

import msgspec

from exec_server.errors import ExecServerError
from exec_server.own_interpreter import command_of
from exec_server.recording.cast_format import WriterState
from exec_server.recording.writer_messages import (
    Answer,
    Begin,
    Event,
    Resume,
    Terms,
    receive_answer,
    send,
)

_MODULE = "exec_server.recording.writer_main"
_PASSED_ON = ("LD_LIBRARY_PATH",)
# A writer that ends so often within so many seconds is not started again for now.
_MOST_DEATHS, _DEATH_SECONDS = 3, 60.0
_END_SECONDS = 10.0


class WriterEnded(ExecServerError):
    """Writers end as soon as they are started."""


class WriterLink:
    """One writer after another. It is used by one thread, apart from `kill`."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._sock: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._deaths: deque[float] = deque()
        self._why = ""
        # The recordings that are written now: how far they are, and their secrets.
        self._states: dict[int, WriterState] = {}
        self._secrets: dict[int, tuple[str, ...]] = {}

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def write(self, events: list[Event], output: Sequence[bytes]) -> Answer:
        """Have a batch written, by another writer if one dies.

        Raises WriterEnded if too many of them die; all recordings have ended then.
        """
        for event in events:
            if isinstance(event, Begin):
                self._secrets[event.terminal] = event.secrets
        try:
            answer = self._write(events, output)
        except WriterEnded:
            self._states.clear()
            self._secrets.clear()
            raise
        touched = {event.terminal for event in events}
        for number in touched - answer.states.keys():
            self._states.pop(number, None)
            self._secrets.pop(number, None)
        self._states |= answer.states
        return answer

    def _write(self, events: list[Event], output: Sequence[bytes]) -> Answer:
        while True:
            try:
                lost = {} if self._sock is not None else self._start()
                assert self._sock is not None
                send(self._sock, events, output)
                answer = receive_answer(self._sock)
                return msgspec.structs.replace(answer, failures=lost | answer.failures)
            except WriterEnded:
                raise
            except (OSError, EOFError, msgspec.MsgspecError) as exc:
                self._died(exc)
                # Files that the writer may have made are made anew.
                events = [_again(event) for event in events]

    def _start(self) -> dict[int, str]:
        """Start a writer and let it resume; returns the recordings that it could not resume."""
        self._check_deaths()
        ours, its = socket.socketpair()
        try:
            with its:
                self._process = subprocess.Popen(
                    [os.fsdecode(word) for word in command_of(_MODULE)],
                    stdin=its.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                    start_new_session=True,
                )
            send(ours, self._terms)
            resumed: list[Event] = [
                Resume(number, state, self._secrets[number])
                for number, state in self._states.items()
            ]
            if not resumed:
                self._sock = ours
                return {}
            send(ours, resumed)
            answer = receive_answer(ours)
        except BaseException:
            ours.close()
            raise
        self._sock = ours
        self._states = dict(answer.states)
        return answer.failures

    def _died(self, exc: Exception) -> None:
        self._stop()
        self._deaths.append(time.monotonic())
        self._why = str(exc) or type(exc).__name__

    def _check_deaths(self) -> None:
        since = time.monotonic() - _DEATH_SECONDS
        while self._deaths and self._deaths[0] < since:
            self._deaths.popleft()
        if len(self._deaths) > _MOST_DEATHS:
            raise WriterEnded(f"the writer of recordings has ended too often: {self._why}")

    def _stop(self) -> None:
        """Let the writer end; one that does not is killed."""
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()
        process, self._process = self._process, None
        if process is not None:
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                # A process that waits for a broken disk cannot be killed.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_END_SECONDS)

    def close(self) -> None:
        """End the writer; everything that was confirmed is in the files."""
        self._stop()

    def kill(self) -> None:
        """End a writer whose disk does not answer. Any thread may call it."""
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()


def _again(event: Event) -> Event:
    return msgspec.structs.replace(event, is_again=True) if isinstance(event, Begin) else event
