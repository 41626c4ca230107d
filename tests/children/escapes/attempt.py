"""The parts of which attempts are made."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, NamedTuple


class Stage(NamedTuple):
    """What was prepared for the attempts, and is watched from outside."""

    # The workspace, which may be written if the policy says so; `hard` in it is a hard link of a
    # file outside.
    workspace: str
    # The place outside, which may not be written: file, dir/file, fifo, and sockets by kind;
    # `setuid` is a program of another user.
    outside: str
    # A process of the same user, outside; the server; the keeper of the server's children.
    victim: int
    server: int
    keeper: int
    # Listeners on the loopback, and in the abstract name space.
    tcp: int
    udp: int
    abstract: str
    # Shared memory, a message queue and a file in /dev/shm, outside.
    shm_key: int
    mq: str
    dev_shm: str
    # The terminal of another program, into which its user is about to type.
    terminal: str
    # A text that only the server's environment contains.
    secret: str


class NoGain(Exception):
    """Nothing was refused, but nothing was gained either."""


Attempt = Callable[[Stage], Any]
ATTEMPTS: dict[str, Attempt] = {}
# Attempts that work without a sandbox and without privileges, which proves that they are made
# correctly.
PLAIN: set[str] = set()


def attempt(function: Attempt) -> Attempt:
    """Register *function* as an attempt; it raises OSError or NoGain when it was prevented."""
    name = function.__name__.replace("_", "-")
    assert name not in ATTEMPTS, name
    ATTEMPTS[name] = function
    return function


def plain(function: Attempt) -> Attempt:
    """Like `attempt`, for what an ordinary user can do outside of a sandbox."""
    attempt(function)
    PLAIN.add(function.__name__.replace("_", "-"))
    return function


def sentence(name: str) -> str:
    """What an attempt does, in a few words."""
    return (ATTEMPTS[name].__doc__ or "").strip()


def group(name: str) -> str:
    """The module of an attempt."""
    return ATTEMPTS[name].__module__.rpartition(".")[2]


libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

# The numbers are those of x86-64; from 424 on all architectures agree.
NUMBERS = dict(
    shmget=29, shmat=30, ptrace=101, syslog=103, setgroups=116, capset=126, utime=132,
    pivot_root=155, adjtimex=159, acct=163, settimeofday=164, mount=165, umount2=166, swapon=167,
    reboot=169, sethostname=170, setdomainname=171, iopl=172, ioperm=173, init_module=175,
    delete_module=176, quotactl=179, tkill=200, sched_setaffinity=203, clock_settime=227,
    tgkill=234, mq_open=240, kexec_load=246, add_key=248, request_key=249, keyctl=250,
    ioprio_set=251, migrate_pages=256, unshare=272, move_pages=279, perf_event_open=298,
    fanotify_init=300, prlimit64=302, name_to_handle_at=303, open_by_handle_at=304,
    clock_adjtime=305, setns=308, process_vm_readv=310, process_vm_writev=311, kcmp=312,
    finit_module=313, kexec_file_load=320, bpf=321, userfaultfd=323, semget=64, msgget=68,
    sched_setscheduler=144, rt_sigqueueinfo=129, socket=41, sendmmsg=307, ioctl=16, clone=56,
    io_uring_setup=425, io_uring_enter=426, io_uring_register=427, open_tree=428, move_mount=429,
    fsopen=430, fspick=433, pidfd_open=434, clone3=435, pidfd_getfd=438, pidfd_send_signal=424,
    process_madvise=440, mount_setattr=442, quotactl_fd=443, fchmodat2=452, setxattrat=463,
    renameat2=316, linkat=265, swapoff=168, vhangup=153, listmount=458,
)  # fmt: skip


def call(name: str, *arguments: Any) -> int:
    """Make a system call; OSError when it fails."""
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result: int = libc.syscall(ctypes.c_long(NUMBERS[name]), *words)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def change(path: str) -> None:
    """Append to a file that was made for this."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"escaped")
    os.close(fd)


def openable(path: str, flags: int = os.O_WRONLY) -> None:
    """Open it and do nothing with it."""
    os.close(os.open(path, flags | os.O_NONBLOCK))
