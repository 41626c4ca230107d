"""The guard: a short-lived process that seals a sandbox and compares it with what was planned.

bubblewrap mounts by names, and a name may lead to something else than a moment ago. So the keeper
has bubblewrap wait before it runs the command (`--block-fd`), and forks a guard. The guard enters
the sandbox's mount namespace, makes it private, so that later mounts of the host do not appear in
it, makes read-only what is neither the host's nor the command's, and compares each mount with the
file that the plan was made for. Only then the command may run. If something differs, the guard says
so on the command's stderr, and the keeper ends the sandbox.

The keeper loads this file by its path, so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import stat
import struct
import time

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# The exit statuses of a guard: the command runs, it must not run, or it has ended already.
RELEASED, REFUSED, GONE = 0, 2, 3

# What a path must be in the sandbox: a writable or read-only mount of a known file; something empty
# and read-only in place of a file (the empty file is known) or of a directory.
WRITABLE, READ_ONLY, EMPTY = "writable", "read-only", "empty"

# Files below /proc that root could write (its ids are the host's) and that affect the machine.
MACHINE_FILES = ("sys sysrq-trigger irq bus fs acpi scsi asound mtrr driver dynamic_debug").split()

# (path, kind, device, inode); both numbers are 0 for a directory that is made for the sandbox.
Expected = tuple[bytes, str, int, int]

# The system call has this number on every architecture.
_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS = 0x02, 0x04
_AT_EMPTY_PATH, _STATX_MOUNT_ID = 0x1000, 0x1000
_STATX_BYTES = 256
_AT_INODE, _AT_DEVICE, _AT_MOUNT = 32, 136, 144
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_NS_GET_USERNS = 0xB701
_MS_REC_PRIVATE = 1 << 14 | 1 << 18
_MS_BIND = 1 << 12
# MS_REMOUNT, and read-only without special permission bits, devices and programs.
_MS_SEAL = _MS_BIND | 1 << 5 | 0b1111
# The sandbox's own file systems; nothing of the host is there, except for a few devices.
_PROC = b"/proc"
_FRESH = (b"/dev", _PROC)
# bubblewrap needs a few milliseconds, and longer for a plan with thousands of mounts.
_SECONDS = 60.0
# A process that is being killed is gone within this time.
_ENDING_SECONDS = 0.2
# So often the mounts are compared until they are refused, with a pause.
_LOOKS, _PAUSE = 4, 0.02
_SHORT_WAIT, _LONG_WAIT = 0.0002, 0.005
_PATIENT_SECONDS = 0.05

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Refused(Exception):
    """The sandbox is not as it was planned; its text is for the client."""


class Gone(Exception):
    """The sandbox ended before it was ready."""


class Mount:
    """One line of /proc/PID/mountinfo."""

    def __init__(self, line: bytes) -> None:
        fields, _, rest = line.partition(b" - ")
        words = fields.split(b" ")
        self.number = int(words[0])
        self.path = unescaped(words[4])
        self.is_writable = b"rw" in words[5].split(b",")
        self.type = rest.split(b" ", 1)[0]


def lines_of(table: bytes) -> list[bytes]:
    """The lines of a list of mounts. A path in it may contain a carriage return."""
    return table.removesuffix(b"\n").split(b"\n") if table else []


def unescaped(word: bytes) -> bytes:
    """A path as it was before the kernel wrote it into a list of mounts."""
    if b"\\" not in word:
        return word
    first, *others = word.split(b"\\")
    return first + b"".join(bytes((int(part[:3], 8),)) + part[3:] for part in others)


class _How(ctypes.Structure):
    """`struct open_how`."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def open_exactly(path: bytes) -> int:
    """Open *path* without rights to read or write; OSError if a part of it is a symbolic link."""
    how = _How(
        os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC,
        0,
        _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS,
    )
    size = ctypes.c_size_t(ctypes.sizeof(how))
    fd: int = _libc.syscall(_OPENAT2, ctypes.c_int(-1), path, ctypes.byref(how), size)
    _check(fd)
    if stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return fd


def guard(info: int, waiting: int, expected: Iterable[Expected]) -> None:
    """Return once the sandbox that reports on *info* may run its command.

    *waiting* is the number of the descriptor from which bubblewrap reads before it does. Raises
    Refused with the reason, or Gone if the sandbox has ended. This process stays in the sandbox.
    """
    deadline = time.monotonic() + _SECONDS
    first = _first_process(info, deadline)
    state = -1
    try:
        state = os.open(b"/proc/%d/stat" % first, os.O_RDONLY | os.O_CLOEXEC)
        _wait_until_blocked(first, waiting, deadline)
        mounts = os.open(b"/proc/%d/mountinfo" % first, os.O_RDONLY | os.O_CLOEXEC)
        hosts_proc = os.stat(_PROC).st_dev
        _enter(first)
        _mount(None, b"/", _MS_REC_PRIVATE)
        _look_again(mounts, tuple(expected), hosts_proc)
        os.close(mounts)
    except (FileNotFoundError, ProcessLookupError) as exc:
        raise Gone from exc
    except OSError as exc:
        if _ends(state):
            raise Gone from exc
        raise Refused(f"the sandbox could not be checked: {exc.strerror}") from exc


def _ends(state: int) -> bool:
    """True if the process has ended, or ends now: it has lost its namespaces a moment before."""
    deadline = time.monotonic() + _ENDING_SECONDS
    while not _has_ended(state):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_ENDING_SECONDS / 40)
    return True


def _has_ended(state: int) -> bool:
    """True if the process with the open /proc/PID/stat *state* has ended."""
    try:
        text = os.pread(state, 4096, 0)
    except OSError:
        return True
    return text[text.rindex(b")") + 2 :][:1] in b"ZX"


def _first_process(info: int, deadline: float) -> int:
    while (left := deadline - time.monotonic()) > 0:
        select.select([info], [], [], left)
        text = peek(info)
        if (first := first_process(text)) is not None:
            return first
        if not text:
            break
        time.sleep(_SHORT_WAIT)
    raise Gone


def peek(info: int) -> bytes:
    """The text on *info*, which others read as well; it stays there. BlockingIOError if none."""
    with socket.socket(fileno=os.dup(info)) as sock:
        return sock.recv(4096, socket.MSG_PEEK | socket.MSG_DONTWAIT)


def first_process(text: bytes) -> int | None:
    """The pid of the namespace's first process, from what bubblewrap has said so far."""
    # bubblewrap writes {"child-pid": 123, ...}, in pieces, before that process continues.
    number = text.partition(b'"child-pid":')[2].lstrip()
    rest = number.lstrip(b"0123456789")
    return int(number[: -len(rest)]) if rest and rest != number else None


def _wait_until_blocked(pid: int, waiting: int, deadline: float) -> None:
    """Wait until *pid* is in a system call about descriptor *waiting*: all mounts are made."""
    began = time.monotonic()
    wanted = b"0x%x" % waiting
    # One read is enough for each look: the kernel writes the text anew for every read of it.
    state = os.open(b"/proc/%d/syscall" % pid, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while True:
            words = os.pread(state, 4096, 0).split()
            if len(words) > 1 and words[1] == wanted:
                return
            now = time.monotonic()
            if now > deadline:
                raise Refused("the sandbox was not ready in time")
            time.sleep(_SHORT_WAIT if now - began < _PATIENT_SECONDS else _LONG_WAIT)
    finally:
        os.close(state)


def _enter(pid: int) -> None:
    """Join the mount namespace of *pid*, and the user namespace that owns it."""
    mounts = os.open(b"/proc/%d/ns/mnt" % pid, os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(mounts, _NS_GET_USERNS)
    _check(_libc.setns(owner, _CLONE_NEWUSER))
    _check(_libc.setns(mounts, _CLONE_NEWNS))


def _look_again(fd: int, expected: tuple[Expected, ...], hosts_proc: int) -> None:
    """Seal the sandbox, and compare what the mountinfo *fd* says; again if it is not as planned.

    The first look may come too early, while bubblewrap is still at work on a loaded machine. What
    is mounted in place of what was planned stays, so that it is refused by the last look as well.
    """
    is_sealed = False
    for left in range(_LOOKS - 1, -1, -1):
        try:
            if not is_sealed:
                _seal(expected, hosts_proc)
                is_sealed = True
            compare(_mounts(fd), expected)
            return
        except Refused:
            if not left:
                raise
            time.sleep(_PAUSE)


def _seal(expected: tuple[Expected, ...], hosts_proc: int) -> None:
    """Make read-only what affects the machine, and the directories that are made for the sandbox.

    bubblewrap could do it, but it reads the whole list of mounts after each change. Its /proc is
    its last mount, so that nothing is sealed before it is finished.
    """
    if not os.path.ismount(_PROC) or os.stat(_PROC).st_dev == hosts_proc:
        raise Refused("the sandbox has no /proc of its own")
    for name in MACHINE_FILES:
        path = b"/proc/" + name.encode()
        if os.path.exists(path):
            _mount(path, path, _MS_BIND)
            _mount(None, path, _MS_SEAL)
    for path, kind, _, inode in expected:
        if kind == EMPTY and not inode:
            # What cannot be sealed is refused by the comparison.
            with contextlib.suppress(OSError):
                _mount(None, path, _MS_SEAL)


def _mount(source: bytes | None, path: bytes, flags: int) -> None:
    _check(_libc.mount(source, path, None, ctypes.c_ulong(flags), None))


def _mounts(fd: int) -> dict[int, Mount]:
    os.lseek(fd, 0, os.SEEK_SET)
    with open(fd, "rb", closefd=False) as file:
        found = [Mount(line) for line in lines_of(file.read())]
    return {mount.number: mount for mount in found}


def compare(mounts: dict[int, Mount], expected: Iterable[Expected]) -> None:
    """Raise Refused unless each path is mounted as expected, and nothing else is writable."""
    known: dict[int, str] = {}
    by_path: dict[bytes, str] = {}
    for path, kind, device, inode in expected:
        mount = mounts.get(_mount_at(path, device, inode))
        if mount is None or mount.path != path or mount.is_writable != (kind == WRITABLE):
            raise _replaced(path)
        if not inode and mount.type != b"tmpfs":
            raise _replaced(path)
        known[mount.number] = by_path[path] = kind
    for mount in mounts.values():
        # If another mount than the expected one is at the same path, then it is covered.
        if mount.is_writable and mount.number not in known and mount.path not in by_path:
            if _kind_above(mount.path, by_path) != WRITABLE and _can_be_reached(mount.path):
                raise _replaced(mount.path)


def _mount_at(path: bytes, device: int, inode: int) -> int:
    """The number of the mount at *path*; Refused if the file is not the one that was planned."""
    try:
        fd = open_exactly(path)
    except OSError as exc:
        if exc.errno in (errno.ENOSYS, errno.EPERM):
            raise Refused("the kernel or a container's filter refuses openat2") from exc
        raise _replaced(path) from exc
    try:
        found = ctypes.create_string_buffer(_STATX_BYTES)
        _check(_libc.statx(fd, b"", _AT_EMPTY_PATH, 0x7FF | _STATX_MOUNT_ID, found))
        if not struct.unpack_from("I", found, 0)[0] & _STATX_MOUNT_ID:
            raise Refused("the kernel does not tell mounts apart; Linux 5.8 is needed")
        is_same = struct.unpack_from("Q", found, _AT_INODE)[0] == inode
        device_found = os.makedev(*struct.unpack_from("II", found, _AT_DEVICE))
        if inode and not (is_same and device_found == device):
            raise _replaced(path)
        number: int = struct.unpack_from("Q", found, _AT_MOUNT)[0]
        return number
    finally:
        os.close(fd)


def _kind_above(path: bytes, kinds: dict[bytes, str]) -> str | None:
    while path != b"/":
        if path in kinds:
            return kinds[path]
        path = path.rpartition(b"/")[0] or b"/"
    return kinds.get(path)


def _can_be_reached(path: bytes) -> bool:
    """True for a place of the host that the command may enter; bubblewrap leaves others alone."""
    if any(path == fresh or path.startswith(fresh + b"/") for fresh in _FRESH):
        return False
    try:
        os.lstat(path)
    except (PermissionError, FileNotFoundError, NotADirectoryError):
        return False
    return True


def _replaced(path: bytes) -> Refused:
    shown = path.decode("utf-8", "replace")
    return Refused(f"{shown} was replaced while the sandbox was being prepared")


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
