"""The output of a terminal, which cannot be spliced into a file: it goes through a pipe."""

from __future__ import annotations

import errno
import os
import select

from exec_server.process.journaling.journal_format import EndOfStream

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from exec_server.process.journal import Journal
    from exec_server.process.journaling.journal_format import Record

# A terminal gives at most so much at once, and less only if it has no more. The kernel takes memory
# for what is asked for. It is asked so often in a row.
TERMINAL_BYTES = 4096
TERMINAL_READS = 8


def take_terminal(
    journal: Journal, master: int, pipe: tuple[int, int], max_bytes: int
) -> Record | None:
    """Move what a terminal has written through *pipe*, whose ends are both ours, and record it.

    Like `Journal.take`. What another process left in the pipe comes first. All three descriptors
    are non-blocking.
    """
    reader, writer = pipe
    is_ended = False
    try:
        for _ in range(TERMINAL_READS):
            if fill_from_terminal(master, writer) < TERMINAL_BYTES // 2:
                break
    except EndOfStream:
        is_ended = True
    record = journal.take("pty", reader, max_bytes)
    if record is None and is_ended and not journal.is_stalled:
        raise EndOfStream
    return record


def fill_from_terminal(master: int, writer: int) -> int:
    """Move bytes from a terminal into a pipe; 0 if there are none now, or no room."""
    try:
        moved = os.splice(master, writer, TERMINAL_BYTES, flags=os.SPLICE_F_NONBLOCK)
    except BlockingIOError:
        return 0
    except OSError as exc:
        # Linux reports EIO once the last holder of a terminal has closed it.
        if exc.errno == errno.EIO:
            raise EndOfStream from exc
        if exc.errno != errno.EINVAL:
            raise
        return copy_from_terminal(master, writer)
    if not moved:
        raise EndOfStream
    return moved


def copy_from_terminal(master: int, writer: int) -> int:
    """The same for a kernel that cannot splice terminals; a kill between the two calls loses bytes.

    A pipe that is writable has room for PIPE_BUF bytes.
    """
    poll = select.poll()
    poll.register(writer, select.POLLOUT)
    if not poll.poll(0):
        return 0
    try:
        data = os.read(master, select.PIPE_BUF)
    except BlockingIOError:
        return 0
    except OSError as exc:
        if exc.errno == errno.EIO:
            raise EndOfStream from exc
        raise
    if not data:
        raise EndOfStream
    return os.write(writer, data)
