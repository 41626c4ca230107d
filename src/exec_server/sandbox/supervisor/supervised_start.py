"""The start of a supervised command, in the keeper: the supervisor first, then the command.

The keeper loads this file by its path, so it imports the standard library only.
"""

from __future__ import annotations

# A filtered process must not be the first one that loads this for `send_fds`.
import array  # noqa: F401
import errno
import fcntl
import functools
import os
import resource
import signal
import socket
from importlib.util import module_from_spec, spec_from_file_location

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_ENDED, _FAILED = 0, 3
_HANDED, _READY = b"l", b"r"


@functools.cache
def _parts() -> dict[str, Any]:
    """The files of the supervisor, loaded by their names."""
    files = (
        "attempts.py",
        "granted_work.py",
        "judge.py",
        "notifications.py",
        "record_channel.py",
        "record_file.py",
        "shortcuts.py",
        "supervisor.py",
    )
    parts: dict[str, Any] = {}
    for file in files:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), file)
        name = file.removesuffix(".py")
        spec = spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        parts[name] = module_from_spec(spec)
        spec.loader.exec_module(parts[name])
    return parts


def fork_supervisor(
    orders: dict[str, Any],
    channel: int,
    flag: Any,
    *,
    user: tuple[int, int, list[int]] | None = None,
    lowest: int = 0,
) -> tuple[int, Callable[[], None]]:
    """Fork a supervisor; its pid, and the function that puts the command's process behind it.

    *channel* is its end of the socket to the server; *flag* is shared memory, see `Supervisor`. It
    has the rights of *user*, as the command has. The function needs no descriptor below *lowest*.
    """
    parts = _parts()
    ours, theirs = socket.socketpair()
    if ours.fileno() < lowest:
        with ours:
            ours = socket.socket(fileno=fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, lowest))
    keeper = os.getpid()
    pid = os.fork()
    if not pid:
        status = _FAILED
        try:
            ours.close()
            if user is not None:
                _become(*user)
            # A command behind Landlock may outlive the keeper. With its supervisor gone the kernel
            # fails its calls; one that no keeper watches over must not go on granting. The kernel
            # forgets this when the user changes.
            parts["notifications"].end_with(keeper)
            status = _supervise(orders, channel, theirs, flag, parts)
        finally:
            os._exit(status)
    theirs.close()

    def confine() -> None:
        with ours:
            _hand_over(ours, parts["notifications"].install(orders["filter"]))

    return pid, confine


def _become(uid: int, gid: int, groups: list[int]) -> None:
    """Be the user; other processes of the user cannot trace this one, which has changed its ids."""
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _hand_over(handing: socket.socket, listener: int) -> None:
    """Give *listener* to the supervisor and wait until it listens; OSError if it does not."""
    try:
        socket.send_fds(handing, [_HANDED], [listener])
    finally:
        os.close(listener)
    if handing.recv(1) != _READY:
        raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))


def _supervise(
    orders: dict[str, Any],
    channel: int,
    handing: socket.socket,
    flag: Any,
    parts: dict[str, Any],
) -> int:
    """Be the supervisor; the exit status."""
    signal.set_wakeup_fd(-1)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir("/")
    _close_others({channel, handing.fileno()})
    # The mark of a start, see the keeper: what ends that start must not end its supervisor first.
    _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    resource.setrlimit(resource.RLIMIT_RTTIME, (hard, hard))
    _, fds, _, _ = socket.recv_fds(handing, 1, 1)
    if not fds:
        # The command could not be started.
        return _ENDED
    supervisor = parts["supervisor"].Supervisor(
        orders, listener=fds[0], channel=channel, flag=flag, parts=parts
    )
    handing.send(_READY)
    handing.close()
    supervisor.run()
    return _ENDED


def _close_others(kept: set[int]) -> None:
    lowest = 3
    for fd in sorted(kept):
        os.closerange(lowest, fd)
        lowest = fd + 1
    os.closerange(lowest, 1 << 30)


def forked(work: Callable[[], int]) -> int:
    """The pid of a child that does *work*, which executes a program; OSError if it fails."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    with open(reader, "rb") as failed:
        pid = os.fork()
        if not pid:
            number = errno.EIO
            try:
                work()
            except OSError as exc:
                number = exc.errno or number
            finally:
                os.write(writer, b"%d" % number)
                os._exit(127)
        os.close(writer)
        # The end of file comes when the program was executed.
        reason = int(failed.read() or b"0")
    if reason:
        os.waitpid(pid, 0)
        raise OSError(reason, os.strerror(reason))
    return pid


def execute(
    program: bytes,
    argv: list[bytes],
    env: dict[bytes, bytes],
    stdio: tuple[int | None, int, int],
    inherited: tuple[int, ...],
) -> int:
    """Become *program* with *inherited* as its descriptors from 3 on."""
    signal.set_wakeup_fd(-1)
    for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if stdio[0] is None else stdio[0]
    for number, fd in enumerate((null, *stdio[1:], *inherited)):
        os.dup2(fd, number)
    os.execve(program, argv, env)
