"""Who sends signals, as the kernel tells it to root: the tracepoint signal_generate.

A second ring of each processor has the forks of the machine, so that the family of a sender is
known that has ended since.

exit_facts.py loads this file by its path. Each processor gets an event counter with a small ring of
memory, which the kernel writes to when a signal is sent, and which is read only after a program was
ended by a signal. Nothing of it is visible on the host, and it is gone with this process: there is
no instance in the trace file system, whose events are looked up through a mount without a place.
A signal costs less than a microsecond more; those that are sent often and end no program are left
out.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
# These have the same numbers on every architecture.
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_FSOPEN_CLOEXEC = _FSMOUNT_CLOEXEC = 1
_FSCONFIG_CMD_CREATE = 6
_EVENT = "events/signal/signal_generate"
# The fields of the record behind its common ones, as `format` says it on kernels from 3.3 on.
_FORMAT = (
    "int sig;\toffset:8;",
    "int code;\toffset:16;",
    "pid_t pid;\toffset:36;",
    "int group;\toffset:40;",
    "int result;\toffset:44;",
)

_TYPE_TRACEPOINT = 2
_SAMPLE_TID, _SAMPLE_TIME, _SAMPLE_RAW = 1 << 1, 1 << 2, 1 << 10
_USE_CLOCK, _WRITE_BACKWARD = 1 << 25, 1 << 27
_CLOCK_MONOTONIC = 1
_FLAG_CLOEXEC = 8
_SET_FILTER = 0x40082406
# SIGALRM and real-time signals may end a program; SIGCHLD, SIGCONT, SIGURG and SIGWINCH do not.
_FILTER = b"result == 0 && sig != 17 && sig != 18 && sig != 23 && sig != 28\0"
# struct perf_event_attr up to its fifth version.
_ATTR = struct.Struct("=IIQQQQQIIQQQQIiQ")
_ATTR_BYTES = 112
_PROT_READ, _MAP_SHARED = 1, 1
_RING_PAGES = 2
# Some 1,000 forks and exits of the processor.
_FAMILY_PAGES = 16
_RECORD_FORK, _RECORD_SAMPLE = 7, 9
_TYPE_SOFTWARE, _SOFTWARE_DUMMY, _TELL_TASKS = 1, 9, 1 << 13
# Process, parent, thread, the parent's thread, and the time.
_FORK = struct.Struct("=IIIIQ")
# The longest line of ancestors that is followed.
_MOST_ANCESTORS = 256
_HEADER = struct.Struct("=IHH")
# The sender's process and thread, the time, and the size of the raw record that follows.
_SAMPLE = struct.Struct("=IIQI")
_HEAD_OFFSET = 1024
_SIGKILL, _SIGXFSZ = 9, 25
# SI_KERNEL
_BY_KERNEL = 0x80

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)


class Senders:
    """The rings of all processors; they keep the last signals that were sent."""

    def __init__(self, event: int, call: int) -> None:
        """Raises OSError if the kernel does not allow it."""
        self._page = os.sysconf("SC_PAGESIZE")
        signals = _attributes(_TYPE_TRACEPOINT, event)
        self._rings = [self._ring(signals, call, cpu, _RING_PAGES) for cpu in _processors()]
        tasks = _attributes(_TYPE_SOFTWARE, _SOFTWARE_DUMMY, _TELL_TASKS)
        self._families = [self._ring(tasks, call, cpu, _FAMILY_PAGES) for cpu in _processors()]

    def _ring(self, described: bytes, call: int, cpu: int, pages: int) -> int:
        attributes = ctypes.create_string_buffer(described, _ATTR_BYTES)
        fd = _checked(_libc.syscall(call, attributes, -1, cpu, -1, _FLAG_CLOEXEC))
        try:
            if pages == _RING_PAGES:
                fcntl.ioctl(fd, _SET_FILTER, _FILTER)
            size = (1 + pages) * self._page
            address = _libc.mmap(None, size, _PROT_READ, _MAP_SHARED, fd, 0)
            if address == ctypes.c_void_p(-1).value:
                raise OSError(ctypes.get_errno(), "mmap")
            return int(address)
        finally:
            # The memory holds the counter open.
            os.close(fd)

    def ancestors(self, pid: int) -> list[int]:
        """*pid*, its parent when it was forked, the parent of that one, and so on.

        The line ends where a fork is not known any more.
        """
        forks: dict[int, list[tuple[int, int]]] = {}
        for ring in self._families:
            for kind, content, at in self._content(ring, _FAMILY_PAGES):
                if kind == _RECORD_FORK:
                    child, parent, _, _, when = _FORK.unpack_from(content, at)
                    # A thread is told of its own process.
                    if child != parent:
                        forks.setdefault(child, []).append((when, parent))
        line, until = [pid], float("inf")
        while len(line) < _MOST_ANCESTORS:
            # A later process may have had the number of an ancestor.
            earlier = [each for each in forks.get(line[-1], ()) if each[0] < until]
            if not earlier:
                break
            until, parent = max(earlier)
            line.append(parent)
        return line

    def find(self, target: int, signum: int, *, since: int) -> tuple[int, int] | None:
        """The process that sent *signum* to *target* after *since*, and the signal's code.

        None if that is not known, or if several have sent it and either may have ended the target.
        """
        found = sorted(
            (when, sender, code)
            for ring in self._rings
            for when, sender, code, sent, to in self._records(ring)
            if sent == signum and when >= since and target in to
        )
        senders = {(sender, code > 0) for _, sender, code in found}
        # The first SIGKILL ends a process; another signal may have been caught.
        if not found or (len(senders) > 1 and signum != _SIGKILL):
            return None
        return found[0][1], found[0][2]

    def _records(self, ring: int) -> Iterator[tuple[int, int, int, int, tuple[int, ...]]]:
        """Time, sender, code, signal and targets of the signals in *ring*, the newest first."""
        for kind, content, at in self._content(ring, _RING_PAGES):
            if kind == _RECORD_SAMPLE:
                pid, thread, when, _ = _SAMPLE.unpack_from(content, at)
                sent, code, target = _signal_of(content, at + _SAMPLE.size)
                # A fault in a thread is told of that thread, by itself.
                yield when, pid, code, sent, (target, pid) if target == thread else (target,)

    def _content(self, ring: int, pages: int) -> Iterator[tuple[int, bytes, int]]:
        """The kind of each record in *ring*, the newest first; the bytes, and its place in them."""
        size = pages * self._page
        head = ctypes.c_uint64.from_address(ring + _HEAD_OFFSET).value
        content = ctypes.string_at(ring + self._page, size)
        # The kernel writes towards lower addresses, so the newest record begins at the head.
        start = head % size
        content = content[start:] + content[:start]
        written = min(size, -head % (1 << 64))
        at = 0
        while at + _HEADER.size <= written:
            kind, _, length = _HEADER.unpack_from(content, at)
            if length < _HEADER.size or at + length > written:
                return
            yield kind, content, at + _HEADER.size
            at += length


def _signal_of(content: bytes, at: int) -> tuple[int, int, int]:
    (sig,) = struct.unpack_from("=i", content, at + 8)
    (code,) = struct.unpack_from("=i", content, at + 16)
    target, is_for_all = struct.unpack_from("=ii", content, at + 36)
    if sig == _SIGXFSZ and code == 0 and not is_for_all:
        # The kernel writes so when a file would become too large; kill(2) is for all threads.
        code = _BY_KERNEL
    return sig, code, target


def _attributes(kind: int, event: int, flags: int = 0) -> bytes:
    return _ATTR.pack(
        kind,
        _ATTR_BYTES,
        event,
        1,
        _SAMPLE_TID | _SAMPLE_TIME | _SAMPLE_RAW,
        0,
        _USE_CLOCK | _WRITE_BACKWARD | flags,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        _CLOCK_MONOTONIC,
        0,
    )


def _processors() -> list[int]:
    """The numbers of the processors that are online, from a text such as 0-3,8."""
    with open("/sys/devices/system/cpu/online", encoding="ascii") as file:
        parts = [part.split("-") for part in file.read().strip().split(",")]
    return [cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1)]


def _event_number() -> int:
    """The number of the tracepoint, from a mount of its file system that has no place."""
    context = _checked(_libc.syscall(_FSOPEN, b"tracefs", _FSOPEN_CLOEXEC))
    try:
        _checked(_libc.syscall(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0))
        mount = _checked(_libc.syscall(_FSMOUNT, context, _FSMOUNT_CLOEXEC, 0))
    finally:
        os.close(context)
    try:
        layout = _read(f"{_EVENT}/format", mount)
        if not all(field in layout for field in _FORMAT):
            raise OSError(0, "the tracepoint has another form")
        return int(_read(f"{_EVENT}/id", mount))
    finally:
        os.close(mount)


def _read(path: str, folder: int) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(fd, 1 << 16).decode()
    finally:
        os.close(fd)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def opened() -> Senders | None:
    """The senders of signals; None if the kernel does not tell them to this process."""
    call = _PERF_EVENT_OPEN.get(os.uname().machine)
    if call is None or os.geteuid() != 0:
        return None
    try:
        return Senders(_event_number(), call)
    except (OSError, ValueError):
        return None
