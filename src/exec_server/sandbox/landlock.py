"""A Plan as a Landlock ruleset, where Landlock can express it.

Rules can only add rights below a path. So a plan is refused here if it takes rights away from a
part of what it gives, or if it hides names: Landlock closes files, it does not hide them. Signals
and abstract sockets are limited to the command and what it starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import stat
from collections.abc import Iterator

from exec_server.sandbox.guard import open_exactly
from exec_server.sandbox.in_keeper import PathBeneath
from exec_server.sandbox.model import Hide, Plan, Show, Unenforceable
from exec_server.sandbox.placeholders import default_folder

# From this version on signals and abstract sockets can be scoped; without that, a command could
# kill our processes.
LEAST_ABI = 6

_CREATE_RULESET, _ADD_RULE = 444, 445
_CREATE_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_MAKE_CHARACTER, _MAKE_BLOCK = 1 << 6, 1 << 11
_ALL = (1 << 16) - 1
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _ALL & ~(_IOCTL_DEVICE | _MAKE_CHARACTER | _MAKE_BLOCK)
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_BIND_TCP_CONNECT_TCP = 3
_SCOPE_ABSTRACT_SOCKETS_SIGNALS = 3

# Every program may write to these devices, although no policy names them.
_DEVICES = (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom")
_TERMINAL = b"/dev/tty"
_DEVICE_FOLDER = b"dev"
# What a command may write to under every ruleset.
ALWAYS_WRITABLE = (*_DEVICES, _TERMINAL)
# Each file in a directory with a secret needs a rule of its own.
_MAX_BESIDE_A_SECRET = 10_000


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


@functools.cache
def abi() -> int:
    """The version that this kernel offers; OSError when it offers none."""
    return _syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_VERSION))


def check(plan: Plan) -> None:
    """Raise Unenforceable, with the reason, if no ruleset says exactly what *plan* does."""
    if not plan.shows_host:
        raise Unenforceable("Landlock cannot hide the names of files that may not be read")
    writable = [step.path for step in plan.steps if isinstance(step, Show) and step.is_writable]
    if any(_is_below(default_folder(), path) for path in writable):
        raise Unenforceable("Landlock cannot protect this server's own files in a writable place")
    for secret in plan.own_secrets:
        if any(_is_below(secret, path) for path in writable):
            raise Unenforceable("Landlock cannot hide this server's own files in a writable place")
    if plan.left_closed:
        # The directories above it could be renamed.
        name = os.fsdecode(plan.left_closed[0])
        raise Unenforceable(f"Landlock cannot keep {name} read-only in a writable directory")
    for step in plan.steps:
        if isinstance(step, Hide):
            if step.path in plan.own_secrets:
                # It is left out of what may be read.
                continue
            raise Unenforceable(f"Landlock cannot close {os.fsdecode(step.path)}")
        if not step.is_writable and any(_is_below(step.path, path) for path in writable):
            path = os.fsdecode(step.path)
            raise Unenforceable(f"Landlock cannot keep {path} read-only in a writable directory")


def ruleset(plan: Plan) -> int:
    """A descriptor of the ruleset. Raises Unenforceable as `check`, OSError as the kernel says."""
    check(plan)
    is_offline = plan.policy.network == "restricted"
    attributes = _RulesetAttributes(
        _ALL,
        _BIND_TCP_CONNECT_TCP if is_offline else 0,
        _SCOPE_ABSTRACT_SOCKETS_SIGNALS,
    )
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    fd = _syscall(_CREATE_RULESET, ctypes.byref(attributes), size, ctypes.c_uint32(0))
    try:
        for path, rights in _always().items():
            _allow(fd, os.open(path, os.O_PATH | os.O_CLOEXEC), rights)
        for path in _readable(b"/", plan.own_secrets):
            with contextlib.suppress(FileNotFoundError):
                _allow(fd, os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC), _READ)
        for step in plan.steps:
            if isinstance(step, Show) and step.is_writable:
                _allow(fd, open_judged(step.path), _WRITE)
    except BaseException:
        os.close(fd)
        raise
    return fd


@functools.cache
def _always() -> dict[bytes, int]:
    """What every ruleset allows: paths that exist, each with its rights."""
    paths = {b"/": _READ_DIR, _TERMINAL: _READ_FILE | _WRITE_FILE | _IOCTL_DEVICE}
    paths |= dict.fromkeys(_DEVICES, _READ_FILE | _WRITE_FILE | _TRUNCATE)
    return {path: rights for path, rights in paths.items() if os.path.exists(path)}


def _readable(folder: bytes, secrets: tuple[bytes, ...]) -> Iterator[bytes]:
    """Everything below *folder* that may be read: all except devices, links and *secrets*.

    A command that reads a terminal gets what its user types, and one that reads a disk gets every
    file on it. Rules only add rights, so the directories above a secret are listed one by one.
    """
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count > _MAX_BESIDE_A_SECRET:
                shown = os.fsdecode(folder)
                raise Unenforceable(f"too many files in {shown} to hide one of them with Landlock")
            if entry.path == b"/" + _DEVICE_FOLDER or entry.path in secrets:
                continue
            if entry.is_symlink():
                continue
            inside = tuple(secret for secret in secrets if _is_below(secret, entry.path))
            if inside:
                yield from _readable(entry.path, inside)
            else:
                yield entry.path


def _allow(ruleset: int, path: int, rights: int) -> None:
    """Add a rule for the file that is open as *path*; the descriptor is closed in any case."""
    try:
        if rights & ~_OF_FILES and not stat.S_ISDIR(os.fstat(path).st_mode):
            rights &= _OF_FILES
        rule = PathBeneath(rights, path)
        _syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(path)


def open_judged(path: bytes) -> int:
    """Open *path*, provided that no part of it was replaced by a symbolic link meanwhile."""
    try:
        return open_exactly(path)
    except OSError as exc:
        shown = os.fsdecode(path)
        if exc.errno in (errno.ENOSYS, errno.EPERM):
            raise Unenforceable("the kernel or a container's filter refuses openat2") from exc
        raise Unenforceable(f"{shown} was replaced while the sandbox was being prepared") from exc


def _is_below(path: bytes, folder: bytes) -> bool:
    return path.startswith(folder.rstrip(b"/") + b"/")


def _syscall(*arguments: object) -> int:
    libc = _libc()
    result: int = libc.syscall(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc
