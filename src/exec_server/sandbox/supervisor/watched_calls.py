"""The filter of a supervised command: which system calls its supervisor hears of."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Iterator
from typing import NamedTuple

from exec_server.sandbox import seccomp
from exec_server.sandbox.seccomp import Comparison, Kind, SyscallRule
from exec_server.sandbox.supervisor.attempts import PATH_CALLS

# The architectures as the kernel tells them with each call.
_ARCHITECTURES = {
    "x86_64": 0xC000003E,
    "aarch64": 0xC00000B7,
    "riscv64": 0xC00000F3,
    "loongarch64": 0xC0000102,
    "s390x": 0x80000016,
}
_NOT_EQUAL, _MASKED_EQUAL = 1, 7
# Questions about a socket that the program has, which reach nothing.
_QUESTIONS = frozenset("getsockname getpeername getsockopt setsockopt shutdown recvmmsg".split())
# In bubblewrap these fail without a filter, because a command has no capabilities. Here they are
# refused, so that they are recorded.
_MOUNT_CALLS = ("umount2", "pivot_root", "move_mount", "fsopen", "mount_setattr")
# Where `mount` has the type of the file system, its flags and its options.
_MOUNT_TYPE, _MOUNT_FLAGS, _MOUNT_OPTIONS = 2, 3, 4
_MS_SILENT = 1 << 15
# The argument with the flags of each call that opens; those of openat2 are in memory.
_FLAGS = {"open": 1, "openat": 2}
_WRITE_FLAGS = (
    (os.O_ACCMODE, os.O_WRONLY),
    (os.O_ACCMODE, os.O_RDWR),
    (os.O_ACCMODE, os.O_ACCMODE),
    (os.O_CREAT, os.O_CREAT),
    (os.O_TRUNC, os.O_TRUNC),
)
# An open without access to the content is no attempt to read.
_READ_FLAGS = ((os.O_PATH, 0),)
# The argument with the path of each call that without one is about a file that is open already.
_NAMED = {"utimensat": 1}
# After them a path means something else to the process.
_NEW_ROOTS = ("chroot",)


class WatchedCalls(NamedTuple):
    """A filter that notifies, the filter beside it, and what the supervisor has to know of both."""

    # Notifies of calls.
    filter: bytes
    # Refuses without a notice what is no attempt at anything, such as getsockname.
    silent_filter: bytes
    # The names of all notified calls by their numbers, and which of them are refused.
    names: dict[int, str]
    refused: tuple[str, ...]
    architecture: int


@functools.cache
def watched_calls(kind: Kind, *, writes: bool = True, reads: bool = False) -> WatchedCalls:
    """The filters in place of the one of *kind*.

    With *writes* opens with the intent to write and changes of names are notified, with *reads*
    every open.

    Raises Unenforceable if libseccomp is missing or refuses.
    """
    rules = tuple(seccomp.rules(kind))
    if kind.company == "namespaces":
        rules += (*map(SyscallRule, _MOUNT_CALLS), *_mounts_of_commands())
    refusing = [rule for rule in rules if _is_notified(rule)]
    refused = {rule.syscall for rule in refusing}
    looked_at = _looking(reads=reads) if writes else ()
    looking = [rule for rule in looked_at if rule.syscall not in refused]
    numbers = {name: seccomp.number_of(name) for name in {*refused, *PATH_CALLS, *_NEW_ROOTS}}
    return WatchedCalls(
        seccomp.compiled((*refusing, *looking), action=seccomp.NOTIFY, foreign=seccomp.NOTIFY),
        seccomp.compiled(
            [rule for rule in rules if not _is_notified(rule)],
            foreign=seccomp.ALLOW,
        ),
        {number: name for name, number in numbers.items() if number is not None},
        tuple(sorted(refused)),
        _ARCHITECTURES[os.uname().machine],
    )


def _is_notified(rule: SyscallRule) -> bool:
    return rule.error == errno.EPERM and rule.syscall not in _QUESTIONS


def _mounts_of_commands() -> Iterator[SyscallRule]:
    """Every `mount` but those of bubblewrap: binds and remounts with the flag MS_SILENT.

    It makes about eighty of them while it builds a sandbox, before there is a command, and to hear
    of each took a third of a supervised start. The same call of a command fails without a record.
    """
    yield SyscallRule("mount", (Comparison(_MOUNT_FLAGS, _MASKED_EQUAL, _MS_SILENT, 0),))
    for argument in (_MOUNT_TYPE, _MOUNT_OPTIONS):
        yield SyscallRule("mount", (Comparison(argument, _NOT_EQUAL, 0, 0),))


def _looking(*, reads: bool) -> Iterator[SyscallRule]:
    yield from map(SyscallRule, _NEW_ROOTS)
    for name in PATH_CALLS:
        if name in _FLAGS:
            for mask, value in _READ_FLAGS if reads else _WRITE_FLAGS:
                yield SyscallRule(name, (Comparison(_FLAGS[name], _MASKED_EQUAL, mask, value),))
        elif name in _NAMED:
            yield SyscallRule(name, (Comparison(_NAMED[name], _NOT_EQUAL, 0, 0),))
        else:
            yield SyscallRule(name)


def is_known_machine() -> bool:
    """True if the calls of this machine's architecture are known."""
    return os.uname().machine in _ARCHITECTURES
