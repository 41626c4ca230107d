"""Moves an output of a durable process into its journal, and tells of every record."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from collections.abc import Callable

from exec_server.memory import keep_freed_memory
from exec_server.process.durable.journal_log import EndOfStream, JournalLog, Record
from exec_server.process.keeping.kept_descriptors import close_all
from exec_server.process.pump import BULK_PIPE, REST_SECONDS, SMALL_READ, OutputGate
from exec_server.protocol.process import Stream

# While the disk is full, it is tried this often whether there is room again.
_RETRY_SECONDS = 1.0
# Blocks of this size are used again by the C library: a chunk as base64, and what is around it.
_KEPT_BYTES = 4 << 20


class JournalPump:
    """As `Pump`, for *fds* that the durable keeper holds, too: a pipe, or a terminal and a pipe."""

    def __init__(
        self,
        fds: tuple[int, ...],
        stream: Stream,
        log: JournalLog,
        *,
        gate: OutputGate,
        window: OutputGate,
        chunk_bytes: int,
        on_record: Callable[[Record], None],
        on_end: Callable[[], None],
    ) -> None:
        self._fds = fds
        self._stream = stream
        self._log = log
        self._gate = gate
        self._window = window
        self._chunk_bytes = chunk_bytes
        self._on_record = on_record
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._is_reading = False
        self._is_bulk = False
        self._last_small_take = 0.0
        self._retry: asyncio.TimerHandle | None = None

    @property
    def is_ended(self) -> bool:
        return not self._fds

    def fileno(self) -> int:
        return self._fds[0]

    def resume(self) -> None:
        if self._fds and not self._is_reading and self._retry is None:
            self._is_reading = True
            self._loop.add_reader(self._fds[0], self._ready)
            if self._log.has_backlog(self._stream):
                self._loop.call_soon(self._ready)

    def expect_bulk(self, chunk_bytes: int) -> None:
        """Move larger chunks, from a larger pipe that lets the program run ahead of us."""
        self._chunk_bytes = max(chunk_bytes, BULK_PIPE)
        self._is_bulk = self._stream != "pty"
        # Without this, each chunk and its text would be new memory of the kernel.
        keep_freed_memory(_KEPT_BYTES)
        if self._fds:
            # The kernel refuses this once the user's pipes hold too much.
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(self._fds[-1], fcntl.F_SETPIPE_SZ, BULK_PIPE)

    def drain(self, max_bytes: int) -> None:
        """Move what the pipe holds now, if the client can take it; ignores the window."""
        while max_bytes > 0 and self._fds and self._gate.is_open:
            size = self._take()
            if not size:
                return
            max_bytes -= size

    def close(self) -> None:
        """Stop and close the descriptors; `on_end` is not called. The keeper's stay open."""
        self._pause()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        fds, self._fds = self._fds, ()
        close_all(fds)

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fds[0])

    def _ready(self) -> None:
        if not self._is_reading:
            return
        for gate in (self._gate, self._window):
            if not gate.is_open:
                self._pause()
                gate.park(self)
                return
        if 0 < self._take() < SMALL_READ and self._is_bulk and self._fds:
            self._maybe_rest()

    def _maybe_rest(self) -> None:
        """Let a program that floods us with tiny writes fill its pipe for a moment."""
        now = self._loop.time()
        if now - self._last_small_take < REST_SECONDS and self._retry is None:
            self._pause()
            self._retry = self._loop.call_later(REST_SECONDS, self._go_on)
        self._last_small_take = now

    def _take(self) -> int:
        """Move one chunk and return its size; 0 when there is nothing, or at the end of file."""
        try:
            record = self._log.take(self._stream, self._fds, self._chunk_bytes)
        except EndOfStream:
            self.close()
            self._on_end()
            return 0
        if record is not None:
            self._on_record(record)
            return record.length
        if self._log.is_stalled:
            self._pause()
            if self._retry is None:
                self._retry = self._loop.call_later(_RETRY_SECONDS, self._go_on)
        return 0

    def _go_on(self) -> None:
        self._retry = None
        self.resume()
