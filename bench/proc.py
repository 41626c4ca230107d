"""What the kernel says of processes: who descends from whom, and what they cost."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_SCHEDULED_TIME = 2
# A process that was killed takes a moment to give back its memory.
_END_SECONDS = 10.0


class Identity(NamedTuple):
    """A process that no later one with the same number can be taken for."""

    pid: int
    born: int


class Memory(NamedTuple):
    resident: int
    private: int


def family(pid: int) -> list[Identity]:
    """The process and everything that descends from it, parents first."""
    children: dict[int, list[Identity]] = {}
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or (stat := _stat(int(entry.name))) is None:
            continue
        parent, identity = stat
        children.setdefault(parent, []).append(identity)
        if identity.pid == pid:
            found.append(identity)
    for identity in found:
        found += children.get(identity.pid, [])
    return found


def kill(identity: Identity) -> None:
    """End it, unless it has ended, and wait until it is gone."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    try:
        stat = _stat(identity.pid)
        if stat is not None and stat[1] == identity:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [], _END_SECONDS)
    finally:
        os.close(descriptor)


def cpu_seconds(processes: Iterable[Identity]) -> float:
    """The processor time of all their threads, to the nanosecond."""
    total = 0.0
    for pid, _ in processes:
        try:
            # The clock that clock_getcpuclockid(3) gives.
            total += time.clock_gettime((~pid << 3) | _SCHEDULED_TIME)
        except OSError:
            continue
    return total


def memory(processes: Iterable[Identity]) -> Memory:
    """Bytes in memory; pages that two of them share count twice as resident."""
    resident = private = 0
    for pid, _ in processes:
        fields = _kilobytes(pid, "smaps_rollup")
        resident += fields.get("Rss", 0)
        private += fields.get("Private_Clean", 0) + fields.get("Private_Dirty", 0)
    return Memory(resident * 1024, private * 1024)


def peak_memory(processes: Iterable[Identity]) -> int:
    """The sum of the most that each ever had resident, in bytes."""
    return sum(_kilobytes(pid, "status").get("VmHWM", 0) * 1024 for pid, _ in processes)


def _stat(pid: int) -> tuple[int, Identity] | None:
    """The parent and the identity; None when there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name before the last parenthesis may contain anything.
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[1]), Identity(pid, int(fields[19]))


def _kilobytes(pid: int, name: str) -> dict[str, int]:
    try:
        lines = (_PROC / str(pid) / name).read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines if line.endswith(" kB"))
    return {pair[0].rstrip(":"): int(pair[1]) for pair in pairs}
