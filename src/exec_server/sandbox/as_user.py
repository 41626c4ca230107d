"""Start a program as another Unix user; the keeper, which is root then, loads this by its path.

A child of the keeper becomes the user, enters the directory as that user, confines itself, and then
runs the program. A thread with the user's ids would cost less, but other processes of the user
could send it a signal that kills the whole keeper. Here they can only kill their own start. The
child cannot be traced before it runs the program: changing its user makes it undumpable.

The keeper loads this file by its path, so it imports the standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import marshal
import os
import select
import signal

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

# The user's number, its group, and all its groups.
User = tuple[int, int, list[int]]

_REPORT_BYTES = 4096
# The keeper does nothing else meanwhile.
_PATIENCE_SECONDS = 2.0
# The system call keyctl(2), by machine, and its first operation.
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
_JOIN_SESSION_KEYRING = 1


class NotStarted(OSError):
    """The program could not be started; *part* is "cwd", "program" or "" for neither."""

    def __init__(self, number: int, text: str, part: str) -> None:
        super().__init__(number, text)
        self.part = part


def start(
    user: User,
    cwd: bytes,
    stdio: Any,
    run: Callable[[], object],
    *,
    inherited: tuple[int, ...],
    confine: Callable[[], object] | None,
    signals: Iterable[int],
    limited: Any = None,
) -> int:
    """Fork a child that becomes *user* and calls *run*, which must not return; the child's pid.

    *stdio* is the keeper's `Stdio`. The child has *inherited* as its descriptors from 3 on, and is
    within the limits of *limited*, the keeper's `LimitedStart`. Raises OSError as the child says.
    """
    if stdio.terminal is not None:
        os.fchown(stdio.theirs[0], user[0], -1)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        # It must not have the number of a descriptor that the program gets.
        told = fcntl.fcntl(writer, fcntl.F_DUPFD_CLOEXEC, 3 + len(inherited))
        os.close(writer)
        writer = told
        pid = os.fork()
        if pid == 0:
            _child(told, user, cwd, stdio, run, inherited, confine, signals, limited)
        os.close(writer)
        writer = -1
        said = _read_in_time(reader)
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    if said == b"":
        return pid
    if said is None:
        os.kill(pid, signal.SIGKILL)
        said = marshal.dumps((errno.ETIMEDOUT, "", ""))
    os.waitpid(pid, 0)
    number, text, part = marshal.loads(said)
    if not number:
        raise ValueError(text)
    raise NotStarted(number, text, part)


def _read_in_time(reader: int) -> bytes | None:
    """What the child says; empty if the program runs, None if the child hangs.

    It hangs if a file system of the user does, or if the user stops it.
    """
    if not select.select([reader], [], [], _PATIENCE_SECONDS)[0]:
        return None
    return os.read(reader, _REPORT_BYTES)


def _child(told: int, user: User, cwd: bytes, stdio: Any, run: Any, *rest: Any) -> None:
    """Never returns: the program runs, or the reason why not is written to *told*."""
    part = ""
    try:
        inherited, confine, signals, limited = rest
        _prepare(stdio, inherited, signals)
        _leave_keyring()
        if limited is not None:
            limited.enter_group()
        _take_rights(user)
        part = "cwd"
        os.chdir(cwd)
        part = ""
        _take_terminal(stdio, is_controlling=not inherited)
        _become(user)
        if limited is not None:
            limited.lower_own()
        if confine is not None:
            confine()
        part = "program"
        run()
    except OSError as exc:
        number = exc.errno or 0
        os.write(told, marshal.dumps((number, os.strerror(number), part)))
    except Exception as exc:
        os.write(told, marshal.dumps((0, str(exc)[:1000] or type(exc).__name__, part)))
    finally:
        os._exit(127)


def _prepare(stdio: Any, inherited: tuple[int, ...], signals: Iterable[int]) -> None:
    signal.set_wakeup_fd(-1)
    for signum in signals:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
    stdin, stdout, stderr = stdio.theirs
    if stdio.terminal is None:
        if stdin is None:
            stdin = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
    for number, fd in enumerate(inherited, 3):
        os.dup2(fd, number)


def _take_rights(user: User) -> None:
    """Have the rights of *user*, who cannot send signals to this process yet."""
    uid, gid, groups = user
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.seteuid(uid)


def _become(user: User) -> None:
    uid, gid, _ = user
    os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
        raise OSError("the user could not be changed")


def _leave_keyring() -> None:
    """Take a new session keyring; with the old one, root's keys would be within reach."""
    import ctypes

    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        # A kernel without keys, or a container's filter, refuses it; then there is no keyring.
        ctypes.CDLL(None).syscall(number, _JOIN_SESSION_KEYRING, None)


def _take_terminal(stdio: Any, *, is_controlling: bool) -> None:
    """Open the terminal, which belongs to the user; it becomes the session's own.

    In bubblewrap the command opens it itself.
    """
    if stdio.terminal is None:
        return
    fd = os.open(stdio.terminal, os.O_RDWR | (0 if is_controlling else os.O_NOCTTY) | os.O_CLOEXEC)
    for number in (0, 1, 2):
        os.dup2(fd, number)
