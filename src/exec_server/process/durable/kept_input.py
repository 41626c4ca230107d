"""The input of a durable job, in its keeper: bounded, and each write is done once.

The keeper loads this file by its path, so it imports the standard library only.
"""

from __future__ import annotations

import os
import struct
from collections import deque

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# The input that a job does not read yet: the number of writes besides the one under way, and bytes.
QUEUE_WRITES = 128
QUEUE_BYTES = 1 << 20
# The write ids of a job that are remembered, as hashes of eight bytes.
REMEMBERED_IDS = 512
HASH = struct.Struct("q")


class KeptInput:
    """A bounded queue in front of *fd*, the stdin of a job, which it owns.

    When the program has closed its end, writes are accepted and discarded.
    """

    __slots__ = (
        "_bytes",
        "_forget",
        "_ids",
        "_is_terminal",
        "_queue",
        "fd",
        "is_closing",
        "waiting",
    )

    def __init__(self, fd: int, *, is_terminal: bool, forget: Callable[[int], object]) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        # Called with the descriptor before it is closed.
        self._forget = forget
        self.is_closing = False
        self._is_terminal = is_terminal
        self._queue: deque[memoryview | bytes] | None = None
        self._bytes = 0
        self._ids = bytearray()
        # Writes that are not accepted yet: the tokens to answer, the write id, the data.
        self.waiting: list[tuple[list[int], str | None, bytes]] = []

    def write(self, token: int, write_id: str | None, data: bytes) -> bool:
        """Take *data*; False if it has to wait for room."""
        if write_id is not None:
            if self._knows(write_id):
                return True
            for tokens, waiting_id, _ in self.waiting:
                if waiting_id == write_id:
                    tokens.append(token)
                    return False
        if self.fd >= 0 and (self.waiting or self._is_full()):
            self.waiting.append(([token], write_id, data))
            return False
        self._accept(write_id, data)
        return True

    def finish(self) -> None:
        if self._is_terminal and self.waiting:
            self.waiting.append(([], None, b"\x04"))
        elif self._is_terminal:
            self._accept(None, b"\x04")
        elif not self.is_closing:
            self.is_closing = True
            if not self._queue:
                self.close()

    def flush(self) -> list[int]:
        """Write what the program takes now; returns the tokens of writes that are accepted."""
        accepted: list[int] = []
        while self._queue:
            try:
                sent = os.writev(self.fd, list(self._queue)[:QUEUE_WRITES])
            except BlockingIOError:
                break
            except OSError:
                self.close()
                break
            self._drop(sent)
        while self.waiting and (self.fd < 0 or not self._is_full()):
            tokens, write_id, data = self.waiting.pop(0)
            accepted += tokens
            self._accept(write_id, data)
        if self.is_closing and not self._queue:
            self.close()
        return accepted

    @property
    def is_blocked(self) -> bool:
        """True if there is input that the program does not take."""
        return bool(self._queue)

    def close(self) -> None:
        if self.fd >= 0:
            self._forget(self.fd)
            os.close(self.fd)
            self.fd = -1
        self._queue = None
        self._bytes = 0

    def _is_full(self) -> bool:
        queue = self._queue
        return queue is not None and (len(queue) > QUEUE_WRITES or self._bytes > QUEUE_BYTES)

    def _accept(self, write_id: str | None, data: bytes) -> None:
        if write_id is not None:
            del self._ids[: max(0, len(self._ids) - (REMEMBERED_IDS - 1) * HASH.size)]
            self._ids += HASH.pack(hash(write_id))
        if self.fd >= 0 and data:
            if self._queue is None:
                self._queue = deque()
            self._queue.append(data)
            self._bytes += len(data)

    def _knows(self, write_id: str) -> bool:
        wanted = HASH.pack(hash(write_id))
        at = self._ids.find(wanted)
        while at >= 0 and at % HASH.size:
            at = self._ids.find(wanted, at + 1)
        return at >= 0

    def _drop(self, sent: int) -> None:
        """Forget the first *sent* bytes of the queue."""
        queue = self._queue
        assert queue is not None
        self._bytes -= sent
        while queue and sent >= len(queue[0]):
            sent -= len(queue.popleft())
        if sent:
            queue[0] = memoryview(queue[0])[sent:]
        if not queue:
            self._queue = None
