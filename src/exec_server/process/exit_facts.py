"""What the keeper finds out about the end of a program whose start has asked for a report.

The keeper imports this file with the first such start, where only the standard library is
available. The facts are plain values, because they travel in a message, and the durable
keeper writes them to a file::

    wall, cpu            seconds
    max_rss              bytes of the largest process
    is_rss_at_most       True if it may have had less: until a program is executed, the kernel
                         counts the memory of the process that starts it, which is the keeper's
    read, written        bytes from and to disks
    status               the wait status of a command in bubblewrap, whose own status is only a code
    sender               who sent the signal: {"kind", "pid", "exe"}; see signal_senders.py. The
                         kind `kin` is a process of which it is not known whose it was
    oom_killed           True if the kernel's log says that it was killed for memory
    not_run              True if the sandbox was not as planned, so that the command did not run
    stopped              True if the keeper was ending everything at that time

CPU time and bytes are those of the program and of all descendants that were waited for. Of a
command in bubblewrap these are the processes that have ended before it, also its daemons: the first
process of the namespace waits for them, and the keeper for that one, as bubblewrap does not. What
the kernel ends together with the namespace is not counted.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from importlib.util import module_from_spec, spec_from_file_location

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The kernel counts blocks of this size, whatever the disk has.
_BLOCK_BYTES = 512
# The longest line of ancestors that is followed.
_MOST_ANCESTORS = 256
# The number of the first pid namespace.
_FIRST_PID_NAMESPACE = 0xEFFFFFFC


class _OwnPeak:
    """The most memory that the keeper has had, in KiB.

    `getrusage` would tell that of the server, which has started the keeper, if that is more.
    """

    def __init__(self) -> None:
        self._known = 0

    def is_at_least(self, kib: int) -> bool:
        # It only grows, so what is known is looked at first.
        return kib <= self._known or kib <= self._found()

    def _found(self) -> int:
        try:
            with open("/proc/self/status", "rb") as file:
                _, _, value = file.read().partition(b"\nVmHWM:")
        except FileNotFoundError:
            # Another system than Linux.
            return 0
        self._known = int(value.split(maxsplit=1)[0])
        return self._known


_own_peak = _OwnPeak()


class _ReportedProgram:
    """One program that runs, or whose exit is about to be told."""

    __slots__ = ("facts", "mark", "namespace", "pid", "started")

    def __init__(self, pid: int, mark: int, namespace: Any, started: int) -> None:
        self.pid = pid
        self.mark = mark
        # Of a command in bubblewrap.
        self.namespace = namespace
        self.started = started
        self.facts: dict[str, Any] = {}

    def add_usage(self, used: Any, *, is_from_keeper: bool) -> None:
        """Add what *used* says; *is_from_keeper* if the keeper itself has started the process."""
        # A command has ended when bubblewrap has.
        self.facts.setdefault("wall", (time.monotonic_ns() - self.started) / 1e9)
        self.facts["max_rss"] = used.ru_maxrss * 1024
        self.facts["is_rss_at_most"] = is_from_keeper and _own_peak.is_at_least(used.ru_maxrss)
        self.facts["cpu"] = used.ru_utime + used.ru_stime
        self.facts["read"] = used.ru_inblock * _BLOCK_BYTES
        self.facts["written"] = used.ru_oublock * _BLOCK_BYTES


class ExitFacts:
    """The facts of all programs with a report.

    *mark_of* tells the mark of a process; *keep* duplicates a descriptor that is kept for long.
    """

    def __init__(self, mark_of: Callable[[int], int], keep: Callable[[int], int]) -> None:
        self._mark_of = mark_of
        self._programs: dict[int, _ReportedProgram] = {}
        # The programs whose namespace is being waited for, by its first process.
        self._joined: dict[int, _ReportedProgram] = {}
        self._senders: Any = None
        self._log: Any = None
        # In another namespace the kernel's numbers are not those that are seen here.
        if _is_first_namespace():
            self._senders = _beside("signal_senders.py").opened()
            self._log = _beside("kernel_log.py").opened(keep)

    def begin(self, pid: int, mark: int, namespace: Any, started: int) -> None:
        """A program was started; *namespace* is that of a command in bubblewrap."""
        if self._log is not None:
            self._log.forget(pid)
        self._programs[pid] = _ReportedProgram(pid, mark, namespace, started)

    def reaped(self, pid: int, status: int, used: Any) -> None:
        """A child of the keeper was waited for."""
        program = self._joined.pop(pid, None)
        if program is not None:
            # These are the processes of the namespace, without bubblewrap itself.
            program.add_usage(used, is_from_keeper=False)
        elif (program := self._programs.get(pid)) is not None:
            program.add_usage(used, is_from_keeper=True)
            self._add_signal(program, status)

    def _add_signal(self, program: _ReportedProgram, status: int) -> None:
        target = program.pid
        if program.namespace is not None and not os.WIFSIGNALED(status):
            target, inner = program.namespace.command_end()
            if inner is not None:
                program.facts["status"] = status = inner
        if not os.WIFSIGNALED(status):
            return
        if self._log is not None and os.WTERMSIG(status) == signal.SIGKILL:
            if self._log.has_killed(target):
                program.facts["oom_killed"] = True
        if self._senders is not None:
            sender = self._senders.find(target, os.WTERMSIG(status), since=program.started)
            if sender is not None:
                program.facts["sender"] = self._described(sender, target, program)

    def _described(
        self, sender: tuple[int, int], target: int, program: _ReportedProgram
    ) -> dict[str, Any]:
        pid, code = sender
        if code > 0:
            return {"kind": "kernel"}
        if pid == os.getpid():
            return {"kind": "keeper"}
        if pid == target:
            return {"kind": "self", "pid": pid}
        kind = self._kind_of(pid, target, program)
        if kind != "process":
            return {"kind": kind, "pid": pid}
        try:
            exe = os.readlink(b"/proc/%d/exe" % pid).decode("utf-8", "replace")
        except OSError:
            # It has ended since.
            return {"kind": "process", "pid": pid}
        return {"kind": "process", "pid": pid, "exe": exe}

    def _kind_of(self, pid: int, target: int, program: _ReportedProgram) -> str:
        """`self` for a descendant of the program, `process` for others; `kin` if it may be either.

        A mark alone proves nothing: every process can change its own.
        """
        keeper, ends = os.getpid(), (1, os.getpid(), target, program.pid)
        line = _continued([pid], ends)
        if line[-1] == 1:
            # The keeper adopts all orphans of its programs, so that this is no descendant.
            return "process"
        if target not in line and program.pid not in line:
            # It is gone, or an orphan. To read the records takes long where there are many cores.
            line = _continued(self._senders.ancestors(pid), ends)
        if target in line or program.pid in line:
            return "self"
        if keeper not in line:
            return "process" if line[-1] == 1 else "kin"
        first = line[line.index(keeper) - 1]
        if first in self._programs:
            return "process"
        return "self" if program.mark and self._mark_of(first) == program.mark else "kin"

    def waits_for(self, pid: int, first: int) -> bool:
        """True if the exit of *pid* is told only when *first*, of its namespace, is reaped."""
        program = self._programs.get(pid)
        if program is None:
            return False
        self._joined[first] = program
        return True

    def not_run(self, pid: int) -> None:
        """The sandbox of *pid* was not as planned."""
        if pid in self._programs:
            self._programs[pid].facts["not_run"] = True

    def taken(self, pid: int, *, is_stopping: bool) -> dict[str, Any] | None:
        """The facts of a program whose exit is told now; None if no report was asked for."""
        program = self._programs.pop(pid, None)
        if program is None:
            return None
        if is_stopping:
            program.facts["stopped"] = True
        return program.facts


def _continued(line: list[int], ends: tuple[int, ...]) -> list[int]:
    """*line*, from a process to its ancestors, continued by what lives, up to one of *ends*."""
    while line[-1] not in ends and len(line) < _MOST_ANCESTORS:
        parent = _parent_of(line[-1])
        if not parent:
            break
        line.append(parent)
    return line


def _parent_of(pid: int) -> int:
    """The parent of a process; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
        return int(stat[stat.rindex(b")") + 2 :].split()[1])
    except (OSError, ValueError):
        return 0


def _is_first_namespace() -> bool:
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def load_everything() -> None:
    """Load the other files now: later they may be those of another release."""
    for file in ("kernel_log.py", "signal_senders.py"):
        _beside(file)


@functools.cache
def _beside(file: str) -> Any:
    """Load *file*, which is beside this one."""
    assert file in ("kernel_log.py", "signal_senders.py")
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), file)
    spec = spec_from_file_location(file.removesuffix(".py"), path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
