"""One start with limits: its groups, its rlimits, and its program.

The keeper loads this file by its path; only the standard library is available there.

A command that is not in bubblewrap is in its groups before it becomes the program, so that nothing
of it escapes them. The keeper can be in groups of version 1 for a moment, and the program that it
starts meanwhile stays there; for others the program is started by a fork of the keeper, which takes
ten times as long. The first process of a sandbox in bubblewrap is put there by its guard, before it
runs the command.

In the same way the program inherits its rlimits. Only the soft ones, because a user who is not root
could not raise the hard ones again; these are lowered once the program runs (see `seal`).
"""

from __future__ import annotations

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
# The lowest rate of a group in which the keeper can be for a moment: it needs less than 1 ms of the
# 50 ms that this allows at a time.
_LEAST_RATE = 0.5
# A program that has less may be at its end before the keeper, on a busy machine, has set its limit.
_LEAST_MEMORY = 16 << 20


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
        # True if the program runs and could still raise its limits.
        self.has_to_be_sealed = False

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
        if self._is_inherited(stdio):
            return self._inheriting(lambda: self._posix_spawn(program, argv, env, stdio))
        return self._forked(program, argv, env, stdio)

    def _is_inherited(self, stdio: Any) -> bool:
        """True if the program can have its limits from the keeper, which has them for a moment."""
        files = self.value("openFiles", "rlimit")
        if files is not None and files <= max(filter(None, stdio.theirs)):
            # posix_spawn(3) refuses descriptors that are above the limit.
            return False
        if self.group is None:
            return True
        # The keeper and the program are two. A program that uses up its time at once would make the
        # keeper wait.
        rate = self.value("cpuRate", "cgroup1")
        has_room = self.value("pids", "cgroup1") != 1 and (rate is None or rate >= _LEAST_RATE)
        memory = self.value("memory", "cgroup1")
        has_room = has_room and (memory is None or memory >= _LEAST_MEMORY)
        return has_room and self.group.admits_visits

    def _inheriting(self, spawn: Callable[[], int]) -> int:
        before = [(number, resource.getrlimit(number)) for number, _ in self.inherited]
        try:
            for (number, value), (_, (_, hard)) in zip(self.inherited, before, strict=True):
                resource.setrlimit(number, (value, hard))
            pid = spawn() if self.group is None else self.group.visit(spawn)
        finally:
            for number, both in before:
                resource.setrlimit(number, both)
        self.has_to_be_sealed = bool(self._rlimits)
        return pid

    @property
    def inherited(self) -> tuple[tuple[int, int], ...]:
        """The limits that a program has from the keeper."""
        # The keeper may have used more time on a core than this command may.
        return tuple(each for each in self._rlimits if each[0] != resource.RLIMIT_CPU)

    def seal(self, pid: int) -> bool:
        """Lower the hard limits of *pid*; False if they were so already, or it is gone."""
        was_open = False
        for number, value in self._rlimits:
            try:
                _, hard = resource.prlimit(pid, number, (value, value))
            except (OSError, ValueError):
                # It is gone, or has become another user: such a program can do as it likes.
                continue
            was_open |= hard != value
        return was_open

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


def _all_threads() -> int:
    """The number of threads on this machine: this user has no more.

    One small file tells it; to count those of the user takes a look at every process.
    """
    with open("/proc/loadavg", "rb") as file:
        _, _, _, threads, _ = file.read().split()
    return int(threads.partition(b"/")[2])


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
        # It counts all threads of the user. So it is only a bound for what may happen between two
        # looks.
        wanted[resource.RLIMIT_NPROC] = pids.value + _all_threads() + _MORE_PROCESSES
    return [(number, _allowed(number, math.ceil(value))) for number, value in wanted.items()]


def _allowed(number: int, value: int) -> int:
    """*value*, or the hard limit if that is lower: only root can raise it."""
    _, hard = resource.getrlimit(number)
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
