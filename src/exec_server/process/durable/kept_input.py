"""The input of a durable job, in its keeper: bounded, and each write is done once.

A server may write the input itself, through a log that it shares with the keeper. When it is gone,
the keeper takes from the log what is left. The log is a file without a name. The keeper makes it,
and the server holds a duplicate of the descriptor, so that both have the same position in it. The
file begins with slots, one for each of the newest writes, and the bytes follow. The server writes
the bytes of a write behind all others, and then its slot: with that the write is accepted. The
kernel moves bytes from the file to the program and advances the position in the same call. So at
any instant a write is accepted or not, and a byte is moved or not, whichever process is killed.
Bytes in the file are never overwritten, because a pipe may refer to the same memory.

The durable keeper imports this file, so it imports the standard library only.
"""

from __future__ import annotations

import errno
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
# The write ids of a job that are remembered.
REMEMBERED_IDS = 512
# The number of the write, the end of its bytes, and the key of its id (0 without one). A slot lies
# within one page of memory, so that it is written completely or not at all.
SLOT = struct.Struct("<QQQ8x")
HEADER_BYTES = REMEMBERED_IDS * SLOT.size
# A prime number. Ids that differ in a few places have different keys; others almost certainly have.
PRIME = (1 << 61) - 1
KEY = struct.Struct("Q")


def key_of(write_id: str) -> int:
    """A number that stands for *write_id*, the same one in every process; never 0."""
    number = int.from_bytes(b"\1" + write_id.encode("utf-8", "surrogatepass"), "big")
    return 1 + number % PRIME


class InputLog:
    """A log in the file *fd*, which it owns. One process at a time writes it."""

    __slots__ = ("_number", "end", "fd", "keys", "position")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        slots = SLOT.iter_unpack(os.pread(fd, HEADER_BYTES, 0).ljust(HEADER_BYTES, b"\0"))
        writes = sorted(slot for slot in slots if slot[0])
        newest: tuple[int, ...] = writes[-1] if writes else (0, HEADER_BYTES, 0)
        self._number, self.end, _ = newest
        # The keys of the newest write ids, in the order of the writes.
        self.keys = [key for *_, key in writes if key]
        # How far the bytes were moved.
        self.position = max(HEADER_BYTES, os.lseek(fd, 0, os.SEEK_CUR))

    @classmethod
    def create(cls, fd: int, keys: list[int], backlog: bytes) -> InputLog:
        """A log in an empty file: writes with *keys* came before, and *backlog* is not moved."""
        os.lseek(fd, HEADER_BYTES, os.SEEK_SET)
        end = HEADER_BYTES + len(backlog)
        numbered = list(enumerate(keys or [0], 1))[-REMEMBERED_IDS:]
        _write(fd, backlog, HEADER_BYTES)
        for number, key in numbered:
            _write(fd, SLOT.pack(number, end, key), _place_of(number))
        return cls(fd)

    @property
    def pending(self) -> int:
        """The number of bytes that are accepted and not moved."""
        return self.end - self.position

    def append(self, key: int, data: bytes) -> None:
        """Accept a write. Raises OSError if there is no memory: then it is not accepted."""
        _write(self.fd, data, self.end)
        end, number = self.end + len(data), self._number + 1
        _write(self.fd, SLOT.pack(number, end, key), _place_of(number))
        self.end, self._number = end, number

    def move(self, fd: int, *, is_terminal: bool) -> int:
        """Move what *fd* takes now. Raises OSError, BlockingIOError if it takes nothing."""
        if is_terminal:
            moved = os.sendfile(fd, self.fd, None, self.pending)
        else:
            moved = os.splice(self.fd, fd, self.pending, flags=os.SPLICE_F_NONBLOCK)
        if not moved:
            raise OSError(errno.EINVAL, "nothing was moved")
        self.position += moved
        return moved

    def backlog(self) -> bytes:
        """The bytes that are accepted and not moved."""
        return os.pread(self.fd, self.pending, self.position)

    def close(self) -> None:
        os.close(self.fd)


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
        "log",
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
        # While the server writes the input itself: the log that it writes.
        self.log: InputLog | None = None
        # Writes that are not accepted yet: the tokens to answer, the write id, the data.
        self.waiting: list[tuple[list[int], str | None, bytes]] = []

    def write(self, token: int, write_id: str | None, data: bytes) -> bool:
        """Take *data*; False if it has to wait for room."""
        self.take_back()
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
        self.take_back()
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

    def share(self, fd: int) -> InputLog | None:
        """Let the server write, through a log in the empty file *fd*; None if it must not."""
        if self.fd < 0 or self.is_closing or self.waiting or self.log is not None:
            return None
        keys = [key for (key,) in KEY.iter_unpack(self._ids)]
        self.log = InputLog.create(fd, keys, b"".join(self._queue or ()))
        self._queue = None
        self._bytes = 0
        return self.log

    def take_back(self) -> None:
        """The server does not write any more: what it has accepted is done here."""
        if self.log is None:
            return
        # Its position may have changed since it was made.
        log, self.log = InputLog(self.log.fd), None
        self._ids = bytearray(b"".join(map(KEY.pack, log.keys)))
        if log.pending:
            self._queue = deque([log.backlog()])
            self._bytes = log.pending
        log.close()

    @property
    def is_blocked(self) -> bool:
        """True if there is input that the program does not take."""
        return bool(self._queue)

    def close(self) -> None:
        if self.fd >= 0:
            self._forget(self.fd)
            os.close(self.fd)
            self.fd = -1
        if self.log is not None:
            self.log.close()
            self.log = None
        self._queue = None
        self._bytes = 0

    def _is_full(self) -> bool:
        queue = self._queue
        return queue is not None and (len(queue) > QUEUE_WRITES or self._bytes > QUEUE_BYTES)

    def _accept(self, write_id: str | None, data: bytes) -> None:
        if write_id is not None:
            del self._ids[: max(0, len(self._ids) - (REMEMBERED_IDS - 1) * KEY.size)]
            self._ids += KEY.pack(key_of(write_id))
        if self.fd >= 0 and data:
            if self._queue is None:
                self._queue = deque()
            self._queue.append(data)
            self._bytes += len(data)

    def _knows(self, write_id: str) -> bool:
        wanted = KEY.pack(key_of(write_id))
        at = self._ids.find(wanted)
        while at >= 0 and at % KEY.size:
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


def _place_of(number: int) -> int:
    return number % REMEMBERED_IDS * SLOT.size


def _write(fd: int, data: bytes, at: int) -> None:
    if os.pwrite(fd, data, at) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
