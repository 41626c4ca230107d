"""Read a child's descriptor and call back; while paused, the output stays in the pipe."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from typing import Protocol

OnData = Callable[[bytes], None]

# A terminal gives at most 4 KiB per read; several reads per wake-up cost a third less CPU.
_TERMINAL_BATCH = 32 * 1024

# Past the retention limit, reads this small and this soon after each other are a flood of tiny
# writes. Waiting this long turns thousands of events into one.
SMALL_READ = 4 * 1024
REST_SECONDS = 0.001
# This gives a quarter more throughput than the default of 64 KiB; 1 MiB gives nothing more.
BULK_PIPE = 256 * 1024


class Parked(Protocol):
    """A pump that waits for a gate to open."""

    def resume(self) -> None: ...


class OutputGate:
    """Open while output may flow to the client; pumps that find it closed park themselves."""

    def __init__(self) -> None:
        self.is_open = True
        self._parked: list[Parked] = []

    def close(self) -> None:
        self.is_open = False

    def open(self) -> None:
        self.is_open = True
        parked, self._parked = self._parked, []
        for pump in parked:
            pump.resume()

    def park(self, pump: Parked) -> None:
        self._parked.append(pump)


# The window gate of processes that have no window.
ALWAYS_OPEN = OutputGate()


class Pump:
    """Reads *fd*, which it owns, until the end of file."""

    __slots__ = (
        "_bulk_gate",
        "_chunk_bytes",
        "_fd",
        "_gate",
        "_is_bulk",
        "_is_reading",
        "_is_terminal",
        "_last_small_read",
        "_loop",
        "_on_data",
        "_on_end",
        "_window",
        "_yields",
    )

    def __init__(
        self,
        fd: int,
        *,
        loop: asyncio.AbstractEventLoop,
        gate: OutputGate,
        window: OutputGate = ALWAYS_OPEN,
        bulk_gate: OutputGate = ALWAYS_OPEN,
        chunk_bytes: int,
        is_terminal: bool,
        on_data: OnData,
        on_end: Callable[[], None],
    ) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = loop
        self._gate = gate
        # This gate is closed while the window of this process is full.
        self._window = window
        # This one is closed while other processes come first, if there was much to read at last.
        self._bulk_gate = bulk_gate
        self._yields = False
        self._is_terminal = is_terminal
        self._on_data = on_data
        self._on_end = on_end
        self._is_reading = False
        self._chunk_bytes = chunk_bytes
        self._is_bulk = False
        self._last_small_read = 0.0

    @property
    def is_ended(self) -> bool:
        return self._fd < 0

    def fileno(self) -> int:
        return self._fd

    def resume(self) -> None:
        if self._fd >= 0 and not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._ready)

    def expect_bulk(self, chunk_bytes: int) -> None:
        """Read larger chunks, from a larger pipe that lets the child run ahead of us."""
        self._chunk_bytes = chunk_bytes
        self._is_bulk = not self._is_terminal
        if self._is_bulk and self._fd >= 0:
            # The kernel refuses this once the user's pipes hold too much; then the pipe stays as it
            # is.
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, BULK_PIPE)

    def drain(self, max_bytes: int) -> None:
        """Deliver what the pipe holds now, if the client can take it; ignores the window."""
        while max_bytes > 0 and self._fd >= 0 and self._gate.is_open:
            size = self._read_once()
            if not size:
                return
            max_bytes -= size

    def close(self) -> None:
        """Stop reading and close the descriptor; `on_end` is not called."""
        if self._fd >= 0:
            self._pause()
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def _ready(self) -> None:
        if not self._gate.is_open:
            self._pause()
            self._gate.park(self)
            return
        if not self._window.is_open:
            self._pause()
            self._window.park(self)
            return
        if self._yields and not self._bulk_gate.is_open:
            self._pause()
            self._bulk_gate.park(self)
            return
        size = self._read_once()
        self._yields = size >= SMALL_READ
        if self._is_bulk and 0 < size < SMALL_READ:
            self._maybe_rest()

    def _maybe_rest(self) -> None:
        """Let a child that floods us with tiny writes fill its pipe for a moment."""
        now = self._loop.time()
        if now - self._last_small_read < REST_SECONDS:
            self._pause()
            self._loop.call_later(REST_SECONDS, self.resume)
        self._last_small_read = now

    def _read_once(self) -> int:
        """Deliver one chunk and return its size; 0 when there is nothing, or at the end of file."""
        try:
            data = os.read(self._fd, self._chunk_bytes)
        except BlockingIOError:
            return 0
        except OSError as exc:
            if exc.errno != errno.EIO:
                raise
            # Linux reports EIO once the last holder of a terminal has closed it.
            data = b""
        if not data:
            self.close()
            self._on_end()
            return 0
        if self._is_terminal and self._chunk_bytes >= _TERMINAL_BATCH:
            data = self._gather(data)
        self._on_data(data)
        return len(data)

    def _gather(self, data: bytes) -> bytes:
        parts, size = [data], len(data)
        while size < _TERMINAL_BATCH:
            try:
                data = os.read(self._fd, self._chunk_bytes)
            except OSError:
                # There is nothing now, or it is the end of file, which the next wake-up meets
                # again.
                break
            if not data:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts)
