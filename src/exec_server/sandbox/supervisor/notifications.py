"""The kernel's interface for a supervisor: a filter with a listener, notifications, answers.

The keeper loads this file by its path, so it imports the standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import signal
import struct
from operator import itemgetter

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER = 1
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
_INSTRUCTION_BYTES = 8
_NUMBERS = {"x86_64": 317, "aarch64": 277, "riscv64": 277, "loongarch64": 277, "s390x": 348}

_RECEIVE, _SEND, _IS_VALID, _ADD_FD, _SET_FLAGS = (
    0xC0502100,
    0xC0182101,
    0x40082102,
    0x40182103,
    0x40082104,
)
# The kernel wakes the supervisor on the processor of the call, which saves a few microseconds.
_SYNC_WAKE_UP = 1
_CONTINUE = 1
_AND_SEND = 2
# id, pid, flags, number, architecture, instruction, six arguments
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_INJECTED = struct.Struct("=QIIII")
_ID = struct.Struct("=Q")
_ZEROS = bytes(_NOTIFICATION.size)
# The call was given up, or its process was killed.
_GONE = (errno.ENOENT, errno.EINTR, errno.EINPROGRESS)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _FilterProgram(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def end_with(parent: int) -> None:
    """Have the kernel end this process together with its *parent*; OSError if that is gone."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if os.getppid() != parent:
        raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))


def install(filter_: bytes) -> int:
    """Put *filter_* around this thread for ever; the listener that hears of its calls.

    Raises OSError: EBUSY if this process is itself below a supervisor, EINVAL or ENOSYS if the
    kernel has no such listeners.
    """
    number = _NUMBERS.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    program = _FilterProgram(len(filter_) // _INSTRUCTION_BYTES, filter_)
    flags = _NEW_LISTENER | _WAIT_KILLABLE
    try:
        # Without the second flag, a signal (Go programs send many) has a call notified twice.
        return _seccomp(number, flags, program)
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
    return _seccomp(number, _NEW_LISTENER, program)


def _seccomp(number: int, flags: int, program: _FilterProgram) -> int:
    return _checked(
        _libc.syscall(number, _SET_MODE_FILTER, ctypes.c_uint(flags), ctypes.byref(program))
    )


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class Call(tuple[int, ...]):
    """One system call that waits for an answer: the fields of `_NOTIFICATION`.

    A tuple takes a microsecond less than attributes, and there are many calls.
    """

    __slots__ = ()

    id = property(itemgetter(0))
    pid = property(itemgetter(1))
    number = property(itemgetter(3))
    architecture = property(itemgetter(4))


class CallListener:
    """Receives calls and answers them. An answer to a call that is gone is dropped."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        try:
            fcntl.ioctl(fd, _SET_FLAGS, _SYNC_WAKE_UP)
        except OSError:
            # Older kernels have no such flag.
            pass

    def receive(self) -> Call | None:
        """The next call; None if it was given up meanwhile."""
        try:
            data = fcntl.ioctl(self.fd, _RECEIVE, _ZEROS)
        except OSError as exc:
            if exc.errno in _GONE:
                return None
            raise
        return Call(_NOTIFICATION.unpack(data))

    def answer_while(
        self,
        poll: Callable[[], list[tuple[int, int]]],
        is_free: Callable[[tuple[int, ...]], bool],
    ) -> tuple[Call | None, list[tuple[int, int]]]:
        """Have the kernel decide calls as long as *is_free* says so, and as there is nothing else.

        The first other call; or None, and what *poll* tells instead. This has as few steps as can
        be: between two calls other programs take the caches of the processor.
        """
        fd, unpack, pack, ioctl = self.fd, _NOTIFICATION.unpack, _ANSWER.pack, fcntl.ioctl
        only_calls = [(fd, select.POLLIN)]
        while (ready := poll()) == only_calls:
            try:
                call = unpack(ioctl(fd, _RECEIVE, _ZEROS))
                if not is_free(call):
                    return Call(call), []
                ioctl(fd, _SEND, pack(call[0], 0, 0, _CONTINUE))
            except OSError as exc:
                if exc.errno not in _GONE:
                    raise
        return None, ready

    def let_kernel_decide(self, call: Call) -> None:
        """Have the kernel do *call*, within all walls of its process. This allows nothing."""
        self._send(_ANSWER.pack(call.id, 0, 0, _CONTINUE))

    def refuse(self, call: Call, number: int) -> None:
        """Have *call* fail with the error *number*."""
        self.answer(call, number)

    def give(self, call: Call, fd: int, *, closes_on_exec: bool) -> None:
        """Have *call* return a descriptor of what *fd* is open for; OSError if that fails."""
        flags = os.O_CLOEXEC if closes_on_exec else 0
        fcntl.ioctl(self.fd, _ADD_FD, _INJECTED.pack(call.id, _AND_SEND, fd, 0, flags))

    def succeed(self, call: Call) -> None:
        """Have *call* return 0: it was done elsewhere."""
        self.answer(call, 0)

    def answer(self, call: Call, number: int) -> None:
        """Have *call* fail with the error *number*, or return 0."""
        self._send(_ANSWER.pack(call.id, 0, -number, 0))

    def is_waiting(self, call: Call) -> bool:
        """True if *call* still waits, so that what was read of its process belongs to it."""
        try:
            fcntl.ioctl(self.fd, _IS_VALID, _ID.pack(call.id))
        except OSError:
            return False
        return True

    def _send(self, answer: bytes) -> None:
        try:
            fcntl.ioctl(self.fd, _SEND, answer)
        except OSError as exc:
            if exc.errno not in _GONE:
                raise
