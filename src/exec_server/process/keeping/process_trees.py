"""Which processes exist, who is below whom, and signals to them."""

from __future__ import annotations

import os

from exec_server.process.keeping.c_parts import signal

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def signal_each(pids: Iterable[int], signum: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue


def processes() -> dict[int, tuple[int, int]]:
    """The parent and the session of every process, from /proc; empty where there is none."""
    found: dict[int, tuple[int, int]] = {}
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        return found
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    stat = file.read()
            except OSError:
                continue
            # The fields after the name (which may contain anything) are state, parent, group,
            # session.
            fields = stat[stat.rindex(b")") + 2 :].split(maxsplit=4)
            found[int(name)] = (int(fields[1]), int(fields[3]))
    return found


def has_terminal(pid: int) -> bool:
    """True if *pid* has a controlling terminal."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 :].split(maxsplit=5)[4] != b"0"


def below(roots: set[int], table: dict[int, tuple[int, int]]) -> set[int]:
    """Every descendant of *roots*."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return found


def parents_first(pids: Iterable[int], table: dict[int, tuple[int, int]]) -> list[int]:
    """*pids*, none of them before its ancestors.

    A shell that is killed after its child writes "Killed" first.
    """
    depths: dict[int, int] = {}

    def depth(pid: int) -> int:
        first = pid
        line: list[int] = []
        # A table that was read while processes came and went may contain a circle.
        while pid in table and pid not in depths and len(line) < len(table):
            line.append(pid)
            pid, _ = table[pid]
        steps = depths.get(pid, 0)
        for pid in reversed(line):
            steps += 1
            depths[pid] = steps
        return depths.get(first, 0)

    return sorted(pids, key=depth)


def kill_group_of(pid: int) -> None:
    """Kill a child of ours and its group, whose members are all descendants of ours."""
    try:
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    signal_each((pid,), signal.SIGKILL)


def own_children(known: Iterable[int]) -> set[int]:
    """The children of this process; those in *known* where the system does not tell them."""
    try:
        with open("/proc/thread-self/children", "rb") as file:
            return {int(pid) for pid in file.read().split()}
    except FileNotFoundError:
        return below({os.getpid()}, processes()) or set(known)
