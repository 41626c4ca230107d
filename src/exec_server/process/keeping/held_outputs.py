"""The outputs of live programs, which are read once the server has vanished."""

from __future__ import annotations

import os
import select

from exec_server.process.keeping.kept_descriptors import close_all

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from exec_server.process.keeping.child_stdio import Stdio


class HeldOutputs:
    """The read ends of the outputs of live programs, by pid."""

    def __init__(self) -> None:
        self._fds: dict[int, list[int]] = {}

    def hold(self, pid: int, stdio: Stdio) -> None:
        try:
            self._fds[pid] = stdio.keep_outputs()
        except OSError:
            # So many programs run that this one has to do without.
            pass

    def drop(self, pid: int) -> None:
        close_all(self._fds.pop(pid, ()))

    def drain(self, wake: int, seconds: float) -> None:
        """Discard output until *wake* is readable, so that no child waits for a reader."""
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        for fd in (fd for fds in self._fds.values() for fd in fds):
            poll.register(fd, select.POLLIN)
        for fd, events in poll.poll(seconds * 1000):
            if fd == wake:
                continue
            if not events & select.POLLIN or not _discard(fd):
                # This output has ended; the program may go on without it.
                self._forget(fd)

    def _forget(self, fd: int) -> None:
        for fds in self._fds.values():
            if fd in fds:
                fds.remove(fd)
                os.close(fd)


def _discard(fd: int) -> bool:
    """Read once; False at the end of the output."""
    try:
        return bool(os.read(fd, 1 << 16))
    except OSError:
        # Linux reports EIO once the last holder of a terminal has closed it.
        return False
