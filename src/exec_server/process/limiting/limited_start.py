"""One start with limits: its groups, its rlimits, and its program.

The keeper loads this file by its path; only the standard library is available there.

A command that is not in bubblewrap enters its groups before it becomes the program, so that nothing
of it escapes them. Groups of version 1 can be entered by a thread of the keeper, and the program
that this thread starts is in them; otherwise the program is started by a fork of the keeper, which
takes longer. The first process of a sandbox in bubblewrap is put there by its guard, before it runs
the command.
"""

from __future__ import annotations

import _thread
import errno
import fcntl
import math
import os
import resource
import signal
import struct
import termios

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from exec_server.process.limiting.cgroups import Group
    from exec_server.process.limiting.mechanisms import Choice

_ERRNO = struct.Struct("i")
# Other processes of the user may have so many threads.
_MORE_PROCESSES = 256


# What a thread starts shares the memory of the keeper until it is another program. If the group is
# full before that, the kernel can kill neither, so both try for ever. Arguments may take 6 MiB.
_ROOM = 16 << 20


class LimitedStart:
    """A start whose limits are *choices*, some of them held by *group*."""

    def __init__(
        self,
        choices: Mapping[str, Choice],
        group: Group | None,
        *,
        entries: Callable[..., Any],
        fork_exec: Callable[..., int],
        posix_spawn: Callable[..., int],
    ) -> None:
        self.choices = choices
        self.group = group
        self._entries = entries
        self._fork_exec = fork_exec
        self._posix_spawn = posix_spawn
        self._rlimits = tuple(_rlimits(choices))

    @property
    def granted(self) -> dict[str, tuple[float, str, str, str]]:
        return {name: choice.as_tuple for name, choice in self.choices.items()}

    def value(self, name: str, *mechanisms: str) -> float | None:
        """The value of a limit that one of *mechanisms* holds."""
        choice = self.choices.get(name)
        return choice.value if choice is not None and choice.mechanism in mechanisms else None

    def place(self, pid: int) -> None:
        """Limit a process that waits before it runs its command. Raises OSError."""
        if self.group is not None:
            self.group.enter(pid)
        for number, value in self._rlimits:
            resource.prlimit(pid, number, (value, value))

    def spawn(self, program: bytes, argv: list[bytes], env: dict[bytes, bytes], stdio: Any) -> int:
        """Start *program* within its limits, in a session of its own. Raises OSError."""
        if not argv[0] or b"" in env:
            # Python's execve refuses these.
            return self._fork_exec(program, argv, env, stdio, self._limit_itself)
        if not self._rlimits and self.group is None:
            return self._posix_spawn(program, argv, env, stdio)
        if not self._rlimits and self._admits_thread():
            return self._in_thread(lambda: self._posix_spawn(program, argv, env, stdio))
        return self._forked(program, argv, env, stdio)

    def _admits_thread(self) -> bool:
        """True if the group has room for a thread of the keeper and for the program."""
        if self.group is None or not self.group.admits_threads:
            return False
        memory = self.value("memory", "cgroup1")
        return self.value("pids", "cgroup1") != 1 and (memory is None or memory >= _ROOM)

    def _in_thread(self, spawn: Callable[[], int]) -> int:
        """Return or raise what *spawn* does, called in a thread that has entered the group."""
        assert self.group is not None
        done = _thread.allocate_lock()
        result: list[int | BaseException] = []

        def run(group: Group) -> None:
            try:
                group.enter()
                result.append(spawn())
            except BaseException as exc:
                result.append(exc)
            finally:
                done.release()

        done.acquire()
        _thread.start_new_thread(run, (self.group,))
        done.acquire()
        if isinstance(result[0], BaseException):
            raise result[0]
        return result[0]

    def _forked(
        self, program: bytes, argv: list[bytes], env: dict[bytes, bytes], stdio: Any
    ) -> int:
        environ = self._entries(env, search_from=1) if any(b"=" in name for name in env) else env
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            pid = os.fork() if self.group is None else self.group.fork()
            if pid == 0:
                self._become(program, argv, environ, stdio, writer)
            os.close(writer)
            writer = -1
            # The end of file means that the program runs.
            said = os.read(reader, _ERRNO.size)
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        if said:
            os.waitpid(pid, 0)
            number = _ERRNO.unpack(said)[0]
            raise OSError(number, os.strerror(number))
        return pid

    def _become(
        self, program: bytes, argv: list[bytes], environ: Any, stdio: Any, writer: int
    ) -> None:
        """In the new process: become *program*, or say on *writer* why not. Does not return."""
        try:
            os.setsid()
            _connect(stdio)
            for signum in _ignored():
                signal.signal(signum, signal.SIG_DFL)
            self._limit_itself()
            os.execve(program, argv, environ)
        except OSError as exc:
            os.write(writer, _ERRNO.pack(exc.errno or errno.EIO))
        finally:
            os._exit(127)

    def _limit_itself(self) -> None:
        self.enter_group()
        # These come last, because the descriptors of the keeper are still open.
        self.lower_own()

    def enter_group(self) -> None:
        """In the new process: enter the groups, which takes the rights of the keeper."""
        if self.group is not None:
            self.group.enter()

    def lower_own(self) -> None:
        """In the new process: lower its own limits."""
        for number, value in self._rlimits:
            resource.setrlimit(number, (value, value))


def _connect(stdio: Any) -> None:
    """Make *stdio* the standard streams of this process, and its terminal its own."""
    stdin, stdout, stderr = stdio.theirs
    opened = None
    if stdin is None:
        stdin = opened = os.open("/dev/null", os.O_RDONLY)
    # The numbers of these are above 2, so that none is overwritten before it is used.
    for number, fd in enumerate((stdin, stdout, stderr)):
        os.dup2(fd, number)
    if opened is not None:
        os.close(opened)
    if stdio.terminal is not None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _ignored() -> list[int]:
    """The signals that this process ignores; the program would ignore them, too."""
    return [each for each in signal.valid_signals() if signal.getsignal(each) == signal.SIG_IGN]


def _own_processes() -> int:
    """The number of processes of this user."""
    uid, found = os.geteuid(), 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found += os.stat(f"/proc/{name}").st_uid == uid
            except OSError:
                continue
    return found


def _rlimits(choices: Mapping[str, Choice]) -> list[tuple[int, int]]:
    """The limits of each process; all but that of open files are a second line."""
    wanted: dict[int, float] = {}
    if "cpuSeconds" in choices:
        # The watch should be the first to see it.
        wanted[resource.RLIMIT_CPU] = choices["cpuSeconds"].value + 1
    if "disk" in choices:
        wanted[resource.RLIMIT_FSIZE] = choices["disk"].value
    if "openFiles" in choices:
        wanted[resource.RLIMIT_NOFILE] = choices["openFiles"].value
    pids = choices.get("pids")
    if pids is not None and pids.mechanism == "watched" and os.geteuid():
        # It counts all processes of the user. So it is only a bound for what may happen between
        # two looks.
        wanted[resource.RLIMIT_NPROC] = pids.value + _own_processes() + _MORE_PROCESSES
    return [(number, _allowed(number, math.ceil(value))) for number, value in wanted.items()]


def _allowed(number: int, value: int) -> int:
    """*value*, or the hard limit if that is lower: only root can raise it."""
    _, hard = resource.getrlimit(number)
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
