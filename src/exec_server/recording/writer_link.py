"""The recorder's side of the writer: it starts it, and starts another one if it dies."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
from collections import deque

import msgspec

from exec_server.errors import ExecServerError
from exec_server.own_interpreter import command_of
from exec_server.recording.cast_format import WriterState
from exec_server.recording.spool import Spool
from exec_server.recording.writer_messages import (
    HURRY,
    SEGMENT,
    WAKE,
    BeginCast,
    ResumedCast,
    WriterAnswer,
    WriterEvent,
    WriterTerms,
    encode_event,
    receive_answer,
    send,
    send_word,
)

_MODULE = "exec_server.recording.writer_main"
_PASSED_ON = ("LD_LIBRARY_PATH",)
# A writer that ends so often within so many seconds is not started again for now.
_MOST_DEATHS, _DEATH_SECONDS = 3, 60.0
_END_SECONDS = 10.0


class WriterEnded(ExecServerError):
    """Writers end as soon as they are started."""


class WriterLink:
    """The spool, and one writer after another that reads it.

    One thread appends, and another one receives answers. `kill` and `hurry` are for any thread.
    """

    def __init__(self, directory: str, quota: int) -> None:
        self._directory = directory
        self._quota = quota
        self._spool = Spool()
        # Held to change the spool, and for words to the writer.
        self._changing = threading.Lock()
        self._sock: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        # The position in the spool at which the writer has begun.
        self._start = 0
        # True if the writer waits to be woken.
        self._is_idle = False
        self._is_closing = False
        # Set when a writer is needed.
        self._is_needed = threading.Event()
        # The end of the spool when the last writer died: it may have begun recordings up to there.
        self._again_until = 0
        self._deaths: deque[float] = deque()
        self._why = ""
        # The recordings that are written now: how far they are, and their secrets.
        self._states: dict[int, WriterState] = {}
        self._secrets: dict[int, tuple[str, ...]] = {}

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def waiting(self) -> int:
        """Bytes that are not in the files yet."""
        return self._spool.waiting

    @property
    def end(self) -> int:
        """The position of what comes next; see `confirmed`."""
        with self._changing:
            return self._spool.end

    # For the thread that appends.

    def output(self, terminal: int, at: float, data: bytes) -> None:
        """Raises OSError if there is no memory for it."""
        with self._changing:
            if self._is_closing:
                return
            if self._spool.needs_segment:
                self._extend()
            self._spool.append_output(terminal, at, data)
            if self._is_idle or self._sock is None:
                self._wake()

    def event(self, terminal: int, event: WriterEvent) -> None:
        """Raises OSError if there is no memory for it."""
        with self._changing:
            if self._is_closing:
                return
            if self._spool.needs_segment:
                self._extend()
            self._spool.append_event(terminal, encode_event(event))
            if isinstance(event, BeginCast):
                self._secrets[terminal] = event.secrets
            if self._is_idle or self._sock is None:
                self._wake()

    def hurry(self) -> None:
        """Let everything be written at once; an answer follows."""
        with self._changing:
            self._is_needed.set()
            self._say(HURRY)

    def close(self) -> None:
        """Nothing follows: the writer ends when everything is in the files."""
        with self._changing:
            self._is_closing = True
            self._is_needed.set()
            if self._sock is not None:
                with contextlib.suppress(OSError):
                    self._sock.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End a writer whose disk does not answer."""
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()

    # Called with the lock.

    def _extend(self) -> None:
        """The writer has a segment before anything is in it."""
        if not self._say(SEGMENT, self._spool.extend().fd):
            # The next writer gets all segments.
            self.kill()

    def _wake(self) -> None:
        self._is_idle = False
        self._is_needed.set()
        self._say(WAKE)

    def _say(self, word: bytes, fd: int | None = None) -> bool:
        """False if the writer is gone, which the other thread notices, or hears no more words."""
        try:
            if self._sock is not None:
                send_word(self._sock, word, fd)
        except OSError:
            return False
        return True

    # For the thread that receives.

    def next_answer(self) -> WriterAnswer | None:
        """What a writer answers, which is started if there is none; None if none is needed.

        It waits. Raises WriterEnded if too many writers die; all recordings have ended then.
        """
        try:
            if self._sock is None:
                if not self._is_writer_needed():
                    return None
                self._begin()
            assert self._sock is not None
            answer = receive_answer(self._sock)
        except WriterEnded:
            self._give_up()
            raise
        except (OSError, EOFError, msgspec.MsgspecError) as exc:
            self._died(exc)
            return WriterAnswer(0, is_idle=False)
        self._take(answer)
        return answer

    @property
    def confirmed(self) -> int:
        return self._spool.confirmed

    def wait_needed(self) -> bool:
        """Wait until a writer may be needed; False if the link is closed."""
        if self._is_closing:
            self._give_up()
            return False
        self._is_needed.wait()
        self._is_needed.clear()
        return True

    def _is_writer_needed(self) -> bool:
        return bool(self._spool.waiting or (self._states and not self._is_closing))

    def _begin(self) -> None:
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
            send(ours, self._terms())
            with self._changing:
                self._hand_over(ours)
        except BaseException:
            ours.close()
            raise

    def _terms(self) -> WriterTerms:
        """A writer goes on where the last one has stopped."""
        self._start = self._spool.confirmed
        resumed = {
            number: ResumedCast(state, self._secrets[number])
            for number, state in self._states.items()
        }
        again = max(0, self._again_until - self._start)
        offset = self._spool.confirmed_offset
        return WriterTerms(self._directory, self._quota, resumed, offset, again)

    def _hand_over(self, sock: socket.socket) -> None:
        for each in self._spool.segments:
            send_word(sock, SEGMENT, each.fd)
        send_word(sock, HURRY)
        if self._is_closing:
            sock.shutdown(socket.SHUT_WR)
        self._sock = sock

    def _take(self, answer: WriterAnswer) -> None:
        with self._changing:
            position = self._start + answer.count
            if self._spool.confirm(position):
                with contextlib.suppress(OSError):
                    self._extend()
                    self._spool.confirm(position)
            self._is_idle = answer.is_idle
            if self._is_idle and self._spool.waiting:
                self._wake()
        for number in answer.ended:
            self._states.pop(number, None)
            self._secrets.pop(number, None)
        self._states |= answer.states

    def _died(self, exc: Exception) -> None:
        with self._changing:
            sock, self._sock = self._sock, None
            self._is_idle = False
            self._again_until = self._spool.end
        if sock is not None:
            sock.close()
        self._wait_for_end()
        if not self._is_closing or self._spool.waiting:
            self._deaths.append(time.monotonic())
            self._why = str(exc) or type(exc).__name__

    def _give_up(self) -> None:
        with self._changing:
            self._spool.clear()
            self._states.clear()
            self._secrets.clear()

    def _check_deaths(self) -> None:
        since = time.monotonic() - _DEATH_SECONDS
        while self._deaths and self._deaths[0] < since:
            self._deaths.popleft()
        if len(self._deaths) > _MOST_DEATHS:
            raise WriterEnded(f"the writer of recordings has ended too often: {self._why}")

    def _wait_for_end(self) -> None:
        """A writer that does not end is killed."""
        process, self._process = self._process, None
        if process is not None:
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                # A process that waits for a broken disk cannot be killed.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_END_SECONDS)
