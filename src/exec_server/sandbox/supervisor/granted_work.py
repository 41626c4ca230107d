"""Do, outside of the sandbox, what a client has granted to the program inside.

It opens, makes, changes, removes or renames files, and connects sockets.

The paths were read from a program that may have replaced a part of them by a link meanwhile. So no
link is followed.

The keeper loads this file by its path, so it imports the standard library only.
"""

from __future__ import annotations

import _thread
import ctypes
import errno
import fcntl
import os
import socket
import stat

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The system calls have these numbers on every architecture.
_PIDFD_GETFD = 438
_OPENAT2 = 437
_NO_MAGIC_LINKS_NO_LINKS = 0x02 | 0x04
_HERE = -100
# So many sockets are connected at once.
_MAX_CONNECTING = 64
# Operations on the file itself, and not on its name.
_OF_FILES = frozenset(("chmod", "truncate", "utime"))
# The flags of the caller that count here.
_TAKEN = (
    os.O_ACCMODE
    | os.O_CREAT
    | os.O_EXCL
    | os.O_TRUNC
    | os.O_APPEND
    | os.O_DIRECTORY
    | os.O_SYNC
    | os.O_NONBLOCK
)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _HowToOpen(ctypes.Structure):
    """`struct open_how`."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class Worker:
    """Does granted calls and has them return the result; *status_of* tells about a process."""

    def __init__(self, listener: Any, status_of: Callable[[int], tuple[int, int]]) -> None:
        self._listener = listener
        self._status_of = status_of
        # The calls for which a thread connects a socket.
        self._connecting: set[int] = set()

    def do(self, call: Any, attempts: list[Any]) -> None:
        """Do what *attempts*, those of *call*, are about."""
        first = attempts[0]
        process, umask = self._status_of(call.pid)
        if first.operation == "connect":
            self._connect_beside(call, process, first)
            return
        try:
            if first.flags is not None:
                self._give(call, first, umask)
            else:
                changed(attempts, umask=umask)
                self._listener.succeed(call)
        except OSError as exc:
            self._listener.refuse(call, exc.errno or errno.EACCES)

    def _give(self, call: Any, attempt: Any, umask: int) -> None:
        fd = opened(attempt.path, attempt.flags, attempt.extra, umask=umask)
        try:
            self._listener.give(call, fd, closes_on_exec=bool(attempt.flags & os.O_CLOEXEC))
        finally:
            os.close(fd)

    def _connect_beside(self, call: Any, process: int, attempt: Any) -> None:
        """Connect in a thread: that may wait, as the call itself would."""
        if len(self._connecting) >= _MAX_CONNECTING:
            self._listener.refuse(call, errno.EAGAIN)
            return
        self._connecting.add(call.id)
        _thread.start_new_thread(self._connect, (call, process, attempt))

    def _connect(self, call: Any, process: int, attempt: Any) -> None:
        number = errno.EPERM
        try:
            with socket.socket(fileno=_taken(process, attempt.fd)) as sock:
                # The number of a process that has ended may belong to another one.
                if self._listener.is_waiting(call):
                    _connect(sock, attempt.path)
                    number = 0
        except OSError as exc:
            number = exc.errno or number
        finally:
            self._connecting.discard(call.id)
            self._listener.answer(call, number)


def opened(path: bytes, flags: int, mode: int, *, umask: int) -> int:
    """Open *path*, a file or directory; OSError if it is something else, or crosses a link."""
    above, _, name = path.rpartition(b"/")
    folder = _directory(above or b"/")
    try:
        wanted = flags & _TAKEN
        # A FIFO in its place must not make this process wait.
        safe = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        before = os.umask(umask)
        try:
            fd = os.open(name or b".", wanted | safe, mode & 0o7777, dir_fd=folder)
        finally:
            os.umask(before)
    finally:
        os.close(folder)
    kind = os.fstat(fd).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        os.close(fd)
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    if not wanted & os.O_NONBLOCK:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    return fd


def changed(attempts: list[Any], *, umask: int) -> None:
    """Do what *attempts*, those of one call, are about; OSError as the system says."""
    first = attempts[0]
    operation = first.operation
    if operation in _OF_FILES:
        _change_file(first)
        return
    paths = [attempt.path for attempt in attempts]
    if operation == "link":
        paths.insert(0, first.source)
    folders: list[int] = []
    try:
        folders.extend(_directory(path.rpartition(b"/")[0] or b"/") for path in paths)
        names = [path.rpartition(b"/")[2] for path in paths]
        if operation == "mkdir":
            before = os.umask(umask)
            try:
                os.mkdir(names[0], first.extra & 0o7777, dir_fd=folders[0])
            finally:
                os.umask(before)
        elif operation == "symlink":
            os.symlink(first.detail, names[0], dir_fd=folders[0])
        elif operation == "link":
            source, target = folders
            os.link(*names, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
        elif operation == "unlink":
            os.unlink(names[0], dir_fd=folders[0])
        elif operation == "rmdir":
            os.rmdir(names[0], dir_fd=folders[0])
        else:
            os.rename(*names, src_dir_fd=folders[0], dst_dir_fd=folders[1])
    finally:
        for folder in folders:
            os.close(folder)


def _change_file(attempt: Any) -> None:
    """Change the length, the mode or the times of a file, which stays where it is."""
    if attempt.operation == "truncate":
        fd = opened(attempt.path, os.O_WRONLY, 0, umask=0)
    else:
        fd = _found(attempt.path)
    try:
        if attempt.operation == "truncate":
            os.ftruncate(fd, attempt.extra)
            return
        kind = os.fstat(fd).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        # What is only found has no other name for these calls.
        name = b"/proc/self/fd/%d" % fd
        if attempt.operation == "chmod":
            os.chmod(name, attempt.extra & 0o1777)
        elif _libc.utimensat(_HERE, name, attempt.detail, 0):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(fd)


def _connect(sock: socket.socket, path: bytes) -> None:
    """Connect a program's *sock*; OSError as the system says.

    A datagram socket is not connected: it could send to every other socket of the machine, too.
    """
    kinds = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    if sock.family != socket.AF_UNIX or sock.type not in kinds:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    found = _found(path)
    try:
        if not stat.S_ISSOCK(os.fstat(found).st_mode):
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        sock.connect(b"/proc/self/fd/%d" % found)
    finally:
        os.close(found)


def _taken(pid: int, fd: int) -> int:
    """A descriptor of what *fd* of the process *pid* is open for."""
    process = os.pidfd_open(pid)
    try:
        return _checked(_libc.syscall(_PIDFD_GETFD, process, fd, 0))
    finally:
        os.close(process)


def _found(path: bytes) -> int:
    """A descriptor that names the file at *path*, and is open for nothing."""
    return _opened_without_links(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)


def _directory(path: bytes) -> int:
    return _opened_without_links(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _opened_without_links(path: bytes, flags: int) -> int:
    how = _HowToOpen(flags, 0, _NO_MAGIC_LINKS_NO_LINKS)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    return _checked(_libc.syscall(_OPENAT2, ctypes.c_int(_HERE), path, ctypes.byref(how), size))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
