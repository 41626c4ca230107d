"""How a command in bubblewrap ends.

bubblewrap has a status of its own, which is the same for a command that returns 139 and for one
that SIGSEGV ends. Kernels from 6.15 on tell the real one to each holder of a pidfd, also after the
process is gone. So the guard, which lets the command run, looks for it and sends a pidfd to the
keeper.

in_keeper.py loads this file by its path, so it imports the standard library only.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from socket import recv_fds, send_fds, socketpair

# struct pidfd_info, of 64 bytes in its first version, and the request for an exit code.
_PIDFD_INFO_BYTES, _PIDFD_INFO_EXIT, _AT_EXIT_CODE = 64, 1 << 3, 60
_PIDFD_GET_INFO = 3 << 30 | _PIDFD_INFO_BYTES << 16 | 0xFF << 8 | 11
# The command is there 0.2 ms after it may run. On a machine in trouble it may have ended before the
# guard looks: then it is not known how.
_FIND_SECONDS, _PAUSE = 1.0, 0.0001


class InnerCommand:
    """The command in a namespace of bubblewrap."""

    def __init__(self) -> None:
        # The keeper's end, and the guard's.
        self._ends = list(socketpair())
        # Python 3.11 does not pass flags to `recv_fds`.
        self._ends[0].setblocking(False)

    def guard_is_forked(self) -> None:
        """In the keeper: the guard has its end."""
        self._ends.pop().close()

    def find(self, first: int | None, proc: int) -> None:
        """In the guard: wait until the command is there, and send its pid and its pidfd.

        *first* is the first process of the namespace, and *proc* the host's /proc.
        """
        deadline = time.monotonic() + _FIND_SECONDS
        while first is not None and time.monotonic() < deadline:
            try:
                if children := _listed(f"{first}/task/{first}/children", proc):
                    pidfd = os.pidfd_open(children[0])
                    send_fds(self._ends[1], [b"%d" % children[0]], [pidfd])
                    return
            except OSError:
                # The command, or all of the sandbox, has ended already.
                return
            time.sleep(_PAUSE)

    def end(self) -> tuple[int, int | None]:
        """The pid of the command, 0 if it is unknown, and its wait status, if the kernel tells."""
        try:
            text, fds, *_ = recv_fds(self._ends[0], 32, 1)
        except OSError:
            return 0, None
        status = None
        for fd in fds:
            status = _exit_status(fd)
            os.close(fd)
        return int(text or b"0"), status

    def close(self) -> None:
        while self._ends:
            self._ends.pop().close()


def _exit_status(pidfd: int) -> int | None:
    """The wait status of a process that has ended; None if the kernel does not tell it."""
    answer = bytearray(_PIDFD_INFO_EXIT.to_bytes(8, sys.byteorder) + bytes(_PIDFD_INFO_BYTES - 8))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, answer)
    except OSError:
        return None
    if not int.from_bytes(answer[:8], sys.byteorder) & _PIDFD_INFO_EXIT:
        return None
    return int.from_bytes(answer[_AT_EXIT_CODE : _AT_EXIT_CODE + 4], sys.byteorder)


def _listed(path: str, folder: int) -> list[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return [int(number) for number in os.read(fd, 4096).split()]
    finally:
        os.close(fd)
