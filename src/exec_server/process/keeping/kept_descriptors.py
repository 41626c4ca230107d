"""How many descriptors children may have, and descriptors that are kept for longer than a start."""

from __future__ import annotations

import errno
import fcntl
import os
import resource

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Descriptors are kept from here on, or from the limit of children on if that is lower. The kernel's
# table of descriptors is as long as the highest one, and it is copied with every start: from 16,384
# on, that takes 45 microseconds.
KEPT_FROM = 1024
# So many descriptors are left for starts; none is kept at their cost.
LEFT_FOR_STARTS = 64


class Descriptors:
    """The limits of open files: children get their own; this process has as many as it may.

    The kernel gives a new process the limits of its parent, so the limit of children holds while
    one is started. Descriptors that are kept for longer are above it, and take no room there.
    """

    def __init__(self) -> None:
        self._own = self._of_children = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._lowest = 3

    def raise_own(self, of_children: int) -> None:
        """Children get *of_children* as their soft limit, or what this process has for 0."""
        soft, hard = self._own
        self._of_children = (of_children or soft, hard)
        self._own = (hard, hard)
        if self._of_children != self._own:
            self._lowest = min(self._of_children[0], KEPT_FROM)
        resource.setrlimit(resource.RLIMIT_NOFILE, self._own)

    def lower(self) -> None:
        if self._of_children != self._own:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._of_children)

    def restore(self) -> None:
        if self._of_children != self._own:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._own)

    def kept(self, fd: int) -> int:
        """A duplicate of *fd* that is kept for longer than a start."""
        kept = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, self._lowest)
        if kept < self._own[0] - LEFT_FOR_STARTS:
            return kept
        os.close(kept)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


descriptors = Descriptors()


def close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)
