"""The system call filters, compiled by libseccomp.

Every filter lets through what it does not name. A refused call fails with EPERM; a call of another
architecture, x32 included, ends the process.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import functools
import os
import socket
import termios
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from exec_server.sandbox.model import Unenforceable

# The sockets that may be made: only between related processes; only to a proxy on the loopback; all
# except those to the hypervisor.
Sockets = Literal["related", "proxied", "no-vsock"]
# The other means that stand beside the filter; they decide what it has to refuse itself.
Company = Literal["nothing", "namespaces", "landlock"]


class Kind(NamedTuple):
    """The kind of a filter; equal kinds are the same program."""

    sockets: Sockets
    company: Company


class Comparison(ctypes.Structure):
    """`struct scmp_arg_cmp`."""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


class SyscallRule(NamedTuple):
    """Refuse *syscall* with *error* when all of *conditions* hold."""

    syscall: str
    conditions: tuple[Comparison, ...] = ()
    error: int = errno.EPERM


ALLOW = 0x7FFF0000
# A supervisor is told of the call, and answers it.
NOTIFY = 0x7FC00000
_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
_ATTRIBUTE_BAD_ARCH, _ATTRIBUTE_OPTIMIZE = 2, 8
# The kernel tries each call once when a filter is loaded; with a tree that takes half as long.
_AS_A_TREE = 2
_NOT_EQUAL, _LESS, _GREATER, _MASKED_EQUAL = 1, 2, 6, 7
# The kernel looks at only half of these registers, and so must we.
_INT = 0xFFFFFFFF
_UNKNOWN_SYSCALL = -1

# The numbers of calls that libseccomp of 2022 does not know; from 424 on all architectures agree.
_NUMBERS = {
    "fchmodat2": 452,
    "setxattrat": 463,
    "removexattrat": 466,
    "open_tree_attr": 467,
    "file_setattr": 469,
}

_TYPE_MASK = 0xF
_AF_VSOCK = 40
_TIOCLINUX = 0x541C

_NETWORK_CALLS = (
    "connect accept accept4 bind listen getsockname getpeername getsockopt setsockopt shutdown "
    "sendto sendmmsg recvmmsg"
).split()
_INSPECTION_CALLS = "ptrace process_vm_readv process_vm_writev".split()
_RING_CALLS = "io_uring_setup io_uring_enter io_uring_register".split()
# These calls are useless without capabilities, but a large surface for attacks; keyrings are shared
# by all processes of a user.
_KERNEL_CALLS = (
    "add_key request_key keyctl bpf perf_event_open userfaultfd kexec_load kexec_file_load "
    "init_module finit_module delete_module open_by_handle_at acct quotactl quotactl_fd reboot "
    "swapon swapoff settimeofday clock_settime iopl ioperm syslog vhangup"
).split()
# Landlock protects contents and names, but not the metadata of files.
_METADATA_CALLS = (
    "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat "
    "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat "
    "file_setattr"
).split()
# These calls reach other processes of the same user; no namespace hides those.
_SHARED_CALLS = (
    "shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl "
    "mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr"
).split()
_MOUNT_CALLS = (
    "mount umount umount2 pivot_root chroot setns unshare move_mount open_tree open_tree_attr "
    "fsopen fsconfig fsmount fspick mount_setattr"
).split()
# The first argument of each call is a process, where 0 is the caller.
_SCHEDULING_CALLS = (
    "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr"
).split()
# The commands of fcntl that take a lease or a delegation (Linux 6.19): other programs that open the
# file then wait for the holder.
_F_SETLEASE, _F_SETDELEG = 1024, 1040
# The limit whose value tells to which start a process belongs, see process/keeper.py.
_RLIMIT_RTTIME = 15
_NEW_MOUNTS = 1 << 17
# The flags CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET.
_NEW_NAMESPACES = (_NEW_MOUNTS, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30)
# The letters of the ioctls that change a file's flags, version, encryption or verity: 'f', 'X', 'v'
# and those of F2FS. They require the owner, but no file that was opened for writing.
_FLAG_IOCTLS = (0x6600, 0x5800, 0x7600, 0xF500)
_IOCTL_LETTER = 0xFF00

# The flags of clone3 are in memory, where a filter cannot see them; without it libc uses clone.
_NO_CLONE3 = SyscallRule("clone3", error=errno.ENOSYS)


@functools.cache
def program(kind: Kind) -> bytes:
    """The filter for the kernel. Raises Unenforceable if libseccomp is missing or refuses."""
    return compiled(rules(kind))


def compiled(
    refused: Iterable[SyscallRule], *, action: int | None = None, foreign: int = _KILL_PROCESS
) -> bytes:
    """A filter of *refused*, each with its own error or with *action*.

    *foreign* is what becomes of calls of other architectures. Raises Unenforceable as `program`.
    """
    library = load()
    context = library.seccomp_init(ALLOW)
    if not context:
        raise Unenforceable("libseccomp could not make a filter")
    try:
        _check(library.seccomp_attr_set(context, _ATTRIBUTE_BAD_ARCH, foreign))
        # Older libraries only know the list, which has the same effect.
        library.seccomp_attr_set(context, _ATTRIBUTE_OPTIMIZE, _AS_A_TREE)
        for rule in refused:
            _add(library, context, rule, action)
        return _export(library, context)
    finally:
        library.seccomp_release(context)


@functools.cache
def load() -> ctypes.CDLL:
    """Load libseccomp; Unenforceable if there is none."""
    for name in ("libseccomp.so.2", ctypes.util.find_library("seccomp")):
        if name:
            try:
                library = ctypes.CDLL(name, use_errno=True)
            except OSError:
                continue
            library.seccomp_init.restype = ctypes.c_void_p
            for function in ("attr_set", "rule_add_array", "export_bpf", "release"):
                getattr(library, f"seccomp_{function}").argtypes = _ARGUMENTS[function]
            return library
    raise Unenforceable("libseccomp is not installed, so no system call could be refused")


_ARGUMENTS = {
    "attr_set": (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32),
    "rule_add_array": (
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(Comparison),
    ),
    "export_bpf": (ctypes.c_void_p, ctypes.c_int),
    "release": (ctypes.c_void_p,),
}


def number_of(syscall: str) -> int | None:
    """The number of *syscall* here; None if this architecture never had it."""
    number: int = load().seccomp_syscall_resolve_name(syscall.encode())
    if number == _UNKNOWN_SYSCALL:
        return _NUMBERS.get(syscall)
    # libseccomp has negative numbers for the calls of other architectures.
    return number if number >= 0 else None


def _add(library: ctypes.CDLL, context: int, rule: SyscallRule, action: int | None) -> None:
    number = library.seccomp_syscall_resolve_name(rule.syscall.encode())
    if number == _UNKNOWN_SYSCALL:
        if rule.syscall not in _NUMBERS:
            # This architecture never had the call.
            return
        number = _NUMBERS[rule.syscall]
    conditions = (Comparison * len(rule.conditions))(*rule.conditions)
    _check(
        library.seccomp_rule_add_array(
            context, action or _ERRNO | rule.error, number, len(conditions), conditions
        )
    )


def _export(library: ctypes.CDLL, context: int) -> bytes:
    with open(os.memfd_create("filter", os.MFD_CLOEXEC), "w+b") as file:
        _check(library.seccomp_export_bpf(context, file.fileno()))
        file.seek(0)
        return file.read()


def _check(result: int) -> None:
    if result < 0:
        raise Unenforceable(f"libseccomp could not make a filter: {os.strerror(-result)}")


# The rules of each filter.


def rules(kind: Kind) -> Iterator[SyscallRule]:
    """Everything that a filter of *kind* refuses."""
    yield from _SOCKET_RULES[kind.sockets]()
    yield from map(SyscallRule, _RING_CALLS)
    # These requests type into the terminal, as if the user had.
    for request in (termios.TIOCSTI, _TIOCLINUX):
        yield SyscallRule("ioctl", (_masked(1, _INT, request),))
    # A lease on a file that may only be read would delay its writers outside.
    for command in (_F_SETLEASE, _F_SETDELEG):
        yield SyscallRule("fcntl", (_masked(1, _INT, command),))
    yield SyscallRule("setrlimit", (_masked(0, _INT, _RLIMIT_RTTIME),))
    yield SyscallRule("prlimit64", (_masked(1, _INT, _RLIMIT_RTTIME), _differs(2, 0)))
    if kind.company != "nothing":
        yield from map(SyscallRule, _KERNEL_CALLS)
    if kind.company == "namespaces":
        yield from _beside_namespaces()
    elif kind.company == "landlock":
        yield from _beside_landlock()


def _related_sockets() -> Iterator[SyscallRule]:
    for syscall in ("socket", "socketpair"):
        yield SyscallRule(syscall, (_differs(0, socket.AF_UNIX),))
        # An unconnected datagram socket reaches any socket of the host with sendmsg; SOCK_RAW is
        # the same.
        for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
            yield SyscallRule(syscall, (_masked(1, _TYPE_MASK, kind),))
    yield from map(SyscallRule, (*_NETWORK_CALLS, *_INSPECTION_CALLS))


def _proxied_sockets() -> Iterator[SyscallRule]:
    # One rule may look at each argument only once.
    yield SyscallRule("socket", (Comparison(0, _LESS, socket.AF_INET, 0),))
    yield SyscallRule("socket", (Comparison(0, _GREATER, socket.AF_INET6, 0),))
    for family in range(socket.AF_INET + 1, socket.AF_INET6):
        yield SyscallRule("socket", (_masked(0, _INT, family),))
    yield SyscallRule("socketpair", (_differs(0, socket.AF_UNIX),))
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        yield SyscallRule("socketpair", (_masked(1, _TYPE_MASK, kind),))
    yield from map(SyscallRule, _INSPECTION_CALLS)


def _no_vsock() -> Iterator[SyscallRule]:
    for syscall in ("socket", "socketpair"):
        yield SyscallRule(syscall, (_masked(0, _INT, _AF_VSOCK),))


_SOCKET_RULES = {
    "related": _related_sockets,
    "proxied": _proxied_sockets,
    "no-vsock": _no_vsock,
}


def _beside_landlock() -> Iterator[SyscallRule]:
    yield from map(SyscallRule, (*_METADATA_CALLS, *_SHARED_CALLS, *_MOUNT_CALLS))
    for syscall in _SCHEDULING_CALLS:
        yield SyscallRule(syscall, (_differs(0, 0),))
    for syscall in ("setpriority", "ioprio_set"):
        # A group or a user includes other processes, too. "process" is 0 in one call and 1 in the
        # other.
        yield SyscallRule(syscall, (_differs(0, syscall == "ioprio_set"),))
        yield SyscallRule(syscall, (_differs(1, 0),))
    for letter in _FLAG_IOCTLS:
        yield SyscallRule("ioctl", (_masked(1, _IOCTL_LETTER, letter),))
    for flag in _NEW_NAMESPACES:
        yield SyscallRule("clone", (_masked(0, flag, flag),))
    yield _NO_CLONE3


def _beside_namespaces() -> Iterator[SyscallRule]:
    # A mount point cannot be renamed by processes that see the mount. In a mount namespace without
    # it, a command could rename what the mount protects.
    for syscall in ("unshare", "clone"):
        yield SyscallRule(syscall, (_masked(0, _NEW_MOUNTS, _NEW_MOUNTS),))
    yield _NO_CLONE3


def _differs(argument: int, value: int) -> Comparison:
    return Comparison(argument, _NOT_EQUAL, value, 0)


def _masked(argument: int, mask: int, value: int) -> Comparison:
    return Comparison(argument, _MASKED_EQUAL, mask, value)
