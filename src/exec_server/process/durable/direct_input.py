"""The input of a durable job that this server writes itself, through a log shared with the keeper.

A write through the keeper takes two messages and wakes another process. A keystroke should not.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import OrderedDict, deque
from collections.abc import Callable

from exec_server.process.durable.kept_input import (
    QUEUE_BYTES,
    QUEUE_WRITES,
    REMEMBERED_IDS,
    InputLog,
    key_of,
)

# A log is replaced by a new one after so many bytes, because its memory is not used again.
_LOG_BYTES = 2 << 20
# What a kernel says that cannot move bytes from a file to such a descriptor.
_UNABLE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


class DirectInput:
    """Writes to *fd*, the stdin of a job or its terminal, through *log*; owns both.

    *on_room* is called when a write fits again. *on_unable* is called if the kernel cannot do it:
    the keeper has to do what is left. When the program has closed its end, writes are discarded.
    """

    def __init__(
        self,
        fd: int,
        log: InputLog,
        *,
        is_terminal: bool,
        on_room: Callable[[], None],
        on_unable: Callable[[], None],
    ) -> None:
        self._fd = fd
        self._log = log
        self._is_terminal = is_terminal
        self._on_room = on_room
        self._on_unable = on_unable
        self._loop = asyncio.get_running_loop()
        # A plain dictionary would search longer and longer for its oldest key.
        self._keys = OrderedDict.fromkeys(log.keys)
        # The ends of the writes that are accepted and not moved.
        self._ends = deque([log.end] if log.pending else [])
        self._is_watching = False
        self._is_over = False

    @property
    def is_full(self) -> bool:
        return len(self._ends) > QUEUE_WRITES or (
            self._log.pending > QUEUE_BYTES and not self._is_over
        )

    @property
    def is_used_up(self) -> bool:
        """True if a new log should take its place."""
        return self._log.end > _LOG_BYTES and not self._log.pending

    def write(self, write_id: str | None, data: bytes) -> None:
        """Accept *data*, once for each id. Raises OSError if it could not be accepted."""
        key = 0 if write_id is None else key_of(write_id)
        if key in self._keys or self._is_over:
            return
        self._log.append(key, data)
        if key:
            self._keys[key] = None
            if len(self._keys) > REMEMBERED_IDS:
                self._keys.popitem(last=False)
        if data:
            self._ends.append(self._log.end)
            if not self._is_watching:
                self.flush()

    def flush(self) -> None:
        """Move what the program takes now."""
        log = self._log
        try:
            while log.pending:
                log.move(self._fd, is_terminal=self._is_terminal)
        except BlockingIOError:
            self._watch()
        except OSError as exc:
            self._fail(exc)
            return
        else:
            self._unwatch()
        ends = self._ends
        while ends and ends[0] <= log.position:
            ends.popleft()

    def _ready(self) -> None:
        self.flush()
        if not self.is_full:
            self._on_room()

    def _fail(self, exc: OSError) -> None:
        self._unwatch()
        if exc.errno in _UNABLE:
            self._on_unable()
            return
        # The program has closed its end.
        self._is_over = True
        self._ends.clear()
        self._on_room()

    def close(self) -> None:
        """Close both descriptors; a second call does nothing."""
        if self._fd >= 0:
            self._unwatch()
            os.close(self._fd)
            self._log.close()
            self._fd = -1

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._loop.add_writer(self._fd, self._ready)

    def _unwatch(self) -> None:
        if self._is_watching:
            self._is_watching = False
            self._loop.remove_writer(self._fd)
