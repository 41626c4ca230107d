"""Which processes the kernel has killed because memory was exhausted, as its log says it.

exit_facts.py loads this file by its path. The log is read where it can be: by root, and by every
user where `dmesg` needs no rights. Reading it takes nothing away from other readers.
"""

from __future__ import annotations

import os
import re

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# "Out of memory: Killed process 4711 (name) ...", or "Memory cgroup out of memory: Killed ...". All
# of it is compared: other records begin with a program's name, or have that of a file in them.
_KILLED = re.compile(
    rb"(?:Memory cgroup out|Out) of memory(?: \(oom_kill_allocating_task\))?"
    rb": Killed process (\d+) \("
)
_RECORD_BYTES = 8192


class KernelLog:
    """The end of the log, from now on."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._killed: set[int] = set()

    def forget(self, pid: int) -> None:
        """A process with this pid begins; what was logged before is about an earlier one."""
        self._read()
        self._killed.discard(pid)

    def has_killed(self, pid: int) -> bool:
        """True if the log says that memory was exhausted and *pid* was killed."""
        self._read()
        return pid in self._killed

    def _read(self) -> None:
        while True:
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BrokenPipeError:
                # Some records were overwritten before they were read.
                continue
            except OSError:
                return
            pid = _killed_by(record)
            if pid is not None:
                self._killed.add(pid)


def _killed_by(record: bytes) -> int | None:
    """The process that *record* says was killed for memory, if it is such a record."""
    header, _, text = record.partition(b";")
    # The kernel's own records begin with a number below 8, and those of programs with a higher one.
    found = _KILLED.match(text) if header[1:2] == b"," else None
    return None if found is None else int(found[1])


def opened(keep: Callable[[int], int]) -> KernelLog | None:
    """The log; None if it cannot be read. *keep* duplicates a descriptor that is kept for long."""
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        os.lseek(fd, 0, os.SEEK_END)
        return KernelLog(keep(fd))
    except OSError:
        return None
    finally:
        os.close(fd)
