"""What a tree of processes uses, from /proc.

The keeper loads this file by its path; only the standard library is available there.
"""

from __future__ import annotations

import os
import signal

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
# Of a process with more open files, no more are looked at.
_MOST_FILES = 4096
_BLOCK = 512
# What the kernel keeps of a file in memory without content: 0.7 KiB, and its name.
_NAME_BYTES = 1024


def can_watch() -> bool:
    """True if /proc tells what processes use, and which children they have."""
    own = f"/proc/self/task/{os.getpid()}"
    return all(map(os.path.exists, (f"{own}/children", "/proc/self/statm", "/proc/self/io")))


def descendants(roots: Iterable[int], most: float | None = None) -> set[int]:
    """*roots*, and all processes below them; with *most*, no more than one more than so many."""
    found: set[int] = set()
    waiting = list(roots)
    while waiting and (most is None or len(found) <= most):
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += _children(pid)
    return found


def kill_below(roots: Iterable[int]) -> int:
    """Kill *roots* and all processes below them that are there now; how many there were."""
    killed = 0
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        # When it is dead, its children have another parent.
        waiting += _children(pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
        killed += 1
    return killed


def _children(pid: int) -> list[int]:
    """The children of all threads of *pid*."""
    children: list[int] = []
    for thread in threads(pid):
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
        except OSError:
            continue
    return children


def threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


class Stat:
    """One reading of /proc/PID/stat."""

    __slots__ = ("parent", "seconds", "start", "state", "threads")

    def __init__(self, text: bytes) -> None:
        # The fields after the name, which may contain anything, begin with the state.
        fields = text[text.rindex(b")") + 2 :].split()
        self.state = fields[0]
        self.parent = int(fields[1])
        # Its own time, and that of the children that it has waited for.
        self.seconds = sum(map(int, fields[11:15])) / _TICKS
        self.threads = int(fields[17])
        self.start = int(fields[19])


def stat_of(pid: int) -> Stat | None:
    """What the kernel says of *pid*; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return Stat(file.read())
    except (OSError, ValueError, IndexError):
        return None


class TreeUsage:
    """The CPU time and the bytes written of one tree, over all of its looks.

    What a process has used until it was last seen counts on when it is gone, unless its parent has
    waited for it: then the kernel has added it to the parent.
    """

    def __init__(self) -> None:
        self._seconds: dict[tuple[int, int], tuple[int, float]] = {}
        self._written: dict[tuple[int, int], tuple[int, float]] = {}
        self._gone_seconds = 0.0
        self._gone_written = 0.0
        self.threads = 0

    def look(self, pids: Iterable[int], *, written: bool) -> dict[int, int]:
        """Read all of *pids*; the time of the start of each that lives. *written* reads bytes."""
        seconds: dict[tuple[int, int], tuple[int, float]] = {}
        bytes_: dict[tuple[int, int], tuple[int, float]] = {}
        starts: dict[int, int] = {}
        self.threads = 0
        for pid in pids:
            stat = stat_of(pid)
            if stat is None:
                continue
            starts[pid] = stat.start
            seconds[pid, stat.start] = (stat.parent, stat.seconds)
            if written:
                bytes_[pid, stat.start] = (stat.parent, _written(pid))
            if stat.state not in b"ZX":
                self.threads += stat.threads
        self._gone_seconds += _lost(self._seconds, seconds, starts)
        self._gone_written += _lost(self._written, bytes_, starts)
        self._seconds, self._written = seconds, bytes_
        return starts

    @property
    def cpu_seconds(self) -> float:
        return self._gone_seconds + sum(used for _, used in self._seconds.values())

    @property
    def written_bytes(self) -> float:
        return self._gone_written + sum(used for _, used in self._written.values())


def _lost(
    before: dict[tuple[int, int], tuple[int, float]],
    now: dict[tuple[int, int], tuple[int, float]],
    starts: dict[int, int],
) -> float:
    """What those processes have used that are gone, and whose parents are gone as well."""
    return sum(
        used for key, (parent, used) in before.items() if key not in now and parent not in starts
    )


def _written(pid: int) -> float:
    """The bytes that a process has caused to be written to a disk."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return 0.0
    return float(sum(int(line.split()[1]) for line in lines if line.startswith(b"write_bytes")))


# Memory.


def resident_bytes(pids: Iterable[int]) -> int:
    """An upper bound of the memory of *pids*: memory that they share counts for each."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                total += int(file.read().split()[1]) * _PAGE
        except (OSError, IndexError, ValueError):
            continue
    return total


def memory_bytes(pids: Iterable[int], files: int) -> int:
    """The memory of *pids*, where shared memory counts once; *files* is what `memory_files` says.

    It does not count what could be read from a disk again.
    """
    anonymous = shared = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith((b"Pss_Anon:", b"SwapPss:")):
                anonymous += int(line.split()[1]) << 10
            elif line.startswith(b"Pss_Shmem:"):
                shared += int(line.split()[1]) << 10
    return anonymous + max(shared, files)


def memory_files(pids: Iterable[int]) -> int:
    """The bytes of all files in memory that *pids* can write to, each counted once."""
    devices = _memory_devices()
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names[:_MOST_FILES]:
            try:
                found = os.stat(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if found.st_dev in devices and _is_writable(pid, name):
                sizes[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK
    return sum(sizes.values())


def memory_names(first: int | None) -> int:
    """The bytes that the names in /dev/shm of a sandbox take; *first* is its first process.

    A file without content takes none of the size of its file system, but some of the memory.
    """
    shared = f"/proc/{first}/root/dev/shm"
    try:
        if first is None or os.stat(shared).st_dev == os.stat("/dev/shm").st_dev:
            return 0
        found = os.statvfs(shared)
    except OSError:
        return 0
    return (found.f_files - found.f_ffree) * _NAME_BYTES


def _is_writable(pid: int, name: str) -> bool:
    """True if a descriptor was opened for writing. What is only read may be of another program."""
    try:
        with open(f"/proc/{pid}/fdinfo/{name}", "rb") as file:
            flags = file.read().partition(b"flags:")[2].split()[0]
    except (OSError, IndexError):
        return False
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _memory_devices() -> set[int]:
    """The devices of the file systems whose files are in memory."""
    devices: set[int] = set()
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("device")
        devices.add(os.fstat(fd).st_dev)
        os.close(fd)
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            fields, _, rest = line.partition(b" - ")
            if rest.startswith((b"tmpfs ", b"ramfs ")):
                major, minor = fields.split()[2].split(b":")
                devices.add(os.makedev(int(major), int(minor)))
    return devices
